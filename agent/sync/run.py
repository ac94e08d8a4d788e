"""One pass: plan, judge, execute, remember; and the loop around it for when somebody else wrote first."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace

from agent.state.identity import create_identity, read_identity
from agent.state.locks import locked
from agent.state.memory import NodeState
from agent.sync.approval import spent
from agent.sync.decide.draft import Draft
from agent.sync.decide.judge import judge, notes_on
from agent.sync.decide.view import Wishes
from agent.sync.journal import journaled
from agent.sync.node import ComputeNode
from agent.sync.outcome import Outcome, Status
from reportclient.errors import Conflict, NameTaken, PlacementError
from reportclient.forecast import forecast
from reportclient.names import ONE_TIME
from reportclient.plan import Plan
from reportclient.reserve import is_reserved_by_us
from reportclient.tree import ObservedTree

LOG = logging.getLogger(__name__)
ATTEMPTS = 5  # at planning again after somebody else wrote first
_UNKNOWN = -1  # a generation that no provider has


Agree = Callable[[ComputeNode, Draft], tuple[str, ...]]  # why this is not the plan that was agreed to; empty: it is


def anything(_node: ComputeNode, _draft: Draft) -> tuple[str, ...]:
    """What a pass agrees to of which nobody read the plan before."""
    return ()


def run_pass(node: ComputeNode, wishes: Wishes = Wishes(), agree: Agree = anything) -> Outcome:
    """
    One whole pass. Nothing is written to placement unless it can be remembered here, and ``agree`` finds no fault.

    Raises:
        as ``ComputeNode.draft``; Conflict: others wrote first at each of several attempts.
    """
    with locked(node.settings.state_directory):
        return run_locked(node, wishes, agree)


def run_locked(node: ComputeNode, wishes: Wishes = Wishes(), agree: Agree = anything) -> Outcome:
    """The same for who is ``locked`` already, and goes on being so; errors as ``run_pass``."""
    left: NodeState | None = None  # what we compare with at all attempts, so that no sign of another writer is lost
    tried: list[tuple[Plan, ObservedTree]] = []  # what those attempts were to make of what, which is nobody else's
    node.client.begin()
    identity = _own_identity(node)
    for attempt in range(ATTEMPTS):
        try:
            draft = node.draft(wishes, identity=identity, left=left, tried=tuple(forecast(*one) for one in tried))
            left = draft.memory
            tried.append((draft.plan, draft.observed))
            return _carry_out(node, draft, wishes, agree)
        except NameTaken as error:
            standing = node.client.find(node.name)
            if standing in (None, draft.root_uuid):
                raise  # it is a child's name that is taken
            raise node.unlike(str(standing), identity) from error
        except Conflict as error:
            LOG.info("somebody else wrote first, planning again node=%s attempt=%d", node.name, attempt + 1)
            last = error
    raise Conflict(f"{last}; {ATTEMPTS} attempts in a row: find out who writes on {node.name}")


def foresee(node: ComputeNode, wishes: Wishes) -> Draft:
    """
    What a pass would do, looked at again when somebody wrote meanwhile; writes nothing.

    Raises:
        as ``ComputeNode.draft``.
    """
    node.client.begin()
    for _ in range(ATTEMPTS - 1):
        with suppress(Conflict):
            return node.draft(wishes)
    return node.draft(wishes)


def _own_identity(node: ComputeNode) -> str | None:
    """This live host's identity, made now if there is none; None for a recorded host."""
    folders = node.settings.identity_folders
    if node.settings.recorded:
        return None
    identity = read_identity(folders)
    if identity is None and (standing := node.client.find(node.name)):
        raise node.unlike(standing, None)
    return identity or create_identity(folders[0])


def _carry_out(node: ComputeNode, draft: Draft, wishes: Wishes, agree: Agree) -> Outcome:
    verdict = judge(draft, wishes, node.terms())
    if verdict.refused is None and (other := agree(node, draft)):
        verdict = replace(verdict, refused=Status.OTHER_PLAN, notes=other)
    if verdict.refused is None:
        return _write(node, draft, verdict.memory)
    # What was seen is what the next pass compares with, so that one change is never seen twice.
    # But a memory that was lost stays lost until a pass is carried out, as only then it is known what is ours.
    stands = draft.refused
    remembered = replace(
        verdict.memory,
        observed=stands.observed if draft.memory.observed else None,
        configured=stands.configured,
        reported=stands.reported,
    )
    node.state_file(draft.root_uuid).write(remembered)
    notes = (*verdict.notes, *notes_on(draft)) if verdict.refused is Status.UNSAFE else verdict.notes
    return Outcome(
        node=node.name,
        status=verdict.refused,
        plan=draft.plan,
        observed=draft.observed,
        notes=notes,
        hardware=draft.hardware,
        survey=draft.survey,
    )


def _write(node: ComputeNode, draft: Draft, memory: NodeState) -> Outcome:
    state, plan, observed = node.state_file(draft.root_uuid), draft.plan, draft.observed
    if plan.operations:
        state.begin(replace(memory, configured=draft.meanwhile.configured, reported=draft.meanwhile.reported))
        with _converting(node, draft) if plan.moves else nullcontext():
            written = _with_one_time(node, draft, node.client.execute(plan, observed))
            observed = _with_marked(written, forecast(plan, draft.observed))
    after = replace(
        memory,
        observed=observed,
        configured=draft.lasting.configured,
        reported=draft.lasting.reported,
        reserved=draft.lasting.reserved,
        kinds=draft.lasting.kinds,
        lacked_traits=draft.lasting.lacked_traits,
        used=draft.lasting.used,
        microversion=node.client.microversion,
    )
    if after != state.read(node.where):
        state.write(after)
    status = Status.CHANGED if plan.operations else Status.UNCHANGED
    return Outcome(
        node=node.name,
        status=status,
        plan=plan,
        observed=draft.observed,
        notes=notes_on(draft),
        hardware=draft.hardware,
        survey=draft.survey,
    )


def _with_one_time(node: ComputeNode, draft: Draft, left: ObservedTree) -> ObservedTree:
    """What was written; read again where a reshape wrote one-time devices, as it answers no generations."""
    once = {one.name for one in draft.desired if ONE_TIME in one.traits}
    if once <= left.by_name.keys():
        return left
    try:
        found = node.client.observe(draft.root_uuid, left)
    except PlacementError as error:
        LOG.info("what was written is read by the next pass node=%s reason=%s", node.name, error)
        return left
    return ObservedTree(tuple(left.by_uuid.get(seen.uuid, seen) for seen in found), left.last_modified)


@contextmanager
def _converting(node: ComputeNode, draft: Draft) -> Iterator[None]:
    """Inside, guests' allocations are moved: the journal tells it, and an approval is used up by it."""
    with spent(node, draft), journaled(node, draft):
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
        stands.get(seen.uuid) or replace(seen, generation=_UNKNOWN)
        for seen in foreseen
        if seen.uuid in stands or seen.uuid in needed
    )
    return replace(known, providers=tuple(found))
