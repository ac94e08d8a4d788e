"""Requests as a keystoneauth adapter sends them, with who is told how each went."""

import re
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from reportclient.transport import Sender

Requested = Callable[[str, str, int, float], None]  # method, path, code (0: no answer) and seconds of a request
UUID = re.compile(r"(?<=/)[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?=/|$)")
_NAME = re.compile(r"^/(traits|resource_classes)/[A-Z0-9_]+$")
ONE_NAME = r"/\1/{name}"
ANSWERS = (404, 406, 409)  # which say no, and tell what was asked


class MeteredSender:
    """Before an adapter."""

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
    """What a request is one of, for instance ``GET /resource_providers/{uuid}/inventories``."""
    route = UUID.sub("{uuid}", path.partition("?")[0])
    return f"{method} {_NAME.sub(ONE_NAME, route)}"


def served(code: int) -> bool:
    """Whether an answer of this code is one that can be gone on with."""
    return 0 < code < 400 or code in ANSWERS
