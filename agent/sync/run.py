"""One pass: plan, judge, execute, remember; and the loop around it for when somebody else wrote first."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace

from agent.state.identity import create_identity, read_identity
from agent.state.locks import locked
from agent.state.memory import NodeState
from agent.sync.approval import spent
from agent.sync.decide.draft import Prospect
from agent.sync.decide.judge import judge, notes_on
from agent.sync.decide.view import Wishes
from agent.sync.journal import journaled
from agent.sync.node import Planner
from agent.sync.outcome import Outcome, Status
from reportclient.errors import Conflict, NameTaken, PlacementError
from reportclient.forecast import forecast
from reportclient.names import ONE_TIME
from reportclient.plan import Plan
from reportclient.reserve import is_reserved_by_us
from reportclient.tree import ObservedTree

LOG = logging.getLogger(__name__)
ATTEMPTS = 5  # at planning again after somebody else wrote first
UNKNOWN = -1  # a generation that no provider has


Agree = Callable[[Planner, Prospect], tuple[str, ...]]  # why this is not the plan that was agreed to; empty: it is


def anything(_planner: Planner, _prospect: Prospect) -> tuple[str, ...]:
    """What a pass agrees to of which nobody read the plan before."""
    return ()


def run_pass(planner: Planner, wishes: Wishes = Wishes(), agree: Agree = anything) -> Outcome:
    """
    One whole pass. Nothing is written to placement unless it can be remembered here, and ``agree`` finds no fault.

    Raises:
        as ``Planner.prospect``; Conflict: others wrote first at each of several attempts.
    """
    with locked(planner.settings.state_directory):
        return run_locked(planner, wishes, agree)


def run_locked(planner: Planner, wishes: Wishes = Wishes(), agree: Agree = anything) -> Outcome:
    """The same for who is ``locked`` already, and goes on being so; errors as ``run_pass``."""
    left: NodeState | None = None  # what we compare with at all attempts, so that no sign of another writer is lost
    tried: list[tuple[Plan, ObservedTree]] = []  # what those attempts were to make of what, which is nobody else's
    planner.client.begin()
    identity = _own_identity(planner)
    for attempt in range(ATTEMPTS):
        try:
            prospect = planner.prospect(
                wishes, identity=identity, left=left, tried=tuple(forecast(*one) for one in tried)
            )
            left = prospect.memory
            tried.append((prospect.plan, prospect.observed))
            return _carry_out(planner, prospect, wishes, agree)
        except NameTaken as error:
            standing = planner.client.find(planner.node)
            if standing in (None, prospect.root_uuid):
                raise  # it is a child's name that is taken
            raise planner.unlike(str(standing), identity) from error
        except Conflict as error:
            LOG.info("somebody else wrote first, planning again node=%s attempt=%d", planner.node, attempt + 1)
            last = error
    raise Conflict(f"{last}; {ATTEMPTS} attempts in a row: find out who writes on {planner.node}")


def foresee(planner: Planner, wishes: Wishes) -> Prospect:
    """
    What a pass would do, looked at again when somebody wrote meanwhile; writes nothing.

    Raises:
        as ``Planner.prospect``.
    """
    planner.client.begin()
    for _ in range(ATTEMPTS - 1):
        with suppress(Conflict):
            return planner.prospect(wishes)
    return planner.prospect(wishes)


def _own_identity(planner: Planner) -> str | None:
    """This live host's identity, made now if there is none; None for a recorded host."""
    folders = planner.settings.identity_folders
    if planner.settings.recorded:
        return None
    identity = read_identity(folders)
    if identity is None and (standing := planner.client.find(planner.node)):
        raise planner.unlike(standing, None)
    return identity or create_identity(folders[0])


