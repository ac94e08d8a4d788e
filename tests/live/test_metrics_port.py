"""The port for metrics and health."""

from dataclasses import replace

import pytest
import requests

from agent.service.metrics import Metrics, serve
from agent.service.status import ServiceProcess, ServiceStatus

pytestmark = pytest.mark.live


def test_health_tells_which_sources_failed_and_not_why() -> None:
    """The error of a source has addresses and names."""
    secret = "host-1: placement at http://10.0.0.7:8778 is not reachable"
    served = ServiceStatus(process=ServiceProcess("1", 1, 0.0)).seen("host", "", 1.0)
    broken = replace(served, passes=1, last_pass_s=1.0).seen("placement", secret, 2.0)
    port = serve(Metrics(lambda: broken), "127.0.0.1", 0, lambda: True)
    paths = ("healthz", "readyz", "readyz?strict", "nosuch")

    answers = [requests.get(f"http://127.0.0.1:{port}/{path}", timeout=5) for path in paths]

    assert [one.text for one in answers] == [
        '{"ok": true, "failed": ["placement"]}',
        '{"ok": false, "failed": ["placement"]}',
        '{"ok": false, "failed": ["placement"]}',
        "",
    ]
