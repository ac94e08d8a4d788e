"""One pass: plan, check, execute, remember; and the loop around it for when somebody else wrote first."""

import logging
from dataclasses import dataclass, replace
from enum import Enum

from agent.identity import create_identity, read_identity
from agent.planner import Planner, Prospect, Wishes
from agent.state import NodeState, locked
from reportclient.errors import Conflict, NameTaken
from reportclient.ownership import Names
from reportclient.plan import Limits, Plan, check_use, lessened, shrinkage

LOG = logging.getLogger(__name__)
ATTEMPTS = 5  # at planning again after somebody else wrote first
PATIENCE = 3  # passes in a row that must want the same smaller host


class Status(Enum):
    """How a pass ended."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    UNSAFE = "unsafe"
    CONTESTED = "contested"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a pass over one node ended, and why when it did not write."""

    node: str
    status: Status
    plan: Plan
    notes: tuple[str, ...] = ()


def run_pass(planner: Planner, wishes: Wishes = Wishes()) -> Outcome:
    """
    One whole pass. Nothing is written to placement unless it can be remembered here.

    Raises:
        as ``Planner.prospect``; UnsafePlan: guests hold what would go; Conflict: others wrote first at each of several
            attempts.
    """
    with locked(planner.settings.state_directory):
        identity = _own_identity(planner)
        for attempt in range(ATTEMPTS):
            prospect = planner.prospect(wishes, identity=identity, writes=True)
            try:
                return _carry_out(planner, prospect, wishes)
            except NameTaken as error:
                row = planner.client.find(planner.node)
                raise (planner.unlike(row.uuid, prospect.root_uuid) if row else error) from error
            except Conflict as error:
                LOG.info("somebody else wrote first, planning again node=%s attempt=%d", planner.node, attempt + 1)
                last = error
    raise Conflict(f"{last}; {ATTEMPTS} attempts in a row: find out who writes on {planner.node}")


def _own_identity(planner: Planner) -> str | None:
    """This live host's identity, made now if there is none; None for a recorded host."""
    folders = planner.settings.identity_folders
    if planner.settings.recorded:
        return None
    identity = read_identity(folders)
    if identity is None and (row := planner.client.find(planner.node)):
        raise planner.unlike(row.uuid, None)
    return identity or create_identity(folders[0])


def _carry_out(planner: Planner, prospect: Prospect, wishes: Wishes) -> Outcome:
    memory, plan = prospect.memory, prospect.plan
    if refusal := _contested(prospect, wishes):
        return _stop(planner, prospect, Status.CONTESTED, refusal, replace(memory, contested=refusal))
    strikes = memory.strikes + 1 if prospect.contest and not wishes.take_over else 0
    memory = replace(memory, strikes=strikes, contested=())
    losers = lessened(plan, prospect.observed)
    allocations = planner.client.allocations(seen for seen in prospect.observed if seen.uuid in losers)
    check_use(plan, prospect.observed, allocations, force=wishes.force)
    shrinking = shrinkage(plan, prospect.observed, _limits(planner, prospect))
    seen = memory.smaller_seen + 1 if memory.smaller == plan.digest else 1
    if shrinking and not wishes.force and seen < PATIENCE:
        refusal = (*shrinking, f"seen {seen} of {PATIENCE} times in a row: --force, or wait for the third")
        return _stop(planner, prospect, Status.UNSAFE, refusal, replace(memory, smaller=plan.digest, smaller_seen=seen))
    return _write(planner, prospect, replace(memory, smaller="", smaller_seen=0))


def _write(planner: Planner, prospect: Prospect, memory: NodeState) -> Outcome:
    state, plan, observed = planner.state_file(prospect.root_uuid), prospect.plan, prospect.observed
    if plan.operations:
        state.begin(replace(memory, configured=prospect.ours.configured))
        observed = planner.client.execute(plan, observed)
    spoken = planner.client.microversion
    after = replace(memory, observed=observed, configured=prospect.added, microversion=spoken)
    if after != state.read(planner.where):
        state.write(after)
    status = Status.CHANGED if plan.operations else Status.UNCHANGED
    return Outcome(node=planner.node, status=status, plan=plan, notes=_notes(prospect))


def _stop(planner: Planner, prospect: Prospect, status: Status, notes: tuple[str, ...], memory: NodeState) -> Outcome:
    """End without a write; what was seen is what the next pass compares with, so one change is never seen twice."""
    planner.state_file(prospect.root_uuid).write(replace(memory, observed=prospect.observed))
    return Outcome(node=planner.node, status=status, plan=prospect.plan, notes=notes)


def _limits(planner: Planner, prospect: Prospect) -> Limits:
    withdrawn = {
        provider: names.classes - prospect.added.get(provider, Names()).classes
        for provider, names in prospect.memory.configured.items()
    }
    return Limits(fraction=planner.settings.shrink_fraction, withdrawn=withdrawn)


def _contested(prospect: Prospect, wishes: Wishes) -> tuple[str, ...]:
    """Why we must not write because somebody else does; empty when nobody does, or a person said to take over."""
    if wishes.take_over:
        return ()
    found, before = prospect.contest, prospect.memory.contested
    if found is None or not (found.nova or before or prospect.memory.strikes):
        return before
    who = "nova-compute (the root carries OWNER_NOVA)" if found.nova else "another service"
    return (
        f"{who} writes on {found.provider} too: " + "; ".join(found.changes),
        "nothing is written any more: stop that service on this host, then run sync --take-over",
    )


def _notes(prospect: Prospect) -> tuple[str, ...]:
    notes = []
    if prospect.contest:
        notes.append(
            f"somebody changed {prospect.contest.provider} since the last pass: " + "; ".join(prospect.contest.changes)
        )
    if prospect.plan.left_out:
        notes.append("this placement is too old to know the traits " + ", ".join(sorted(prospect.plan.left_out)))
    return tuple(notes)
