"""Where the bench works: the commands that it measures, and a real placement with the fake driver's host."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from beds.placement import NOAUTH_HEADERS, serving
from beds.process import LOOPBACK
from beds.proxy import Proxy

HERE = Path(__file__).parent
AGENT = Path(sys.executable).with_name("compute-node-agent")
NOVA_PYTHON = HERE.parent / ".bench/nova/bin/python"
ENVIRONMENT = {
    "NO_PROXY": LOOPBACK,
    "no_proxy": LOOPBACK,
    "OS_NOVA_DISABLE_EVENTLET_PATCHING": "1",  # nova on threads, as its own services run from now on
}
TIMEOUT_S = 900
LINES_OF_BLAME = 5


class BenchError(Exception):
    """Something that is measured did not run; the message says what it wrote last."""


@dataclass(frozen=True, slots=True)
class Run:
    """How a command ended."""

    code: int
    out: str
    err: str
    wall_s: float

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True, slots=True)
class Host:
    """A made-up host whose agent reports through a counting proxy to a placement of its own."""

    folder: Path
    config: Path
    placement: str  # its URL, past the proxy
    proxy: Proxy

    def agent(self, verb: str, *, codes: Sequence[int] = (0,)) -> Run:
        """Run one verb of the installed command."""
        return run([AGENT, verb, "--config-file", self.config, "--format", "json"], codes=codes)

    def requests_of(self, verb: str, *, codes: Sequence[int] = (0,)) -> tuple[Run, list[str]]:
        """The same, with the requests that it sent, each ``METHOD path``."""
        self.proxy.seen.clear()
        done = self.agent(verb, codes=codes)
        return done, [f"{seen.method} {seen.path}" for seen in self.proxy.seen]

    def nova(self, report: Mapping[str, Any], *, cycles: int = 1) -> list[list[str]]:
        """Let nova's report client report a root; the requests of each cycle."""
        path = self.folder / "nova-report.json"
        path.write_text(json.dumps(dict(report)), encoding="utf-8")
        by_cycle: list[list[str]] = run_nova("nova_client.py", self.placement, path, cycles).json
        return by_cycle

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """
        One request to placement, past the proxy; its JSON, None where there is none.

        Raises:
            BenchError: placement refused.
        """
        headers = {**NOAUTH_HEADERS, "OpenStack-API-Version": "placement 1.36"}  # the last without consumer types
        with requests.Session() as http:
            http.trust_env = False
            answer = http.request(method, self.placement + path, headers=headers, json=body, timeout=60)
        if not answer.ok:
            raise BenchError(f"placement answered {method} {path} with {answer.status_code}: {answer.text}")
        return answer.json() if answer.content else None


@contextmanager
def reporting(folder: Path, template: Path, *, seed: int) -> Iterator[Host]:
    """A host and its placement for as long as the context lasts."""
    folder.mkdir()
    with serving(folder / "placement", template) as server, Proxy(server.url) as proxy:
        config = write_config(
            folder,
            DEFAULT={"compute_driver": "fake.FakeDriver"},
            fake={"seed": seed},
            placement={"auth_type": "none", "endpoint": proxy.url},
        )
        yield Host(folder, config, server.url, proxy)


def write_config(folder: Path, name: str = "agent.conf", **groups: Mapping[str, object]) -> Path:
    """A configuration file for agent and nova alike, which keeps identity and state in ``folder``."""
    nova_state = folder / "nova"
    nova_state.mkdir(exist_ok=True)
    own: dict[str, Mapping[str, object]] = {
        "DEFAULT": {"state_path": nova_state, "instances_path": nova_state},
        "agent": {"state_directory": folder / "state"},
    }
    lines = []
    for group in sorted(own.keys() | groups.keys()):
        lines.append(f"[{group}]")
        options = {**own.get(group, {}), **groups.get(group, {})}
        lines += [f"{option} = {value}" for option, value in options.items()]
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def run(command: Sequence[object], *, codes: Sequence[int] = (0,)) -> Run:
    """
    Run a command to its end.

    Raises:
        BenchError: its exit code is none of ``codes``.
    """
    started = time.perf_counter()
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        env=os.environ | ENVIRONMENT,
    )
    if done.returncode not in codes:
        last = "\n".join((done.stderr or done.stdout).splitlines()[-LINES_OF_BLAME:])
        raise BenchError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{last}")
    return Run(done.returncode, done.stdout, done.stderr, time.perf_counter() - started)


def run_nova(script: str, *arguments: object) -> Run:
    """Run a script of this folder in nova's virtual environment; errors as ``run``."""
    return run([NOVA_PYTHON, "-W", "ignore", HERE / script, *arguments])


def only_provider(tree: Any) -> tuple[str, dict[str, Any]]:
    """Name and record of a tree that is a root without children."""
    ((name, record),) = tree["providers"].items()
    return name, record
