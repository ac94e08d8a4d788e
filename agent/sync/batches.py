"""
Write the stock of many new roots a hundred roots at a time: all of a batch, or none of it.

A reshape without allocations writes the stock of any number of trees. A batch that placement refuses is halved until
the root which it refuses stands alone; that root is left to the caller, and harms no other.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from reportclient.client import PlacementClient
from reportclient.errors import Conflict, PlacementError, Rejected, Unavailable
from reportclient.plan import Plan, Reshape, SetInventories
from reportclient.side_by_side import each
from reportclient.tree import ObservedProvider, ObservedTree, Provider, same_stock

BATCH = 100  # roots whose stock is written by one request
FEW = 10  # up to so many new roots, a request more for each is cheaper than what is read after a batch
_PROBES = 3  # providers that are read to learn by how much a reshape raises a generation


@dataclass(frozen=True, slots=True)
class Lot:
    """A new tree: its providers stand with their traits, and still lack their stock."""

    stands: tuple[ObservedProvider, ...]  # the root first
    stock: tuple[SetInventories, ...]

    @property
    def root_uuid(self) -> str:
        return self.stands[0].uuid

    @property
    def whole(self) -> dict[str, int]:
        """Generations of the providers that are to have no stock, by uuid."""
        lacking = {one.uuid for one in self.stock}
        return {seen.uuid: seen.generation for seen in self.stands if seen.uuid not in lacking}


@dataclass(frozen=True, slots=True)
class Stocked:
    """A tree whose stock was written."""

    lot: Lot
    known: Mapping[str, int]  # generations of its providers by uuid, as far as answers told them

    @property
    def wanted(self) -> tuple[ObservedProvider, ...]:
        """The providers with their stock, at the generation that the answers told, or else that of before."""
        stock = {one.uuid: one.inventories for one in self.lot.stock}
        return tuple(
            replace(
                seen,
                generation=self.known.get(seen.uuid, seen.generation),
                provider=replace(seen.provider, inventories=stock.get(seen.uuid, seen.provider.inventories)),
            )
            for seen in self.lot.stands
        )


@dataclass(frozen=True, slots=True)
class Refused:
    """A tree whose stock placement refused, or did not confirm, in a request of its own."""

    lot: Lot


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A tree whose stock waits, as placement does not answer any more."""

    lot: Lot
    why: str


PassEnd = Stocked | Refused | Unanswered


def write_stock(client: PlacementClient, lots: Sequence[Lot], workers: int) -> list[PassEnd]:
    """Write the stock of new trees, and return how each ended, in their order; one request a batch."""
    down = threading.Event()
    batches = [lots[start : start + BATCH] for start in range(0, len(lots), BATCH)]
    return [one for batch in each(lambda batch: _write(client, batch, down), batches, workers) for one in batch]


def _write(client: PlacementClient, batch: Sequence[Lot], down: threading.Event) -> list[PassEnd]:
    """Write the stock of a batch; halve it where placement refuses. ``down``: placement does not answer any more."""
    if down.is_set():
        return [Unanswered(lot, "placement does not answer") for lot in batch]
    reshape = Reshape(tuple(step for lot in batch for step in lot.stock))
    try:
        after = client.execute(Plan((reshape,)), ObservedTree(tuple(seen for lot in batch for seen in lot.stands)))
    except (Conflict, Rejected):
        pass
    except Unavailable as error:
        written = _was_written(client, reshape)
        if written is None:
            down.set()
            return [Unanswered(lot, str(error)) for lot in batch]
        if written:
            return [Stocked(lot, lot.whole) for lot in batch]
    else:
        known = {seen.uuid: seen.generation for seen in after}
        return [Stocked(lot, {one.uuid: known[one.uuid] for one in lot.stands if one.uuid in known}) for lot in batch]
    if len(batch) == 1:
        return [Refused(batch[0])]
    middle = len(batch) // 2
    return [*_write(client, batch[:middle], down), *_write(client, batch[middle:], down)]


def _was_written(client: PlacementClient, reshape: Reshape) -> bool | None:
    """Return whether the last provider of a batch has its stock, so that all have; None: placement does not answer."""
    last = reshape.inventories[-1]
    try:
        found = client.read(last.uuid, last.name, 0).provider
    except (Conflict, Rejected):
        return False
    except Unavailable:
        return None
    return same_stock(found.inventories, last.inventories)


def still_answers(client: PlacementClient, uuid: str) -> bool:
    """Return whether placement answers a read of one provider, so that an error concerns one root only."""
    try:
        client.generations(uuid=uuid)
    except PlacementError:
        return False
    return True


def as_written(
    client: PlacementClient, stocked: Iterable[Stocked], listing: Callable[[], Mapping[str, int]]
) -> dict[str, ObservedProvider]:
    """
    Return the providers that are known to stand as they were written, and to have no allocations, by uuid.

    The answer to a reshape has no generations. One ``listing`` has them all, by uuid; whether another writer raised one
    of them is told by a provider that is read: all are new, so the reshape raised each by the same. Providers that are
    left out are read by the next pass.
    """
    known: dict[str, ObservedProvider] = {}
    unknown: list[ObservedProvider] = []
    for one in stocked:
        for seen in one.wanted:
            if seen.uuid in one.known:
                known[seen.uuid] = seen
            else:
                unknown.append(seen)
    if not unknown:
        return known
    try:
        listed = listing()
        there = [seen for seen in unknown if seen.uuid in listed]
        raised = _raised(client, there, listed)
    except PlacementError:
        return known
    return known | {
        seen.uuid: replace(seen, generation=listed[seen.uuid])
        for seen in there
        if raised is not None and listed[seen.uuid] == seen.generation + raised
    }


def _raised(client: PlacementClient, written: Iterable[ObservedProvider], listed: Mapping[str, int]) -> int | None:
    """
    Return by how much the reshape raised a generation; None where it cannot be told.

    Those that were raised least are read: another writer, or a claim, raises a generation further.
    """
    for seen in sorted(written, key=lambda seen: listed[seen.uuid] - seen.generation)[:_PROBES]:
        found = client.read(seen.uuid, seen.name, listed[seen.uuid])
        if _is_same(found.provider, seen.provider) and not client.allocations((found,)):
            return listed[seen.uuid] - seen.generation
    return None


def _is_same(found: Provider, wanted: Provider) -> bool:
    described = (found.traits, found.aggregates) == (wanted.traits, wanted.aggregates)
    return described and same_stock(found.inventories, wanted.inventories)
