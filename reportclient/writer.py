"""Carries out the operations of a plan, one request after the other; decides nothing."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import assert_never

from reportclient import payload
from reportclient.errors import Absent, Conflict, Forbidden, NameTaken
from reportclient.plan import (
    Claim,
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
    Rewrite,
    SetAggregates,
    SetInventories,
    SetTraits,
)
from reportclient.transport import NEWEST, Transport
from reportclient.tree import ObservedProvider, ObservedTree, Provider

LOG = logging.getLogger(__name__)


class Writer:
    """Carries out operations one by one and keeps the generation that each answer gave."""

    def __init__(self, transport: Transport, observed: ObservedTree) -> None:
        self._transport = transport
        self._last_modified = observed.last_modified
        self._stands = observed.by_uuid

    @property
    def outcome(self) -> ObservedTree:
        return ObservedTree(tuple(self._stands.values()), self._last_modified)

    def write(self, operation: Operation) -> None:
        match operation:
            case EnsureClasses(names):
                for name in names:
                    self._transport.send("PUT", f"/resource_classes/{name}")
            case EnsureTraits(names):
                for name in names:
                    self._transport.send("PUT", f"/traits/{name}")
            case Create():
                self._create(operation)
            case Rename(uuid, name, old):
                self._transport.send("PUT", f"/resource_providers/{uuid}", {"name": name})
                self._renamed(uuid, old, name)
            case Reparent(uuid, name, parent_uuid, parent, old):
                body = {"name": name, "parent_provider_uuid": parent_uuid}
                self._transport.send("PUT", f"/resource_providers/{uuid}", body)
                stands = self._stands[uuid]
                self._stands[uuid] = replace(stands, provider=replace(stands.provider, parent=parent))
                self._tell("re-parented provider name=%s from=%s to=%s", name, old, parent)
            case SetTraits():
                self._set_traits(operation)
            case SetAggregates(uuid, name, aggregates):
                body = payload.encode_aggregates(aggregates, self._generation(operation))
                answer = self._transport.send("PUT", f"/resource_providers/{uuid}/aggregates", body)
                self._confirm(uuid, answer, aggregates=aggregates)
                self._tell("set aggregates of provider name=%s aggregates=%s", name, sorted(aggregates))
            case SetInventories():
                self._set_inventories(operation)
            case Reshape():
                self._reshape(operation)
            case Claim():
                self._claim(operation)
            case ReplaceAllocations(rewrites):
                self._replace(rewrites)
            case DropAllocations(consumer):
                self._transport.send("DELETE", f"/allocations/{consumer}", once=True)
                self._tell("dropped all allocations consumer=%s", consumer)
            case Delete(uuid, name):
                with suppress(Absent):  # our own request was sent again after its answer was lost: it is gone
                    self._transport.send("DELETE", f"/resource_providers/{uuid}")
                self._stands.pop(uuid, None)
                self._last_modified = ""  # without this provider a listing may be of an earlier date
                self._tell("deleted provider name=%s uuid=%s", name, uuid)
            case _:
                assert_never(operation)

    def _tell(self, text: str, *values: object) -> None:
        """One line for a change that was made, with the name that placement's log has for the request."""
        LOG.info(f"{text} request=%s", *values, self._transport.request_id or "-")

    def _create(self, create: Create) -> None:
        try:
            answer = self._transport.send("POST", "/resource_providers", payload.encode_create(create))
        except NameTaken as error:
            answer = self._made_already(create, error)
        with payload.in_form(f"the new provider {create.name}"):
            generation = int(answer["generation"])
        parent = self._stands[create.parent_uuid].name if create.parent_uuid else None
        self._stands[create.uuid] = ObservedProvider(
            uuid=create.uuid, generation=generation, provider=Provider(name=create.name, parent=parent)
        )
        self._tell("created provider name=%s uuid=%s parent=%s", create.name, create.uuid, parent)

    def _made_already(self, create: Create, refusal: NameTaken) -> Mapping[str, int]:
        """
        The provider, when it is the one to be made: our own request was sent again after its answer was lost.

        Raises:
            NameTaken: another host uses this name or uuid.
        """
        try:
            body, _ = self._transport.get(f"/resource_providers/{create.uuid}")
        except Absent:
            body = {}
        same = (body.get("name"), body.get("parent_provider_uuid")) == (create.name, create.parent_uuid)
        if same and body.get("generation") == 0:
            return {"generation": 0}
        if same:
            raise Conflict(f"somebody filled provider {create.name} at the moment it was made") from refusal
        raise NameTaken(f"{refusal}; another host uses this name or uuid") from refusal

    def _set_traits(self, write: SetTraits) -> None:
        path = f"/resource_providers/{write.uuid}/traits"
        generation = self._generation(write) if write.uuid in self._stands else self._unchanged(write, path)
        answer = self._transport.send("PUT", path, payload.encode_traits(write.traits, generation))
        self._confirm(write.uuid, answer, traits=write.traits)
        self._tell(
            "set traits of provider name=%s added=%s removed=%s", write.name, sorted(write.added), sorted(write.removed)
        )

    def _unchanged(self, write: SetTraits, path: str) -> int:
        """The generation after a reshape, which answers none, if the traits are still those of the plan."""
        body, _ = self._transport.get(path)
        with payload.in_form(f"the traits of {write.name}"):
            stands, generation = payload.decode_names(body, "traits"), int(body["resource_provider_generation"])
        if stands != (write.traits - write.added) | write.removed:
            raise Conflict(f"somebody else changed the traits of {write.name} meanwhile")
        return generation

    def _set_inventories(self, write: SetInventories) -> None:
        body = payload.encode_inventories(write.inventories, self._generation(write))
        answer = self._transport.send("PUT", f"/resource_providers/{write.uuid}/inventories", body)
        self._confirm(write.uuid, answer, inventories=write.inventories)
        self._tell("set inventories of provider name=%s %s", write.name, _totals(write))

    def _reshape(self, reshape: Reshape) -> None:
        """
        All in one transaction; where the role does not allow that, stock of which nobody moves one after the other.

        Raises:
            Forbidden: consumers move, and the user may not reshape.
        """
        generations = {one.uuid: self._generation(one) for one in reshape.inventories}
        try:
            body = payload.encode_reshape(reshape, generations)
            self._transport.send("POST", "/reshaper", body, newest=payload.UNTYPED)
        except Forbidden:
            if reshape.rewrites:
                raise
            for one in (
                *filter(None, map(self._losses, reshape.inventories)),
                *filter(self._gains, reshape.inventories),
            ):
                self._set_inventories(one)
            return
        touched = {uuid for one in reshape.rewrites for uuid in (*one.before, *one.after)}
        for uuid in touched | generations.keys():
            self._stands.pop(uuid, None)  # a reshape answers no generations: to be read again
        for one in reshape.inventories:
            self._tell("set inventories of provider name=%s %s", one.name, _totals(one))
        for each in reshape.rewrites:
            self._tell("moved consumer uuid=%s", each.consumer)

    def _claim(self, claim: Claim) -> None:
        path = f"/allocations/{claim.consumer}"
        newest = NEWEST if claim.kind else payload.UNTYPED
        self._transport.send("PUT", path, partial(payload.encode_claim, claim), newest=newest, once=True)
        self._tell("claimed consumer=%s", claim.consumer)

    def _replace(self, rewrites: tuple[Rewrite, ...]) -> None:
        """One consumer by PUT, several by POST: all of them are written, or none."""
        newest = NEWEST if all(one.kind for one in rewrites) else payload.UNTYPED
        if len(rewrites) == 1:
            path, body = f"/allocations/{rewrites[0].consumer}", partial(payload.encode_rewrite, rewrites[0])
            self._transport.send("PUT", path, body, newest=newest, once=True)
        else:
            self._transport.send(
                "POST", "/allocations", partial(payload.encode_rewrites, rewrites), newest=newest, once=True
            )
        for each in rewrites:
            for uuid in (*each.before, *each.after):
                self._stands.pop(uuid, None)  # their generations moved, and the answer tells none
            self._tell("%s consumer=%s", "replaced allocations" if each.after else "released", each.consumer)

    def _losses(self, write: SetInventories) -> SetInventories | None:
        """The part of a write that only takes away; None where it takes nothing."""
        stands = self._stands[write.uuid].provider.inventories
        left = {
            name: write.inventories[name] if write.inventories[name].total <= stock.total else stock
            for name, stock in stands.items()
            if name in write.inventories
        }
        taken = left.keys() != stands.keys() or any(stands[name] != stock for name, stock in left.items())
        return replace(write, inventories=left) if taken else None

    def _gains(self, write: SetInventories) -> bool:
        """Whether a write adds to a provider: then it waits for those that only take away, so that nothing is twice."""
        stands = self._stands[write.uuid].provider.inventories
        return any(name not in stands or one.total > stands[name].total for name, one in write.inventories.items())

    def _renamed(self, uuid: str, old: str, name: str) -> None:
        for key, stands in self._stands.items():
            if key == uuid:
                self._stands[key] = replace(stands, provider=replace(stands.provider, name=name))
            elif stands.provider.parent == old:
                self._stands[key] = replace(stands, provider=replace(stands.provider, parent=name))
        self._tell("renamed provider uuid=%s from=%s to=%s", uuid, old, name)

    def _generation(self, write: SetTraits | SetAggregates | SetInventories) -> int:
        return self._stands[write.uuid].generation

    def _confirm(self, uuid: str, answer: Mapping[str, int], **changed: object) -> None:
        stands = self._stands.get(uuid)
        if stands is None:
            return
        provider = replace(stands.provider, **changed)  # type: ignore[arg-type]
        with payload.in_form(f"a write on {stands.name}"):
            generation = int(answer["resource_provider_generation"])
        self._stands[uuid] = replace(stands, generation=generation, provider=provider)


def _totals(write: SetInventories) -> str:
    return " ".join(f"{name}={stock.total}" for name, stock in sorted(write.inventories.items())) or "none"
