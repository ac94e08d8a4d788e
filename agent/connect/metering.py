"""An adapter that reports the status and duration of each request."""

import re
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


class MeteredSender:
    """A sender that passes requests on to another one, and calls ``told`` after each."""

    def __init__(self, sender: Sender, told: Requested) -> None:
        self._sender = sender
        self._told = told

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        code, began = 0, time.monotonic()
        try:
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
