"""The placement in memory against placement's own application: asked the same, they answer the same."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4, uuid5

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from oslo_utils import timeutils

from beds.memory import MemoryPlacement

pytestmark = pytest.mark.contract

ON_BOTH = settings(
    max_examples=max(15, settings.default.max_examples // 20) if settings.default else 15,  # they are slow
    phases=(Phase.explicit, Phase.generate),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
SHARING = "MISC_SHARES_VIA_AGGREGATE"
PROVIDERS = ("west", "east", "west-a", "west-b", "pool")  # two roots, two children, and one that shares
CONSUMERS = ("ada", "ben", "cyd")
CLASSES = ("VCPU", "DISK_GB", "VGPU")
TRAITS = (SHARING, "HW_CPU_X86_AVX", "COMPUTE_NODE")
ASPECTS = ("inventories", "traits", "aggregates", "allocations", "usages")
VERSIONS = ("1.37", "1.39")

Slots = dict[str, dict[str, int]]


@dataclass
class Both:
    """Placement's own application, and the clock by which it and the one in memory go."""

    real: Any
    now_s: int = 2_000_000_000

    def utcnow(self, with_timezone: bool = False) -> datetime:
        return datetime.fromtimestamp(self.now_s, UTC).replace(tzinfo=UTC if with_timezone else None)


@dataclass
class Pair:
    """Both, asked the same at the same time; names stand for uuids of this pair alone."""

    both: Both
    run: UUID = field(default_factory=uuid4)
    memory: MemoryPlacement = field(init=False)

    def __post_init__(self) -> None:
        self.memory = MemoryPlacement(lambda: self.both.now_s)

    def uuid(self, name: str) -> str:
        return str(uuid5(self.run, name))

    def ask(self, method: str, path: str, body: Any = None, version: str = "1.39") -> Any:
        """The answer of the one in memory, once it is found equal to the other's; a second after the last request."""
        self.both.now_s += 1
        kwargs = {"microversion": version, "raise_exc": False, "headers": {}} | ({} if body is None else {"json": body})
        real, memory = (one.request(path, method, **kwargs) for one in (self.both.real, self.memory))
        said = f"{method} {path} {body} at {version}: {real.status_code} {real.text}"
        assert self.tidy(memory) == self.tidy(real), said
        assert memory.headers.get("Content-Type") == real.headers.get("Content-Type"), said
        modified: list[object] = [one.headers.get("Last-Modified") for one in (memory, real)]
        if "traits" in path or "required=" in path:  # standard traits are as old as the database; others' providers
            modified = [one is not None for one in modified]
        assert modified[0] == modified[1], said
        return memory

    def tidy(self, answer: Any) -> tuple[int, Any]:
        """Status and body; lists sorted and without providers of others, of an error only its code."""
        if not answer.text:
            return answer.status_code, None
        body = answer.json()
        if answer.status_code >= 400:
            return answer.status_code, body["errors"][0]["code"]
        rows = body.get("resource_providers", ())
        mine = {self.uuid(name) for name in PROVIDERS}
        lists = {key: sorted(value) for key, value in body.items() if key in ("traits", "aggregates")}
        return answer.status_code, body | lists | {
            "resource_providers": {one["uuid"]: one for one in rows if one["uuid"] in mine}
        }

    def make(self, name: str, parent: str | None = None) -> Any:
        body = {"uuid": self.uuid(name), "name": f"{name} of {self.run}"}
        return self.ask(
            "POST", "/resource_providers", body | ({"parent_provider_uuid": self.uuid(parent)} if parent else {})
        )

    def stock(self, name: str, **totals: int) -> Any:
        return self.ask("PUT", self.path(name, "inventories"), self.inventories(name, **totals))

    def inventories(self, name: str, **totals: int) -> dict[str, Any]:
        records = {resource_class: {"total": total} for resource_class, total in totals.items()}
        return {"resource_provider_generation": self.generation(name), "inventories": records}

    def consumer(self, name: str, slots: Slots, generation: object = "right", **more: Any) -> dict[str, Any]:
        """What a consumer is to hold, as 1.39 has it; a None in ``more`` leaves a key out."""
        body = {
            "allocations": {self.uuid(provider): {"resources": resources} for provider, resources in slots.items()},
            "project_id": f"project-of-{self.run}",
            "user_id": "user",
            "consumer_type": "INSTANCE",
        } | more
        known = self.known(name) if generation == "right" else generation
        return {key: value for key, value in body.items() if value is not None} | {"consumer_generation": known}

    def claim(self, name: str, slots: Slots, generation: object = "right", version: str = "1.39", **more: Any) -> Any:
        body = self.consumer(name, slots, generation, **more)
        return self.ask("PUT", f"/allocations/{self.uuid(name)}", body, version)

    def reshape(self, inventories: dict[str, dict[str, int]], consumers: dict[str, Slots]) -> Any:
        body = {
            "inventories": {self.uuid(name): self.inventories(name, **totals) for name, totals in inventories.items()},
            "allocations": {self.uuid(name): self.consumer(name, slots) for name, slots in consumers.items()},
        }
        return self.ask("POST", "/reshaper", body)

    def path(self, name: str, aspect: str = "") -> str:
        return f"/resource_providers/{self.uuid(name)}{'/' if aspect else ''}{aspect}"

    def generation(self, name: str) -> int:
        """That of a provider; 0 when there is none."""
        return int(self.memory.request(self.path(name), "GET", microversion="1.39").json().get("generation", 0))

    def known(self, name: str) -> Any:
        """The generation of a consumer as a reader gets it: None when it holds nothing."""
        answer = self.memory.request(f"/allocations/{self.uuid(name)}", "GET", microversion="1.39")
        return answer.json().get("consumer_generation")

    def compare(self) -> None:
        """All that can be read."""
        for name in PROVIDERS:
            self.ask("GET", self.path(name))
            for aspect in ASPECTS:
                self.ask("GET", self.path(name, aspect))
        uuids = [self.uuid(name) for name in PROVIDERS[:3]]
        queries = [f"{key}={uuid}" for uuid in uuids for key in ("in_tree", "uuid")]
        for query in (*queries, f"name=pool of {self.run}", f"required={SHARING},COMPUTE_NODE", f"required={SHARING}"):
            self.ask("GET", f"/resource_providers?{query}")
        for version in VERSIONS:
            for consumer in CONSUMERS:
                self.ask("GET", f"/allocations/{self.uuid(consumer)}", version=version)
            for query in ("", "&user_id=user"):
                self.ask("GET", f"/usages?project_id=project-of-{self.run}{query}", version=version)
        for kind in ("INSTANCE", "all", "unknown"):
            self.ask("GET", f"/usages?project_id=project-of-{self.run}&consumer_type={kind}")

    def leave(self) -> None:
        """Take all away again, so that listings stay short."""
        for consumer in CONSUMERS:
            self.ask("DELETE", f"/allocations/{self.uuid(consumer)}")
        inventories, _ = self.memory.snapshot()
        while inventories:
            for uuid in inventories:
                self.ask("DELETE", f"/resource_providers/{uuid}")
            inventories, _ = self.memory.snapshot()


