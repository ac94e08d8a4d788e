"""Encode and decode placement's JSON."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, assert_never

from reportclient.allocations import Allocation, AllocationRequest, Consumer, Slots
from reportclient.errors import Unavailable
from reportclient.json_text import decode_as
from reportclient.plan import (
    Create,
    Delete,
    EnsureClasses,
    EnsureTraits,
    Operation,
    Rename,
    Reparent,
    Reshape,
    Rewrite,
    SetAggregates,
    SetInventories,
    SetTraits,
)
from reportclient.tree import NO_GENERATION, Inventory, ObservedProvider, Provider, Summary

_Json = dict[str, Any]
UNTYPED = (1, 37)  # the last microversion that writes allocations without a consumer type
_UNKNOWN = "unknown"  # the type that placement reports for a consumer that was written without one


def decode_listing(body: _Json) -> list[tuple[str, str, str | None, int]]:
    """
    Return (uuid, name, parent's uuid or None, generation) of each provider in ``GET /resource_providers``.

    Raises:
        ValueError: a provider is there twice.
    """
    rows = [
        (str(row["uuid"]), str(row["name"]), None if parent is None else str(parent), _whole(row["generation"]))
        for row in body["resource_providers"]
        for parent in (row["parent_provider_uuid"],)
    ]
    if len({uuid for uuid, *_ in rows}) < len(rows) or len({name for _, name, *_ in rows}) < len(rows):
        raise ValueError("a provider is there twice")
    return rows


@contextmanager
def in_form(what: str) -> Iterator[None]:
    """
    Check the form of an answer that is decoded in the block; ``what`` names the answer in the message.

    Raises:
        Unavailable: decoding failed, so that the answer is not in placement's form.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise Unavailable(
            f"placement's answer for {what} does not have the form that placement documents "
            f"({type(error).__name__}: {error}): does the endpoint lead to placement?"
        ) from error


def decode_inventories(body: Mapping[str, Any]) -> dict[str, Inventory]:
    """Return the inventories of one provider, by resource class."""
    return {name: decode_inventory(record) for name, record in body["inventories"].items()}


def decode_inventory(record: Mapping[str, Any]) -> Inventory:
    """
    Return one inventory; keys that the record lacks get placement's defaults.

    Raises:
        ValueError: an amount is no whole number, or the ratio no number.
    """
    known = {key: record[key] for key in Inventory.__dataclass_fields__ if key in record}
    ratio = known.pop("allocation_ratio", 1.0)
    if type(ratio) not in (int, float):
        raise ValueError(f"{str(ratio)[:40]} is no number")
    return Inventory(**{key: _whole(amount) for key, amount in known.items()}, allocation_ratio=ratio)


def encode_inventory(inventory: Inventory) -> _Json:
    """Return one inventory record with all its keys."""
    return {key: getattr(inventory, key) for key in Inventory.__dataclass_fields__}


def encode_inventories(inventories: Mapping[str, Inventory], generation: int) -> dict[str, object]:
    """Return the body of ``PUT /resource_providers/{uuid}/inventories``."""
    return {"resource_provider_generation": generation, "inventories": encode_stock(inventories)}


def encode_stock(inventories: Mapping[str, Inventory]) -> dict[str, _Json]:
    """Return the records of some inventories, by resource class."""
    return {name: encode_inventory(inventory) for name, inventory in sorted(inventories.items())}


def encode_create(create: Create) -> dict[str, object]:
    """Return the body of ``POST /resource_providers``."""
    body: dict[str, object] = {"uuid": create.uuid, "name": create.name}
    return body | ({"parent_provider_uuid": create.parent_uuid} if create.parent_uuid else {})


def encode_reshape(reshape: Reshape, generations: Mapping[str, int]) -> dict[str, object]:
    """Return the body of ``POST /reshaper``; ``generations`` are those of the providers, by uuid."""
    return {
        "inventories": {
            one.uuid: encode_inventories(one.inventories, generations[one.uuid]) for one in reshape.inventories
        },
        "allocations": encode_rewrites(reshape.rewrites, UNTYPED),
    }


