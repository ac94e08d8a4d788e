"""
One pass: plan, judge, execute, remember; repeated when another writer was first.

Two other loops repeat something else: ``convert.py`` a whole conversion, with waits, also when placement does not
answer; ``agent/allocations/operations.py`` one request about a guest.
"""

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TypeVar

from agent.state.identity import keep_identity, read_identity
from agent.state.locks import locked
from agent.state.memory import NodeState
from agent.sync.approvals import using_approval
from agent.sync.decide.beside import against_root
from agent.sync.decide.checks import Verdict, conditions_on, is_conversion, judge, lost_root, remember
from agent.sync.decide.feature import Draft, PassEnd
from agent.sync.decide.reserving import reservation_notes
from agent.sync.decide.view import Wishes
from agent.sync.journal import end_begun, end_trial, journaled
from agent.sync.node import ComputeNode
from agent.sync.outcome import Condition, Outcome, Status, with_conditions
from drivers.base import Survey
from reportclient.errors import Conflict, NameTaken, PlacementError, Rejected
from reportclient.forecast import forecast
from reportclient.tree import NO_GENERATION, UNWRITTEN, ObservedProvider, ObservedTree, same_stock

LOG = logging.getLogger(__name__)
T = TypeVar("T")
ATTEMPTS = 5  # at most, when another writer is first each time
_PAUSE_S = 0.1  # at most, between attempts beyond these
_FRESH_S = 10.0  # for which a look at the host serves several attempts at a conversion


Agree = Callable[[ComputeNode, Draft], tuple[str, ...]]  # returns why a plan is not the agreed one; empty: it is


def run_pass(
    node: ComputeNode, wishes: Wishes = Wishes(), agree: Agree | None = None, *, is_locked: bool = False
) -> Outcome:
    """
    Run one whole pass; it writes to placement only what can be remembered here and what ``agree`` finds no fault with.

    ``agree`` None: no person read the plan before, so any will do. ``is_locked``: the caller holds the lock
    (``locked``) and keeps it.

    Raises:
        as ``ComputeNode.draft``; Conflict: others wrote first at each of several attempts.
    """
    with nullcontext() if is_locked else locked(node.settings.folders.state):
        node.client.begin()
        one = _Pass(node, wishes, agree, _own_identity(node))
        patience_s = node.settings.changes.reshape_timeout_s if wishes.reshape else 0.0
        return again(one.attempt, node.name, patience_s)


class _Pass:
    """The attempts at one pass; each knows what the earlier ones saw, and may have written."""

    def __init__(self, node: ComputeNode, wishes: Wishes, agree: Agree | None, identity: str | None) -> None:
        self._node, self._wishes, self._agree, self._identity = node, wishes, agree, identity
        self._writes = node.client.transport.writes
        self._tried: dict[str, ObservedTree] = {}  # trees that were to be, by digest: no other writer made them
        self._earlier: Draft | None = None  # its memory is compared with at all attempts: no sign of a writer is lost
        self._survey: Survey | None = None  # of the host, for attempts until then
        self._stale_s = 0.0

    def attempt(self) -> Outcome:
        """Look, plan, judge and write; errors as ``run_pass``, Conflict: another writer was first."""
        node, wishes = self._node, self._wishes
        if not wishes.reshape or time.monotonic() >= self._stale_s:
            self._survey, self._stale_s = None, time.monotonic() + _FRESH_S
        left, tried = self._earlier.memory if self._earlier else None, tuple(self._tried.values())
        view = node.view(wishes, identity=self._identity, left=left, survey=self._survey, tried=tried)
        self._survey = view.survey
        if self._identity:
            node.tie(self._identity, view.survey)
        draft = node.complete(view)
        if self._earlier:
            pairs = zip(draft.features, self._earlier.features, strict=True)
            draft = replace(draft, features=tuple(one.again(before) for one, before in pairs))
        self._earlier = draft
        return self._carry_out(draft)

    def _carry_out(self, draft: Draft) -> Outcome:
        node, verdict = self._node, judge(draft)
        if verdict.refused is None and self._agree and (other := self._agree(node, draft)):
            verdict = replace(verdict, refused=Status.OTHER_PLAN, notes=other)
        plan = draft.plan if verdict.refused is None else verdict.reserving
        if plan.operations:
            self._tried[plan.digest] = forecast(plan, draft.observed)
        try:
            if refused := verdict.refused:
                return _refuse(node, draft, verdict, refused)
            outcome = _write(node, draft, verdict.memory)
        except Rejected as error:
            if (cause := _cause(node, draft, self._identity, error)) is None:
                raise
            raise cause from error
        wrote = node.client.transport.writes > self._writes  # by a cut-off attempt
        return replace(outcome, status=Status.CHANGED) if wrote and outcome.status is Status.UNCHANGED else outcome


