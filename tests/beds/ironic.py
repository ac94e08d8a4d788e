"""A real Ironic with fake hardware on a SQLite file of its own, from the virtual environment ``.ironic``."""

import json
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import requests

from beds import template
from beds.placement import KeystoneAuth, authtoken
from beds.process import (
    LOOPBACK,
    Child,
    free_port,
    run,
    start,
    stop,
    tail,
    wait_until,
    wait_until_answers,
)
from beds.tls import Certificates

PYTHON = Path(os.environ.get("IRONIC_PYTHON") or Path(__file__).parents[2] / ".ironic/bin/python")
"""Of the environment with Ironic; another release's, where ``tools/releases.py`` says so."""
ENROLL = Path(__file__).with_name("enroll.py")
DATABASE = "ironic.sqlite"
VERSION = "1.82"
PATIENCE_S = 60


@dataclass(frozen=True, slots=True)
class IronicServer:
    """A running Ironic; ``url`` has no slash at the end, ``cafile`` is None without TLS."""

    url: str
    directory: Path
    child: Child
    cafile: Path | None
    token: str | None = None

    def send(self, method: str, path: str, body: object = None, *, ok: Sequence[int] = ()) -> Any:
        """One request as an administrator; its JSON, None where there is none. What is locked is tried again."""
        headers = {"X-OpenStack-Ironic-API-Version": VERSION} | ({"X-Auth-Token": self.token} if self.token else {})
        for _ in range(100):
            with requests.Session() as http:
                http.trust_env = False
                verify = str(self.cafile) if self.cafile else True
                answer = http.request(
                    method, f"{self.url}{path}", json=body, headers=headers, timeout=60, verify=verify
                )
            if answer.status_code not in (409, 503) and "database is locked" not in answer.text:
                break
            time.sleep(0.05)
        assert answer.ok or answer.status_code in ok, f"{method} {path}: {answer.status_code} {answer.text[:500]}"
        return answer.json() if answer.content else None

    def update(self, node: str, **fields: object) -> None:
        """Set some of a node's own fields; None takes one away."""
        patch = [
            {"op": "remove", "path": f"/{name}"} if value is None else {"op": "add", "path": f"/{name}", "value": value}
            for name, value in fields.items()
        ]
        self.send("PATCH", f"/v1/nodes/{node}", patch)

    def bring(self, node: str, *targets: str) -> None:
        """Provision steps one after the other, each to its end, for instance manage, provide, active."""
        for target in targets:
            self.send("PUT", f"/v1/nodes/{node}/states/provision", {"target": target})
            wait_until(
                lambda: self._states(node)["target_provision_state"] is None, PATIENCE_S, lambda: self._states(node)
            )

    def set_health(self, node: str, health: str | None) -> None:
        """What a conductor that watches hardware would note of a node; no API sets it."""
        with closing(sqlite3.connect(self.directory / DATABASE, timeout=PATIENCE_S)) as database, database:
            database.execute("UPDATE nodes SET health = ? WHERE uuid = ?", (health, node))

    def _states(self, node: str) -> Any:
        return self.send("GET", f"/v1/nodes/{node}?fields=provision_state,target_provision_state,last_error")


@contextmanager
def serving(
    directory: Path,
    template_directory: Path,
    *,
    auth: KeystoneAuth | None = None,
    tls: Certificates | None = None,
    port: int | None = None,
    page: int = 1000,
) -> Iterator[IronicServer]:
    """Serve from ``directory``, which begins as a copy of the template and keeps its data for another start."""
    directory.mkdir(parents=True, exist_ok=True)
    template.copy_once(template_directory / DATABASE, directory / DATABASE)
    port = port or free_port()
    url = f"{'https' if tls else 'http'}://{LOOPBACK}:{port}"
    configuration = directory / "ironic.conf"
    configuration.write_text(_configuration(directory, port, auth, tls, page), encoding="utf-8")
    command = [str(PYTHON.with_name("ironic")), "--config-file", str(configuration)]
    child = start(command, directory=directory, log=directory / "server.log")
    try:
        server = IronicServer(url, directory, child, tls.ca if tls else None)
        _wait(server)
        yield server
    finally:
        stop(child)