@pytest.fixture
def both(placement_sender: Any, monkeypatch: pytest.MonkeyPatch) -> Both:
    both = Both(placement_sender)
    monkeypatch.setattr(timeutils, "utcnow", both.utcnow)
    return both


@pytest.fixture
def pair(both: Both) -> Iterator[Pair]:
    """Two roots and a child with stock, nobody on them yet; in the end all that can be read is compared."""
    pair = Pair(both)
    for name, parent in (("west", None), ("east", None), ("west-a", "west")):
        pair.make(name, parent)
        pair.stock(name, VCPU=8, DISK_GB=100)
    yield pair
    pair.compare()
    pair.leave()


GENERATIONS = st.sampled_from(("right",) * 16 + (None, -1, 0, 1))
RECORDS = st.fixed_dictionaries(
    {"total": st.sampled_from((16, 8, 4))},
    optional={
        "reserved": st.sampled_from((0, 1, 2, 5)),
        "allocation_ratio": st.sampled_from((0.5, 1, 1.5, 4.0)),
        "step_size": st.sampled_from((1, 2)),
        "min_unit": st.sampled_from((1, 2)),
        "max_unit": st.sampled_from((2, 4, 8)),
    },
)
STOCKS = st.one_of(
    st.fixed_dictionaries(dict.fromkeys(CLASSES, RECORDS)),
    st.dictionaries(st.sampled_from((*CLASSES * 9, "CUSTOM_NEVER_MADE")), RECORDS, max_size=3),
)
RESOURCES = st.dictionaries(st.sampled_from(CLASSES), st.sampled_from((1, 2, 2, 4, 4, 6, 12)), min_size=1, max_size=2)
HELD = st.dictionaries(st.sampled_from(PROVIDERS), RESOURCES, min_size=1, max_size=2)
ODD = st.dictionaries(st.sampled_from((*PROVIDERS, "nowhere")), RESOURCES, max_size=1)
SLOTS = st.integers(0, 5).flatmap(lambda one: HELD if one else ODD)
CLAIMS = st.tuples(SLOTS, GENERATIONS, st.sampled_from(("user", "other")), st.sampled_from(("INSTANCE", "MIGRATION")))
PROVIDER, CONSUMER = st.sampled_from(PROVIDERS), st.sampled_from(CONSUMERS)
STOCKINGS = st.dictionaries(PROVIDER, st.tuples(STOCKS, GENERATIONS), min_size=1, max_size=2)
STEPS = st.one_of(
    st.tuples(st.just("stock"), PROVIDER, STOCKS, GENERATIONS),
    st.tuples(st.just("claim"), CONSUMER, CLAIMS),
    st.tuples(st.just("claim"), CONSUMER, CLAIMS),
    st.tuples(st.just("claims"), st.dictionaries(CONSUMER, CLAIMS, min_size=1, max_size=2)),
    st.tuples(st.just("reshape"), STOCKINGS, st.dictionaries(CONSUMER, CLAIMS, max_size=2)),
    st.tuples(st.just("follow"), PROVIDER, PROVIDER),
    st.tuples(st.just("drop"), CONSUMER),
    st.tuples(st.just("traits"), PROVIDER, st.frozensets(st.sampled_from(TRAITS)), GENERATIONS),
    st.tuples(st.just("aggregates"), PROVIDER, st.frozensets(st.sampled_from(("one", "two"))), GENERATIONS),
    st.tuples(st.just("make"), PROVIDER, st.sampled_from((None, *PROVIDERS))),
    st.tuples(st.just("delete"), PROVIDER),
    st.tuples(st.just("name"), PROVIDER, st.sampled_from(("same", "new")), st.sampled_from(("", None, *PROVIDERS))),
)