def again(act: Callable[[], T], name: str, patience_s: float = 0.0) -> T:
    """
    Return what ``act`` returns at the first attempt at which no other writer was first on the tree of ``name``.

    Raises:
        Conflict: others were first at ``ATTEMPTS`` attempts in a row, and ``patience_s`` is over.
    """
    began_s, lost = time.monotonic(), 0
    while True:
        try:
            return act()
        except Conflict as error:
            lost, past_s = lost + 1, time.monotonic() - began_s
            if lost >= ATTEMPTS and past_s >= patience_s:
                within = f"{lost} attempts in a row in {past_s:.1f} s"
                raise Conflict(f"{error}; {within}: find out who writes on {name}") from error
        LOG.info("another writer was first, planning again node=%s attempt=%d", name, lost)
        if lost >= ATTEMPTS:
            time.sleep(random.uniform(0, _PAUSE_S))


def _cause(node: ComputeNode, draft: Draft, identity: str | None, error: Rejected) -> PlacementError | None:
    """
    Return what made placement refuse a write, if the tree shows it: another host's root, or any change of the tree.

    Another writer made it, or this plan as far as it was carried out; or an earlier try of the request, as keystoneauth
    sends again what was not answered in time.
    """
    try:
        standing = node.client.find(node.name) if isinstance(error, NameTaken) else None
        if standing and standing != draft.root_uuid:
            return node.unlike(standing, identity)
        found = node.client.observe(draft.root_uuid, draft.observed)
    except PlacementError:
        return None
    if {(seen.uuid, seen.generation) for seen in found} == {(seen.uuid, seen.generation) for seen in draft.observed}:
        return None
    return Conflict(f"the tree of {node.name} has changed since it was planned: {error}")


def foresee(node: ComputeNode, wishes: Wishes) -> Draft:
    """
    Return the draft of a pass, made anew when another writer was first; writes nothing.

    Raises:
        as ``ComputeNode.draft``.
    """
    node.client.begin()
    return again(lambda: node.draft(wishes), node.name)


def _own_identity(node: ComputeNode) -> str | None:
    """Return this live host's identity, made now if there is none, unless nova makes it; None for a recorded host."""
    folders = node.settings.folders.identity
    if node.settings.recorded:
        return None
    identity = read_identity(folders)
    if identity is None and (standing := node.client.find(node.name)):
        raise node.unlike(standing, None)
    novas = node.settings.beside_nova or node.settings.audits_only
    return identity if identity or novas else keep_identity(folders[0])


def _refuse(node: ComputeNode, draft: Draft, verdict: Verdict, status: Status) -> Outcome:
    """Remember a refusal; what only takes off offer is written all the same."""
    others = conditions_on(draft) if status in (Status.UNSAFE, Status.RESHAPE_NEEDED) else ()
    conditions = (*(Condition(kind=status.value, text=text) for text in verdict.notes), *others)
    is_barred = draft.view.beside and against_root(node.name, draft.observed)  # that role is not taken up then
    if status is not Status.OTHER_PLAN and not is_barred:  # a wrong digest says nothing of the host
        _reserve(node, draft, verdict, conditions)
    notes = (*verdict.notes, *reservation_notes(verdict.reserving, draft.observed))
    outcome = outcome_of(node, draft, status, notes, conditions)
    return replace(outcome, broken=verdict.broken, reserving=verdict.reserving)


def _reserve(node: ComputeNode, draft: Draft, verdict: Verdict, conditions: Iterable[Condition]) -> None:
    """
    Carry out the reservations of a refused plan, if any, and remember the refusal.

    The memory has them before they are written, with generations that no provider has: what differs after a pass that
    was cut off is an operator's.
    """
    state, plan = node.state_file(draft.root_uuid), verdict.reserving
    after = _after_refusal(draft, verdict).with_bodies(with_conditions(conditions))
    if plan.operations:
        foreseen, stands = forecast(plan, draft.observed), draft.observed.by_uuid
        written = {seen.uuid for seen in foreseen if seen.provider != stands[seen.uuid].provider}
        unsure = (replace(seen, generation=UNWRITTEN) if seen.uuid in written else seen for seen in foreseen)
        before = ObservedTree(tuple(unsure), foreseen.last_modified) if after.observed else None
        after = replace(after, observed=before)
        state.write(after)
        left = _with_unread(_read_back(node, draft, node.client.execute(plan, draft.observed)), foreseen, stands)
        after = replace(after, observed=left if after.observed else None)
    state.write(after)


def outcome_of(
    node: ComputeNode,
    draft: Draft,
    status: Status,
    reasons: tuple[str, ...] = (),
    conditions: tuple[Condition, ...] = (),
) -> Outcome:
    """Return the outcome of a pass that drafted this, with all that the draft knows."""
    return Outcome(
        node=node.name,
        status=status,
        plan=draft.plan,
        observed=draft.observed,
        reasons=reasons,
        conditions=conditions,
        hardware=draft.shaped.holdings.backing.hardware,
        allocations=draft.way.allocations or None,
        survey=draft.view.survey,
    )


