"""A real systemd as process 1, in a container over this machine's own files: what it writes goes with it."""

import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from beds.process import BedError, Child, start, stop, tail

PATIENCE_S = 60
MASKED = ("systemd-networkd", "libvirt-guests", "ssh", "postgresql", "mariadb", "cron")


@dataclass(slots=True)
class Container:
    """``child`` keeps it, ``leader`` is its process 1, as this machine counts."""

    command: Sequence[str]
    directory: Path
    child: Child | None = None
    leader: int = 0

    @property
    def root(self) -> Path:
        return self.directory / "root"

    def boot(self) -> None:
        """Start it, and wait until what starts at boot is up."""
        self.child = start(self.command, directory=self.directory, log=self.directory / "nspawn.log")
        self.leader = _leader(self.child)

    def reboot(self) -> None:
        """All of its processes end in order, and it boots again from the same files."""
        assert self.child
        self.run("systemctl", "reboot", check=False)
        self.child.process.wait(PATIENCE_S)
        self.boot()

    def run(self, *command: str, check: bool = True, text: str = "") -> str:
        """Run a command in it as root; its output, errors too. What it leaves running does not hold us up."""
        with tempfile.TemporaryFile() as out:
            done = subprocess.run(
                ["nsenter", "-t", str(self.leader), "-a", *command],
                input=text.encode(),
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=60,
                start_new_session=True,  # a signal to a group there is none to ours
            )
            out.seek(0)
            told = out.read().decode(errors="replace")
        if check and done.returncode:
            raise BedError(f"{' '.join(command)} ended with {done.returncode}: {told}")
        return told

    def show(self, unit: str, name: str) -> str:
        """One property of a unit."""
        return self.run("systemctl", "show", unit, "-p", name, "--value").strip()


@contextmanager
def booted(directory: Path, *, binds: Mapping[Path, str] = MappingProxyType({})) -> Iterator[Container]:
    """A container that shares our network, with these folders of ours at those places."""
    layers, root = directory / "layers", directory / "root"
    for folder in (layers, root):
        folder.mkdir(parents=True)
    _mount("-t", "tmpfs", "tmpfs", str(layers))
    (layers / "up").mkdir()
    (layers / "work").mkdir()
    _mount("-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={layers}/up,workdir={layers}/work", str(root))
    try:
        masked = [f"systemd.mask={name}.service" for name in MASKED]
        command = [
            *("systemd-nspawn", "-D", str(root), "-M", f"agent-{directory.name}"[:60], "--register=no", "--keep-unit"),
            *("--console=passive", "--link-journal=no", "--hostname=contained"),
            *(f"--bind={ours}:{place}" for ours, place in binds.items()),
            *("-b", *masked, "systemd.unified_cgroup_hierarchy=0"),
        ]
        container = Container(command, directory)
        try:
            container.boot()
            yield container
        finally:
            if container.child:
                stop(container.child, patience=20)
    finally:
        for folder in (root, layers):
            subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)


def _leader(nspawn: Child) -> int:
    pid, deadline = nspawn.process.pid, time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        children = Path(f"/proc/{pid}/task/{pid}/children")
        text = children.read_text(encoding="ascii") if children.exists() else ""
        for child in text.split():
            asked = ["nsenter", "-t", child, "-a", "systemctl", "is-system-running"]
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
            if done.stdout.strip() in ("running", "degraded"):
                return int(child)
        time.sleep(0.2)
    raise BedError(f"no systemd within {PATIENCE_S} s:\n{tail(nspawn.log)}")


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BedError(f"mount {' '.join(arguments)}: {done.stderr}")
