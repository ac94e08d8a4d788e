"""The agent itself as tests use it: the installed command, a client on placement in this process, recorded hosts."""

import io
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.command.arguments import main
from agent.connect.embedded import open_file
from beds.forked import run_command
from beds.written import hear
from reportclient.client import PlacementClient
from reportclient.transport import Transport

COMMAND = Path(sys.executable).parent / "compute-node-agent"
MAIN = "agent.command.arguments:main"  # what the command calls, as setup.py says
INSTALLED = 40
_runs = itertools.count()


@dataclass(frozen=True, slots=True)
class Result:
    """How a run of the command ended; ``out`` is without the time and the request id of JSON, ``raw`` has them."""

    code: int
    out: str
    err: str
    raw: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "raw", self.out)
        object.__setattr__(self, "out", lasting(self.out))

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def whole(self) -> Any:
        return json.loads(self.raw)


def lasting(out: str) -> str:
    """Return printed JSON or YAML without what differs at each run: its time and its request id."""
    return re.sub(r"""\n  ("?)(time|request_id)\1: [^\n]*""", "", out)


@dataclass(slots=True)
class CountingSender:
    """Passes requests on and remembers them as ``METHOD path?query``."""

    sender: Any
    seen: list[str] = field(default_factory=list)

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        self.seen.append(f"{method} {url}")
        return self.sender.request(url, method, **kwargs)

    def count(self) -> int:
        """How many requests since the last call."""
        number = len(self.seen)
        self.seen.clear()
        return number


def run_agent(*arguments: object, timeout: float = 300, **environment: str) -> Result:
    """
    Run the command to its end: the installed one each ``INSTALLED`` times, and with an ``environment``.

    Else its function is run in a process that is forked from one with all imports, which are most of a short run.
    """
    words = [str(COMMAND), *map(str, arguments)]
    if not environment and next(_runs) % INSTALLED:
        result = Result(*run_command(MAIN, words, timeout))
        assert "Traceback" not in result.err, result.err
        hear(result.raw)
        return result
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | environment,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    hear(done.stdout)
    return Result(done.returncode, done.stdout, done.stderr)


def run_here(*arguments: object) -> Result:
    """Run a command in this process that needs no service: what it reads is in files."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([str(one) for one in arguments])
    return Result(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def placement_sender(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An adapter to placement's own application in this process; one for all tests, so each uses names of its own."""
    return open_file(tmp_path_factory.mktemp("placement"), writes=True)


@pytest.fixture
def sender(placement_sender: Any) -> CountingSender:
    """The same, counting."""
    return CountingSender(placement_sender)


@pytest.fixture
def client(sender: CountingSender) -> PlacementClient:
    """The report client on it."""
    return PlacementClient(Transport(sender, where="placement in this process"))


@pytest.fixture
def write_config(tmp_path: Path) -> Callable[..., Path]:
    """Writes a configuration file: ``write_config(libvirt={"virt_type": "qemu"})``; None leaves an option out."""

    def write(name: str = "agent.conf", **groups: dict[str, object]) -> Path:
        path = tmp_path / name
        lines = []
        for group, options in groups.items():
            lines.append(f"[{group}]")
            lines += [f"{option} = {value}" for option, value in options.items() if value is not None]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write