def _after_refusal(draft: Draft, verdict: Verdict) -> NodeState:
    """
    Return the memory after a refused pass.

    The next pass compares with what was seen now, so that it does not see one change twice. But a lost memory stays
    lost until a pass is carried out: only then it is known what is ours. And where this agent only audits what it
    reported before, it does not take the work of others for its own. The memory of a root that is missing stays,
    whichever placement it is about: it may come back.
    """
    if lost_root(draft):
        before = draft.memory.elsewhere or replace(draft.view.memory, observed=draft.memory.observed)
        return replace(before, smaller=verdict.memory.smaller, smaller_seen=verdict.memory.smaller_seen)
    left, view = verdict.memory.observed, draft.view
    kept = left if verdict.refused is Status.AUDIT_ONLY and draft.memory.wrote else view.observed
    return replace(
        verdict.memory,
        observed=kept if left else None,
        configured=view.memory.configured if left else {},
        reported=view.memory.reported if left else {},
    )


def _write(node: ComputeNode, draft: Draft, memory: NodeState) -> Outcome:
    state, plan, observed = node.state_file(draft.root_uuid), draft.plan, draft.observed
    for why in lost_root(draft):
        LOG.warning("the tree is made anew node=%s where=%s why=%s", node.name, node.where, why)
    wrote = memory.wrote or draft.view.wishes.take_over or (bool(plan.operations) and not draft.view.beside)
    memory = replace(memory, wrote=wrote)
    if plan.operations:
        if is_conversion(draft) and draft.stands_in != draft.layout and draft.view.wishes.of_nobody:
            LOG.warning(
                "the tree is converted as [compute] layout says node=%s from=%s to=%s",
                node.name,
                draft.stands_in,
                draft.layout,
            )
        state.begin(replace(memory, configured=draft.meanwhile.configured, reported=draft.meanwhile.reported))
        with _converting(node, draft) if is_conversion(draft) else nullcontext():
            written = _read_back(node, draft, node.client.execute(plan, observed))
            observed = _with_unread(written, forecast(plan, draft.observed), draft.observed.by_uuid)
    end = PassEnd(draft=draft, refused=None, done=True)
    conditions = conditions_on(draft)
    after = remember(replace(draft.lasting, observed=observed, wrote=wrote), end)
    after = after.with_bodies(with_conditions(conditions))
    if after != state.read(node.where):
        state.write(after)
    if draft.view.wishes.reshape and not (plan.operations and is_conversion(draft)):
        end_begun(node.settings.folders.state, node.where, draft.layout)
    if (undone := draft.view.wishes.undone) and undone.is_on_trial:
        end_trial(undone, "taken back")
    status = Status.CHANGED if plan.operations else Status.UNCHANGED
    return outcome_of(node, draft, status, conditions=conditions)


@contextmanager
def _converting(node: ComputeNode, draft: Draft) -> Iterator[None]:
    """Note inside that a conversion is carried out, and after it how it ended; errors as those of the two notes."""
    with using_approval(node, draft), journaled(node.settings.folders.state, node.where, draft):
        yield


def _read_back(node: ComputeNode, draft: Draft, left: ObservedTree) -> ObservedTree:
    """Return what was written; read again where a feature needs generations, which a reshape does not answer."""
    if all(feature.read_back(draft) <= left.by_name.keys() for feature in draft.features):
        return left
    try:
        found = node.client.observe(draft.root_uuid, left)
    except PlacementError as error:
        LOG.info(
            "placement was written, but could not be read back: the next pass reads it node=%s reason=%s",
            node.name,
            error,
        )
        return left
    stood = {seen.uuid: seen.generation for seen in draft.observed}  # a look that has one of these may be too old
    fresh = (seen for seen in found if seen.uuid in left.by_uuid or seen.generation > stood.get(seen.uuid, -1))
    return ObservedTree(tuple(left.by_uuid.get(seen.uuid, seen) for seen in fresh), left.last_modified)


def _with_unread(known: ObservedTree, foreseen: ObservedTree, before: Mapping[str, ObservedProvider]) -> ObservedTree:
    """
    Return what is known to stand, and the providers whose writes told no generation as they were to be.

    They were just made, or written together with others. Of those with another stock than ``before``, by uuid, it was
    raised. What differs of them at the next pass, another one changed.
    """
    stands = known.by_uuid
    if foreseen.by_uuid.keys() <= stands.keys():
        return known

    def unread(seen: ObservedProvider) -> ObservedProvider:
        above, stood = NO_GENERATION, before.get(seen.uuid)
        if stood and not same_stock(stood.provider.inventories, seen.provider.inventories):
            above = stood.generation
        return replace(seen, generation=NO_GENERATION, above=above)

    return replace(known, providers=tuple(stands.get(seen.uuid) or unread(seen) for seen in foreseen))