def _carry_out(planner: Planner, prospect: Prospect, wishes: Wishes, agree: Agree) -> Outcome:
    verdict = judge(prospect, wishes, planner.terms())
    if verdict.refused is None and (other := agree(planner, prospect)):
        verdict = replace(verdict, refused=Status.OTHER_PLAN, notes=other)
    if verdict.refused is None:
        return _write(planner, prospect, verdict.memory)
    # What was seen is what the next pass compares with, so that one change is never seen twice.
    # But a memory that was lost stays lost until a pass is carried out, as only then it is known what is ours.
    stands = prospect.refused
    remembered = replace(
        verdict.memory,
        observed=stands.observed if prospect.memory.observed else None,
        configured=stands.configured,
        reported=stands.reported,
    )
    planner.state_file(prospect.root_uuid).write(remembered)
    notes = (*verdict.notes, *notes_on(prospect)) if verdict.refused is Status.UNSAFE else verdict.notes
    return Outcome(
        node=planner.node,
        status=verdict.refused,
        plan=prospect.plan,
        observed=prospect.observed,
        notes=notes,
        hardware=prospect.hardware,
        survey=prospect.survey,
    )


def _write(planner: Planner, prospect: Prospect, memory: NodeState) -> Outcome:
    state, plan, observed = planner.state_file(prospect.root_uuid), prospect.plan, prospect.observed
    if plan.operations:
        state.begin(replace(memory, configured=prospect.meanwhile.configured, reported=prospect.meanwhile.reported))
        with _converting(planner, prospect) if plan.moves else nullcontext():
            written = _with_one_time(planner, prospect, planner.client.execute(plan, observed))
            observed = _with_marked(written, forecast(plan, prospect.observed))
    after = replace(
        memory,
        observed=observed,
        configured=prospect.lasting.configured,
        reported=prospect.lasting.reported,
        reserved=prospect.lasting.reserved,
        kinds=prospect.lasting.kinds,
        lacked_traits=prospect.lasting.lacked_traits,
        used=prospect.lasting.used,
        microversion=planner.client.microversion,
    )
    if after != state.read(planner.where):
        state.write(after)
    status = Status.CHANGED if plan.operations else Status.UNCHANGED
    return Outcome(
        node=planner.node,
        status=status,
        plan=plan,
        observed=prospect.observed,
        notes=notes_on(prospect),
        hardware=prospect.hardware,
        survey=prospect.survey,
    )


def _with_one_time(planner: Planner, prospect: Prospect, left: ObservedTree) -> ObservedTree:
    """What was written; read again where a reshape wrote one-time devices, as it answers no generations."""
    once = {one.name for one in prospect.desired if ONE_TIME in one.traits}
    if once <= left.by_name.keys():
        return left
    try:
        found = planner.client.observe(prospect.root_uuid, left)
    except PlacementError as error:
        LOG.info("what was written is read by the next pass node=%s reason=%s", planner.node, error)
        return left
    return ObservedTree(tuple(left.by_uuid.get(seen.uuid, seen) for seen in found), left.last_modified)


@contextmanager
def _converting(planner: Planner, prospect: Prospect) -> Iterator[None]:
    """Inside, guests' allocations are moved: the journal tells it, and an approval is used up by it."""
    with spent(planner, prospect), journaled(planner, prospect):
        yield


def _with_marked(known: ObservedTree, foreseen: ObservedTree) -> ObservedTree:
    """
    What is known to stand, and the providers with our marks that were just made or written together with others.

    Their generations are not told; but what is reserved there otherwise at the next pass is an operator's word.
    """
    stands = known.by_uuid
    unsure = [seen for seen in foreseen if seen.uuid not in stands and is_reserved_by_us(seen.provider.traits)]
    if not unsure:
        return known
    needed = {seen.uuid for seen in (*unsure, *foreseen.providers[:1])}
    found = (
        stands.get(seen.uuid) or replace(seen, generation=UNKNOWN)
        for seen in foreseen
        if seen.uuid in stands or seen.uuid in needed
    )
    return replace(known, providers=tuple(found))
