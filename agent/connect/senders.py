"""What passes requests on to an adapter: each with the trace of the run, until the pass is over, and each is told."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from reportclient.keystone import PassOver, Sender

Requested = Callable[[str, str, int, float], None]  # called with method, path, status (0: no answer) and seconds
PASS_S = 1800.0  # a pass of the service sends no request after this time; it holds the lock, and others wait for it
HEADER = "X-OpenStack-Request-ID"  # oslo.middleware logs it as global_request_id, in each service that is asked


def _new_id() -> str:
    return f"req-{uuid4()}"  # the form that oslo.middleware takes; it drops any other


@dataclass(slots=True)
class Trace:
    """The traces of one run of a verb, or of one pass of the service."""

    request_id: str = field(default_factory=_new_id)
    placement: str = ""  # its name in messages; empty: none was opened
    nodes: list[str] = field(default_factory=list)  # names of those that the run is about
    ends_s: float = math.inf  # by the monotonic clock; a person ends a verb that takes too long

    def begin(self) -> None:
        """Take a new request id, and ``PASS_S`` from now on: another pass begins."""
        self.request_id, self.ends_s = _new_id(), time.monotonic() + PASS_S


class TracedSender:
    """
    A sender that passes requests on to another one, each with the request id of the run, until the pass is over.

    It calls ``told`` after each.
    """

    def __init__(self, sender: Sender, trace: Trace, told: Requested = lambda *_: None) -> None:
        self._sender = sender
        self._trace = trace
        self._told = told

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        """Send as ``Sender`` does; PassOver if the time of the pass is over."""
        code, began = 0, time.monotonic()
        if began > self._trace.ends_s:
            raise PassOver(f"not sent, as this pass takes more than {PASS_S / 60:.0f} minutes: the next one goes on")
        headers = {HEADER: self._trace.request_id, **kwargs.pop("headers", {})}
        try:
            answer = self._sender.request(url, method, headers=headers, **kwargs)
            code = answer.status_code
            return answer
        finally:
            self._told(method, url, code, time.monotonic() - began)
