"""Whole trees with who holds what, laid down in a placement by hand and read back by name."""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

from beds.by_hand import ByHand

Record = dict[str, Any]


def identity(name: str) -> str:
    """The uuid that stands for a name in a story; a name that is one already stays."""
    try:
        return str(uuid.UUID(name))
    except ValueError:
        return str(uuid5(NAMESPACE_DNS, name))


def lay_down(placement: ByHand, providers: Mapping[str, Any]) -> None:
    """``{NAME: {"uuid"?, "parent", "inventories", "traits", "aggregates"}}``, parents before children."""
    for name, provider in providers.items():
        _add_provider(placement, name, provider, providers)


def add_consumer(placement: ByHand, name: str, consumer: Mapping[str, Any]) -> None:
    """``{"project", "user", "type" or null, "allocations": {PROVIDER: {CLASS: AMOUNT}}}``."""
    uuids = {name: one["uuid"] for name, one in placement.providers().items()}
    slots = {uuids[name]: resources for name, resources in consumer["allocations"].items()}
    owner = {key: consumer.get(key, key) for key in ("project", "user")}
    placement.claim(identity(name), slots, consumer.get("type", "INSTANCE"), **owner)


def read_back(placement: ByHand, consumers: Iterable[str]) -> Record:
    """All providers, and these consumers by their names in a story, as they stand, without generations and uuids."""
    rows = placement.providers()
    names = {row["uuid"]: name for name, row in rows.items()}
    providers = {
        name: {
            "parent": names.get(row["parent_provider_uuid"]),
            "inventories": _totals(placement, row["uuid"]),
            "traits": sorted(
                trait
                for trait in placement.traits(row["uuid"])
                if row["parent_provider_uuid"] or trait.startswith(("CUSTOM_", "OWNER_", "MISC_"))
            ),
            "aggregates": placement.send("GET", f"/resource_providers/{row['uuid']}/aggregates")["aggregates"],
        }
        for name, row in sorted(rows.items())
    }
    return {
        "providers": providers,
        "consumers": {name: read_consumer(placement, name, names) for name in consumers},
    }


def read_consumer(placement: ByHand, name: str, names: Mapping[str, str]) -> Record:
    body = placement.send("GET", f"/allocations/{identity(name)}")
    return {
        "project": body.get("project_id"),
        "user": body.get("user_id"),
        "type": None if body.get("consumer_type") in (None, "unknown") else body["consumer_type"],
        "allocations": {
            names[provider]: dict(sorted(record["resources"].items()))
            for provider, record in sorted(body["allocations"].items(), key=lambda item: names[item[0]])
        },
    }


def _uuid_of(name: str, providers: Mapping[str, Mapping[str, Any]]) -> str:
    return str(providers[name].get("uuid") or identity(name))


def _add_provider(
    placement: ByHand, name: str, provider: Mapping[str, Any], everybody: Mapping[str, Mapping[str, Any]]
) -> None:
    own = _uuid_of(name, everybody)
    body = {"name": name, "uuid": own}
    if provider.get("parent"):
        body["parent_provider_uuid"] = _uuid_of(provider["parent"], everybody)
    generation = placement.send("POST", "/resource_providers", body)["generation"]
    for resource_class in provider.get("inventories", {}):
        if resource_class.startswith("CUSTOM_"):
            placement.send("PUT", f"/resource_classes/{resource_class}")
    for trait in provider.get("traits", ()):
        if trait.startswith("CUSTOM_"):
            placement.send("PUT", f"/traits/{trait}")
    for aspect in ("traits", "aggregates", "inventories"):
        if provider.get(aspect):
            record = {"resource_provider_generation": generation, aspect: provider[aspect]}
            answer = placement.send("PUT", f"/resource_providers/{own}/{aspect}", record)
            generation = answer["resource_provider_generation"]


def _totals(placement: ByHand, own: str) -> Record:
    kept = ("total", "reserved", "allocation_ratio")
    return {name: {key: one[key] for key in kept} for name, one in sorted(placement.stock(own).items())}
