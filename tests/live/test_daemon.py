"""The service as a process: what it tells systemd, what it does when placement goes away, what it never tells."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests

from beds.agents import COMMAND, run_agent
from beds.by_hand import ByHand
from beds.fixtures import Cloud
from beds.keystone import AGENT
from beds.placement import PlacementServer
from beds.process import free_port
from beds.proxy import Answer, Forward, Proxy, Request, pass_on
from beds.upgrades import write_config

pytestmark = pytest.mark.live

PATIENCE_S = 20


@dataclass
class Service:
    """A running service; ``told`` is what it said to systemd."""

    process: subprocess.Popen[bytes]
    config: Path
    log: Path
    listener: socket.socket
    told: list[str] = field(default_factory=list)

    def hear(self) -> list[str]:
        """All that it told so far."""
        return list(self.told)

    def listen(self) -> None:
        """As systemd does, until the socket is closed."""
        with suppress(OSError):
            while text := self.listener.recv(4096).decode():
                self.told += text.splitlines()

    def wait(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert self.process.poll() is None, self.log.read_text(encoding="utf-8")
            assert time.monotonic() < deadline, f"{self.hear()}\n{self.log.read_text(encoding='utf-8')}"
            time.sleep(0.05)

    def status(self) -> Any:
        done = run_agent("status", "--config-file", self.config, "--format", "json")
        return json.loads(done.out) if done.out else {"passes": 0, "ready": False, "sources": {}, "sentence": ""}

    def passes(self) -> int:
        return int(self.status()["passes"])


@contextmanager
def serving(folder: Path, placement: dict[str, Any], *options: str, **agent: Any) -> Iterator[Service]:
    """The service on one made-up host, for as long as the context lasts."""
    folder.mkdir(exist_ok=True)
    config = write_config(
        {
            "DEFAULT": {"compute_driver": "fake.FakeDriver"},
            "placement": placement,
            "agent": {"state_directory": str(folder / "state"), "interval": 1, "start_spread": 0, **agent},
        },
        folder / "agent.conf",
    )
    log, address = folder / "log", folder / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener, log.open("ab") as output:
        listener.bind(str(address))
        process = subprocess.Popen(
            [str(COMMAND), "run", "--config-file", str(config), *options],
            stdout=output,
            stderr=output,
            env=os.environ | {"NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": "3000000"},
        )
        service = Service(process, config, log, listener)
        hearer = threading.Thread(target=service.listen)
        hearer.start()
        try:
            yield service
        finally:
            process.kill()
            process.wait()
            listener.shutdown(socket.SHUT_RDWR)
            hearer.join()
    address.unlink()


def noauth(url: str) -> dict[str, Any]:
    return {"auth_type": "none", "endpoint": url, "timeout": 2}


def test_it_tells_systemd_of_its_life(placement_server: PlacementServer, tmp_path: Path) -> None:
    with serving(tmp_path, noauth(placement_server.url)) as service:
        service.wait(lambda: service.passes() >= 2)
        told = service.hear()
        assert told.index("READY=1") < told.index("STATUS=up to date, 1 passes")
        assert "WATCHDOG=1" in told

        service.process.send_signal(signal.SIGHUP)
        service.wait(lambda: "RELOADING=1" in service.hear() and service.told.count("READY=1") == 2)
        before = service.passes()
        service.wait(lambda: service.passes() > before)

        service.process.terminate()
        assert service.process.wait(PATIENCE_S) == 0
        assert "STOPPING=1" in service.hear()
    assert [line for line in service.log.read_text(encoding="utf-8").splitlines() if "WARNING" in line] == []


def test_a_quiet_service_asks_once_a_pass_and_logs_nothing(placement_server: PlacementServer, tmp_path: Path) -> None:
    with Proxy(placement_server.url) as proxy, serving(tmp_path, noauth(proxy.url)) as service:
        service.wait(lambda: service.passes() >= 2)
        size, before = service.log.stat().st_size, service.passes()
        proxy.seen.clear()
        service.wait(lambda: service.passes() >= before + 3)
        asked, passes = len(proxy.seen), service.passes() - before

        assert asked <= passes + 1
        assert service.log.stat().st_size == size


def test_placement_that_goes_away_is_told_once_and_recovered_from(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    def down(_request: Request, _forward: Forward) -> Answer:
        raise ConnectionError("down")

    with Proxy(placement_server.url) as proxy, serving(tmp_path, noauth(proxy.url)) as service:
        service.wait(lambda: service.passes() >= 1)
        stood = ByHand(placement_server.url).send("GET", "/resource_providers")["resource_providers"]
        proxy.hook = down
        service.wait(lambda: not service.status()["ready"])
        time.sleep(3)
        status = service.status()
        assert status["sentence"].startswith("degraded: ")
        assert status["sources"]["host"]["error"] == ""
        assert run_agent("status", "--config-file", service.config).code == 3
        proxy.hook = pass_on
        service.wait(lambda: service.status()["ready"])
        log = service.log.read_text(encoding="utf-8")

        assert log.count("degraded source=placement") == 1
        assert log.count("recovered from=") == 1
        assert ByHand(placement_server.url).send("GET", "/resource_providers")["resource_providers"] == stood


def test_a_configuration_that_is_wrong_when_it_is_read_anew_leaves_the_old_one(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    with serving(tmp_path, noauth(placement_server.url)) as service:
        service.wait(lambda: service.passes() >= 1)
        service.config.write_text("[compute]\nlayout = square\n", encoding="utf-8")
        service.process.send_signal(signal.SIGHUP)
        service.wait(lambda: "the old one stays" in service.log.read_text(encoding="utf-8"))
        before = json.loads((tmp_path / "state/status.json").read_text(encoding="utf-8"))["passes"]
        service.wait(
            lambda: json.loads((tmp_path / "state/status.json").read_text(encoding="utf-8"))["passes"] > before
        )


def test_health_and_metrics_are_served_on_loopback(placement_server: PlacementServer, tmp_path: Path) -> None:
    port = free_port()
    textfile = tmp_path / "agent.prom"
    with (
        Proxy(placement_server.url) as proxy,
        serving(tmp_path, noauth(proxy.url), metrics_port=port, metrics_textfile=textfile) as service,
        requests.Session() as http,
    ):
        http.trust_env = False
        service.wait(lambda: service.passes() >= 2)
        base = f"http://127.0.0.1:{port}"
        assert [http.get(f"{base}/{path}").status_code for path in ("healthz", "readyz", "nosuch")] == [200, 200, 404]
        text = http.get(f"{base}/metrics").text
        assert 'compute_node_agent_passes_total{outcome="changed"} 1.0' in text
        assert 'compute_node_agent_placement_requests_total{code="200",method="GET"}' in text
        assert 'compute_node_agent_inventory{resource_class="VCPU",side="observed"}' in text
        assert "compute_node_agent_passes_total" in textfile.read_text(encoding="utf-8")
        proxy.hook = lambda request, forward: Answer(503, (), b"")
        service.wait(lambda: http.get(f"{base}/readyz").status_code == 503)


def test_commands_and_the_service_never_write_at_once(placement_server: PlacementServer, tmp_path: Path) -> None:
    with serving(tmp_path, noauth(placement_server.url)) as service:
        service.wait(lambda: service.passes() >= 1)
        results = [run_agent("sync", "--config-file", service.config, "--format", "json") for _ in range(5)]

        assert [(done.code, done.json["outcome"]) for done in results] == [(0, "unchanged")] * 5


def test_no_password_or_token_is_told_at_any_level(cloud: Cloud, tmp_path: Path) -> None:
    login = {
        "auth_type": "password",
        "auth_url": cloud.keystone.url,
        "username": AGENT.username,
        "password": AGENT.password,
        "project_name": AGENT.project,
        "user_domain_id": "default",
        "project_domain_id": "default",
        "cafile": str(cloud.keystone.cafile),
        "endpoint_override": cloud.placement.url,
    }
    port = free_port()
    with serving(tmp_path, login, "-v", "-v", metrics_port=port) as service, requests.Session() as http:
        http.trust_env = False
        service.wait(lambda: service.passes() >= 2)
        metrics = http.get(f"http://127.0.0.1:{port}/metrics").text
        status = (tmp_path / "state/status.json").read_text(encoding="utf-8")
        log = service.log.read_text(encoding="utf-8")

    assert "DEBUG" in log
    for text in (log, metrics, status):
        assert AGENT.password not in text
        assert "gAAAA" not in text  # how Keystone's tokens begin


@pytest.mark.parametrize("kills", [int(os.environ.get("KILLS", "25"))])
def test_it_recovers_from_a_kill_at_any_moment(kills: int, placement_server: PlacementServer, tmp_path: Path) -> None:
    """By hand ``KILLS=500``: nothing is lost, neither in placement nor here."""
    send = ByHand(placement_server.url).send
    for number in range(kills):
        with serving(tmp_path, noauth(placement_server.url)) as service:
            time.sleep(0.2 + number % 10 * 0.05)
            service.process.kill()
            service.process.wait()
    with serving(tmp_path, noauth(placement_server.url)) as service:
        service.wait(lambda: service.passes() >= 1 and service.status()["ready"])
    (provider,) = send("GET", "/resource_providers")["resource_providers"]
    assert send("GET", f"/resource_providers/{provider['uuid']}/inventories")["inventories"].keys() == {
        "VCPU",
        "MEMORY_MB",
        "DISK_GB",
    }
