"""
One pass over all bare-metal nodes of this agent: each is a root of its own, and most of them need nothing.

A quiet pass is one listing of Ironic's and one of placement's. Only nodes of which either tells something new are
planned and written, several at a time; one that fails does not keep the others from theirs.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agent.bare_metal.compare import Fate, NodeOutcome, NodesPlanner, Task, look_at_nodes, unread
from agent.bare_metal.write import NodeWishes, Progress, delete, for_each, foresee, lacked_traits, settle
from agent.state.nodes import KnownNode, NodesMemory, write_nodes
from reportclient.plan import Delete, Plan


@dataclass(frozen=True, slots=True)
class NodesOutcome:
    """A pass: of nodes that are unchanged only the count."""

    outcomes: tuple[NodeOutcome, ...]
    unchanged: int

    def count(self, fate: Fate) -> int:
        return self.unchanged if fate is Fate.UNCHANGED else sum(one.fate is fate for one in self.outcomes)

    @classmethod
    def of(cls, outcomes: Iterable[NodeOutcome], unchanged: int) -> "NodesOutcome":
        """With the nodes that were looked at, and found as they should be, among the unchanged."""
        everybody = tuple(outcomes)
        told = tuple(one for one in everybody if one.fate is not Fate.UNCHANGED)
        return cls(told, unchanged + len(everybody) - len(told))


def _silent(_done: int, _of: int) -> None:
    return


def foresee_nodes(
    planner: NodesPlanner, wishes: NodeWishes = NodeWishes(), progress: Progress = _silent
) -> NodesOutcome:
    """
    What a pass would do; writes nothing anywhere.

    Raises:
        as ``look_at_nodes``.
    """
    look = look_at_nodes(planner, force=wishes.force)
    lacked = lacked_traits(planner, look, make=False)
    outcomes = for_each(planner, look.tasks, lambda task: foresee(planner, task, lacked, wishes), progress)
    gone = [
        NodeOutcome(one.seen.uuid, Fate.DELETED, "", Plan((Delete(one.seen.uuid, one.seen.name),)))
        for one in look.deletions
    ]
    return NodesOutcome.of((*look.outcomes, *(one for one, _ in outcomes), *gone), look.unchanged)


def run_nodes(planner: NodesPlanner, wishes: NodeWishes = NodeWishes(), progress: Progress = _silent) -> NodesOutcome:
    """
    One pass; what it did is remembered even when placement goes away in its middle.

    What a node is about to be given is remembered before it is written: else a pass that is cut off would leave stock
    that nobody knows to be ours.

    Raises:
        as ``look_at_nodes``, and then nothing was written. StateError: what is done cannot be remembered.
    """
    look = look_at_nodes(planner, force=wishes.force)
    lacked = lacked_traits(planner, look, make=True)
    kept = NodesMemory(
        where=planner.where,
        ironic=planner.driver.ironic,
        microversion=planner.client.microversion,
        lacked=lacked,
        nodes=dict(look.nodes),
        left=look.left,
        whole_s=look.memory.whole_s,
        behind=look.behind,
    )
    if look.tasks:
        begun = {task.provider.name: _begun(task) for task in look.tasks}
        write_nodes(planner.settings.state_directory, replace(kept, nodes={**kept.nodes, **begun}), clock=planner.noted)
        tasks = [replace(task, known=begun[task.provider.name]) for task in look.tasks]
    else:
        tasks = []
    results = for_each(planner, tasks, lambda task: settle(planner, task, lacked, wishes), progress)
    nodes = dict(look.nodes)
    for outcome, known in results:
        if known:
            nodes[outcome.node] = known
    outcomes = [*look.outcomes, *(outcome for outcome, _ in results)]
    for outcome in (delete(planner, one) for one in look.deletions):
        outcomes.append(outcome)
        if outcome.fate is Fate.DELETED:
            del nodes[outcome.node]
    after = replace(kept, microversion=planner.client.microversion, nodes=nodes)
    if look.whole and all(one.fate is not Fate.UNFINISHED for one in outcomes):
        after = replace(after, whole_s=planner.now_s())
    if look.tasks or after != look.memory:
        write_nodes(planner.settings.state_directory, after, clock=planner.noted)
    return NodesOutcome.of(outcomes, look.unchanged)


def _begun(task: Task) -> KnownNode:
    known = task.known or unread(task.provider.name, frozenset())
    return replace(known, given=known.given | task.given)
