"""The container image in podman, with the options of the Quadlet in etc/containers; its storage goes with it."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from beds.process import BedError

NAME = "compute-node-agent-under-test"
OPTIONS = ("--network=host", "--uts=host", "--pid=host", "--cgroupns=host", "--read-only", "--cap-drop=all",
           "--security-opt=no-new-privileges")  # fmt: skip
LIMITS = (
    "--ulimit=nofile=1024:1024",
    "--ulimit=nproc=4096:4096",
)  # lower than podman's, which not every machine may set
HEALTH = ("--health-cmd=compute-node-agent status", "--health-interval=disable")  # asked for by the test: no systemd


@dataclass(frozen=True, slots=True)
class Podman:
    """``folder`` has its storage; ``image`` is the name that the image brought with it."""

    folder: Path
    image: str

    def run(self, *arguments: str, check: bool = True) -> str:
        """Run a command of podman; its output, errors too."""
        return _podman(self.folder, *arguments, check=check)

    def once(self, *command: str) -> str:
        """What a command in the image prints."""
        entry, *arguments = command
        return self.run("run", "--rm", *OPTIONS, *LIMITS, f"--entrypoint={entry}", self.image, *arguments)

    def healthy(self) -> bool:
        """Whether the health command is content."""
        return self._code("healthcheck", "run", NAME) == 0

    def logs(self) -> str:
        return self.run("logs", NAME, check=False)

    def _code(self, *arguments: str) -> int:
        return subprocess.run(_command(self.folder, *arguments), capture_output=True, check=False).returncode


@contextmanager
def loaded(folder: Path, image: Path) -> Iterator[Podman]:
    """A podman of its own that has this image alone."""
    said = _podman(folder, "load", "--input", str(image))
    try:
        yield Podman(folder, said.split()[-1])
    finally:
        _podman(folder, "system", "reset", "--force")


@contextmanager
def started(podman: Podman, volumes: Mapping[Path, str], *options: str) -> Iterator[None]:
    """The image's own command, in the background; ``volumes`` are folders and files of ours, at those places."""
    mounts = [f"--volume={ours}:{place}" for ours, place in volumes.items()]
    podman.run("run", "--detach", f"--name={NAME}", *OPTIONS, *LIMITS, *HEALTH, *mounts, *options, podman.image)
    try:
        yield
    finally:
        podman.run("rm", "--force", "--time=5", NAME)


def _podman(folder: Path, *arguments: str, check: bool = True) -> str:
    done = subprocess.run(
        _command(folder, *arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if check and done.returncode:
        raise BedError(f"podman {' '.join(arguments)} ended with {done.returncode}: {done.stdout[-2000:]}")
    return done.stdout


def _command(folder: Path, *arguments: str) -> list[str]:
    places = (f"--root={folder}/storage", f"--runroot={folder}/run", f"--tmpdir={folder}/tmp")
    return ["podman", *places, "--storage-driver=vfs", "--runtime=runc", "--cgroup-manager=cgroupfs", *arguments]
