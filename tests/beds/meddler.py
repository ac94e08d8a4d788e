"""Somebody who acts between the reads and the write of an operation, before a keystoneauth adapter."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from keystoneauth1 import exceptions

from fakes import FakeAnswer

Act = Callable[[Callable[[], Any]], Any]  # takes what sends the request; its answer is the answer

RACED = {"errors": [{"status": 409, "code": "placement.concurrent_update", "detail": "injected"}]}


@dataclass
class Meddler:
    """Passes reads on, and gives the first ``times`` writes of allocations to ``act``."""

    sender: Any
    act: Act | None = None
    times: int = 1
    writes: int = 0

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        if method == "GET" or not url.startswith("/allocations"):
            return self.sender.request(url, method, **kwargs)
        self.writes += 1

        def send() -> Any:
            return self.sender.request(url, method, **kwargs)

        return self.act(send) if self.act and self.writes <= self.times else send()


def first(act: Callable[[], None]) -> Act:
    """Something is done just before the write."""

    def do(send: Callable[[], Any]) -> Any:
        act()
        return send()

    return do


def raced(_send: Callable[[], Any]) -> Any:
    """Placement says that somebody wrote on one of the providers at the same moment."""
    return FakeAnswer(409, RACED, {"Content-Type": "application/json"}, json.dumps(RACED))


def lost(send: Callable[[], Any]) -> Any:
    """The write is processed, and its answer is lost."""
    send()
    raise exceptions.ConnectFailure("the answer was lost")