class Walk:
    """Carries out generated steps on both."""

    def __init__(self, pair: Pair, version: str) -> None:
        self._pair = pair
        self._version = version

    def take(self, step: Any) -> int:
        """The status of the answer."""
        kind, *rest = step
        return int(getattr(self, f"_{kind}")(*rest).status_code)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        return self._pair.ask(method, path, body, self._version)

    def _generation(self, name: str, given: Any) -> Any:
        right = self._pair.generation(name)
        return right if given == "right" else right - 1 if given == -1 else given

    def _inventories(self, name: str, records: Any, given: Any) -> dict[str, Any]:
        return {"resource_provider_generation": self._generation(name, given), "inventories": records}

    def _consumer(self, name: str, claim: Any) -> dict[str, Any]:
        slots, generation, user, kind = claim
        kind = kind if self._version == "1.39" else None
        return self._pair.consumer(name, slots, generation, user_id=user, consumer_type=kind)

    def _stock(self, name: str, records: Any, given: Any) -> Any:
        return self._ask("PUT", self._pair.path(name, "inventories"), self._inventories(name, records, given))

    def _claim(self, name: str, claim: Any) -> Any:
        return self._ask("PUT", f"/allocations/{self._pair.uuid(name)}", self._consumer(name, claim))

    def _claims(self, claims: Any) -> Any:
        body = {self._pair.uuid(name): self._consumer(name, claim) for name, claim in claims.items()}
        return self._ask("POST", "/allocations", body)

    def _reshape(self, stocks: Any, claims: Any) -> Any:
        body = {
            "inventories": {self._pair.uuid(name): self._inventories(name, *one) for name, one in stocks.items()},
            "allocations": {self._pair.uuid(name): self._consumer(name, claim) for name, claim in claims.items()},
        }
        return self._ask("POST", "/reshaper", body)

    def _follow(self, source: str, target: str) -> Any:
        """All stock of one provider goes to another, and whoever is on it with it: what a reshape is for."""
        pair = self._pair
        uuids = [pair.uuid(name) for name in (source, target)]
        before, after = (self._ask("GET", pair.path(name, "inventories")) for name in (source, target))
        held = self._ask("GET", pair.path(source, "allocations"))
        if source == target or any(answer.status_code != 200 for answer in (before, after, held)):
            return held
        allocations = {}
        for consumer in held.json()["allocations"]:
            body = self._ask("GET", f"/allocations/{consumer}").json()
            slots: dict[str, dict[str, int]] = {}
            for provider, row in body["allocations"].items():
                one = slots.setdefault(uuids[1] if provider == uuids[0] else provider, {})
                for name, amount in row["resources"].items():
                    one[name] = one.get(name, 0) + amount
            body["allocations"] = {provider: {"resources": one} for provider, one in slots.items()}
            allocations[consumer] = body
        stocks = [{}, after.json()["inventories"] | before.json()["inventories"]]
        inventories = {
            uuid: {"resource_provider_generation": pair.generation(name), "inventories": stock}
            for uuid, name, stock in zip(uuids, (source, target), stocks, strict=True)
        }
        return self._ask("POST", "/reshaper", {"inventories": inventories, "allocations": allocations})

    def _drop(self, name: str) -> Any:
        return self._ask("DELETE", f"/allocations/{self._pair.uuid(name)}")

    def _traits(self, name: str, traits: frozenset[str], given: Any) -> Any:
        body = {"resource_provider_generation": self._generation(name, given), "traits": sorted(traits)}
        return self._ask("PUT", self._pair.path(name, "traits"), body)

    def _aggregates(self, name: str, aggregates: frozenset[str], given: Any) -> Any:
        uuids = sorted(map(self._pair.uuid, aggregates))
        body = {"resource_provider_generation": self._generation(name, given), "aggregates": uuids}
        return self._ask("PUT", self._pair.path(name, "aggregates"), body)

    def _make(self, name: str, parent: str | None) -> Any:
        return self._pair.make(name, parent)

    def _delete(self, name: str) -> Any:
        return self._ask("DELETE", self._pair.path(name))

    def _name(self, name: str, new: str, parent: str | None) -> Any:
        body: dict[str, Any] = {"name": f"{name if new == 'same' else new} of {self._pair.run}"}
        if parent != "":
            body |= {"parent_provider_uuid": parent and self._pair.uuid(parent)}
        return self._ask("PUT", self._pair.path(name), body)


