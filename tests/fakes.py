"""The few doubles: each a few lines, at a library's edge, and each uses what it is given."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from drivers.facts import CpuMap, DiskSpace, DomainCapabilities, HostCpu, HostFacts, NumaCell, Versions
from reportclient.plan import (
    Create,
    Delete,
    EnsureClasses,
    EnsureTraits,
    Operation,
    Plan,
    Rename,
    Reparent,
    Reshape,
    SetAggregates,
    SetInventories,
    SetTraits,
)
from reportclient.tree import ObservedProvider, ObservedTree, Provider

GIB = 1024**3
PC = DomainCapabilities("x86_64", frozenset({"virtio", "xen"}), frozenset({"vga"}), False, frozenset(), frozenset())
FACTS = HostFacts(
    hostname="host",
    versions=Versions(9_000_000, 7_002_000),
    cpu_map=CpuMap(4, frozenset({0, 1, 2, 3})),
    arch="x86_64",
    guest_features=frozenset({"avx", "svm", "unheard-of"}),
    cells=(
        NumaCell(0, 1024 * 1000 + 512, tuple(HostCpu(n, 0, n, frozenset({n})) for n in (0, 1))),
        NumaCell(1, 1024 * 1000 + 512, tuple(HostCpu(n, 1, n, frozenset({n})) for n in (2, 3))),
    ),
    domain_capabilities=(PC,),
    disk=DiskSpace(100 * GIB + 1, 0),
)


def apply_plan(plan: Plan, observed: ObservedTree) -> ObservedTree:
    """What placement holds after a plan; contract tests show that the real one does the same."""
    stands = observed.by_uuid
    for operation in plan.operations:
        _apply(operation, stands)
    return ObservedTree(tuple(_parents_first(stands.values())))


def _parents_first(providers: Iterable[ObservedProvider]) -> Iterator[ObservedProvider]:
    """As the client answers a tree."""
    left = list(providers)
    placed: set[str | None] = {None}
    while left:
        ready = [seen for seen in left if seen.provider.parent in placed]
        assert ready, "a loop, or a parent that is not there"
        yield from ready
        placed |= {seen.name for seen in ready}
        left = [seen for seen in left if seen not in ready]


def _apply(operation: Operation, stands: dict[str, ObservedProvider]) -> None:
    match operation:
        case EnsureClasses() | EnsureTraits():
            pass
        case Create(uuid, name, parent):
            assert uuid not in stands
            above = stands[parent].name if parent else None  # fails when the parent comes later
            stands[uuid] = ObservedProvider(uuid=uuid, generation=0, provider=Provider(name=name, parent=above))
        case Rename(uuid, name, _):
            stands[uuid] = replace(stands[uuid], provider=replace(stands[uuid].provider, name=name))
        case Reparent(uuid, _, parent_uuid, parent):
            assert stands[parent_uuid].name == parent
            stands[uuid] = replace(stands[uuid], provider=replace(stands[uuid].provider, parent=parent))
        case SetTraits(uuid, _, traits):
            stands[uuid] = replace(stands[uuid], provider=replace(stands[uuid].provider, traits=traits))
        case SetAggregates(uuid, _, aggregates):
            stands[uuid] = replace(stands[uuid], provider=replace(stands[uuid].provider, aggregates=aggregates))
        case SetInventories(uuid, _, inventories):
            stands[uuid] = replace(stands[uuid], provider=replace(stands[uuid].provider, inventories=inventories))
        case Reshape(several):
            for one in several:
                _apply(one, stands)
        case Delete(uuid, name):
            assert not [seen for seen in stands.values() if seen.provider.parent == name], "children go first"
            del stands[uuid]
        case _:
            assert_never(operation)


@dataclass
class FakeAnswer:
    """An HTTP answer."""

    status_code: int = 200
    body: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    text: str = "text"

    def json(self) -> Any:
        if isinstance(self.body, str):
            raise ValueError(self.body)
        return self.body


@dataclass
class FakeSender:
    """Answers requests in turn, or raises; remembers what it was asked."""

    answers: list[FakeAnswer | Exception]
    asked: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def request(self, url: str, method: str, **kwargs: Any) -> FakeAnswer:
        self.asked.append((method, url, kwargs))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer
