"""What can go wrong between a client and placement, as hooks of the proxy before it."""

import itertools
import json
import os
import random
import signal
import threading
import time
from dataclasses import dataclass, field

from beds.proxy import Answer, Forward, Hook, Request, pass_on

JSON = (("Content-Type", "application/json"),)


def _refusal(status: int, code: str) -> Answer:
    error = {"errors": [{"status": status, "code": code, "title": "", "detail": "injected"}]}
    return Answer(status, JSON, json.dumps(error).encode())


def server_error(_request: Request, _forward: Forward) -> Answer:
    return Answer(500, (("Content-Type", "text/html"),), b"<html>oops</html>")


def unavailable(_request: Request, _forward: Forward) -> Answer:
    return _refusal(503, "placement.undefined_code")


def conflict(request: Request, forward: Forward) -> Answer:
    """Somebody else wrote first, says placement; a read is never answered so."""
    return forward(request) if request.method == "GET" else _refusal(409, "placement.concurrent_update")


def reset(_request: Request, _forward: Forward) -> Answer:
    raise ConnectionError("before it was processed")


def reset_after(request: Request, forward: Forward) -> Answer:
    forward(request)
    raise ConnectionError("after it was processed")


def late(request: Request, forward: Forward, seconds: float = 2.5) -> Answer:
    """An answer after the client's patience, of a request that was processed."""
    answer = forward(request)
    time.sleep(seconds)
    return answer


KINDS: dict[str, Hook] = {
    "500": server_error,
    "503": unavailable,
    "409": conflict,
    "reset": reset,
    "reset after": reset_after,
    "timeout after": late,
}


@dataclass
class Storm:
    """Faults of these kinds, each request with this chance; counts what it did."""

    chance: float
    kinds: tuple[str, ...] = tuple(KINDS)
    seed: int = 0
    done: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def __call__(self, request: Request, forward: Forward) -> Answer:
        if self._random.random() >= self.chance:
            return forward(request)
        kind = self._random.choice(self.kinds)
        self.done[kind] = self.done.get(kind, 0) + 1
        return KINDS[kind](request, forward)


class Killer:
    """Kills a process by SIGKILL right before its k-th request is processed, or right after; what is left goes on."""

    def __init__(self, number: int, *, after: bool, otherwise: Hook = pass_on) -> None:
        self.victim: int | None = None
        self.killed = threading.Event()
        self._number = number
        self._after = after
        self._count = itertools.count(1)
        self._otherwise = otherwise

    def __call__(self, request: Request, forward: Forward) -> Answer:
        if self.killed.is_set() or next(self._count) != self._number:
            return self._otherwise(request, forward)
        if self._after:
            forward(request)
        assert self.victim is not None
        os.kill(self.victim, signal.SIGKILL)
        self.killed.set()
        raise ConnectionError("the client was killed")
