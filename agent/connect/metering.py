"""An adapter that reports the status and duration of each request."""

import re
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from reportclient.keystone import Sender

Requested = Callable[[str, str, int, float], None]  # called with method, path, status (0: no answer) and seconds
UUID = re.compile(r"(?<=/)[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?=/|$)")
_NAME = re.compile(r"^/(traits|resource_classes)/[A-Z0-9_]+$")
ONE_NAME = r"/\1/{name}"
ANSWERS = (404, 406, 409)  # refusals that a service in order gives, and that the agent can go on with


class Underway:
    """The time in which at least one of several requests was under way; any thread may send them."""

    def __init__(self) -> None:
        self.seconds = 0.0  # without those that are under way now
        self._lock = threading.Lock()
        self._count, self._began = 0, 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._count:
                self._began = time.monotonic()
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._count -= 1
            if not self._count:
                self.seconds += time.monotonic() - self._began


class MeteredSender:
    """A sender that passes requests on to another one and calls ``told`` after each; ``underway`` sums their time."""

    def __init__(self, sender: Sender, told: Requested, underway: Underway | None = None) -> None:
        self._sender = sender
        self._told = told
        self._underway = underway or Underway()

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        code, began = 0, time.monotonic()
        try:
            with self._underway:
                answer = self._sender.request(url, method, **kwargs)
            code = answer.status_code
            return answer
        finally:
            self._told(method, url, code, time.monotonic() - began)


@lru_cache(64)
def operation(method: str, path: str) -> str:
    """Return the kind of a request, for instance ``GET /resource_providers/{uuid}/inventories``."""
    route = UUID.sub("{uuid}", path.partition("?")[0])
    return f"{method} {_NAME.sub(ONE_NAME, route)}"


def served(code: int) -> bool:
    """Whether an answer with this status shows a service in order: success, or one of ``ANSWERS``."""
    return 0 < code < 400 or code in ANSWERS
