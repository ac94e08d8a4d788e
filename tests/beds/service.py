"""The service as a process, heard by somebody who listens as systemd does."""

import json
import os
import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beds.agents import COMMAND
from beds.libvirtd import NO_UDEV_CHECK
from beds.process import BedError
from beds.synthetic.bed import Host
from beds.upgrades import write_config

UNIT = Path(__file__).parents[2] / "systemd/compute-node-agent.service"
PATIENCE_S = 60  # for what takes a second on a machine that is not busy
LOOKS, BETWEEN_LOOKS_S = 20, 0.1
CPUCLOCK_SCHED = 2  # in the kernel's clock ids (posix-timers.h): all CPU of a process, in nanoseconds


@dataclass
class Service:
    """A running service; ``told`` is what it said to systemd."""

    process: subprocess.Popen[bytes]
    config: Path
    log: Path
    state: Path
    listener: socket.socket
    told: list[str] = field(default_factory=list)

    def listen(self) -> None:
        """As systemd does, until the socket is closed."""
        with suppress(OSError):
            while text := self.listener.recv(4096).decode():
                self.told += text.splitlines()

    def wait(self, holds: Callable[[], bool], patience_s: float = PATIENCE_S, *, pause_s: float = 0.05) -> float:
        """Until something holds; how long that took."""
        began = time.monotonic()
        while not holds():
            if self.process.poll() is not None or time.monotonic() > began + patience_s:
                raise BedError(f"{self.told[-5:]}\n{self.lines()}")
            time.sleep(pause_s)
        return time.monotonic() - began

    def wait_for_passes(self, count: int) -> None:
        """Until so many more were done."""
        wanted = self.passes() + count
        self.wait(lambda: self.passes() >= wanted)

    def status(self) -> Any:
        """What a service last wrote of itself here; after a restart the one before, until the first pass."""
        with suppress(FileNotFoundError):
            return json.loads((self.state / "status.json").read_text(encoding="utf-8"))
        return {"passes": 0, "ready": False, "sources": {}, "sentence": ""}

    def passes(self) -> int:
        return int(self.status()["passes"])

    def is_ready(self) -> bool:
        return bool(self.status()["ready"])

    def lines(self) -> str:
        """Its log so far."""
        return self.log.read_text(encoding="utf-8")

    def configure(self, groups: Mapping[str, Mapping[str, object]]) -> None:
        """Another configuration, for when it is told to read it anew."""
        write_config(groups, self.config)

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))

    def descriptors(self) -> int:
        return len(self._open())

    def lasting(self) -> dict[str, int]:
        """
        Its sockets, and its other descriptors: the fewest of several looks.

        Connections that wait for the next request come and go, and a file that is being written is open for an instant.
        """
        looks = []
        for _ in range(LOOKS):
            found = self._open()
            sockets = sum(one.startswith("socket:") for one in found)
            looks.append((sockets, len(found) - sockets))
            time.sleep(BETWEEN_LOOKS_S)
        sockets, files = map(min, zip(*looks, strict=True))
        return {"sockets": sockets, "files": files}

    def _open(self) -> list[str]:
        """What its descriptors are; one that is closed meanwhile is left out."""
        found = []
        for one in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found.append(str(one.readlink()))
        return found

    def memory_kib(self) -> dict[str, int]:
        """Resident and unique memory (proc(5), smaps_rollup)."""
        text = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text(encoding="ascii")
        sums = {line.split(":")[0]: int(line.split()[1]) for line in text.splitlines()[1:]}
        return {"resident": sums["Rss"], "unique": sums["Private_Clean"] + sums["Private_Dirty"]}

    def cpu_s(self) -> float:
        """Seconds of CPU so far, by the clock of its process (clock_getcpuclockid(3))."""
        return time.clock_gettime(~self.process.pid << 3 | CPUCLOCK_SCHED)


@contextmanager
def serving(
    folder: Path,
    groups: Mapping[str, Mapping[str, object]],
    *options: str,
    host: Host | None = None,
    state: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Service]:
    """The service, on one made-up host or on a synthetic one, for as long as the context lasts."""
    folder.mkdir(exist_ok=True)
    state = state or folder / "state"
    config, log, address = folder / "agent.conf", folder / "log", folder / "notify"
    write_config(groups, config)
    inside = host.libvirtd.inside if host else ()
    more = {"NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": "3000000"} | (NO_UDEV_CHECK if host else {})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener, log.open("ab") as output:
        listener.bind(str(address))
        process = subprocess.Popen(
            [*inside, str(COMMAND), "run", "--config-file", str(config), *options],
            stdout=output,
            stderr=output,
            env=os.environ | environment_of_unit() | more | dict(environment or {}),
        )
        service = Service(process, config, log, state, listener)
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


def environment_of_unit() -> dict[str, str]:
    """What the systemd unit gives the service (``Environment=`` in systemd.exec)."""
    lines = UNIT.read_text(encoding="utf-8").splitlines()
    words = [word for line in lines if line.startswith("Environment=") for word in shlex.split(line)]
    return dict(word.removeprefix("Environment=").split("=", 1) for word in words)


def made_up(folder: Path, placement: Mapping[str, object], **agent: object) -> dict[str, dict[str, object]]:
    """The configuration of a made-up host whose service passes each second."""
    return {
        "DEFAULT": {"compute_driver": "fake.FakeDriver"},
        "placement": dict(placement),
        "agent": {"state_directory": folder / "state", "interval": 1, "start_spread": 0, **agent},
    }


def noauth(url: str, **more: object) -> dict[str, object]:
    return {"auth_type": "none", "endpoint": url, "timeout": 10, **more}


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A small file system of its own in this folder, for as long as the context lasts."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def end(process: "subprocess.Popen[Any]") -> None:
    """Kill what a test left running, and wait for it."""
    process.kill()
    process.wait()


def a_clock_to_set(folder: Path, clock: Path) -> dict[str, str]:
    """The environment of a process whose wall clock is as many seconds ahead as the file ``clock`` says."""
    library, source = folder / "set_clock.so", Path(__file__).with_name("set_clock.c")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "SET_CLOCK": str(clock)}
