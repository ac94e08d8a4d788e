"""One pass: plan, judge, execute, remember; and the loop around it for when somebody else wrote first."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from enum import Enum

from agent.state.host import NodeState, locked
from agent.state.identity import create_identity, read_identity
from agent.sync.approval import spent
from agent.sync.decide.draft import Prospect, Wishes
from agent.sync.decide.novas import advice, open_stock, stranded
from agent.sync.decide.unmatched import misspelt
from agent.sync.journal import journaled
from agent.sync.node import Planner
from drivers.base import Survey
from reportclient.errors import Conflict, NameTaken, PlacementError, UnsafePlan
from reportclient.forecast import forecast
from reportclient.names import NO_DEVICES, ONE_TIME
from reportclient.ownership import MARKER, Names
from reportclient.plan import Limits, Plan, Reparent, check_use, shrinkage
from reportclient.reserve import is_reserved_by_us
from reportclient.settings import lost_settings
from reportclient.tree import ObservedTree

LOG = logging.getLogger(__name__)
ATTEMPTS = 5  # at planning again after somebody else wrote first
PATIENCE = 3  # passes in a row that must want the same smaller host
REPARENTING = (1, 37)  # the microversion from which on a provider's parent can be changed
UNKNOWN = -1  # a generation that no provider has
FORGIVEN = 10  # quiet passes, and periods, after which a strike of a second writer no longer counts


class Status(Enum):
    """How a pass ended."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    RESHAPE_NEEDED = "reshape-needed"
    UNSAFE = "unsafe"
    OTHER_PLAN = "other-plan"  # than the one that was agreed to
    CONTESTED = "contested"
    FAILED = "failed"  # of one node among several


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a pass over one node ended, and why when it did not write."""

    node: str
    status: Status
    plan: Plan = field(default_factory=Plan)
    observed: ObservedTree = field(default_factory=ObservedTree)  # before the pass
    notes: tuple[str, ...] = ()
    survey: Survey | None = None  # what it saw of the host; None where it did not come to that


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a plan may be carried out: refused with a status and sentences, or not; and what to remember of it."""

    refused: Status | None = None
    notes: tuple[str, ...] = ()
    memory: NodeState


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


def judge(planner: Planner, prospect: Prospect, wishes: Wishes) -> Verdict:
    """
    Whether the plan may be carried out.

    Raises:
        PlacementError: the allocations on what would shrink cannot be read.
    """
    memory = prospect.memory
    if refusal := _contested(prospect, wishes) or _occupied(prospect, wishes):
        return Verdict(refused=Status.CONTESTED, notes=refusal, memory=replace(memory, contested=refusal))
    struck = _count_strikes(prospect, wishes, time.time(), planner.settings.interval_s)
    memory = replace(struck, contested=(), smaller="", smaller_seen=0)
    if wrong := _lacks_reparenting(planner, prospect.plan) or _twice(prospect) or _unplaceable(prospect):
        return Verdict(refused=Status.UNSAFE, notes=wrong, memory=memory)
    if lost := _lost_settings(planner, prospect):
        return Verdict(refused=Status.UNSAFE, notes=lost, memory=memory)
    try:
        check_use(prospect.plan, prospect.observed, prospect.allocations_after, force=wishes.force)
    except UnsafePlan as error:
        return Verdict(refused=Status.UNSAFE, notes=(str(error),), memory=memory)
    if prospect.plan.moves and not wishes.reshape:
        return Verdict(refused=Status.RESHAPE_NEEDED, notes=_needs_reshape(planner, prospect), memory=memory)
    shrinking = shrinkage(prospect.plan, prospect.observed, _limits(planner, prospect))
    digest, before = prospect.plan.digest, prospect.memory
    seen = before.smaller_seen + 1 if before.smaller == digest else 1
    if not shrinking or wishes.force or wishes.agreed or seen >= PATIENCE:
        return Verdict(memory=memory)
    notes = (
        *shrinking,
        f"seen {seen} of {PATIENCE} times in a row: sync --force, reshape --digest, or wait for the third",
    )
    return Verdict(refused=Status.UNSAFE, notes=notes, memory=replace(memory, smaller=digest, smaller_seen=seen))


def notes_on(prospect: Prospect) -> tuple[str, ...]:
    """What a person should know of a pass besides its plan."""
    notes = []
    if prospect.contest:
        changes = "; ".join(prospect.contest.changes)
        notes.append(f"somebody changed {prospect.contest.provider} since the last pass: {changes}")
    if prospect.went_back:
        notes.append(
            "placement went back in time (a restored backup, or a cache on the way?): all of this tree was read anew, "
            "and what differs from this host is written again"
        )
    notes += prospect.held
    notes += misspelt(prospect.strays, prospect.desired)
    notes += [advice(seen) for seen in stranded(prospect.observed, prospect.ours) if open_stock(seen)]
    if prospect.plan.left_out:
        notes.append("this placement is too old to know the traits " + ", ".join(sorted(prospect.plan.left_out)))
    if kept := _unexplained(prospect):
        lost = "" if prospect.went_back else "state was lost; "
        notes.append(f"{lost}kept on the root, as it may be another's: {', '.join(kept)}")
    return tuple(notes)


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
    verdict = judge(planner, prospect, wishes)
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


def _limits(planner: Planner, prospect: Prospect) -> Limits:
    withdrawn = {
        provider: names.classes - prospect.lasting.configured.get(provider, Names()).classes
        for provider, names in prospect.memory.configured.items()
    }
    return Limits(fraction=planner.settings.shrink_fraction, withdrawn=withdrawn, present=prospect.present)


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


