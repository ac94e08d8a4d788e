"""Another release of Debian as a root folder, to change at will: what is written goes with it."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from beds.process import BedError

PROJECT = Path(__file__).parents[2]
PATIENCE_S = 1200
ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
    "HOME": "/root",
    "PIP_CERT": "/etc/ssl/certs/ca-certificates.crt",
}
OF_OURS = ("/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt")  # how this machine reaches others, and trusts them
PROXIES = ("http_proxy", "https_proxy", "no_proxy")
KERNELS = ("proc", "sys", "dev")


@dataclass(frozen=True, slots=True)
class Root:
    """``folder`` is its root."""

    folder: Path

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command in it; its output, errors too."""
        inside = ["chroot", str(self.folder), *command]
        done = subprocess.run(
            inside, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=PATIENCE_S,
            env={**ENVIRONMENT, **{name: value for name, value in os.environ.items() if name.lower() in PROXIES}},
        )  # fmt: skip
        if check and done.returncode:
            raise BedError(f"{' '.join(command)} ended with {done.returncode}: {done.stdout[-3000:]}")
        return done.stdout

    def put(self, file: Path, place: str = "/root") -> str:
        """Copy a file of ours into a folder of it; its path there."""
        shutil.copy(file, self.folder / place.lstrip("/"))
        return f"{place}/{file.name}"

    def put_project(self, place: str = "/srv/agent") -> str:
        """Copy what the project has committed, and what is changed since; its folder there."""
        target = self.folder / place.lstrip("/")
        target.mkdir(parents=True)
        named = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        files = subprocess.run(named, cwd=PROJECT, check=True, capture_output=True).stdout
        packed = ["tar", "--create", "--null", "--files-from", "-", "--ignore-failed-read"]  # but for what is deleted
        archive = subprocess.run(packed, cwd=PROJECT, check=True, input=files, capture_output=True).stdout
        subprocess.run(["tar", "--extract", "--directory", str(target)], check=True, input=archive)
        return place

    def files(self) -> dict[str, str]:
        """Every file, folder and link of it, with owner and mode."""
        listing = self.run("find", "/", "-xdev", "-printf", "%p\\t%u:%g %M\\n", check=False)
        lines = (line.partition("\t") for line in listing.splitlines())
        return {path: state for path, _, state in lines if state}


@contextmanager
def changeable(release: str, folder: Path, *, kernel: bool) -> Iterator[Root]:
    """A root of this release over one that is kept; ``kernel``: it has /proc, /sys and /dev."""
    base, layers, root = PROJECT / ".distro" / release, folder / "layers", folder / "root"
    for one in (layers, root):
        one.mkdir(parents=True)
    mounted: list[Path] = []
    try:
        _mount(mounted, layers, "-t", "tmpfs", "tmpfs")
        for name in ("up", "work"):
            (layers / name).mkdir()
        options = f"lowerdir={base},upperdir={layers}/up,workdir={layers}/work"
        _mount(mounted, root, "-t", "overlay", "overlay", "-o", options)
        for name in KERNELS if kernel else ():
            _mount(mounted, root / name, "--rbind", f"/{name}")
        for file in OF_OURS:
            shutil.copy(file, root / file.lstrip("/"))
        yield Root(root)
    finally:
        for place in reversed(mounted):
            subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)


def _mount(mounted: list[Path], place: Path, *arguments: str) -> None:
    done = subprocess.run(["mount", *arguments, str(place)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BedError(f"mount {' '.join(arguments)} {place}: {done.stderr}")
    mounted.append(place)
    if "--rbind" in arguments:
        subprocess.run(["mount", "--make-rslave", str(place)], check=True)
