"""Counts what a command has read and sent so far, for a person who waits."""

import threading
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counts:
    """Answers of the hypervisor and requests to placement; made by several threads, and read by one to show them."""

    answers: int = 0
    requests: int = 0
    expected: int = 0  # requests in all, as far as is known; not more than ``requests``: it is not known
    _counting: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def answered(self, _operation: str, _seconds: float, _served: bool) -> None:
        """Count an operation of the hypervisor, as ``drivers.events.OnOperation``."""
        self.answers += 1

    def requested(self, _method: str, _path: str, _code: int, _seconds: float) -> None:
        """Count a request, as ``agent.connect.metering.Requested``."""
        with self._counting:
            self.requests += 1

    def expect(self, count: int) -> None:
        """Note that so many requests come next."""
        self.expected = max(self.expected, self.requests) + count

    def told(self, seconds: float) -> str:
        """Return the counts and the time as words."""
        of = f" of {self.expected}" if self.expected > self.requests else ""
        parts = [f"{self.answers} answers of libvirt"] if self.answers else []
        parts += [f"{self.requests}{of} requests"] if self.requests or of else []
        return ", ".join((*parts, f"{seconds:.0f} s"))