def test_whatever_both_are_asked_both_answer_the_same(both: Both) -> None:
    @ON_BOTH
    @given(st.lists(st.tuples(STEPS, st.sampled_from(VERSIONS)), min_size=15, max_size=40))
    def walk(steps: list[Any]) -> None:
        pair = Pair(both)
        begin(pair)
        for step, version in steps:
            status = Walk(pair, version).take(step)
            event(f"{step[0]} {status}")
        pair.compare()
        pair.leave()

    walk()


def begin(pair: Pair) -> None:
    """All providers with stock, and one consumer on two of them."""
    for name in PROVIDERS:
        pair.make(name, name.split("-")[0] if "-" in name else None)
        pair.stock(name, VCPU=8, DISK_GB=8, VGPU=8)
    pair.ask("PUT", pair.path("pool", "traits"), {"resource_provider_generation": 1, "traits": [SHARING]})
    pair.claim("ada", {"west": {"VCPU": 4}, "pool": {"DISK_GB": 2}})


def test_on_an_overfull_provider_a_write_passes_that_does_not_raise_the_overage(pair: Pair) -> None:
    pair.claim("ada", {"west": {"VCPU": 4}})
    pair.claim("ben", {"west": {"VCPU": 3}})
    pair.stock("west", VCPU=4, DISK_GB=100)

    assert pair.claim("ada", {"west": {"VCPU": 4}}).status_code == 204
    assert pair.claim("ada", {"west": {"VCPU": 2}}).status_code == 204
    assert pair.claim("ada", {"west": {"VCPU": 3}}).status_code == 409
    assert pair.claim("cyd", {"west": {"VCPU": 1}}).status_code == 409
    swap = {"ada": {"west": {"VCPU": 1}}, "cyd": {"west": {"VCPU": 1}}}
    body = {pair.uuid(name): pair.consumer(name, slots) for name, slots in swap.items()}
    assert pair.ask("POST", "/allocations", body).status_code == 204


