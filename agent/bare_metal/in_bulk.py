"""Report nodes that placement does not have yet: providers and traits node by node, their stock in batches."""

from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

from agent.bare_metal.context import BareMetalNodes, Task, node_outcome
from agent.bare_metal.write import Contested, Progress, Settled, for_each, known_after, note_on, plan_node, settle
from agent.sync.batches import Lot, Refused, Stocked, Unanswered, as_written, write_stock
from agent.sync.decide.view import Wishes
from agent.sync.outcome import Status
from drivers.ironic.shape import BARE_METAL
from reportclient.errors import Conflict, Rejected, Unlawful
from reportclient.plan import Plan, SetInventories
from reportclient.tree import ObservedProvider, ObservedTree


@dataclass(frozen=True, slots=True)
class _Made:
    """A node whose provider stands with its traits, and still lacks its stock."""

    task: Task
    plan: Plan  # all of it
    stands: ObservedProvider

    @property
    def lot(self) -> Lot:
        return Lot((self.stands,), tuple(step for step in self.plan.operations if isinstance(step, SetInventories)))


def is_new(task: Task) -> bool:
    """Return whether a task makes a provider."""
    return task.generation is None and not task.reserves and not task.seen


def report_new(
    bare_metal: BareMetalNodes, tasks: list[Task], lacked: frozenset[str], wishes: Wishes, progress: Progress
) -> list[Settled]:
    """Write nodes that placement does not have; two requests a node, one a batch, and five."""
    made: list[_Made] = []
    settled: list[Settled] = []
    for one in for_each(bare_metal, tasks, lambda task: _make(bare_metal, task, lacked, wishes), progress):
        if isinstance(one, _Made):
            made.append(one)
        else:
            settled.append(one)
    return [*settled, *_stock(bare_metal, made, lacked, wishes)]


def _make(bare_metal: BareMetalNodes, task: Task, lacked: frozenset[str], wishes: Wishes) -> _Made | Settled:
    """Make the provider of a node, with its traits; where another writer was first, settle it as any other node."""
    try:
        plan = plan_node(task, None, lacked, wishes)
        early = Plan(tuple(step for step in plan.operations if not isinstance(step, SetInventories)))
        stands = bare_metal.client.execute(early, ObservedTree()).root
    except (Conflict, Rejected, Contested, Unlawful):
        return settle(bare_metal, task, lacked, wishes)
    return _Made(task, plan, stands) if stands else settle(bare_metal, task, lacked, wishes)


def _stock(bare_metal: BareMetalNodes, made: list[_Made], lacked: frozenset[str], wishes: Wishes) -> list[Settled]:
    """Write the stock of nodes; settle those that placement refuses as any other node."""
    settled: list[Settled] = []
    refused: list[Task] = []
    written: list[tuple[_Made, Stocked]] = []
    for one, ending in zip(
        made, write_stock(bare_metal.client, [one.lot for one in made], bare_metal.workers), strict=True
    ):
        match ending:
            case Stocked():
                written.append((one, ending))
            case Refused():
                refused.append(replace(one.task, generation=one.stands.generation))
            case Unanswered(_, why):
                settled.append((node_outcome(one.stands.uuid, Status.UNFINISHED, why, one.plan), one.task.known))
            case _:
                assert_never(ending)
    settled += for_each(bare_metal, refused, lambda task: settle(bare_metal, task, lacked, wishes), lambda *_: None)
    listing = partial(bare_metal.client.generations, BARE_METAL)
    seen = as_written(bare_metal.client, [stocked for _, stocked in written], listing)
    return [*settled, *(_outcome(one, lacked, seen.get(one.stands.uuid)) for one, _ in written)]


def _outcome(made: _Made, lacked: frozenset[str], seen: ObservedProvider | None) -> Settled:
    """Return the outcome of a node that was written; ``seen`` None: the next pass reads its provider."""
    task = made.task
    outcome = node_outcome(made.stands.uuid, task.status or Status.CREATED, note_on(task, lacked), made.plan)
    return outcome, known_after(task, seen or made.stands)
