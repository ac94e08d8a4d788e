"""Boots the full guest and runs commands in it over ssh on loopback."""

import json
import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from beds.process import BedError, Child, free_port, start, stop, tail, wait_until

PROJECT = Path(__file__).parents[3]
AGENT = "env PYTHONPATH=/opt/source:/opt/site python3 -W ignore -m agent"
BOOT_S = 300
KERNEL = (
    "root=/dev/vda rw console=ttyS0 quiet intel_iommu=on iommu=pt hugepagesz=2M hugepages=128 mitigations=off "
    "audit=0 apparmor=0 nokaslr random.trust_cpu=on panic=-1 net.ifnames=0"
)


@dataclass(frozen=True, slots=True)
class Guest:
    """A running guest; the source of this project is in it at /opt/source."""

    folder: Path
    port: int

    def run(self, command: str, *, check: bool = True, text: str = "", timeout: float = 300) -> str:
        """
        Run a shell command as root and answer what it printed.

        Raises:
            BedError: ``check`` and it failed.
        """
        done = subprocess.run(
            [*self._ssh(), command], input=text, capture_output=True, text=True, timeout=timeout, check=False
        )
        if check and done.returncode:
            raise BedError(f"{command} ended with {done.returncode} in the guest: {done.stderr or done.stdout}")
        return done.stdout

    def reboot(self) -> None:
        """Boot it anew, which takes some minutes under emulation, until libvirtd answers."""
        before = self.boot()
        self.run("systemctl reboot", check=False)
        wait_until(
            lambda: self.boot() not in ("", before) and self.ready(), BOOT_S, lambda: "the guest is not up", pause_s=1
        )

    def boot(self) -> str:
        """The id of its present boot; empty while it cannot be asked."""
        return self.run("cat /proc/sys/kernel/random/boot_id", check=False).strip()

    def ready(self) -> bool:
        """Whether libvirtd answers, and has found out what its QEMU can do."""
        return self.run("virsh -q domcapabilities > /dev/null && echo ready", check=False).strip() == "ready"

    def agent(self, *arguments: object) -> Any:
        """Run a verb of the agent and answer its JSON."""
        words = " ".join(shlex.quote(str(argument)) for argument in arguments)
        return json.loads(self.run(f"{AGENT} {words} --format json"))

    def send(self, name: str, text: str) -> None:
        """Write a file in the guest."""
        self.run(f"cat > {shlex.quote(name)}", text=text)

    def copy(self, path: Path, name: str) -> None:
        """Copy a file into the guest."""
        with path.open("rb") as file:
            subprocess.run([*self._ssh(), f"cat > {shlex.quote(name)}"], stdin=file, check=True, timeout=600)

    def fetch(self, name: str, folder: Path) -> None:
        """Copy a folder out of the guest into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(
            [*self._ssh(), f"tar -C {shlex.quote(name)} -c ."], capture_output=True, check=True, timeout=300
        )
        subprocess.run(["tar", "-C", str(folder), "-x"], input=archive.stdout, check=True)

    def _ssh(self) -> Sequence[str]:
        options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "ConnectTimeout=5")
        chosen = [word for option in options for word in ("-o", option)]
        return ("ssh", "-q", "-i", f"{self.folder}/key", "-p", str(self.port), *chosen, "root@127.0.0.1")


@contextmanager
def running(image: Path, scratch: Path) -> Iterator[Guest]:
    """The guest of an image that ``image.sh`` made, on a disk of its own that is thrown away."""
    port = free_port()
    overlay = scratch / "disk.qcow2"
    create = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(image / "disk.img"), "-F", "raw", str(overlay)]
    subprocess.run(create, check=True)
    log = scratch / "qemu.log"
    modules = f"{image}/qemu/usr/lib/x86_64-linux-gnu/qemu"
    launch = partial(
        start,
        _command(image, overlay, scratch, port),
        directory=image,
        log=log,
        environment={"QEMU_MODULE_DIR": modules},
    )
    child = launch()
    try:
        guest = Guest(image, port)
        try:
            _wait(guest, child, scratch)
        except BedError:  # seen once: the emulated clock stood still, and the kernel said so on the console
            stop(child)
            child = launch()
            _wait(guest, child, scratch)
        source = subprocess.run(
            ["tar", "-C", str(PROJECT), "--exclude=__pycache__", "-c", "agent", "drivers", "reportclient"],
            capture_output=True,
            check=True,
        )
        subprocess.run(
            [*guest._ssh(), "mkdir -p /opt/source && tar -C /opt/source -x"], input=source.stdout, check=True
        )
        yield guest
    finally:
        stop(child)


def _wait(guest: Guest, child: Child, scratch: Path) -> None:
    deadline = time.monotonic() + BOOT_S
    while not guest.ready():
        if child.process.poll() is not None or time.monotonic() > deadline:
            raise BedError(f"the guest did not come up: {tail(child.log)}\n{tail(scratch / 'serial.log')}")
        time.sleep(1)


def _command(image: Path, overlay: Path, scratch: Path, port: int) -> list[str]:
    """Two cells with an SR-IOV card behind a root port of each, as numa_node of their bridges says."""
    qemu = f"{image}/qemu/usr"
    words = [
        f"{qemu}/bin/qemu-system-x86_64 -L {qemu}/share/qemu -L {qemu}/share/seabios",
        "-name full-guest -machine q35 -accel tcg,thread=multi,tb-size=512 -cpu max -m 4096",
        "-smp 4,sockets=2,cores=2,threads=1 -nodefaults -display none -no-user-config",
        "-object memory-backend-ram,id=m0,size=2048M -object memory-backend-ram,id=m1,size=2048M",
        "-numa node,nodeid=0,cpus=0-1,memdev=m0 -numa node,nodeid=1,cpus=2-3,memdev=m1",
        f"-numa dist,src=0,dst=1,val=21 -serial file:{scratch}/serial.log",
        "-device intel-iommu,intremap=off,caching-mode=on",
        f"-kernel {image}/vmlinuz -initrd {image}/initrd.img",
        f"-drive if=none,id=disk,file={overlay},format=qcow2,cache=unsafe -device virtio-blk-pci,drive=disk",
        f"-device virtio-rng-pci -netdev user,id=ssh,hostfwd=tcp:127.0.0.1:{port}-:22",
        "-device virtio-net-pci,netdev=ssh,mac=52:54:00:00:00:01,romfile=",
        "-device pxb-pcie,id=cell0,bus=pcie.0,bus_nr=64,numa_node=0",
        "-device pxb-pcie,id=cell1,bus=pcie.0,bus_nr=128,numa_node=1",
        "-device pcie-root-port,id=port0,bus=cell0,chassis=1,slot=1",
        "-device pcie-root-port,id=port1,bus=cell1,chassis=2,slot=2",
        "-netdev user,id=net0 -device igb,bus=port0,netdev=net0,mac=52:54:00:00:01:00,romfile=",
        "-netdev user,id=net1 -device igb,bus=port1,netdev=net1,mac=52:54:00:00:02:00,romfile=",
    ]
    return [*" ".join(words).split(), "-append", KERNEL]
