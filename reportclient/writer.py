"""Carry out the operations of a plan; decide nothing."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, assert_never

from reportclient import payload
from reportclient.errors import Absent, Conflict, Forbidden, NameTaken, Rejected
from reportclient.forecast import apply
from reportclient.plan import (
    AllocationWrite,
    Create,
    Delete,
    DropAllocations,
    EnsureClasses,
    EnsureTraits,
    Operation,
    Rename,
    Reparent,
    ReplaceAllocations,
    Reshape,
    SetAggregates,
    SetInventories,
    SetTraits,
)
from reportclient.transport import NEWEST, Body, Transport
from reportclient.tree import Inventory, ObservedTree

LOG = logging.getLogger(__name__)
_Whole = SetTraits | SetAggregates | SetInventories


def write_allocations(transport: Transport, write: AllocationWrite) -> None:
    """
    Write the sets of consumers; of one by PUT, of several by POST, which writes all of them or none.

    Raises:
        Conflict, Rejected, Unavailable: the request failed.
    """
    match write:
        case ReplaceAllocations(rewrites, offered):
            newest = NEWEST if all(one.kind for one in rewrites) else payload.UNTYPED
            method, path, body = "POST", "/allocations", partial(payload.encode_rewrites, rewrites)
            if len(rewrites) == 1:
                method, path = "PUT", f"/allocations/{rewrites[0].consumer}"
                body = partial(payload.encode_rewrite, rewrites[0], offered=offered)
            transport.send(method, path, body, newest=newest, once=True)
            for one in rewrites:
                done = "claimed" if offered else "replaced allocations" if one.after else "released"
                _log(transport, "%s consumer=%s", done, one.consumer)
        case DropAllocations(consumer):
            transport.send("DELETE", f"/allocations/{consumer}", once=True)
            _log(transport, "dropped all allocations consumer=%s", consumer)
        case _:
            assert_never(write)


def _log(transport: Transport, text: str, *values: object) -> None:
    """Log one line for a change, with the id of the request in placement's log."""
    LOG.info(f"{text} request=%s", *values, transport.request_id or "-")