def test_a_consumer_that_is_emptied_is_gone_and_begins_anew(pair: Pair) -> None:
    pair.claim("ada", {"west": {"VCPU": 1}})
    pair.claim("ada", {"west": {"VCPU": 2}})
    assert pair.known("ada") == 2
    before = pair.generation("west")

    assert pair.claim("ada", {}).status_code == 204
    assert pair.generation("west") == before + 1
    assert pair.claim("ada", {"west": {"VCPU": 1}}, 3).status_code == 409
    pair.claim("ada", {"west": {"VCPU": 1}}, None)
    assert pair.known("ada") == 1


def test_a_deleted_allocation_moves_no_generation(pair: Pair) -> None:
    pair.claim("ada", {"west": {"VCPU": 1}})
    before = pair.generation("west")

    assert pair.ask("DELETE", f"/allocations/{pair.uuid('ada')}").status_code == 204
    assert pair.ask("DELETE", f"/allocations/{pair.uuid('ada')}").status_code == 404
    assert pair.generation("west") == before


def test_a_provider_that_a_consumer_merely_leaves_keeps_its_generation(pair: Pair) -> None:
    pair.claim("ada", {"west": {"VCPU": 1}})
    before = pair.generation("west"), pair.generation("east")

    pair.claim("ada", {"east": {"VCPU": 1}})

    assert (pair.generation("west"), pair.generation("east")) == (before[0], before[1] + 1)


@pytest.mark.parametrize("slots", [{"nowhere": {"VCPU": 1}}, {}], ids=["unknown provider", "nothing"])
def test_a_new_consumer_that_gets_nothing_stays_behind_unseen(slots: Slots, pair: Pair) -> None:
    """An oddity of placement 16: until it is written with generation 0, every write of it as new is a conflict."""
    pair.claim("ada", slots, None)

    assert pair.known("ada") is None
    assert pair.claim("ada", {"west": {"VCPU": 1}}, None).status_code == 409
    assert pair.claim("ada", {"west": {"VCPU": 1}}, 0).status_code == 204


def test_a_new_consumer_without_room_does_not_stay_behind(pair: Pair) -> None:
    pair.claim("ada", {"west": {"VCPU": 9}}, None)

    assert pair.claim("ada", {"west": {"VCPU": 1}}, None).status_code == 204


def test_the_type_of_a_consumer_is_told_from_1_38_and_stays_as_it_is_before(pair: Pair) -> None:
    slots = {"west": {"VCPU": 1}}

    assert pair.claim("ada", slots, consumer_type=None).status_code == 400
    assert pair.claim("ada", slots, version="1.37").status_code == 400
    pair.claim("ada", slots, version="1.37", consumer_type=None)
    assert kind(pair, "ada") == "unknown"
    assert pair.claim("ada", slots, consumer_type="unknown").status_code == 400
    pair.claim("ada", slots, consumer_type="MIGRATION")
    pair.claim("ada", slots, version="1.37", consumer_type=None)
    assert kind(pair, "ada") == "MIGRATION"


def kind(pair: Pair, name: str) -> Any:
    return pair.ask("GET", f"/allocations/{pair.uuid(name)}").json()["consumer_type"]


def test_of_two_consumers_in_one_post_both_are_written_or_none(pair: Pair) -> None:
    pair.claim("ada", {"west": {"VCPU": 6}})
    swap: dict[str, Slots] = {"ada": {"east": {"VCPU": 6}}, "ben": {"west": {"VCPU": 9}}}

    body = {pair.uuid(name): pair.consumer(name, slots) for name, slots in swap.items()}
    assert pair.ask("POST", "/allocations", body).status_code == 409

    assert pair.memory.snapshot()[1] == {pair.uuid("ada"): {pair.uuid("west"): {"VCPU": 6}}}


def test_a_reshape_moves_stock_and_who_holds_it(pair: Pair) -> None:
    pair.claim("ada", {"west": {"VCPU": 6, "DISK_GB": 5}, "east": {"DISK_GB": 1}})
    before = [pair.generation(name) for name in ("west", "west-a", "east")]

    left_out = pair.reshape({"west": {"DISK_GB": 100}, "west-a": {"VCPU": 16}}, {})
    moved = pair.reshape(
        {"west": {}, "west-a": {"VCPU": 16, "DISK_GB": 200}}, {"ada": {"west-a": {"VCPU": 6, "DISK_GB": 5}}}
    )

    assert (left_out.status_code, moved.status_code) == (409, 204)
    assert [pair.generation(name) for name in ("west", "west-a", "east")] == [before[0] + 1, before[1] + 3, before[2]]
    assert pair.memory.snapshot()[1] == {pair.uuid("ada"): {pair.uuid("west-a"): {"VCPU": 6, "DISK_GB": 5}}}


