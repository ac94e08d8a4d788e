"""Child processes of the tests: each started, watched and stopped by its own pid, never by name."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import requests

LOOPBACK = "127.0.0.1"


class BedError(Exception):
    """A test bed did not come up; the message ends with the tail of its log."""


class Process(Protocol):
    """What the beds use of a ``Popen``."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def terminate(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Child:
    """A running child, leader of its own process group; ``log`` has its stdout and stderr."""

    process: Process
    log: Path


def free_port() -> int:
    """A loopback TCP port which was free a moment ago; whoever binds it first has it."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def start(command: Sequence[str], *, directory: Path, log: Path, environment: Mapping[str, str] | None = None) -> Child:
    """Start ``command`` in ``directory``; ``environment`` is laid over ours."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=laid_over(environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Child(process, log)


def laid_over(environment: Mapping[str, str]) -> dict[str, str]:
    """Our environment with this one over it. No proxy stands before loopback."""
    return {**os.environ, "NO_PROXY": f"{LOOPBACK},localhost", "no_proxy": f"{LOOPBACK},localhost", **environment}


def run(command: Sequence[str], *, directory: Path, log: Path, environment: Mapping[str, str] | None = None) -> None:
    """
    Run ``command`` to its end.

    Raises:
        BedError: it ended with another status than 0.
    """
    child = start(command, directory=directory, log=log, environment=environment)
    if status := child.process.wait():
        raise BedError(f"{command} ended with {status}:\n{tail(log)}")


def wait_until_answers(child: Child, url: str, *, cafile: Path | None = None, timeout: float = 60.0) -> None:
    """
    Wait until ``url`` gives any HTTP answer.

    Raises:
        BedError: the child died, or was silent for ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    with requests.Session() as http:
        http.trust_env = False  # a proxy or a CA bundle of the caller's has no say on loopback
        while time.monotonic() < deadline:
            if child.process.poll() is not None:
                raise BedError(f"{url}: the server ended with {child.process.returncode}:\n{tail(child.log)}")
            if _answers(http, url, cafile):
                return
            time.sleep(0.02)
    raise BedError(f"{url}: no answer within {timeout} s:\n{tail(child.log)}")


def wait_until(
    holds: Callable[[], object], patience_s: float, complaint: Callable[[], object], *, pause_s: float = 0.05
) -> None:
    """
    Wait until something holds.

    Raises:
        BedError: it did not within ``patience_s``; ``complaint`` says what there was instead.
    """
    deadline = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline:
            raise BedError(f"{complaint()} after {patience_s:g} s")
        time.sleep(pause_s)


def wait_until_listens(port: int, log: Path, patience_s: float = 30.0) -> None:
    """Wait until somebody takes connections to a port of loopback; who writes ``log`` is to be blamed."""

    def listens() -> bool:
        with suppress(OSError):
            socket.create_connection((LOOPBACK, port), timeout=1).close()
            return True
        return False

    wait_until(listens, patience_s, lambda: f"{tail(log)}\nnothing listens on port {port}")


def stop(child: Child, *, patience: float = 5.0) -> None:
    """Terminate the child and wait; what is left of its process group after ``patience`` seconds is killed."""
    child.process.terminate()
    try:
        child.process.wait(patience)
    except subprocess.TimeoutExpired:
        os.killpg(child.process.pid, signal.SIGKILL)  # still ours: the leader has not been waited for
        child.process.wait()


@contextmanager
def running(
    command: Sequence[str],
    *,
    directory: Path,
    log: Path,
    url: str,
    cafile: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Child]:
    """A child which answers at ``url`` for as long as the context lasts."""
    with answering(start(command, directory=directory, log=log, environment=environment), url, cafile) as child:
        yield child


@contextmanager
def answering(child: Child, url: str, cafile: Path | None = None) -> Iterator[Child]:
    """The same of a child that was started already."""
    try:
        wait_until_answers(child, url, cafile=cafile)
        yield child
    finally:
        stop(child)


def tail(log: Path, lines: int = 30) -> str:
    """The last lines of a log; empty when there is none yet."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""


def _answers(http: requests.Session, url: str, cafile: Path | None) -> bool:
    try:
        http.get(url, verify=str(cafile) if cafile else True, timeout=2.0)
    except (requests.ConnectionError, requests.Timeout):
        return False
    return True
