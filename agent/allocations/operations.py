"""
Operations on a guest's allocations: the verbs call them, and they are the Python API.

    operations = Operations(client)
    ending = operations.spawn(uuid, project=..., user=..., kind="INSTANCE", requests=[AllocationRequest(text)])
    if ending.told is Result.DONE: ...

Each operation writes with one request or not at all. A request is repeated only when its consumers are known to be
unchanged. A conflict of a consumer means that the caller's knowledge of it is outdated: the operation fails, and the
caller decides anew; a merge reads and merges again. A conflict of a provider means that another writer wrote to it at
the same moment for another consumer: the same request is sent again. ``docs/operations.md`` has each operation.
"""

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

from agent.allocations.decide.sets import (
    MIGRATION,
    begin,
    evacuated_set,
    merge_set,
    moved_sets,
    replace_set,
    reverted_set,
)
from reportclient.allocations import AllocationRequest, Consumer, Slots
from reportclient.client import PlacementClient
from reportclient.errors import Absent, Conflict, LeftBehind, NoRoom, PlacementError, Unavailable
from reportclient.payload import decode_request
from reportclient.plan import AllocationWrite, DropAllocations, ReplaceAllocations, Rewrite

TRIES = 5  # of one request while others write to the same providers, and of reading and merging again


class Result(Enum):
    """How an operation ended, as the caller gets it."""

    DONE = "done"
    CONFLICT = "conflict"  # another writer changed the consumer, or kept writing to its providers
    NO_ROOM = "no-room"
    EXISTS = "exists"  # a consumer that was to be new has allocations already
    ABSENT = "absent"  # a consumer that was to have allocations has none
    REFUSED = "refused"  # the caller objects: a guest that runs here uses what the consumer has


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an operation on one consumer ended; ``held`` is what the consumer has afterwards, as far as known."""

    told: Result
    consumer: str
    held: Slots = field(default_factory=dict)
    note: str = ""  # why it was not done, and what to do


@dataclass(frozen=True, slots=True)
class Operations:
    """
    Change the allocations of guests in one placement.

    Every operation raises PlacementError where placement does not answer, or refuses the request for its content, and
    ValueError for a malformed allocation request. After a lost answer it first looks whether the write was done.
    """

    client: PlacementClient
    pause: Callable[[], None] = lambda: time.sleep(random.uniform(0, 0.1))  # between two tries
    objection: Callable[[Sequence[Rewrite]], str] = lambda _: ""  # why these must not be written; empty: they may be

    def spawn(
        self, consumer: str, *, project: str, user: str, kind: str | None, requests: Sequence[AllocationRequest]
    ) -> Ending:
        """Claim the first of these requests that fits for a new guest. Unshelve is the same."""

        def make(request: AllocationRequest) -> AllocationWrite:
            return ReplaceAllocations((begin(consumer, project, user, kind, decode_request(request)),), request)

        return self._first_fitting(consumer, requests, make)

    def replace(self, consumer: str, requests: Sequence[AllocationRequest]) -> Ending:
        """Replace what a guest has by the first of these requests that fits: a resize in place."""

        def make(guest: Consumer, request: Slots, sharing: frozenset[str]) -> AllocationWrite:
            return ReplaceAllocations((Rewrite.of(guest, replace_set(guest.slots, request, sharing)),))

        return self._rewrite(consumer, requests, make)

    def evacuate(self, consumer: str, requests: Sequence[AllocationRequest]) -> Ending:
        """
        Claim the first of these requests that fits for a guest whose host is down, beside what the guest has there.

        The host that is down removes its part when it is back. A guest that already has something on a requested
        host, or on two hosts, was evacuated before: it is not claimed again.
        """

        def make(guest: Consumer, request: Slots, sharing: frozenset[str]) -> AllocationWrite | Ending:
            there, asked = self._hosts(guest.slots.keys() - sharing), self._hosts(request.keys() - sharing)
            if len(there) > 1 or there & asked:
                note = (
                    f"guest {consumer} has allocations on {' and '.join(sorted(there))} already: look with "
                    f"compute-node-agent show whether the guest was evacuated before; if so, do not claim again"
                )
                return Ending(told=Result.EXISTS, consumer=consumer, held=guest.slots, note=note)
            return ReplaceAllocations((Rewrite.of(guest, evacuated_set(guest.slots, request, sharing)),))

        return self._rewrite(consumer, requests, make)

    def merge(
        self, consumer: str, requests: Sequence[AllocationRequest], before: AllocationRequest | None = None
    ) -> Ending:
        """Replace the caller's part of a consumer, which was ``before``, by the request; the parts of others stay."""

        def make(request: AllocationRequest) -> AllocationWrite | Ending:
            now = self.client.consumer(consumer)
            if now is None:
                return _absent(consumer)
            try:
                after = merge_set(now.slots, decode_request(before) if before else {}, decode_request(request))
            except ValueError as error:
                note = (
                    f"consumer {consumer} is not as the caller believes: {error}: look with compute-node-agent show, "
                    f"then correct the request or do not send it again"
                )
                return Ending(told=Result.CONFLICT, consumer=consumer, held=now.slots, note=note)
            return ReplaceAllocations((Rewrite.of(now, after),))

        return self._first_fitting(consumer, requests, make, anew=True)

    def move(self, consumer: str, migration: str, requests: Sequence[AllocationRequest]) -> Ending:
        """
        Claim the first of these requests that fits for a guest; a migration of this uuid keeps what the guest had.

        The target may be the same host (a resize), or another host (cold and live migration).
        """
        if migration == consumer:
            return Ending(told=Result.CONFLICT, consumer=consumer, note=_not_a_migration(migration))

        def make(guest: Consumer, request: Slots, sharing: frozenset[str]) -> AllocationWrite:
            kept, after = moved_sets(guest.slots, request, sharing)
            kind = MIGRATION if guest.kind else None
            begun = begin(migration, guest.project, guest.user, kind, kept)
            return ReplaceAllocations((begun, Rewrite.of(guest, after)))

        return self._rewrite(consumer, requests, make)

    def confirm(self, migration: str) -> Ending:
        """
        End a move: release what the migration kept at the source.

        A guest's own uuid is refused where its consumer has a type; a guest without a type looks like a migration.
        """
        now = self.client.consumer(migration)
        if now and now.kind not in (None, MIGRATION):
            note = (
                f"consumer {migration} is of type {now.kind}, so it is not a migration: give the uuid of the migration "
                f"instead of the guest's"
            )
            return Ending(told=Result.CONFLICT, consumer=migration, held=now.slots, note=note)
        return self.release(migration)

    def revert(self, consumer: str, migration: str) -> Ending:
        """
        Undo a move: give the guest what the migration kept, and empty the migration.

        Placement does not tell which guest a migration belongs to: the only possible check is that both have the same
        project and user.
        """
        if migration == consumer:
            return Ending(told=Result.CONFLICT, consumer=consumer, note=_not_a_migration(migration))
        kept, guest = self.client.consumer(migration), self.client.consumer(consumer)
        if kept is None or guest is None:
            return _absent(migration if kept is None else consumer)
        if kept.kind not in (None, MIGRATION) or (kept.project, kept.user) != (guest.project, guest.user):
            note = (
                f"consumer {migration} is not a migration of guest {consumer}: its type is not MIGRATION, or its "
                f"project or user differs"
            )
            return Ending(told=Result.CONFLICT, consumer=consumer, held=guest.slots, note=note)
        after = reverted_set(guest.slots, kept.slots, self.client.sharing())
        return self.carry_out(consumer, (Rewrite.of(kept, {}), Rewrite.of(guest, after)))

    def release(self, consumer: str) -> Ending:
        """Release all that a guest has, unless another writer changed it meanwhile: delete, and shelve."""
        now = self.client.consumer(consumer)
        if now is None:
            return _absent(consumer)
        return self.carry_out(consumer, (Rewrite.of(now, {}),))

    def release_forced(self, consumer: str) -> Ending:
        """Release all that a guest has, whoever wrote it last."""
        try:
            ending = self._carry_out(consumer, lambda: DropAllocations(consumer))
        except Absent:
            return _absent(consumer)
        # Placement answers a DELETE at the same moment as a reshape like one that was done, though it is not.
        if ending.told is Result.DONE and (left := self.client.consumer(consumer)):
            note = f"consumer {consumer} was changed at the same moment and keeps its allocations: release it once more"
            return Ending(told=Result.CONFLICT, consumer=consumer, held=left.slots, note=note)
        return ending

    def carry_out(self, consumer: str, rewrites: Iterable[Rewrite]) -> Ending:
        """Write sets that were made from consumers as they were read."""
        write = ReplaceAllocations(tuple(rewrites))
        return self._carry_out(consumer, lambda: write)

    def _rewrite(
        self,
        consumer: str,
        requests: Sequence[AllocationRequest],
        make: Callable[[Consumer, Slots, frozenset[str]], AllocationWrite | Ending],
    ) -> Ending:
        """Read a guest once, and carry out the first request that fits; ``make`` also gets the shared providers."""
        sharing = self.client.sharing()
        guest = self.client.consumer(consumer)
        if guest is None:
            return _absent(consumer)
        return self._first_fitting(consumer, requests, lambda one: make(guest, decode_request(one), sharing))

    def _first_fitting(
        self,
        consumer: str,
        requests: Sequence[AllocationRequest],
        make: Callable[[AllocationRequest], AllocationWrite | Ending],
        *,
        anew: bool = False,
    ) -> Ending:
        """Carry out the first request that has room; without one, return why the last request had none."""
        for request in requests:
            ending = self._carry_out(consumer, partial(make, request), anew=anew)
            if ending.told is not Result.NO_ROOM:
                break
        return ending

    def _carry_out(self, consumer: str, make: Callable[[], AllocationWrite | Ending], *, anew: bool = False) -> Ending:
        """
        Write until it is done, refused, or out of tries; nothing where ``make`` returns how it ends.

        ``anew``: where another writer changed the consumer, ``make`` reads it again, and the write goes on.
        """
        lost: Unavailable | None = None  # the failure of an earlier try whose answer may have been lost
        again: AllocationWrite | None = None  # what the next try sends; None: what ``make`` returns then
        for attempt in range(TRIES):
            if attempt:
                self.pause()
            write = again or make()
            if isinstance(write, Ending):
                return write
            if any(one.before for one in _rewrites(write)) and (why := self.objection(_rewrites(write))):
                return self._ending(Result.REFUSED, consumer, why)
            try:
                self.client.write_allocations(write)
                return _done(consumer, write)
            except NoRoom as error:
                return self._ending(Result.NO_ROOM, consumer, str(error))
            except (Conflict, Unavailable) as error:
                lost = error if isinstance(error, Unavailable) else lost
                if lost and self._stands(write, lost):
                    return _done(consumer, write)
                changed = self._changed(write)
                if lost and changed:  # the write may have been done, and then changed by others
                    raise Unavailable(_perhaps_done(lost)) from error
                if changed and (ending := self._judge(consumer, write, changed[0], anew=anew)):
                    return ending
                if isinstance(error, LeftBehind):
                    again = _reborn(write)
                elif lost:
                    again = write  # one that was read anew could add what may still be carried out
        if lost:
            raise lost
        note = f"others wrote on the providers of consumer {consumer} at each of {TRIES} tries: try again later"
        return self._ending(Result.CONFLICT, consumer, note)

    def _judge(self, consumer: str, write: AllocationWrite, changed: Rewrite, *, anew: bool) -> Ending | None:
        """Return the ending if another writer changed a consumer of the write; None if that is to be made anew."""
        uuid = changed.consumer
        if anew:
            if not self._is_done(write):
                return None
            note = (
                f"consumer {uuid} was changed at the same moment, and now has just what this request makes of it: the "
                f"request may have been carried out, as a proxy may send it twice, or another client has made the "
                f"same change. Look with compute-node-agent show, and try again only if it was another client"
            )
            return self._ending(Result.CONFLICT, consumer, note)
        if changed.generation is None:
            note = (
                f"consumer {uuid} has allocations already: is it the uuid of another consumer, or was this done "
                f"before? Look with compute-node-agent show"
            )
            return self._ending(Result.EXISTS, consumer, note)
        note = (
            f"another writer changed the allocations of consumer {uuid} in the meantime, and nothing was written: look "
            f"with compute-node-agent show, and repeat the command only if it is still right"
        )
        return self._ending(Result.CONFLICT, consumer, note)

    def _changed(self, write: AllocationWrite) -> list[Rewrite]:
        """Return what a write makes of those consumers that are not as it expects them."""
        return [
            one
            for one in _rewrites(write)
            if ((now := self.client.consumer(one.consumer)) and now.generation) != one.generation
        ]

    def _stands(self, write: AllocationWrite, lost: Unavailable) -> bool:
        """
        Return whether a write whose answer was lost was done.

        Raises:
            Unavailable: placement does not tell that either.
        """
        try:
            return self._is_done(write)
        except PlacementError as error:
            raise Unavailable(_perhaps_done(lost)) from error

    def _is_done(self, write: AllocationWrite) -> bool:
        """Return whether all consumers are as this write, and no other one since, leaves them."""
        if isinstance(write, DropAllocations):
            return self.client.consumer(write.consumer) is None
        for one in _rewrites(write):
            now = self.client.consumer(one.consumer)
            written = now is not None and now.slots == one.after and now.generation == (one.generation or 0) + 1
            if not (written if one.after else now is None):
                return False
        return True

    def _hosts(self, providers: Iterable[str]) -> set[str]:
        """Return the roots of these providers, as name and uuid; a provider that is gone by its uuid alone."""
        found: dict[str, str] = {}  # the root of each provider of the trees that were read
        for uuid in sorted(providers):
            if uuid not in found:
                tree = self.client.tree_of(uuid)
                root = next((f"{name} {own}" for own, (name, parent) in tree.items() if parent is None), uuid)
                found |= dict.fromkeys((uuid, *tree), root)
        return {found[uuid] for uuid in providers}

    def _ending(self, told: Result, consumer: str, note: str) -> Ending:
        now = self.client.consumer(consumer)
        return Ending(told=told, consumer=consumer, held=now.slots if now else {}, note=note)


def _perhaps_done(lost: Unavailable) -> str:
    return (
        f"{lost}; the request may have been carried out: look with compute-node-agent show, and try again only if it "
        f"was not"
    )


def _reborn(write: AllocationWrite) -> AllocationWrite:
    """Return the write for new consumers that placement still has without allocations: with generation 0."""
    renewed = (replace(one, generation=0) if one.generation is None else one for one in _rewrites(write))
    return write if isinstance(write, DropAllocations) else replace(write, rewrites=tuple(renewed))


def _not_a_migration(guest: str) -> str:
    return f"--migration {guest} is the uuid of the guest itself: give the uuid of its migration"


def _absent(consumer: str) -> Ending:
    return Ending(told=Result.ABSENT, consumer=consumer, note=f"consumer {consumer} holds nothing in this placement")


def _done(consumer: str, write: AllocationWrite) -> Ending:
    held = next((one.after for one in _rewrites(write) if one.consumer == consumer), {})
    return Ending(told=Result.DONE, consumer=consumer, held=held)


def _rewrites(write: AllocationWrite) -> tuple[Rewrite, ...]:
    """Return what a write makes of each consumer that must be as it was read; empty where that does not matter."""
    return () if isinstance(write, DropAllocations) else write.rewrites
