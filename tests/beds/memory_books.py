"""Who has what in a placement in memory, and the rules by which that changes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from beds.memory_forms import CONCURRENT, DEFAULTS, Refused, demand

Stock = dict[str, dict[str, Any]]  # an inventory by class; a record is replaced, never changed
Slots = dict[str, dict[str, int]]  # amounts by class, by provider or by consumer

ASPECTS = ("inventories", "usages", "aggregates", "traits", "allocations")


@dataclass(slots=True)
class Provider:
    uuid: str
    name: str
    parent: str | None
    root: str
    created_s: float
    updated_s: float | None
    links: list[dict[str, str]]
    generation: int = 0
    stock: Stock = field(default_factory=dict)
    stocked_s: float | None = None  # None while it has no stock
    traits: frozenset[str] = frozenset()
    aggregates: tuple[str, ...] = ()
    held: Slots = field(default_factory=dict)  # by consumer
    used: dict[str, int] = field(default_factory=dict)  # by class

    @property
    def modified_s(self) -> float:
        return self.created_s if self.updated_s is None else self.updated_s

    def check_generation(self, body: Mapping[str, Any]) -> None:
        if body["resource_provider_generation"] != self.generation:
            raise Refused(409, f"{self.uuid} is at generation {self.generation}", CONCURRENT)

    def check_removal(self, stock: Stock, used: Mapping[tuple[str, str], int]) -> None:
        """409 when a class goes that is in use; ``used`` is what would be, where that differs from what is."""
        for name in self.stock.keys() - stock.keys():
            if used.get((self.uuid, name), self.used.get(name)):
                raise Refused(409, f"{name} of {self.uuid} is in use", "placement.inventory.inuse")

    def touch(self, now_s: float, times: int = 1) -> None:
        self.generation += times
        self.updated_s = now_s

    def give(self, stock: Stock, now_s: float) -> None:
        self.stock = stock
        self.stocked_s = now_s if stock else None

    def body(self) -> dict[str, Any]:
        return {
            "uuid": self.uuid,
            "name": self.name,
            "generation": self.generation,
            "links": self.links,
            "parent_provider_uuid": self.parent,
            "root_provider_uuid": self.root,
        }


@dataclass(slots=True)
class Consumer:
    project: str
    user: str
    kind: str | None  # None: of a type that was never told
    generation: int = 0
    slots: Slots = field(default_factory=dict)  # by provider
    written_s: float = 0.0


@dataclass(slots=True)
class Books:
    """All providers and consumers by uuid, and the classes that there are."""

    classes: set[str]
    providers: dict[str, Provider] = field(default_factory=dict)
    consumers: dict[str, Consumer] = field(default_factory=dict)

    def check_classes(self, names: Iterable[str]) -> None:
        demand(self.classes.issuperset(names), f"classes: {sorted(names)}")

    def rewrite(self, given: Mapping[str, Any], stocks: Mapping[str, Stock], now_s: float) -> None:
        """Give consumers what they are to hold and nothing else, and providers their stock; all or nothing."""
        made = self._meet(given)
        if not all(uuid in self.providers for one in given.values() for uuid in one["allocations"]):
            raise Refused(400, "allocations on an unknown provider")  # those made remain, as placement has it
        try:
            used = self._use(given, stocks)
        except Refused:
            self._forget(made)
            raise
        touched: set[str] = set()
        for uuid, one in given.items():
            touched |= self._hand_over(uuid, one, now_s)
        for (uuid, name), amount in used.items():
            self.providers[uuid].used[name] = amount
        for uuid in touched:
            self.providers[uuid].touch(now_s)
        for uuid, stock in stocks.items():
            self.providers[uuid].give(stock, now_s)
            self.providers[uuid].touch(now_s, 2 if stock else 1)  # once before the consumers and once after

    def drop(self, uuid: str) -> None:
        """Take all from a consumer; no generation moves."""
        for provider, resources in self.consumers.pop(uuid).slots.items():
            del self.providers[provider].held[uuid]
            for name, amount in resources.items():
                self.providers[provider].used[name] -= amount

    def _meet(self, given: Mapping[str, Any]) -> list[str]:
        """Make the consumers that are new, and answer those."""
        made: list[str] = []
        for uuid, one in given.items():
            stands = self.consumers.get(uuid)
            if (stands.generation if stands else None) != one["consumer_generation"]:
                self._forget(made)
                raise Refused(409, f"consumer {uuid} is at another generation", CONCURRENT)
            if stands is None:
                self.consumers[uuid] = Consumer(one["project_id"], one["user_id"], one.get("consumer_type"))
                made.append(uuid)
        return made

    def _forget(self, made: Iterable[str]) -> None:
        for uuid in made:
            del self.consumers[uuid]

    def _use(self, given: Mapping[str, Any], stocks: Mapping[str, Stock]) -> dict[tuple[str, str], int]:
        """What would be used of each class of each provider that gains or loses; refused where there is no room."""
        lost = _amounts(slot for uuid in given for slot in self.consumers[uuid].slots.items())
        rows = (row for one in given.values() for row in one["allocations"].items())
        wanted = tuple(_amounts((uuid, row["resources"]) for uuid, row in rows))
        self.check_classes({name for stock in stocks.values() for name in stock} | {name for _, name, _ in wanted})
        used: dict[tuple[str, str], int] = {}
        for uuid, name, amount in lost:
            used[uuid, name] = used.get((uuid, name), self.providers[uuid].used[name]) - amount
        for uuid, name, amount in wanted:
            used[uuid, name] = used.get((uuid, name), self.providers[uuid].used.get(name, 0)) + amount
        for uuid, name, amount in wanted:
            provider = self.providers[uuid]
            record = stocks.get(uuid, {}).get(name) or provider.stock.get(name)
            if record is None or not _may_be(amount, record):
                raise Refused(409, f"{uuid} has no {name} by {amount}")
            if capacity(record) < used[uuid, name] > provider.used.get(name, 0):
                raise Refused(409, f"{uuid} has no room for {amount} {name}")
        for uuid, stock in stocks.items():
            self.providers[uuid].check_removal(stock, used)
        return used

    def _hand_over(self, uuid: str, given: Mapping[str, Any], now_s: float) -> set[str]:
        """Rewrite one consumer; answers whose generation moves: not that of a provider which it merely leaves."""
        one = self.consumers[uuid]
        before, one.slots = one.slots, {key: dict(row["resources"]) for key, row in given["allocations"].items()}
        for provider in before:
            del self.providers[provider].held[uuid]
        for provider, resources in one.slots.items():
            self.providers[provider].held[uuid] = resources
        one.project, one.user, one.kind = given["project_id"], given["user_id"], given.get("consumer_type", one.kind)
        one.written_s = now_s
        if one.slots:
            one.generation += 1
        elif before:
            del self.consumers[uuid]
        return set(one.slots or before)


def parse_stock(body: Mapping[str, Any]) -> Stock:
    """The inventories in a body, whole."""
    return {name: DEFAULTS | record for name, record in body["inventories"].items()}


def capacity(record: Mapping[str, Any]) -> float:
    return float((record["total"] - record["reserved"]) * record["allocation_ratio"])


def links(uuid: str) -> list[dict[str, str]]:
    path = f"/resource_providers/{uuid}"
    return [{"rel": "self", "href": path}, *({"rel": aspect, "href": f"{path}/{aspect}"} for aspect in ASPECTS)]


def _amounts(slots: Iterable[tuple[str, Mapping[str, int]]]) -> Iterable[tuple[str, str, int]]:
    return ((uuid, name, amount) for uuid, resources in slots for name, amount in resources.items())


def _may_be(amount: int, record: Mapping[str, Any]) -> bool:
    return bool(record["min_unit"] <= amount <= record["max_unit"] and not amount % record["step_size"])
