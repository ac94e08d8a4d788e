"""Requests to placement as an operator or another service makes them by hand."""

import uuid
from collections.abc import Mapping
from typing import Any

import requests

from beds.placement import NOAUTH_HEADERS

Row = dict[str, Any]  # a provider, or the record of a class, as placement answers it
Stock = Mapping[str, object]  # parts of the record of a class
Slots = Mapping[str, Mapping[str, int]]


def claim_body(
    slots: Slots, kind: str | None = "INSTANCE", *, project: str = "p", user: str = "u", generation: int | None = None
) -> Row:
    """What a consumer of this generation is to have: provider -> class -> amount; without a kind as before 1.38."""
    body = {
        "allocations": {provider: {"resources": dict(resources)} for provider, resources in slots.items()},
        "project_id": project,
        "user_id": user,
        "consumer_generation": generation,
    }
    return body | ({"consumer_type": kind} if kind else {})


class ByHand:
    """A placement without authentication, by its URL or an adapter to one here; a ``provider`` is its uuid."""

    def __init__(self, placement: Any) -> None:
        self._placement = placement

    def send(self, method: str, path: str, body: object = None, *, version: str = "1.39") -> Any:
        """One request; its JSON, None where there is none."""
        if isinstance(self._placement, str):
            headers = {**NOAUTH_HEADERS, "OpenStack-API-Version": f"placement {version}"}
            answer = requests.request(method, f"{self._placement}{path}", json=body, headers=headers, timeout=30)
        else:
            answer = self._placement.request(path, method, json=body, microversion=version, raise_exc=False)
        assert answer.status_code < 300, f"{method} {path}: {answer.text}"
        return answer.json() if answer.text else None

    def providers(self) -> dict[str, Row]:
        """All of them, by name."""
        return {one["name"]: one for one in self.send("GET", "/resource_providers")["resource_providers"]}

    def traits(self, provider: str) -> set[str]:
        return set(self.send("GET", f"/resource_providers/{provider}/traits")["traits"])

    def stock(self, provider: str) -> dict[str, Row]:
        """The record of each class."""
        found: dict[str, Row] = self.send("GET", f"/resource_providers/{provider}/inventories")["inventories"]
        return found

    def add_provider(
        self, name: str, provider: str = "", *, parent: str | None = None, stock: Mapping[str, Stock] | None = None
    ) -> str:
        """A provider with records of these classes; its uuid, random unless given."""
        provider = provider or str(uuid.uuid4())
        body = {"name": name, "uuid": provider} | ({"parent_provider_uuid": parent} if parent else {})
        self.send("POST", "/resource_providers", body)
        if stock:
            self.change_stock(provider, **stock)
        return provider

    def add_child(self, parent: str, name: str, resource_class: str, total: int, *traits: str) -> str:
        """A provider below another one with stock of one class; its uuid, which is random."""
        provider = self.add_provider(name, parent=parent, stock={resource_class: {"total": total}})
        self.add_traits(provider, *traits)
        return provider

    def change_stock(self, provider: str, **stock: Stock | None) -> None:
        """Lay records over those of their classes, which are made where they are missing; None takes one away."""
        for name in stock:
            if name.startswith("CUSTOM_"):
                self.send("PUT", f"/resource_classes/{name}")
        path = f"/resource_providers/{provider}/inventories"
        body = self.send("GET", path)
        for name, record in stock.items():
            before = body["inventories"].pop(name, {})
            body["inventories"] |= {} if record is None else {name: {**before, **record}}
        self.send("PUT", path, body)

    def add_traits(self, provider: str, *names: str) -> None:
        """Put traits on a provider; they are made where they are missing."""
        for name in names:
            if name.startswith("CUSTOM_"):
                self.send("PUT", f"/traits/{name}")
        self._set(provider, "traits", sorted(self.traits(provider).union(names)))

    def remove_traits(self, provider: str, *names: str) -> None:
        self._set(provider, "traits", sorted(self.traits(provider).difference(names)))

    def set_aggregates(self, provider: str, *aggregates: str) -> None:
        self._set(provider, "aggregates", list(aggregates))

    def _set(self, provider: str, aspect: str, values: list[str]) -> None:
        path = f"/resource_providers/{provider}"
        body = {"resource_provider_generation": self.send("GET", path)["generation"], aspect: values}
        self.send("PUT", f"{path}/{aspect}", body)

    def claim(self, consumer: str, slots: Slots, kind: str | None = "INSTANCE", **owner: str) -> None:
        """What a consumer has from now on, whatever it had: provider -> class -> amount."""
        path = f"/allocations/{consumer}"
        body = claim_body(slots, kind, generation=self.send("GET", path).get("consumer_generation"), **owner)
        self.send("PUT", path, body, version="1.39" if kind else "1.37")

    def allocate(self, provider: str, resource_class: str, amount: int) -> None:
        """A new consumer's allocation."""
        self.claim(str(uuid.uuid4()), {provider: {resource_class: amount}})