def _twice(prospect: Prospect) -> tuple[str, ...]:
    """Why devices would be on offer twice: a root that nobody here can explain has what children are to get."""
    root = prospect.observed.root
    if root is None:
        return ()
    carried = root.provider.inventories.keys() - prospect.ours.classes(root) - prospect.desired.root.inventories.keys()
    children = [provider for provider in prospect.desired if provider.parent]
    both = sorted(name for name in carried if any(name in provider.inventories for provider in children))
    if not both:
        return _renamed_unseen(prospect, sorted(carried))
    return (
        f"{root.name} holds {', '.join(both)}, which this agent cannot tell to be its own, and its children are to "
        f"get it too: take it away from {root.name} by hand if it stands for the same devices",
    )


def _renamed_unseen(prospect: Prospect, carried: list[str]) -> tuple[str, ...]:
    """Why a class that nobody here can explain may be what a new one was called; empty while there is a memory."""
    root = prospect.observed.root
    stands = {name for seen in prospect.observed for name in seen.provider.inventories}
    came = sorted({name for one in prospect.desired for name in one.inventories} - stands - NO_DEVICES)
    if root is None or MARKER not in root.provider.traits or prospect.memory.observed or not (came and carried):
        return ()
    return (
        f"state was lost, and {root.name} holds {', '.join(carried)}, which may be what {', '.join(came)} was called "
        f"before: put the old name back into the configuration for one pass, which will know it again, or take it away "
        f"from {root.name} by hand if it stands for the same devices",
    )


def _lost_settings(planner: Planner, prospect: Prospect) -> tuple[str, ...]:
    """Why the plan would lose what an operator set by hand; empty when all of it comes along."""
    ours, files = prospect.ours, prospect.meanwhile.configured
    owned = {seen.name for seen in prospect.observed if ours.writes(seen)}
    apart = {name: names.classes for name, names in files.items()}
    for seen in prospect.observed:
        apart[seen.name] = apart.get(seen.name, frozenset()) | (seen.provider.inventories.keys() - ours.classes(seen))
    return lost_settings(
        prospect.said,
        prospect.desired,
        owned,
        planner.settings.policy.free_ratios,
        elsewhere=prospect.elsewhere,
        away=prospect.away,
        apart=apart,
    )


def _lacks_reparenting(planner: Planner, plan: Plan) -> tuple[str, ...]:
    """Why a plan that puts providers under other parents cannot be carried out on this placement; empty when it can."""
    moving = [step.name for step in plan.operations if isinstance(step, Reparent)]
    if not moving or planner.client.microversion >= REPARENTING:
        return ()
    return (
        f"{moving[0]}{' and others' if len(moving) > 1 else ''} would come under another parent, which placement can "
        f"do from microversion 1.37 on, and this one has "
        f"{'.'.join(map(str, planner.client.microversion))}: upgrade placement, or keep [compute] layout as it was",
    )


def _unplaceable(prospect: Prospect) -> tuple[str, ...]:
    return (prospect.unplaceable,) if prospect.unplaceable else ()


def _needs_reshape(planner: Planner, prospect: Prospect) -> tuple[str, ...]:
    count = len({move.consumer for move in prospect.plan.moves})
    return (
        f"{count} consumer{'s' * (count > 1)} must move with what they hold, as {planner.node} changes its shape: look "
        f"at compute-node-agent reshape and carry it out with --apply, or set [compute] layout back",
    )


def _count_strikes(prospect: Prospect, wishes: Wishes, now_s: float, interval_s: float) -> NodeState:
    """
    Remember a sign of a second writer, until enough quiet passes went by.

    Events make many passes within a minute, between two writes of a service that writes once a minute.
    """
    memory = prospect.memory
    if wishes.take_over:
        return replace(memory, strikes=0, quiet=0)
    if prospect.contest:
        return replace(memory, strikes=memory.strikes + 1, struck_s=now_s, quiet=0)
    if not memory.strikes:
        return memory
    forgiven = memory.quiet + 1 >= FORGIVEN and now_s - memory.struck_s >= FORGIVEN * interval_s
    return replace(memory, strikes=0 if forgiven else memory.strikes, quiet=0 if forgiven else memory.quiet + 1)


def _contested(prospect: Prospect, wishes: Wishes) -> tuple[str, ...]:
    """Why we must not write because somebody else does; empty when nobody does, or a person said to take over."""
    if wishes.take_over:
        return ()
    found, before = prospect.contest, prospect.memory.contested
    if found is None or not (found.nova or before or prospect.memory.strikes):
        return before
    who = "nova-compute (by its trait OWNER_NOVA)" if found.marked else "another service"
    return (
        f"{who} writes on {found.provider} too: " + "; ".join(found.changes),
        "nothing is written any more: stop that service on this host, then run sync --take-over",
    )


def _occupied(prospect: Prospect, wishes: Wishes) -> tuple[str, ...]:
    """Why a root that was never ours is not taken while nova-compute runs beside us; empty when it may be."""
    root = prospect.observed.root
    if wishes.take_over or root is None or MARKER in root.provider.traits or not prospect.nova_compute:
        return ()
    return (
        f"nova-compute (pid {prospect.nova_compute[0]}) runs here and reports {root.name}, "
        "which this agent never wrote",
        "nothing is written: stop it, or if it does not report this host, run sync --take-over",
    )


def _unexplained(prospect: Prospect) -> list[str]:
    """Custom names on a root that carries our mark, and that nobody here can explain since our memory is gone."""
    root = prospect.observed.root
    if root is None or prospect.memory.observed is not None or MARKER not in root.provider.traits:
        return []
    wanted = prospect.desired.root.traits | prospect.desired.root.inventories.keys()
    names = root.provider.traits | root.provider.inventories.keys()
    return sorted(name for name in names - wanted if name.startswith("CUSTOM_"))