def encode_rewrite(
    rewrite: Rewrite, microversion: tuple[int, int], offered: AllocationRequest | None = None
) -> dict[str, object]:
    """
    Return the body of ``PUT /allocations/{uuid}``, which is also the part of one consumer in other bodies.

    Before 1.38 it has no consumer type, and placement leaves the type as it is. From 1.38 on it needs one, and
    ``unknown`` is not accepted: consumers of unknown type are written at 1.37. An ``offered`` request stays as it is.
    """
    slots: _Json = json.loads(offered.text) if offered else {"allocations": encode_slots(rewrite.after)}
    return {
        **slots,
        "project_id": rewrite.project,
        "user_id": rewrite.user,
        "consumer_generation": rewrite.generation,
        **({"consumer_type": rewrite.kind} if rewrite.kind and microversion > UNTYPED else {}),
    }


def encode_rewrites(rewrites: Iterable[Rewrite], microversion: tuple[int, int]) -> dict[str, object]:
    """Return the body of ``POST /allocations``."""
    return {one.consumer: encode_rewrite(one, microversion) for one in rewrites}


def encode_slots(slots: Slots) -> dict[str, object]:
    """Return ``{PROVIDER UUID: {"resources": {CLASS: AMOUNT}}}``, the form in writes and in allocation candidates."""
    return {uuid: {"resources": dict(resources)} for uuid, resources in sorted(slots.items())}


def decode_request(request: AllocationRequest) -> dict[str, dict[str, int]]:
    """
    Return the amounts that an allocation request asks for, by provider uuid and class.

    Raises:
        ValueError: the text is no allocation request; the message is the reason, without a subject.
    """
    try:
        found = {
            str(uuid): {str(name): _whole(amount) for name, amount in record["resources"].items()}
            for uuid, record in json.loads(request.text)["allocations"].items()
        }
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            'it must look like {"allocations": {PROVIDER UUID: {"resources": {CLASS: AMOUNT}}}}: copy one element of '
            "allocation_requests from the answer to GET /allocation_candidates"
        ) from error
    if not found or not all(found.values()) or min(min(one.values()) for one in found.values()) < 1:
        raise ValueError("it asks for nothing, or for less than 1 of a class")
    return found


def _whole(amount: object) -> int:
    if type(amount) is float and amount.is_integer():  # by JSON Schema 8.0 is a whole number too
        return int(amount)
    if type(amount) is not int:
        raise ValueError(f"{str(amount)[:40]} is no whole number")
    return amount


def decode_consumer(body: _Json, uuid: str, age_s: float | None = None) -> Consumer | None:
    """
    Return a consumer with all its allocations from ``GET /allocations/{uuid}``; None when it has none.

    The type ``unknown`` becomes None: placement reports it for consumers written without a type, and never accepts it.
    """
    if not body["allocations"]:
        return None
    return Consumer(
        uuid=uuid,
        generation=int(body["consumer_generation"]),
        project=str(body["project_id"]),
        user=str(body["user_id"]),
        kind=None if (kind := body.get("consumer_type")) == _UNKNOWN else kind,
        age_s=age_s,
        slots={
            str(provider): {str(name): _whole(amount) for name, amount in sorted(record["resources"].items())}
            for provider, record in sorted(body["allocations"].items())
        },
    )


