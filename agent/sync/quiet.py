"""The last pass of a node that found nothing to do: a pass that sees the same again need not decide again."""

from dataclasses import dataclass, replace

from agent.state.memory import NodeState
from agent.sync.decide.additions import Addition
from agent.sync.decide.draft import Draft
from agent.sync.decide.judge import Terms
from agent.sync.decide.view import View
from agent.sync.outcome import Outcome, Status


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a quiet pass rested on, and how it ended."""

    view: View
    terms: Terms
    outcome: Outcome


class QuietPass:
    """
    The last quiet pass of one node.

    A draft and its verdict are functions of values, so the same values give the same again. A pass is kept only if
    nothing else decided: neither the time, nor anything that was read beside the view, and it wrote nothing.
    """

    def __init__(self) -> None:
        self._kept: _Kept | None = None
        self._strays: frozenset[str] = frozenset()  # providers in the operator's files that the last draft lacked

    def new_strays(self, draft: Draft) -> tuple[Addition, ...]:
        """Return the entries of the operator's files that match no provider now, without those of the last draft."""
        before, self._strays = self._strays, frozenset(entry.provider for entry in draft.strays)
        return tuple(entry for entry in draft.strays if entry.provider not in before)

    def again(self, view: View, terms: Terms) -> Outcome | None:
        """Return the outcome of a pass with this view, if the kept pass had the same; None: it has to be decided."""
        kept = self._kept
        if kept is None or kept.view != view or kept.terms != terms:
            return None
        return replace(kept.outcome, survey=view.survey)

    def keep(self, view: View, terms: Terms, draft: Draft, outcome: Outcome, stands: NodeState) -> None:
        """
        Keep a pass if it was quiet, else none.

        ``view`` is all that was read for the draft. ``stands`` is the memory on disk after the pass.
        """
        changes = outcome.status is not Status.UNCHANGED or draft.plan.operations or stands != view.memory
        timed = draft.timed or draft.contest or view.memory.strikes
        asks = view.pool or view.forgotten or view.former or view.tried or not view.memory.observed
        self._kept = None if changes or timed or asks else _Kept(view, terms, outcome)
