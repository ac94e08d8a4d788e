"""The port for metrics: slow clients take a few threads for some seconds, and no more."""

import socket
import threading
import time
from contextlib import ExitStack
from dataclasses import replace

import pytest
import requests

from agent.service.metrics import ASKING_S, MOST_ASKING, Metrics, serve
from agent.service.status import ServiceProcess, ServiceStatus

pytestmark = pytest.mark.live


def test_health_tells_which_sources_failed_and_not_why() -> None:
    """The error of a source has addresses and names."""
    secret = "host-1: placement at http://10.0.0.7:8778 is not reachable"
    served = ServiceStatus(process=ServiceProcess("1", 1, 0.0)).seen("host", "", 1.0)
    broken = replace(served, passes=1, last_pass_s=1.0).seen("placement", secret, 2.0)
    port = serve(Metrics(lambda: broken), "127.0.0.1", 0, lambda: True)
    paths = ("healthz", "readyz", "nosuch")

    answers = [requests.get(f"http://127.0.0.1:{port}/{path}", timeout=5) for path in paths]

    assert [one.text for one in answers] == [
        '{"ok": true, "failed": ["placement"]}',
        '{"ok": false, "failed": ["placement"]}',
        "",
    ]


def test_slow_clients_leave_room_for_others_and_are_ended() -> None:
    status = ServiceStatus(process=ServiceProcess("1", 1, 0.0))
    port = serve(Metrics(lambda: status), "127.0.0.1", 0, lambda: True)
    url, before = f"http://127.0.0.1:{port}/metrics", threading.active_count()
    assert requests.get(url, timeout=5).status_code == 200

    with ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(3 * MOST_ASKING)]
        ending = time.monotonic() + ASKING_S + 2
        most = 0
        while time.monotonic() < ending:
            for one in slow:
                try:
                    one.send(b"G")  # a byte now and then is not silence
                except OSError:
                    continue
            most = max(most, threading.active_count() - before)
            time.sleep(0.2)
        assert most <= 2 * MOST_ASKING  # a thread, and its deadline
        assert requests.get(url, timeout=5).status_code == 200
        deadline = time.monotonic() + ASKING_S
        while threading.active_count() > before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert threading.active_count() <= before
