"""
One pass over all bare-metal nodes of this agent: each is a root provider of its own, and most of them need nothing.

A quiet pass costs one listing of Ironic and one of placement. Only nodes with something new in one of the two are
planned and written, several at a time; a node that fails does not stop the others.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agent.bare_metal.compare import look_at_nodes
from agent.bare_metal.context import BareMetalNodes, Task, node_outcome
from agent.bare_metal.in_bulk import is_new, report_new
from agent.bare_metal.write import Progress, Settled, delete, for_each, learn_names, plan_task, settle
from agent.state.node_records import write_nodes
from agent.sync.batches import FEW
from agent.sync.decide.view import Wishes
from agent.sync.outcome import Outcome, Status
from reportclient.plan import Delete, Plan


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


def _silent(_done: int, _of: int) -> None:
    """Default callback: shows no progress."""


def foresee_nodes(bare_metal: BareMetalNodes, wishes: Wishes = Wishes(), progress: Progress = _silent) -> NodesOutcome:
    """
    Return what a pass would do; writes nothing anywhere.

    Raises:
        as ``look_at_nodes``.
    """
    look = look_at_nodes(bare_metal, force=wishes.force)
    lacked = learn_names(bare_metal, look, make=False)
    outcomes = for_each(bare_metal, look.tasks, lambda task: plan_task(bare_metal, task, lacked, wishes), progress)
    gone = [
        node_outcome(one.seen.uuid, Status.DELETED, "", Plan((Delete(one.seen.uuid, one.seen.name),)))
        for one in look.deletions
    ]
    return NodesOutcome.of((*look.outcomes, *(one for one, _ in outcomes), *gone), look.unchanged)


def run_nodes(bare_metal: BareMetalNodes, wishes: Wishes = Wishes(), progress: Progress = _silent) -> NodesOutcome:
    """
    Carry out one pass, and remember what it did, also when placement stops answering in between.

    Of the wishes two count: ``force`` lets many nodes go at once, and removes classes that may be another's;
    ``take_over`` writes also where another agent removed our mark.

    Raises:
        as ``look_at_nodes``, and then nothing was written. StateError: what was done cannot be remembered.
    """
    look = look_at_nodes(bare_metal, force=wishes.force)
    lacked = learn_names(bare_metal, look, make=True)
    results = _carry_out(bare_metal, look.tasks, lacked, wishes, progress)
    nodes = dict(look.nodes)
    nodes |= {outcome.node: known for outcome, known in results if known}
    outcomes = [*look.outcomes, *(outcome for outcome, _ in results)]
    for outcome in (delete(bare_metal, one) for one in look.deletions):
        outcomes.append(outcome)
        if outcome.status is Status.DELETED:
            del nodes[outcome.node]
    after = replace(look.memory, lacked=lacked, nodes=nodes, left=look.left, behind=look.behind, elsewhere=None)
    if look.whole and all(one.status is not Status.UNFINISHED for one in outcomes):
        after = replace(after, whole_s=bare_metal.now_s())
    other_placement = look.memory.elsewhere and any(one.status is Status.REFUSED for one in look.outcomes)
    if not other_placement and (look.tasks or after != replace(look.memory, elsewhere=None)):
        write_nodes(bare_metal.settings.folders.state, after, clock=bare_metal.clock)
    return NodesOutcome.of(outcomes, look.unchanged)


def _carry_out(
    bare_metal: BareMetalNodes, tasks: list[Task], lacked: frozenset[str], wishes: Wishes, progress: Progress
) -> list[Settled]:
    """Write the nodes of all tasks: new ones in bulk where they are many, the others one by one."""
    new = [task for task in tasks if is_new(task)]
    new = new if len(new) > FEW else []
    made = {task.provider.name for task in new}
    rest = [task for task in tasks if task.provider.name not in made]
    results = report_new(bare_metal, new, lacked, wishes, lambda done, _: progress(done, len(tasks)))
    return results + for_each(
        bare_metal,
        rest,
        lambda task: settle(bare_metal, task, lacked, wishes),
        lambda done, _: progress(len(new) + done, len(tasks)),
    )