def test_a_refused_reshape_leaves_all_as_it_was(pair: Pair) -> None:
    pair.claim("ada", {"west": {"VCPU": 6}})
    before = pair.memory.snapshot()

    no_room = pair.reshape(
        {"west": {"VCPU": 4}, "east": {}}, {"ada": {"west": {"VCPU": 5}}, "ben": {"east": {"VCPU": 1}}}
    )
    unknown = pair.reshape({"nowhere": {"VCPU": 4}}, {})

    assert (no_room.status_code, unknown.status_code) == (409, 400)
    assert pair.memory.snapshot() == before


def test_more_reserved_than_there_is_is_refused_but_not_in_a_reshape(pair: Pair) -> None:
    body = pair.inventories("west") | {"inventories": {"VCPU": {"total": 1, "reserved": 2}}}

    assert pair.ask("PUT", pair.path("west", "inventories"), body).status_code == 400
    assert (
        pair.ask("POST", "/reshaper", {"inventories": {pair.uuid("west"): body}, "allocations": {}}).status_code == 204
    )


def test_a_provider_moves_within_its_tree_and_to_another_from_1_37(pair: Pair) -> None:
    def move(name: str, parent: str | None, version: str = "1.37") -> int:
        body = {"name": f"{name} of {pair.run}", "parent_provider_uuid": parent and pair.uuid(parent)}
        return int(pair.ask("PUT", pair.path(name), body, version).status_code)

    assert move("west-a", "east", "1.36") == 400
    assert move("west-a", None, "1.36") == 400
    assert move("west", "west-a") == 400
    assert move("west-a", "east") == 200
    assert move("west", "west-a", "1.36") == 200
    pair.compare()
    assert move("west-a", None) == 200


def test_parents_and_providers_in_use_are_not_deleted(pair: Pair) -> None:
    pair.claim("ada", {"west": {"VCPU": 1}, "west-a": {"VCPU": 1}})

    for name in ("west", "west-a", "nowhere"):
        pair.ask("DELETE", pair.path(name))
    pair.ask("DELETE", f"/allocations/{pair.uuid('ada')}")
    for name in ("west", "west-a", "west"):
        pair.ask("DELETE", pair.path(name))

    assert pair.memory.snapshot()[0].keys() == {pair.uuid("east")}


def test_names_of_ones_own_are_made_once(pair: Pair) -> None:
    own = f"CUSTOM_{pair.run.hex.upper()}"

    for kind in ("resource_classes", "traits"):
        made = [pair.ask("PUT", f"/{kind}/{name}").status_code for name in (own, own, "VCPU", "CUSTOM_a")]
        assert made == [201, 204, 400, 400]

    body = {"resource_provider_generation": 1, "traits": [own, "HW_CPU_X86_AVX"]}
    assert pair.ask("PUT", pair.path("west", "traits"), body).json()["resource_provider_generation"] == 2
    body["resource_provider_generation"] = 2
    assert pair.ask("PUT", pair.path("west", "traits"), body).json()["resource_provider_generation"] == 2
    pair.stock("west", **{own: 3})
    for names in (f"{own},HW_CPU_X86_AVX,CUSTOM_NEVER_MADE", "CUSTOM_NEVER_MADE"):
        pair.ask("GET", f"/traits?name=in:{names}")
    pair.ask("GET", f"/resource_providers?required={own}")
    pair.ask("GET", "/resource_providers?required=CUSTOM_NEVER_MADE")


WRONG_RECORDS: tuple[Any, ...] = (
    {"total": 0},
    {"total": 2**31},
    {"total": True},
    {"total": "8"},
    {"reserved": 0},
    {"total": 8, "reserved": -1},
    {"total": 8, "step_size": 0},
    {"total": 8, "allocation_ratio": -1},
    {"total": 8, "allocation_ratio": "1"},
    {"total": 8, "more": 1},
    [],
)
WRONG_CLAIMS: tuple[dict[str, Any], ...] = (
    {"user_id": ""},
    {"project_id": None},
    {"more": 1},
    {"consumer_type": "a"},
    {"allocations": []},
    {"allocations": {"west": {"resources": {"VCPU": 1}}}},
    {"allocations": {str(uuid4()): {"resources": {"VCPU": 1}, "more": 1}}},
)
WRONG_SLOTS: tuple[Any, ...] = ({"west": {"VCPU": 0}}, {"west": {}}, {"west": {"vcpu": 1}}, {"west": {"VCPU": "1"}})


