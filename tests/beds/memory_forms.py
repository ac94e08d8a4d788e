"""Placement's forms: which bodies and queries of 1.30 to 1.39 it understands; whatever else is a 400."""

import re
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

MAX_INT = 2**31 - 1
MAX_RATIO = 3.40282e38
LEAST = {"total": 1, "reserved": 0, "min_unit": 1, "max_unit": 1, "step_size": 1}
DEFAULTS = {"reserved": 0, "min_unit": 1, "max_unit": MAX_INT, "step_size": 1, "allocation_ratio": 1.0}

UNDEFINED = "placement.undefined_code"
CONCURRENT = "placement.concurrent_update"

_NAME = re.compile(r"[A-Z0-9_]+").fullmatch
_CUSTOM = re.compile(r"CUSTOM_[A-Z0-9_]{1,248}").fullmatch
_KEY = re.compile(r"[0-9a-fA-F-]{36}").fullmatch  # what placement takes for a uuid where it is a key
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch


class Refused(Exception):
    """An answer of 400 and above."""

    def __init__(self, status: int, why: str, code: str = UNDEFINED) -> None:
        super().__init__(why)
        self.status = status
        self.code = code


def demand(good: object, what: str) -> None:
    """400 unless ``good``."""
    if not good:
        raise Refused(400, f"not placement's form of {what}")


def parse_uuid(text: object) -> str:
    """A uuid with its dashes, from any way to write one."""
    if isinstance(text, str):
        if _UUID(text):
            return text
        try:
            return str(UUID(text))
        except ValueError:
            pass
    raise Refused(400, f"{text!r} is no uuid")


def parse_query(query: str, allowed: frozenset[str]) -> dict[str, str]:
    """A query's parameters, each once."""
    pairs = parse_qsl(query, keep_blank_values=True)
    given = dict(pairs)
    demand(given.keys() <= allowed, f"a query: {query}")
    if len(given) < len(pairs):
        raise NotImplementedError(f"a parameter that comes twice: {query}")
    return given


def check_custom(name: str) -> None:
    """400 unless it is the name of a class or trait that users may make."""
    demand(_CUSTOM(name), f"a custom name: {name}")


def check_provider(body: Any, *, new: bool) -> None:
    allowed = {"name", "parent_provider_uuid", "uuid"} if new else {"name", "parent_provider_uuid"}
    demand(isinstance(body, dict) and "name" in body and body.keys() <= allowed, "a provider")
    demand(isinstance(body["name"], str) and len(body["name"]) <= 200, "a provider's name")
    if body.get("parent_provider_uuid") is not None:
        parse_uuid(body["parent_provider_uuid"])


def check_names(body: Any, key: str) -> None:
    """The body that sets a provider's ``traits`` or ``aggregates``."""
    demand(isinstance(body, dict) and body.keys() == {key, "resource_provider_generation"}, key)
    names = body[key]
    demand(type(body["resource_provider_generation"]) is int and isinstance(names, list | tuple), key)
    demand(all(isinstance(name, str) and 0 < len(name) < 256 for name in names), key)
    if key == "aggregates":
        demand(len(set(names)) == len(names) and all(map(parse_uuid, names)), key)


def check_inventories(body: Any) -> None:
    demand(isinstance(body, dict) and body.keys() == {"resource_provider_generation", "inventories"}, "inventories")
    demand(type(body["resource_provider_generation"]) is int and isinstance(body["inventories"], dict), "inventories")
    for name, record in body["inventories"].items():
        demand(isinstance(record, dict) and "total" in record, name)
        for key, value in record.items():
            if key in LEAST:
                demand(type(value) is int and LEAST[key] <= value <= MAX_INT, f"{name}: {key}")
            else:
                demand(key == "allocation_ratio" and type(value) in (int, float) and value <= MAX_RATIO, name)


def check_consumer(body: Any, minor: int) -> None:
    """What a consumer is to hold, and who it is."""
    keys = {"allocations", "project_id", "user_id", "consumer_generation"} | (
        {"consumer_type"} if minor >= 38 else set()
    )
    if isinstance(body, dict) and "mappings" in body and minor >= 34:
        raise NotImplementedError("mappings")
    demand(isinstance(body, dict) and body.keys() == keys and isinstance(body["allocations"], dict), "allocations")
    demand(body["consumer_generation"] is None or type(body["consumer_generation"]) is int, "a generation")
    texts = [body["project_id"], body["user_id"], body.get("consumer_type", "-")]
    demand(all(isinstance(text, str) and 0 < len(text) < 256 for text in texts), "a consumer")
    demand(minor < 38 or _NAME(body["consumer_type"]), "a consumer's type")
    for uuid, record in body["allocations"].items():
        demand(_KEY(uuid) and isinstance(record, dict), "allocations")
        demand("resources" in record and record.keys() <= {"resources", "generation"}, "allocations")
        demand(type(record.get("generation", 0)) is int, "a generation")
        resources = record["resources"]
        demand(isinstance(resources, dict) and resources, "resources")
        for name, amount in resources.items():
            demand(_NAME(name) and type(amount) is int and amount >= 1, f"resources: {name}")


def check_consumers(body: Any, minor: int) -> None:
    """Consumers by uuid."""
    demand(isinstance(body, dict) and all(map(_KEY, body)), "consumers")
    for one in body.values():
        check_consumer(one, minor)


def check_reshape(body: Any, minor: int) -> None:
    demand(isinstance(body, dict) and body.keys() == {"inventories", "allocations"}, "a reshape")
    demand(isinstance(body["inventories"], dict) and body["inventories"], "a reshape")
    demand(all(map(_KEY, body["inventories"])), "a reshape")
    for one in body["inventories"].values():
        check_inventories(one)
    check_consumers(body["allocations"], minor)