def as_user(server: IronicServer, token: str | None) -> IronicServer:
    """The same server, asked with this token."""
    return replace(server, token=token)


def enroll(server: IronicServer, nodes: Sequence[Mapping[str, Any]]) -> None:
    """Nodes by Ironic's own database layer, about a hundred a second; any field can be given, ``traits`` too."""
    path = server.directory / "nodes.json"
    path.write_text(json.dumps(list(nodes)), encoding="utf-8")
    command = [str(PYTHON), "-P", str(ENROLL), str(server.directory / "ironic.conf"), str(path)]
    run(command, directory=server.directory, log=server.directory / "enroll.log")


def ironic_template(cache: Path) -> Path:
    """A directory with a database whose schema is in place."""
    return template.cached(cache, "ironic", PYTHON, _make_template, Path(__file__))


def _make_template(made: Path) -> None:
    configuration = made / "ironic.conf"
    configuration.write_text(_configuration(made, free_port(), None, None), encoding="utf-8")
    command = [str(PYTHON.with_name("ironic-dbsync")), "--config-file", str(configuration), "create_schema"]
    run(command, directory=made, log=made / "schema.log")
    # Without it Ironic's own threads lock each other out; it stays with the file.
    script = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('pragma journal_mode=WAL').fetchall())"
    subprocess.run([str(PYTHON), "-c", script, str(made / DATABASE)], check=True, capture_output=True)
    shutil.rmtree(made / "state", ignore_errors=True)


def _wait(server: IronicServer) -> None:
    """Its API answers before its conductor has told of its drivers, and nodes need those."""
    wait_until_answers(server.child, server.url, cafile=server.cafile)
    with closing(sqlite3.connect(server.directory / DATABASE)) as database:
        wait_until(
            lambda: database.execute("SELECT 1 FROM conductor_hardware_interfaces").fetchone(),
            PATIENCE_S,
            lambda: f"{tail(server.child.log)}\n{server.url} has no driver",
        )


def _configuration(
    directory: Path, port: int, auth: KeystoneAuth | None, tls: Certificates | None, page: int = 1000
) -> str:
    kinds = {name: f"fake,no-{name}" for name in ("bios", "console", "firmware", "inspect", "raid", "rescue", "vendor")}
    kinds |= dict.fromkeys(("boot", "deploy", "management", "power"), "fake")
    kinds |= {"network": "noop", "storage": "fake,noop"}
    interfaces = "".join(f"enabled_{name}_interfaces = {kind}\n" for name, kind in kinds.items())
    secure = f"[ssl]\ncert_file = {tls.certificate}\nkey_file = {tls.key}\n" if tls else ""
    return f"""\
[DEFAULT]
auth_strategy = {"keystone" if auth else "noauth"}
rpc_transport = none
rbac_service_role_elevated_access = True
host = {LOOPBACK}
my_ip = {LOOPBACK}
state_path = {directory / "state"}
enabled_hardware_types = fake-hardware
{interfaces}default_network_interface = noop
default_boot_interface = fake
default_deploy_interface = fake
default_inspect_interface = no-inspect
[api]
host_ip = {LOOPBACK}
port = {port}
max_limit = {page}
enable_ssl_api = {bool(tls)}
[conductor]
max_concurrent_clean = 100000
max_concurrent_deploy = 100000
node_locked_retry_interval = 0
automated_clean = False
sync_power_state_interval = 0
[database]
connection = sqlite:///{directory / DATABASE}
[dhcp]
dhcp_provider = none
[oslo_concurrency]
lock_path = {directory / "state" / "lock"}
{secure}{authtoken(auth, "baremetal") if auth else ""}"""
