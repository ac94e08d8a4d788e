"""Requests to placement as an operator or another service makes them by hand."""

import uuid
from typing import Any

import requests

from beds.placement import NOAUTH_HEADERS


class ByHand:
    """A placement without authentication."""

    def __init__(self, url: str) -> None:
        self._url = url

    def send(self, method: str, path: str, body: object = None, *, version: str = "placement 1.39") -> Any:
        """One request; its JSON, None where there is none."""
        headers = {**NOAUTH_HEADERS, "OpenStack-API-Version": version}
        answer = requests.request(method, f"{self._url}{path}", json=body, headers=headers, timeout=30)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.text else None

    def add_child(self, root: dict[str, Any], name: str, resource_class: str, total: int, *traits: str) -> None:
        """A provider below a root with stock of one class; its uuid is random."""
        identity = str(uuid.uuid4())
        self.send("POST", "/resource_providers", {"name": name, "uuid": identity, "parent_provider_uuid": root["uuid"]})
        stock = {"resource_provider_generation": 0, "inventories": {resource_class: {"total": total}}}
        generation = self.send("PUT", f"/resource_providers/{identity}/inventories", stock)
        body = {"resource_provider_generation": generation["resource_provider_generation"], "traits": list(traits)}
        self.send("PUT", f"/resource_providers/{identity}/traits", body)

    def allocate(self, provider: str, resource_class: str, amount: int) -> None:
        """A new consumer's allocation."""
        body = {
            "allocations": {provider: {"resources": {resource_class: amount}}},
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        }
        self.send("PUT", f"/allocations/{uuid.uuid4()}", body)
