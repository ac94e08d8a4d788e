"""
Report nodes that placement does not have yet: providers and traits node by node, their stock a hundred nodes at a time.

A reshape without allocations writes the stock of any number of roots, all of it or none. A batch that placement refuses
is halved until the node which it refuses stands alone; that node goes the way of any other.
"""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from agent.bare_metal.nodes import BareMetalNodes, Task, node_outcome
from agent.bare_metal.write import (
    Contested,
    Progress,
    Settled,
    for_each,
    known_after,
    note_on,
    plan_node,
    settle,
    still_answers,
)
from agent.sync.decide.view import Wishes
from agent.sync.outcome import Status
from drivers.ironic.shape import BARE_METAL
from reportclient.errors import Conflict, PlacementError, Rejected, Unavailable
from reportclient.plan import Plan, Reshape, SetInventories
from reportclient.side_by_side import each
from reportclient.tree import ObservedProvider, ObservedTree, Provider, same_stock

BATCH = 100  # nodes whose stock is written by one request
FEW = 10  # up to so many new nodes, a request more for each is cheaper than what is read after a batch
_PROBES = 3  # nodes of a pass that are read to learn by how much a reshape raises a generation


@dataclass(frozen=True, slots=True)
class _Made:
    """A node's provider that stands with its traits, and still lacks its stock."""

    task: Task
    plan: Plan  # all of it
    stands: ObservedProvider

    @property
    def wanted(self) -> Provider:
        """The provider with the stock that it is to have."""
        return replace(self.stands.provider, inventories=self.stock.inventories)

    @property
    def stock(self) -> SetInventories:
        return next(step for step in self.plan.operations if isinstance(step, SetInventories))


@dataclass(frozen=True, slots=True)
class _Stocked:
    """A node whose stock was written."""

    made: _Made
    generation: int | None  # as placement answered; None: the answer had none


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
    down = threading.Event()
    batches = [made[start : start + BATCH] for start in range(0, len(made), BATCH)]
    found = each(lambda batch: _stock(bare_metal, batch, lacked, wishes, down), batches, bare_metal.workers)
    stocked = [one for batch in found for one in batch if isinstance(one, _Stocked)]
    settled += [one for batch in found for one in batch if not isinstance(one, _Stocked)]
    seen = _generations(bare_metal, stocked)
    return [*settled, *(_outcome(one.made, lacked, seen.get(one.made.stands.uuid)) for one in stocked)]


def _make(bare_metal: BareMetalNodes, task: Task, lacked: frozenset[str], wishes: Wishes) -> _Made | Settled:
    """Make the provider of a node, with its traits; where another writer was first, settle it as any other node."""
    try:
        plan = plan_node(task, None, lacked, wishes)
        early = Plan(tuple(step for step in plan.operations if not isinstance(step, SetInventories)))
        stands = bare_metal.client.execute(early, ObservedTree()).root
    except (Conflict, Rejected, Contested):
        return settle(bare_metal, task, lacked, wishes)
    return _Made(task, plan, stands) if stands else settle(bare_metal, task, lacked, wishes)


def _stock(
    bare_metal: BareMetalNodes, batch: list[_Made], lacked: frozenset[str], wishes: Wishes, down: threading.Event
) -> list[_Stocked | Settled]:
    """Write the stock of a batch; halve it where placement refuses. ``down``: placement does not answer any more."""
    if down.is_set():
        return [_unfinished(one, "placement does not answer") for one in batch]
    reshape = Plan((Reshape(tuple(one.stock for one in batch)),))
    try:
        after = bare_metal.client.execute(reshape, ObservedTree(tuple(one.stands for one in batch))).by_uuid
    except (Conflict, Rejected):
        pass
    except Unavailable as error:
        if not still_answers(bare_metal, batch[0].stands.uuid):
            down.set()
            return [_unfinished(one, str(error)) for one in batch]
    else:
        return [_Stocked(one, _generation(after, one)) for one in batch]
    if len(batch) > 1:
        middle = len(batch) // 2
        halves = batch[:middle], batch[middle:]
        return [one for half in halves for one in _stock(bare_metal, half, lacked, wishes, down)]
    alone = replace(batch[0].task, generation=batch[0].stands.generation)
    return [*for_each(bare_metal, [alone], lambda task: settle(bare_metal, task, lacked, wishes), lambda *_: None)]


def _generation(after: Mapping[str, ObservedProvider], made: _Made) -> int | None:
    seen = after.get(made.stands.uuid)
    return seen.generation if seen else None


def _unfinished(made: _Made, why: str) -> Settled:
    return node_outcome(made.stands.uuid, Status.UNFINISHED, why, made.plan), made.task.known


def _generations(bare_metal: BareMetalNodes, stocked: Iterable[_Stocked]) -> dict[str, int]:
    """
    Return the generations of the nodes that are known to stand as they were written.

    The answer to a reshape has no generations. One listing has them all; whether another writer raised one of them is
    told by a node that is read: all providers are new, so the same writes raised each by the same.
    """
    known = {one.made.stands.uuid: one.generation for one in stocked if one.generation is not None}
    unknown = [one.made for one in stocked if one.generation is None]
    if not unknown:
        return known
    try:
        listed = bare_metal.client.generations(BARE_METAL)
        raised = _raised(bare_metal, [one for one in unknown if one.stands.uuid in listed][:_PROBES], listed)
    except PlacementError:
        return known  # the next pass reads those
    return known | {
        one.stands.uuid: listed[one.stands.uuid]
        for one in unknown
        if raised is not None and listed.get(one.stands.uuid) == one.stands.generation + raised
    }


def _raised(bare_metal: BareMetalNodes, probes: Iterable[_Made], listed: Mapping[str, int]) -> int | None:
    """Return by how much the reshape raised a generation; None where another writer changed all probes since."""
    for made in probes:
        uuid = made.stands.uuid
        found, wanted = bare_metal.client.read(uuid, made.stands.name, listed[uuid]).provider, made.wanted
        if found.traits == wanted.traits and same_stock(found.inventories, wanted.inventories):
            return listed[uuid] - made.stands.generation
    return None


def _outcome(made: _Made, lacked: frozenset[str], generation: int | None) -> Settled:
    """Return the outcome of a node that was written; ``generation`` None: the next pass reads its provider."""
    task, uuid = made.task, made.stands.uuid
    outcome = node_outcome(uuid, task.status or Status.CREATED, note_on(task, lacked), made.plan)
    if generation is None:
        return outcome, known_after(task, made.stands, lacked)
    return outcome, known_after(task, replace(made.stands, generation=generation, provider=made.wanted), lacked)
