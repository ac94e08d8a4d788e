"""A synthetic machine with a real libvirtd over it: to look at, to run guests on, and to plug things into."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from uuid import uuid4

from beds import libvirtd
from beds.agents import COMMAND, MAIN, Result
from beds.forked import run_command
from beds.guests import GuestSpec, domain_xml
from beds.libvirtd import HOST_UUID, NO_UDEV_CHECK, Libvirtd
from beds.process import BedError
from beds.synthetic.doorway import relaying
from beds.synthetic.model import Machine
from beds.synthetic.sysfs import Files
from beds.written import hear

HERE = Path(__file__).parent
EMULATOR = HERE / "emulator.py"


@dataclass(frozen=True, slots=True)
class Host:
    """A running synthetic host; ``files`` are what its kernel would show."""

    machine: Machine
    files: Files
    libvirtd: Libvirtd
    events: subprocess.Popen[str]

    @property
    def inside(self) -> tuple[str, ...]:
        """What to put before a command that shall run in the host's namespaces, whichever libvirtd it has by now."""
        return ("nsenter", f"--target={self.events.pid}", "--mount", "--net", "--uts", "--")

    @property
    def with_its_devices(self) -> tuple[str, ...]:
        """What to put before a command that shall see the host's devices, and this machine's network."""
        return ("nsenter", f"--target={self.events.pid}", "--mount", "--")

    def run(self, *arguments: object, timeout: float = 120) -> Result:
        """The command on this host, to its end: the installed one by ``start``."""
        words = [str(COMMAND), *map(str, arguments)]
        result = Result(*run_command(MAIN, words, timeout, inside=self.events.pid, **NO_UDEV_CHECK))
        assert "Traceback" not in result.err, result.err
        hear(result.raw)
        return result

    @contextmanager
    def running(self, guest: GuestSpec, *, uuid: str = "") -> Iterator[str]:
        """A guest that runs on this host for as long as the context lasts; its uuid, random unless given."""
        own = uuid or str(uuid4())
        self.libvirtd.virsh("create", "/dev/stdin", text=domain_xml(own, own, guest, emulator=str(EMULATOR)))
        try:
            yield own
        finally:
            self.libvirtd.virsh("destroy", own)

    def start(self, *arguments: object, log: IO[str] | None = None) -> subprocess.Popen[str]:
        """The installed command on this host, left running; without ``log`` its ``stdout`` must be read."""
        command = [*self.libvirtd.inside, str(COMMAND), *map(str, arguments)]
        output = log or subprocess.PIPE
        environment = os.environ | NO_UDEV_CHECK
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True, env=environment)

    def restart_libvirtd(self) -> "subprocess.Popen[bytes]":
        """Kill libvirtd and start another in the namespaces that it leaves, which the caller ends."""
        os.kill(self.libvirtd.pid, signal.SIGKILL)
        time.sleep(1)
        command = [*self.inside, "/usr/sbin/libvirtd", "-p", "/run/libvirt/again.pid"]
        log = subprocess.DEVNULL
        return subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | NO_UDEV_CHECK)

    def announce(self, action: str, folders: Iterable[Path]) -> None:
        """Tell udev's listeners on this host what happened to devices, in the order of ``folders``."""
        assert self.events.stdin
        assert self.events.stdout
        for folder in folders:
            self.events.stdin.write(f"{action} /{folder.relative_to(self.files.root)}\n")
            self.events.stdin.flush()
            assert self.events.stdout.readline() == "sent\n"

    @contextmanager
    def doorway(self, url: str) -> Iterator[str]:
        """A server of this machine's loopback, as it can be reached from the host's own network namespace."""
        with relaying(self.libvirtd.pid, int(url.rpartition(":")[2])) as port:
            yield f"{url.rpartition(':')[0]}:{port}"


@contextmanager
def serving(directory: Path, machine: Machine, *, host_uuid: str = HOST_UUID) -> Iterator[Host]:
    """A real libvirtd over ``machine``, whose name is its host name; ``host_uuid`` as in ``libvirtd.serving``."""
    directory.mkdir(parents=True, exist_ok=True)
    files = Files(directory / "files", machine)
    with (
        libvirtd.serving(
            directory / "libvirtd",
            machine=files.root,
            name=machine.name,
            host_uuid=host_uuid,
            preload=_preload(directory),
        ) as server,
        _events(server) as events,
    ):
        yield Host(machine, files, server, events)


def _preload(directory: Path) -> Path:
    library = directory / "unlimited.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", str(library), str(HERE / "unlimited.c")], check=True)
    return library


@contextmanager
def _events(server: Libvirtd) -> Iterator[subprocess.Popen[str]]:
    """A process in the host's namespaces that sends an event for each line it is given."""
    command = [*server.inside, sys.executable, str(HERE / "uevents.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            if process.stdout.readline() != "inside\n":
                raise BedError("nobody could be sent into the namespaces of the synthetic host")
            yield process
        finally:
            process.kill()
