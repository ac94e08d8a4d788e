"""
One pass over all bare-metal nodes of this agent: each is a root provider of its own, and most of them need nothing.

A quiet pass costs one listing of Ironic and one of placement. Only nodes with something new in one of the two are
planned and written, several at a time; a node that fails does not stop the others.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agent.bare_metal.compare import look_at_nodes
from agent.bare_metal.context import BareMetalNodes, Look
from agent.bare_metal.write import Execute, Writing, learn_names, settle_all
from agent.state.node_records import NodesMemory, write_nodes
from agent.sync.decide.view import Wishes
from agent.sync.outcome import Outcome, Status
from reportclient.forecast import forecast


@dataclass(frozen=True, slots=True)
class NodesOutcome:
    """How a pass over bare-metal nodes ended; of unchanged nodes it has only the count."""

    outcomes: tuple[Outcome, ...]
    unchanged: int

    def count(self, status: Status) -> int:
        """Return how many nodes ended with this status."""
        return self.unchanged if status is Status.UNCHANGED else sum(one.status is status for one in self.outcomes)

    @classmethod
    def of(cls, outcomes: Iterable[Outcome], unchanged: int) -> "NodesOutcome":
        """Return the outcome of a pass; nodes that were read and found as they should be become part of the count."""
        everybody = tuple(outcomes)
        changed = tuple(one for one in everybody if one.status is not Status.UNCHANGED)
        return cls(changed, unchanged + len(everybody) - len(changed))


def foresee_nodes(bare_metal: BareMetalNodes, wishes: Wishes = Wishes()) -> NodesOutcome:
    """
    Return what a pass would do; writes nothing anywhere.

    Raises:
        as ``look_at_nodes``.
    """
    look, _, outcomes = _take(bare_metal, wishes, forecast)
    return NodesOutcome.of(outcomes, look.unchanged)


def run_nodes(bare_metal: BareMetalNodes, wishes: Wishes = Wishes()) -> NodesOutcome:
    """
    Carry out one pass, and remember what it did, also when placement stops answering in between.

    Of the wishes two count: ``force`` lets many nodes go at once, and removes classes that may be another's;
    ``take_over`` writes also where another agent removed our mark.

    Raises:
        as ``look_at_nodes``, and then nothing was written. StateError: what was done cannot be remembered.
    """
    look, after, outcomes = _take(bare_metal, wishes, bare_metal.client.execute)
    other_placement = look.memory.elsewhere and any(one.status is Status.REFUSED for one in outcomes)
    if not other_placement and (look.tasks or after != replace(look.memory, elsewhere=None)):
        write_nodes(bare_metal.settings.folders.state, after, clock=bare_metal.clock)
    return NodesOutcome.of(outcomes, look.unchanged)


def _take(bare_metal: BareMetalNodes, wishes: Wishes, execute: Execute) -> tuple[Look, NodesMemory, list[Outcome]]:
    """Look, and settle all nodes; return the look, what to remember after the pass, and how the nodes ended."""
    look = look_at_nodes(bare_metal, force=wishes.force)
    vocabulary = learn_names(bare_metal.client, look)
    writing = Writing(bare_metal, vocabulary, wishes, execute)
    settled = settle_all(writing, look.tasks)
    outcomes = [*look.outcomes, *(outcome for outcome, _ in settled)]
    after = replace(
        look.memory,
        lacked=vocabulary.lacked,
        nodes=look.nodes | {outcome.node: known for outcome, known in settled if known},
        left=look.left,
        behind=look.behind,
        elsewhere=None,
    )
    if look.whole and all(one.status is not Status.UNFINISHED for one in outcomes):
        after = replace(after, whole_s=bare_metal.now_s())
    return look, after, outcomes
