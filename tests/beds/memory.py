"""
A placement in memory, behind the edge that a keystoneauth adapter has; fast enough for a million requests.

It keeps placement 16's rules at microversions 1.30 to 1.39 (``tests/contract/test_memory.py`` holds it to them), its
oddities too: a PUT or POST of allocations that is refused for an unknown provider, or that gives a new consumer
nothing, leaves that consumer behind with generation 0. Roles are not asked for, and error texts are its own.
"""

import json
import re
import time
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass
from email.utils import formatdate
from functools import cache, lru_cache
from http import HTTPStatus
from typing import Any
from uuid import uuid4

import os_resource_classes
import os_traits

from beds.memory_books import Books, Consumer, Provider, Slots, Stock, capacity, links, parse_stock
from beds.memory_forms import (
    Refused,
    check_consumer,
    check_consumers,
    check_custom,
    check_inventories,
    check_names,
    check_provider,
    check_reshape,
    demand,
    parse_query,
    parse_uuid,
)

MINORS = {f"1.{minor}": minor for minor in range(30, 40)}
AGGREGATE = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
UNKNOWN = "unknown"  # the type of a consumer that was never told one


@dataclass(slots=True)
class MemoryAnswer:
    """What we use of a ``requests`` response."""

    status_code: int
    headers: dict[str, str]
    body: Any = None

    @property
    def content(self) -> bytes:
        return self.text.encode()

    @property
    def text(self) -> str:
        return "" if self.body is None else json.dumps(self.body)

    def json(self) -> Any:
        if self.body is None:
            raise ValueError("an answer without a body")
        return self.body


@dataclass(slots=True)
class _Ask:
    """A request, without its path."""

    minor: int
    query: str
    body: Any
    now_s: float


@dataclass(slots=True)
class _Reply:
    body: Any = None
    modified_s: float | None = None  # None: placement sends no Last-Modified
    status: int = 200


