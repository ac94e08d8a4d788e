"""Convert a host's tree to another shape, with what its guests hold: by a command, or before the service starts."""

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from agent.state.files import remove_state
from agent.state.locks import locked
from agent.sync.approvals import approval_path, find_approval
from agent.sync.decide.checks import barred, judge
from agent.sync.decide.feature import Draft
from agent.sync.decide.owner import only_audits
from agent.sync.decide.view import Wishes
from agent.sync.node import ComputeNode
from agent.sync.outcome import Outcome, Status
from agent.sync.run import foresee, outcome_of, run_pass
from reportclient.errors import Conflict, Unavailable
from reportclient.plan import Outline

LOG = logging.getLogger(__name__)
APPROVE = "look at it with compute-node-agent reshape, and approve what it shows with reshape --approve --digest D"
_AFTER_CONFLICT_S = 0.1  # at most, between attempts at a conversion
_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0  # the same, where placement does not answer: the first one, and any


def convert(node: ComputeNode, wishes: Wishes) -> Outcome:
    """
    Run one pass that may move what guests hold; repeat it after conflicts and failures of placement for a while.

    With ``wishes.agreed`` only the plan of that digest is carried out. A conversion that ends in the middle loses
    nothing: the tree is as before, or the step is done, and the next pass goes on from there.

    Raises:
        as ``run_pass``; Conflict, Unavailable: the last failure when ``[agent] reshape_timeout`` was up.
    """
    agreement = Agreement(wishes.agreed) if wishes.agreed else None
    return _patiently(node, partial(run_pass, node, replace(wishes, reshape=True), agreement))


def _patiently(node: ComputeNode, act: Callable[[], Outcome]) -> Outcome:
    """Call ``act``, and again after ``Conflict`` or ``Unavailable``, until ``[agent] reshape_timeout`` is up."""
    end_s, longest_s = time.monotonic() + node.settings.changes.reshape_timeout_s, _PAUSE_S
    while True:
        try:
            return act()
        except (Conflict, Unavailable) as error:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                raise
            wait_s = random.uniform(0, _AFTER_CONFLICT_S)  # who gives way to those that claim is never first
            if isinstance(error, Unavailable):
                wait_s = max(error.retry_after_s, random.uniform(0, longest_s))
                longest_s = min(2 * longest_s, _LONGEST_PAUSE_S)
            wait_s = min(left_s, wait_s)
            LOG.info("the conversion begins again node=%s seconds=%.1f reason=%s", node.name, wait_s, error)
        time.sleep(wait_s)


def convert_approved(node: ComputeNode, wishes: Wishes = Wishes()) -> Outcome:
    """
    Run the conversion before a start of the service: any with ``[agent] allow_reshape``, else the approved plan only.

    A plan that moves no consumer is left to the first pass of the service.

    Raises:
        as ``convert``.
    """
    if node.settings.audits_only:
        return Outcome(node=node.name, status=Status.UNCHANGED, reasons=(only_audits(node.name),))
    if node.settings.changes.allow_reshape:
        return convert(node, wishes)
    return _patiently(node, partial(_try_approved, node, wishes))


def _try_approved(node: ComputeNode, wishes: Wishes) -> Outcome:
    draft = foresee(node, wishes)
    verdict = judge(draft)
    approval = find_approval(node, draft.root_uuid)
    if verdict.refused is Status.RESHAPE_NEEDED and barred(draft):
        return outcome_of(node, draft, verdict.refused, verdict.notes)
    if not draft.plan.moves and not draft.way.unplaceable:
        if approval and approval.begun:  # its conversion was done, and cut off before the approval was removed
            with locked(node.settings.folders.state):
                remove_state(approval_path(node, draft.root_uuid))
        elif approval and approval.layout not in ("", draft.layout):
            why = (
                f"the approved plan {approval.digest} is not carried out: it is for the layout {approval.layout}, and "
                f"[compute] layout is {draft.layout}. Set that one, or take the approval back: reshape --withdraw"
            )
            return outcome_of(node, draft, Status.OTHER_PLAN, (why,))
        left = ("no allocation has to move: the next pass carries out the plan",) if draft.plan.operations else ()
        return outcome_of(node, draft, Status.UNCHANGED, left)
    if verdict.refused is not Status.RESHAPE_NEEDED:
        return outcome_of(node, draft, verdict.refused or Status.UNSAFE, verdict.notes)
    if approval is None:
        unapproved = (f"{verdict.notes[0]}; nobody approved that: {APPROVE}",)
        return outcome_of(node, draft, Status.RESHAPE_NEEDED, unapproved)
    agreement = Agreement(approval.digest, approval.outline if approval.begun else None, again=APPROVE)
    return run_pass(node, replace(wishes, reshape=True, agreed=approval.digest), agreement)


@dataclass(slots=True)
class Agreement:
    """A person's agreement to the plan of this digest, and to no other."""

    digest: str
    begun: Outline | None = None  # the outline of that plan, once it was begun
    again: str = "look at it again with the same options, without --apply"  # what to do about another plan

    def __call__(self, node: ComputeNode, draft: Draft) -> tuple[str, ...]:
        """Return why the plan of a draft is not the agreed one; empty if it is that one, or the rest of it."""
        plan = draft.plan
        if not plan.operations:
            return ()  # the plan was carried out before
        if self.begun is None and plan.digest == self.digest:
            self.begun = plan.outline
            return ()
        if self.begun is None:
            approval = find_approval(node, draft.root_uuid)  # its conversion may have been cut off
            self.begun = approval.outline if approval and approval.begun and approval.digest == self.digest else None
        if self.begun is not None and self.begun.covers(plan):
            return ()  # the rest of that plan, after a lost answer or a conflict
        return (f"no plan has the digest {self.digest}; the plan now has {plan.digest}: {self.again}",)
