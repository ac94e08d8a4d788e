"""
One pass over all bare-metal nodes of this agent: each is a root provider of its own, and most of them need nothing.

A quiet pass costs one listing of Ironic and one of placement. Only nodes with something new in one of the two are
planned and written, several at a time; a node that fails does not stop the others.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agent.bare_metal.compare import look_at_nodes
from agent.bare_metal.context import BareMetalNodes
from agent.bare_metal.write import Writing, learn_names, settle_all
from agent.state.node_records import write_nodes
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


def run_nodes(bare_metal: BareMetalNodes, wishes: Wishes = Wishes(), *, dry: bool = False) -> NodesOutcome:
    """
    Carry out one pass, and remember what it did, also when placement stops answering in between.

    Of the wishes two count: ``force`` lets many nodes go at once, and removes classes that may be another's;
    ``take_over`` writes also where another agent removed our mark. With ``dry`` nothing is written anywhere.

    Raises:
        as ``look_at_nodes``, and then nothing was written. StateError: what was done cannot be remembered.
    """
    look = look_at_nodes(bare_metal, force=wishes.force)
    vocabulary = learn_names(bare_metal.client, look)
    execute = forecast if dry else bare_metal.client.execute
    settled = settle_all(Writing(bare_metal, vocabulary, wishes, execute), look.tasks)
    outcome = NodesOutcome.of((*look.outcomes, *(one for one, _ in settled)), look.unchanged)
    after = replace(
        look.memory,
        lacked=vocabulary.lacked,
        nodes=look.nodes | {one.node: known for one, known in settled if known},
        left=look.left,
        behind=look.behind,
        elsewhere=None,
    )
    if look.whole and not outcome.count(Status.UNFINISHED):
        after = replace(after, whole_s=bare_metal.now_s())
    other_placement = look.memory.elsewhere and outcome.count(Status.REFUSED)
    if not dry and not other_placement and (look.tasks or after != replace(look.memory, elsewhere=None)):
        write_nodes(bare_metal.settings.folders.state, after, clock=bare_metal.clock)
    return outcome