class MemoryPlacement:
    """``clock`` answers seconds since the epoch."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._began_s = clock()
        self._books = Books(set(os_resource_classes.STANDARDS))
        self._providers, self._consumers = self._books.providers, self._books.consumers
        self._uuids: dict[str, str] = {}  # by name
        self._trees: dict[str, dict[str, None]] = {}  # by root, in the order in which they were made
        self._custom_traits: dict[str, float] = {}  # when each was made

    def copy(self) -> "MemoryPlacement":
        """Another placement of the same clock, with all that stands here."""
        return deepcopy(self, {id(self._clock): self._clock})

    def request(self, url: str, method: str, **kwargs: Any) -> MemoryAnswer:
        """
        Answer as placement would.

        Raises:
            NotImplementedError: it is not known here what placement would answer.
        """
        path, _, query = url.partition("?")
        kind, item, aspect, *more = (*path.split("/")[1:], "", "")
        handler = _HANDLERS.get((method, kind, aspect or ("*" if item else "")))
        minor, body = MINORS.get(kwargs.get("microversion", "")), kwargs.get("json")
        if handler is None or minor is None or any(more) or (body is None and handler in _WITH_BODY):
            raise NotImplementedError(f"501: {method} {url} at {kwargs.get('microversion')} is not modelled")
        now_s = self._clock()
        headers = {"Date": _http_date(int(now_s))}
        try:
            reply = handler(self, item, _Ask(minor, query, body, now_s))
        except Refused as refusal:
            reply = _Reply(_error(refusal, f"{method} {url}"), None, refusal.status)
        if reply.body is not None:
            headers["Content-Type"] = "application/json"
        if reply.modified_s is not None:
            headers["Last-Modified"] = _http_date(int(reply.modified_s))
        return MemoryAnswer(reply.status, headers, reply.body)

    def snapshot(self) -> tuple[dict[str, Stock], dict[str, Slots]]:
        """All inventories by provider, and what each consumer holds by provider; to compare."""
        return (
            {one.uuid: {name: dict(record) for name, record in one.stock.items()} for one in self._providers.values()},
            {
                uuid: {key: dict(held) for key, held in one.slots.items()}
                for uuid, one in self._consumers.items()
                if one.slots
            },
        )

    # Providers

    def _list(self, _: str, ask: _Ask) -> _Reply:
        asked = parse_query(ask.query, frozenset({"name", "uuid", "in_tree", "required", "member_of", "resources"}))
        if "resources" in asked:
            raise NotImplementedError(ask.query)
        aggregates = set(asked.get("member_of", "").removeprefix("in:").split(","))
        demand("member_of" not in asked or all(map(AGGREGATE.fullmatch, aggregates)), "member_of")
        for key in ("uuid", "in_tree"):
            demand(key not in asked or parse_uuid(asked[key]) == asked[key], key)
        name, tree = asked.get("name"), self._providers.get(asked.get("in_tree", ""))
        found: Iterable[str | None] = self._providers
        if "in_tree" in asked:
            found = self._trees[tree.root] if tree else ()
        elif name:
            found = (self._uuids.get(name),)
        rows = [self._providers[uuid] for uuid in found if uuid and asked.get("uuid", uuid) == uuid]
        rows = [one for one in rows if one.name == name] if name else rows
        if "member_of" in asked:
            rows = [one for one in rows if not aggregates.isdisjoint(one.aggregates)]
        if "required" in asked and (tree or "in_tree" not in asked):
            wanted = self._known_traits(asked["required"])
            rows = [one for one in rows if wanted <= one.traits]
        body = {"resource_providers": [one.body() for one in rows]}
        return _Reply(body, max((one.modified_s for one in rows), default=ask.now_s))

    def _known_traits(self, required: str) -> set[str]:
        wanted = set(required.split(","))
        if required.startswith("in:") or any(name.startswith("!") or name != name.strip() for name in wanted):
            raise NotImplementedError(f"required={required}")
        demand(all(map(self._has_trait, wanted)), f"traits: {required}")
        return wanted

    def _create(self, _: str, ask: _Ask) -> _Reply:
        check_provider(ask.body, new=True)
        name, parent = ask.body["name"], ask.body.get("parent_provider_uuid")
        uuid = parse_uuid(ask.body["uuid"]) if "uuid" in ask.body else str(uuid4())
        demand(name and parent != uuid and (parent is None or parent in self._providers), "a provider with a parent")
        if uuid in self._providers or name in self._uuids:
            raise Refused(409, f"{uuid} or {name} is there already", "placement.duplicate_name")
        root = self._providers[parent].root if parent else uuid
        updated_s = None if parent else ask.now_s  # placement writes a root twice
        made = Provider(uuid, name, parent, root, ask.now_s, updated_s, links(uuid))
        self._providers[uuid] = made
        self._uuids[name] = uuid
        self._trees.setdefault(root, {})[uuid] = None
        return _Reply(made.body(), ask.now_s)

    def _show(self, uuid: str, _: _Ask) -> _Reply:
        provider = self._provider(uuid)
        return _Reply(provider.body(), provider.modified_s)

    def _update(self, uuid: str, ask: _Ask) -> _Reply:
        provider, body = self._provider(uuid), ask.body
        check_provider(body, new=False)
        name, parent = body["name"], body.get("parent_provider_uuid", provider.parent)
        branch = self._branch(provider)
        demand(parent is None or (parent in self._providers and parent not in branch), "a provider's parent")
        demand(ask.minor >= 37 or provider.parent in (None, parent), "a parent: it could not change before 1.37")
        if self._uuids.get(name, uuid) != uuid:
            raise Refused(409, f"{name} is there already", "placement.duplicate_name")
        reply = _Reply(None, provider.updated_s)  # as it was before
        root = self._providers[parent].root if parent else uuid
        if (name, parent) != (provider.name, provider.parent):
            provider.updated_s = ask.now_s
        if root != provider.root:
            self._replant(branch, provider.root, root, ask.now_s)
        del self._uuids[provider.name]
        self._uuids[name] = uuid
        provider.name, provider.parent = name, parent
        reply.body = provider.body()
        return reply

    def _branch(self, provider: Provider) -> list[str]:
        """A provider and all below it."""
        branch = [provider.uuid]
        for above in branch:
            branch += [uuid for uuid in self._trees[provider.root] if self._providers[uuid].parent == above]
        return branch

    def _replant(self, branch: list[str], old: str, root: str, now_s: float) -> None:
        for uuid in branch:
            del self._trees[old][uuid]
            self._trees.setdefault(root, {})[uuid] = None
            self._providers[uuid].root = root
            self._providers[uuid].updated_s = now_s

    def _delete(self, uuid: str, _: _Ask) -> _Reply:
        provider = self._provider(uuid)
        if any(self._providers[one].parent == uuid for one in self._trees[provider.root]):
            raise Refused(409, f"{uuid} has children", "placement.resource_provider.cannot_delete_parent")
        if provider.held:
            raise Refused(409, f"{uuid} is in use", "placement.resource_provider.inuse")
        del self._trees[provider.root][uuid], self._providers[uuid], self._uuids[provider.name]
        return _Reply(status=204)

    def _provider(self, uuid: str) -> Provider:
        try:
            return self._providers[uuid]
        except KeyError:
            raise Refused(404, f"no provider {uuid}") from None

    # What a provider has

    def _inventories(self, uuid: str, _: _Ask) -> _Reply:
        provider = self._provider(uuid)
        stock = {name: dict(record) for name, record in provider.stock.items()}
        return _Reply(_with_generation(provider, inventories=stock), provider.stocked_s)

    def _set_inventories(self, uuid: str, ask: _Ask) -> _Reply:
        provider = self._provider(uuid)
        check_inventories(ask.body)
        provider.check_generation(ask.body)
        stock = parse_stock(ask.body)
        demand(all(int(capacity(record)) >= 0 for record in stock.values()), "an inventory: reserved is over total")
        self._books.check_classes(stock)
        provider.check_removal(stock, {})
        provider.give(stock, ask.now_s)
        provider.touch(ask.now_s)
        return self._inventories(uuid, ask)

    def _traits(self, uuid: str, ask: _Ask) -> _Reply:
        provider = self._provider(uuid)
        modified_s = self._modified_s(provider.traits, ask)
        return _Reply(_with_generation(provider, traits=sorted(provider.traits)), modified_s)

    def _set_traits(self, uuid: str, ask: _Ask) -> _Reply:
        check_names(ask.body, "traits")
        provider = self._provider(uuid)
        provider.check_generation(ask.body)
        traits = frozenset(ask.body["traits"])
        demand(all(map(self._has_trait, traits)), f"traits: {sorted(traits)}")
        if traits != provider.traits:
            provider.traits = traits
            provider.touch(ask.now_s)
        return self._traits(uuid, ask)

    def _aggregates(self, uuid: str, ask: _Ask) -> _Reply:
        provider = self._provider(uuid)
        return _Reply(_with_generation(provider, aggregates=list(provider.aggregates)), ask.now_s)

    def _set_aggregates(self, uuid: str, ask: _Ask) -> _Reply:
        provider = self._provider(uuid)
        check_names(ask.body, "aggregates")
        provider.check_generation(ask.body)
        provider.aggregates = tuple(ask.body["aggregates"])
        provider.touch(ask.now_s)
        return self._aggregates(uuid, ask)

    def _held(self, uuid: str, ask: _Ask) -> _Reply:
        provider = self._provider(uuid)
        consumers = {one: self._consumers[one] for one in provider.held}
        rows = {
            one: {"resources": dict(provider.held[one]), "consumer_generation": consumer.generation}
            for one, consumer in consumers.items()
        }
        modified_s = max((one.written_s for one in consumers.values()), default=ask.now_s)
        return _Reply(_with_generation(provider, allocations=rows), modified_s)

    def _usages(self, uuid: str, ask: _Ask) -> _Reply:
        provider = self._provider(uuid)
        usages = {name: provider.used.get(name, 0) for name in provider.stock}
        return _Reply(_with_generation(provider, usages=usages), ask.now_s)

    # Names

    def _make_class(self, name: str, _: _Ask) -> _Reply:
        check_custom(name)
        made = name not in self._books.classes
        self._books.classes.add(name)
        return _Reply(status=201 if made else 204)

    def _show_class(self, name: str, _: _Ask) -> _Reply:
        if name not in self._books.classes:
            raise Refused(404, f"no such resource class {name}")
        return _Reply({"name": name, "links": []})

    def _make_trait(self, name: str, ask: _Ask) -> _Reply:
        check_custom(name)
        made = name not in self._custom_traits and name not in _standard_traits()
        if made:
            self._custom_traits[name] = ask.now_s
        return _Reply(None, self._modified_s([name], ask), 201 if made else 204)

    def _list_traits(self, _: str, ask: _Ask) -> _Reply:
        asked = parse_query(ask.query, frozenset({"name", "associated"}))
        if not asked.get("name", "").startswith("in:") or "associated" in asked:
            raise NotImplementedError(f"GET /traits?{ask.query}")
        found = sorted(filter(self._has_trait, set(asked["name"].removeprefix("in:").split(","))))
        return _Reply({"traits": found}, self._modified_s(found, ask))

    def _has_trait(self, name: str) -> bool:
        return name in self._custom_traits or name in _standard_traits()

    def _modified_s(self, traits: Iterable[str], ask: _Ask) -> float:
        return max((self._custom_traits.get(name, self._began_s) for name in traits), default=ask.now_s)

    # Consumers

    def _consumer(self, uuid: str, ask: _Ask) -> _Reply:
        one = self._consumers.get(uuid)
        if one is None or not one.slots:
            return _Reply({"allocations": {}}, ask.now_s)
        rows = {
            provider: {"resources": dict(resources), "generation": self._providers[provider].generation}
            for provider, resources in one.slots.items()
        }
        body = {
            "allocations": rows,
            "project_id": one.project,
            "user_id": one.user,
            "consumer_generation": one.generation,
        }
        if ask.minor >= 38:
            body["consumer_type"] = one.kind or UNKNOWN
        return _Reply(body, one.written_s)

    def _set_consumer(self, uuid: str, ask: _Ask) -> _Reply:
        uuid = parse_uuid(uuid)
        check_consumer(ask.body, ask.minor)
        self._books.rewrite({uuid: ask.body}, {}, ask.now_s)
        return _Reply(status=204)

    def _set_consumers(self, _: str, ask: _Ask) -> _Reply:
        check_consumers(ask.body, ask.minor)
        demand(ask.body, "consumers")
        self._books.rewrite(ask.body, {}, ask.now_s)
        return _Reply(status=204)

    def _drop_consumer(self, uuid: str, _: _Ask) -> _Reply:
        if uuid not in self._consumers or not self._consumers[uuid].slots:
            raise Refused(404, f"{uuid} holds nothing")
        self._books.drop(uuid)
        return _Reply(status=204)

    def _reshape(self, _: str, ask: _Ask) -> _Reply:
        check_reshape(ask.body, ask.minor)
        stocks = {}
        for uuid, one in ask.body["inventories"].items():
            if uuid not in self._providers:
                raise Refused(400, f"no provider {uuid}", "placement.resource_provider.not_found")
            self._providers[uuid].check_generation(one)
            stocks[uuid] = parse_stock(one)
        self._books.rewrite(ask.body["allocations"], stocks, ask.now_s)
        return _Reply(status=204)

    def _total_usages(self, _: str, ask: _Ask) -> _Reply:
        typed = ask.minor >= 38
        asked = parse_query(ask.query, frozenset({"project_id", "user_id"} | ({"consumer_type"} if typed else set())))
        demand("project_id" in asked and all(0 < len(value) < 256 for value in asked.values()), "usages")
        kind = asked.get("consumer_type")
        demand(kind in (None, UNKNOWN) or kind.startswith("all") or kind.upper() == kind, "a consumer's type")
        mine = [one for one in self._consumers.values() if one.slots and one.project == asked["project_id"]]
        mine = [one for one in mine if one.user == asked.get("user_id", one.user)]
        if not typed:
            return _Reply({"usages": _sum(mine)}, ask.now_s)
        kinds: dict[str, list[Consumer]] = {}
        for one in mine:
            kinds.setdefault("all" if kind == "all" else one.kind or UNKNOWN, []).append(one)
        usages = {
            key: {"consumer_count": len(ones), **_sum(ones)} for key, ones in kinds.items() if kind in (None, key)
        }
        return _Reply({"usages": usages}, ask.now_s)


def _sum(consumers: Iterable[Consumer]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for one in consumers:
        for resources in one.slots.values():
            for name, amount in resources.items():
                sums[name] = sums.get(name, 0) + amount
    return sums


def _with_generation(provider: Provider, **aspect: object) -> dict[str, object]:
    return {"resource_provider_generation": provider.generation, **aspect}


def _error(refusal: Refused, request: str) -> dict[str, Any]:
    detail = f"{request}: {refusal}"
    title = HTTPStatus(refusal.status).phrase
    return {"errors": [{"status": refusal.status, "title": title, "detail": detail, "code": refusal.code}]}


@lru_cache(maxsize=4096)
def _http_date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)


@cache
def _standard_traits() -> frozenset[str]:
    return frozenset(os_traits.get_traits())


Handler = Callable[[MemoryPlacement, str, _Ask], _Reply]
_P = MemoryPlacement
_HANDLERS: dict[tuple[str, str, str], Handler] = {
    ("GET", "resource_providers", ""): _P._list,
    ("POST", "resource_providers", ""): _P._create,
    ("GET", "resource_providers", "*"): _P._show,
    ("PUT", "resource_providers", "*"): _P._update,
    ("DELETE", "resource_providers", "*"): _P._delete,
    ("GET", "resource_providers", "inventories"): _P._inventories,
    ("PUT", "resource_providers", "inventories"): _P._set_inventories,
    ("GET", "resource_providers", "traits"): _P._traits,
    ("PUT", "resource_providers", "traits"): _P._set_traits,
    ("GET", "resource_providers", "aggregates"): _P._aggregates,
    ("PUT", "resource_providers", "aggregates"): _P._set_aggregates,
    ("GET", "resource_providers", "allocations"): _P._held,
    ("GET", "resource_providers", "usages"): _P._usages,
    ("GET", "usages", ""): _P._total_usages,
    ("GET", "allocations", "*"): _P._consumer,
    ("PUT", "allocations", "*"): _P._set_consumer,
    ("DELETE", "allocations", "*"): _P._drop_consumer,
    ("POST", "allocations", ""): _P._set_consumers,
    ("POST", "reshaper", ""): _P._reshape,
    ("GET", "resource_classes", "*"): _P._show_class,
    ("PUT", "resource_classes", "*"): _P._make_class,
    ("PUT", "traits", "*"): _P._make_trait,
    ("GET", "traits", ""): _P._list_traits,
}
_WITHOUT_BODY = {_P._make_class, _P._make_trait}
_WITH_BODY = {handler for (method, _, _), handler in _HANDLERS.items() if method in ("PUT", "POST")} - _WITHOUT_BODY