class Writer:
    """Carries out operations, and keeps the generation from each answer for the next write."""

    def __init__(self, transport: Transport, observed: ObservedTree) -> None:
        self._transport = transport
        self._stands = observed.by_uuid  # without the providers whose generation is unknown
        self._last_modified = observed.last_modified
        self._ensured: tuple[str, ...] = ()  # classes that this plan made, or found

    @property
    def outcome(self) -> ObservedTree:
        """The tree after the operations so far, without the providers whose generation is unknown."""
        return ObservedTree(tuple(self._stands.values()), self._last_modified)

    def write(self, operation: Operation) -> None:
        """
        Send the requests of one operation, and log the changes of providers and consumers.

        Raises:
            Conflict, Rejected, Unavailable: a request failed; the earlier ones took effect.
        """
        match operation:
            case EnsureClasses():
                self._ensure_classes(operation)
            case EnsureTraits():
                self._send(operation)
            case Create():
                self._create(operation)
            case Rename(uuid, name, old):
                self._send(operation, {"name": name})
                apply(operation, self._stands)
                self._log("renamed provider uuid=%s from=%s to=%s", uuid, old, name)
            case Reparent(_, name, parent_uuid, parent, old):
                self._send(operation, {"name": name, "parent_provider_uuid": parent_uuid})
                apply(operation, self._stands)
                self._log("re-parented provider name=%s from=%s to=%s", name, old, parent)
            case SetTraits():
                self._set_traits(operation)
            case SetAggregates(_, name, aggregates):
                self._put(operation, "aggregates", sorted(aggregates))
                self._log("set aggregates of provider name=%s aggregates=%s", name, sorted(aggregates))
            case SetInventories():
                with self._with_its_classes():
                    self._set_inventories(operation)
            case Reshape():
                with self._with_its_classes():
                    self._reshape(operation)
            case Delete():
                self._delete(operation)
            case _:
                assert_never(operation)

    def _send(self, operation: Operation, body: Body = None, newest: tuple[int, int] = NEWEST) -> Any:
        """Send the requests of an operation, one after the other, and return the last answer's body."""
        answer = None
        for method, path in payload.requests_of(operation):
            answer = self._transport.send(method, path, body, newest=newest)
        return answer

    def _log(self, text: str, *values: object) -> None:
        _log(self._transport, text, *values)

    def _ensure_classes(self, classes: EnsureClasses) -> None:
        """Make classes one after the other: placement numbers them itself, and can lose one of two made at once."""
        self._send(classes)
        self._ensured = classes.names

    @contextmanager
    def _with_its_classes(self) -> Iterator[None]:
        """
        Write stock inside; where placement refuses it as it lost a class of this plan, make the class again.

        Of two classes that two agents make at once, placement (16.0.0, on PostgreSQL) can answer 204 for one and not
        have it.

        Raises:
            Conflict: a class was lost, and is made: plan again.
        """
        try:
            yield
        except Rejected as error:
            lost = [name for name in self._ensured if not self._has_class(name)]
            if not lost:
                raise
            self._ensure_classes(EnsureClasses(tuple(lost)))
            raise Conflict(f"placement lost {', '.join(lost)}, made at the same time as another class") from error

    def _has_class(self, name: str) -> bool:
        try:
            self._transport.get(f"/resource_classes/{name}")
        except Absent:
            return False
        return True

    def _create(self, create: Create) -> None:
        try:
            answer = self._send(create, payload.encode_create(create))
        except NameTaken as error:
            answer = self._made_already(create, error)
        with payload.in_form(f"the new provider {create.name}"):
            generation = int(answer["generation"])
        self._apply(create, generation)
        parent = self._stands[create.uuid].provider.parent
        self._log("created provider name=%s uuid=%s parent=%s", create.name, create.uuid, parent)

    def _made_already(self, create: Create, refusal: NameTaken) -> Mapping[str, int]:
        """
        Return the provider if our own request made it and was sent again after its answer was lost.

        Raises:
            NameTaken: another host uses this name or uuid.
            Conflict: another writer changed the provider since.
        """
        try:
            body, _ = self._transport.get(f"/resource_providers/{create.uuid}")
        except Absent:
            body = {}
        same = (body.get("name"), body.get("parent_provider_uuid")) == (create.name, create.parent_uuid)
        if same and body.get("generation") == 0:
            return {"generation": 0}
        if same:
            raise Conflict(f"another writer changed provider {create.name} right after it was created") from refusal
        raise NameTaken(f"{refusal}; another host uses this name or uuid") from refusal

    def _set_traits(self, write: SetTraits) -> None:
        generation = None if write.uuid in self._stands else self._unchanged(write)
        self._put(write, "traits", sorted(write.traits), generation)
        self._log(
            "set traits of provider name=%s added=%s removed=%s", write.name, sorted(write.added), sorted(write.removed)
        )

    def _unchanged(self, write: SetTraits) -> int:
        """
        Return the generation of a provider after a reshape, whose answer has none.

        Raises:
            Conflict: the traits are no longer those of the plan.
        """
        body, _ = self._transport.get(f"/resource_providers/{write.uuid}/traits")
        with payload.in_form(f"the traits of provider {write.name}"):
            stands, generation = payload.decode_names(body, "traits"), int(body["resource_provider_generation"])
        if stands != (write.traits - write.added) | write.removed:
            raise Conflict(f"another writer changed the traits of provider {write.name} while the plan was carried out")
        return generation

    def _set_inventories(self, write: SetInventories) -> None:
        self._put(write, "inventories", payload.encode_stock(write.inventories))
        self._log("set inventories of provider name=%s %s", write.name, _totals(write))

    def _put(self, write: _Whole, aspect: str, value: object, generation: int | None = None) -> None:
        """Replace one aspect of a provider; ``generation`` None: the known one."""
        named = self._stands[write.uuid].generation if generation is None else generation
        body = {"resource_provider_generation": named, aspect: value}
        answer = self._send(write, body)
        if write.uuid not in self._stands:
            return
        with payload.in_form(f"a write on provider {write.name}"):
            generation = int(answer["resource_provider_generation"])
        self._apply(write, generation)

    def _reshape(self, reshape: Reshape) -> None:
        """
        Send a reshape; if the role does not allow it and nothing moves, write the providers one after the other.

        Raises:
            Forbidden: consumers move, or what an operator reserved, and the role does not allow reshapes.
        """
        generations = {one.uuid: self._stands[one.uuid].generation for one in reshape.inventories}
        try:
            self._send(reshape, payload.encode_reshape(reshape, generations), payload.UNTYPED)
        except Forbidden:
            pairs = [(one, self._stands[one.uuid].provider.inventories) for one in reshape.inventories]
            if reshape.rewrites or _takes_reservations_along(pairs):
                raise
            for one in _one_by_one(pairs):
                self._set_inventories(one)
            return
        touched = {uuid for one in reshape.rewrites for uuid in (*one.before, *one.after)}
        for uuid in touched | generations.keys():  # the answer has no generations: to be read again
            self._stands.pop(uuid, None)
        for one in reshape.inventories:
            self._log("set inventories of provider name=%s %s", one.name, _totals(one))
        for rewrite in reshape.rewrites:
            self._log("moved consumer uuid=%s", rewrite.consumer)

    def _apply(self, write: Create | _Whole, generation: int) -> None:
        """Note a write on one provider with its new generation."""
        apply(write, self._stands)
        self._stands[write.uuid] = replace(self._stands[write.uuid], generation=generation)

    def _delete(self, write: Delete) -> None:
        with suppress(Absent):  # our own request deleted it, and was sent again after its answer was lost
            self._send(write)
        self._stands.pop(write.uuid, None)
        self._last_modified = ""  # a listing without this provider can have an earlier date
        self._log("deleted provider name=%s uuid=%s", write.name, write.uuid)


_Pairs = Iterable[tuple[SetInventories, Mapping[str, Inventory]]]  # each write with what stands on its provider


def _one_by_one(pairs: _Pairs) -> list[SetInventories]:
    """Return writes of single providers: first those that only take away, so that no device is offered twice."""
    losses: list[SetInventories] = []
    gains: list[SetInventories] = []
    for one, stands in pairs:
        left = {
            name: one.inventories[name] if one.inventories[name].total <= stock.total else stock
            for name, stock in stands.items()
            if name in one.inventories
        }
        losses += [replace(one, inventories=left)] if left != stands else []
        gains += [one] if left != one.inventories else []
    return losses + gains


def _takes_reservations_along(pairs: _Pairs) -> bool:
    """Return whether reserved stock goes from one provider to another: an end between two writes would forget it."""
    lost, gained = set[str](), set[str]()
    for one, stands in pairs:
        for name in stands.keys() | one.inventories.keys():
            (total, reserved), (was, theirs) = (
                (stock[name].total, stock[name].reserved) if name in stock else (0, 0)
                for stock in (one.inventories, stands)
            )
            lost |= {name} if total < was and reserved < theirs else set()
            gained |= {name} if total > was and reserved > theirs else set()
    return bool(lost & gained)


def _totals(write: SetInventories) -> str:
    return " ".join(f"{name}={stock.total}" for name, stock in sorted(write.inventories.items())) or "none"