def test_who_shares_by_which_aggregates_is_listed(pair: Pair) -> None:
    begin(pair)
    one, two = (pair.uuid(name) for name in ("one", "two"))
    for number, name in enumerate(("west", "pool")):
        body = {"resource_provider_generation": pair.generation(name), "aggregates": [one, two][number:]}
        assert pair.ask("PUT", pair.path(name, "aggregates"), body).status_code == 200

    def listed(query: str) -> int:
        return len(pair.ask("GET", f"/resource_providers?{query}").json()["resource_providers"])

    assert [listed(f"member_of={which}") for which in (one, two, f"in:{one}", f"in:{one},{two}")] == [1, 2, 1, 2]
    assert [listed(f"member_of=in:{which}&required={SHARING}") for which in (one, two, f"{one},{two}")] == [0, 1, 1]


def test_what_is_not_in_placements_form_is_refused(pair: Pair) -> None:
    for record in WRONG_RECORDS:
        body = pair.inventories("west") | {"inventories": {"VCPU": record}}
        assert pair.ask("PUT", pair.path("west", "inventories"), body).status_code == 400, record
    for aspect in ("inventories", "traits", "aggregates"):
        for name in ("west", "nowhere"):
            pair.ask("PUT", pair.path(name, aspect), {"resource_provider_generation": 1})
            pair.ask("PUT", pair.path(name, aspect), {"resource_provider_generation": 1, aspect: ["no"], "more": 1})
            pair.ask("PUT", pair.path(name, aspect), {"resource_provider_generation": "1", aspect: {}})
    for wrong_aggregates in (["x"], [pair.uuid("one")] * 2):
        body = {"resource_provider_generation": 1, "aggregates": wrong_aggregates}
        assert pair.ask("PUT", pair.path("west", "aggregates"), body).status_code == 400
    good: Slots = {"west": {"VCPU": 1}}
    for more in WRONG_CLAIMS:
        assert pair.claim("ada", good, **more).status_code == 400, more
    for slots in WRONG_SLOTS:
        assert pair.claim("ada", slots).status_code == 400, slots
    assert pair.claim("ada", good, "1").status_code == 400
    assert pair.ask("PUT", "/allocations/ada", pair.consumer("ada", good)).status_code == 400
    for path, body in (
        ("/reshaper", {}),
        ("/resource_providers", {}),
        ("/allocations", {}),
        ("/allocations", {"a": {}}),
    ):
        assert pair.ask("POST", path, body).status_code == 400
    for provider in ({"name": ""}, {"name": "n", "uuid": "u"}, {"name": "n" * 201}, {"name": "n", "more": 1}):
        assert pair.ask("POST", "/resource_providers", provider).status_code == 400
    lonely = {"name": "n", "parent_provider_uuid": pair.uuid("nowhere")}
    assert pair.ask("POST", "/resource_providers", lonely).status_code == 400
    for query in ("in_tree=x", "more=1", "member_of=x"):
        assert pair.ask("GET", f"/resource_providers?{query}").status_code == 400
    for query in ("", "?user_id=user", "?project_id=p&consumer_type=a"):
        assert pair.ask("GET", f"/usages{query}").status_code == 400
    assert pair.ask("GET", "/usages?project_id=p&consumer_type=all", version="1.37").status_code == 400


@pytest.mark.parametrize(
    ("method", "url", "version"),
    [
        ("GET", "/allocation_candidates?resources=VCPU:1", "1.39"),
        ("DELETE", "/resource_providers/x/inventories", "1.39"),
        ("PUT", "/resource_providers/x/inventories/VCPU", "1.39"),
        ("PUT", "/resource_providers/x", "1.39"),
        ("GET", "/resource_providers", "1.29"),
        ("GET", "/resource_providers", "1.40"),
    ],
)
def test_what_is_not_modelled_is_said_loudly(method: str, url: str, version: str) -> None:
    with pytest.raises(NotImplementedError, match="is not modelled"):
        MemoryPlacement().request(url, method, microversion=version)
