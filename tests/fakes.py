"""The few doubles: each a few lines, at a library's edge, and each uses what it is given."""

from dataclasses import dataclass, field
from typing import Any

from drivers.facts import Cpu, CpuMap, DiskSpace, DomainCapabilities, HostFacts, Hypervisor, NumaCell, Versions

GIB = 1024**3
PC = DomainCapabilities("x86_64", frozenset({"virtio", "xen"}), frozenset({"vga"}), False, frozenset(), frozenset())


def offering(*capabilities: DomainCapabilities, versions: Versions = Versions(9_000_000, 7_002_000)) -> Hypervisor:
    return Hypervisor(versions, capabilities)


FACTS = HostFacts(
    hostname="host",
    hypervisor=offering(PC),
    cpu=Cpu("x86_64", frozenset({"avx", "svm", "unheard-of"})),
    cpu_map=CpuMap(4, frozenset({0, 1, 2, 3})),
    cells=(
        NumaCell(0, 1024 * 1000 + 512, frozenset({0, 1})),
        NumaCell(1, 1024 * 1000 + 512, frozenset({2, 3})),
    ),
    disk=DiskSpace(100 * GIB + 1, 0),
)


@dataclass
class FakeAnswer:
    """An HTTP answer."""

    status_code: int = 200
    body: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    text: str = "text"

    @property
    def content(self) -> bytes:
        return self.text.encode()

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