def requests_of(operation: Operation) -> tuple[tuple[str, str], ...]:
    """Return the method and path of each request that carries out an operation."""
    match operation:
        case EnsureClasses(names):
            return tuple(("PUT", f"/resource_classes/{name}") for name in names)
        case EnsureTraits(names):
            return tuple(("PUT", f"/traits/{name}") for name in names)
        case Create():
            return (("POST", "/resource_providers"),)
        case Rename(uuid) | Reparent(uuid):
            return (("PUT", f"/resource_providers/{uuid}"),)
        case SetTraits(uuid):
            return (("PUT", f"/resource_providers/{uuid}/traits"),)
        case SetAggregates(uuid):
            return (("PUT", f"/resource_providers/{uuid}/aggregates"),)
        case SetInventories(uuid):
            return (("PUT", f"/resource_providers/{uuid}/inventories"),)
        case Reshape():
            return (("POST", "/reshaper"),)
        case Delete(uuid):
            return (("DELETE", f"/resource_providers/{uuid}"),)
        case _:
            assert_never(operation)


def decode_allocations(body: _Json, provider: str) -> tuple[Allocation, ...]:
    """
    Return the allocations on one provider (by name), from ``GET /resource_providers/{uuid}/allocations``.

    Raises:
        ValueError: an amount is no whole number.
    """
    return tuple(
        Allocation(str(consumer), provider, str(resource_class), _whole(amount))
        for consumer, record in sorted(body["allocations"].items())
        for resource_class, amount in sorted(record["resources"].items())
    )


def decode_usages(body: _Json) -> dict[str, dict[str, int]]:
    """Return usages by consumer type and class, without ``consumer_count``; before 1.38 the only type is ""."""
    usages = body["usages"]
    typed = usages if all(isinstance(one, dict) for one in usages.values()) else {"": usages}
    return {
        str(kind): {str(name): _whole(amount) for name, amount in sorted(sums.items()) if name != "consumer_count"}
        for kind, sums in sorted(typed.items())
    }


def decode_candidates(body: _Json) -> tuple[list[frozenset[str]], dict[str, dict[str, Summary]]]:
    """
    Return the roots whose trees give to each candidate of ``GET /allocation_candidates`` (1.29), by uuid.

    Beside them, for each root of the answer, what each provider of its tree has.
    """
    trees: dict[str, dict[str, Summary]] = {}
    roots = {str(uuid): str(one["root_provider_uuid"]) for uuid, one in body["provider_summaries"].items()}
    for uuid, one in body["provider_summaries"].items():
        free = {str(name): _whole(row["capacity"]) - _whole(row["used"]) for name, row in one["resources"].items()}
        trees.setdefault(roots[uuid], {})[uuid] = Summary(free, decode_names(one, "traits"))
    return [frozenset(roots[uuid] for uuid in one["allocations"]) for one in body["allocation_requests"]], trees


def decode_names(body: _Json, key: str) -> frozenset[str]:
    """
    Return the names in a list of an answer, for instance its traits.

    Raises:
        KeyError, TypeError: the answer has no such list.
    """
    names = body[key]
    if not isinstance(names, list):
        raise TypeError(f"{key} is no list")
    return frozenset(map(str, names))


def encode_provider(provider: Provider) -> dict[str, object]:
    """Return a provider without its name, as JSON of the agent has it."""
    return {
        "parent": provider.parent,
        "inventories": encode_stock(provider.inventories),
        "traits": sorted(provider.traits),
        "aggregates": sorted(provider.aggregates),
    }


def encode_observed(observed: ObservedProvider) -> dict[str, object]:
    """Return an observed provider in the form of the agent's state files."""
    own = {"uuid": observed.uuid, "generation": observed.generation, "name": observed.name}
    above = {} if observed.above == NO_GENERATION else {"above": observed.above}
    return own | above | encode_provider(observed.provider)


def decode_observed(record: Mapping[str, Any]) -> ObservedProvider:
    """Return the provider that ``encode_observed`` encoded; KeyError: it lacks what a provider always has."""
    provider = decode_as(Provider, {**record, "inventories": record["inventories"]})
    above = int(record.get("above", NO_GENERATION))
    return ObservedProvider(uuid=record["uuid"], generation=record["generation"], provider=provider, above=above)
