"""A placement in memory that counts its requests, and that a test may disturb."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from beds.memory import MemoryAnswer, MemoryPlacement

Hook = Callable[[str, str, Any], MemoryAnswer | None]  # answers instead of placement; None: placement answers


@dataclass
class Watched:
    """A placement that counts its requests, and that a test may disturb."""

    placement: MemoryPlacement = field(default_factory=MemoryPlacement)
    hook: Hook = lambda _method, _url, _body: None
    seen: Counter[str] = field(default_factory=Counter)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def request(self, url: str, method: str, **kwargs: Any) -> MemoryAnswer:
        with self._turn:
            self.seen[f"{method} {url.partition('?')[0].split('/')[1]}"] += 1
            return self.hook(method, url, kwargs.get("json")) or self.placement.request(url, method, **kwargs)

    def write(self, method: str, url: str, body: Any = None) -> MemoryAnswer:
        """A write of somebody else."""
        return self.placement.request(url, method, microversion="1.37", headers={}, json=body)

    @property
    def requests(self) -> int:
        return sum(self.seen.values())


def refuse(status: int, code: str = "placement.undefined_code") -> MemoryAnswer:
    body = {"errors": [{"status": status, "code": code, "detail": "refused"}]}
    return MemoryAnswer(status, {"Content-Type": "application/json"}, body)
