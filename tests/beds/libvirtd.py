"""
A real libvirtd of our own, in a mount namespace.

All share one cache of what they find out about QEMU: to find it out takes eight seconds, and can hang (user = root).
"""

import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from beds.process import BedError, start, stop, tail

CACHE = Path(__file__).parents[2] / "build/libvirt"  # libvirt itself sees when it is old
HOST_UUID = "5f0c6a5e-2f55-4d0a-9d0a-3b1c2a9a7e01"  # where there is no DMI, libvirtd needs to be told one
QEMU_CONF = """\
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
cgroup_controllers = [ ]
namespaces = [ ]
security_driver = "none"
stdio_handler = "file"
"""
LIBVIRTD_CONF = """\
auth_unix_rw = "none"
auth_unix_ro = "none"
unix_sock_dir = "{run}"
unix_sock_rw_perms = "0700"
host_uuid = "{host_uuid}"
log_level = 4
log_outputs = "4:file:{log}/libvirtd.log"
"""
MOUNTS = """\
set -e
mount --bind "$1/etc" /etc/libvirt
mount --bind "$1/lib" /var/lib/libvirt
mount --bind "$6" /var/cache/libvirt
mount --bind "$1/log" /var/log/libvirt
mkdir -p /run/libvirt
mount --bind "$1/run" /run/libvirt
"""
NAMED = 'hostname "$4"\n'
SYNTHETIC = """\
ip link set lo up
mkdir -p /run/udev "$2/sys/fs/cgroup"
mount --bind "$2/run/udev" /run/udev
mount --rbind /sys/fs/cgroup "$2/sys/fs/cgroup"
mount --bind "$2/proc/meminfo" /proc/meminfo
mount --bind "$2/proc/cpuinfo" /proc/cpuinfo
mount --rbind "$2/sys" /sys
mkdir "$1/devices"
mount -t tmpfs tmpfs "$1/devices"
for entry in /dev/*; do
  place="$1/devices/${entry##*/}"
  if [ "$entry" = /dev/ptmx ]; then ln -s pts/ptmx "$place"  # a bind mount of it opens no console for guests
  elif [ -L "$entry" ]; then cp -a "$entry" "$place"
  elif [ -d "$entry" ]; then mkdir "$place"; mount --rbind "$entry" "$place"
  else : > "$place"; mount --bind "$entry" "$place"; fi
done
mkdir -p "$1/devices/vfio" "$1/devices/hugepages"
cp "$2"/dev/vfio/* "$1/devices/vfio/"
: > "$1/devices/vfio/vfio"
mount --rbind "$1/devices" /dev
mount -t hugetlbfs hugetlbfs /dev/hugepages
export SYSTEMD_DEVICE_VERIFY_SYSFS=0 LD_PRELOAD="$3"
"""
SERVE = 'exec /usr/sbin/libvirtd -p "$1/run/libvirtd.pid" $5'
NO_UDEV_CHECK = {"SYSTEMD_DEVICE_VERIFY_SYSFS": "0"}  # libudev otherwise refuses a /sys that is not sysfs


@dataclass(frozen=True, slots=True)
class Libvirtd:
    """A running libvirtd; ``socket`` is its read-write socket, ``pid`` a process in its namespaces."""

    uri: str
    socket: Path
    pid: int

    @property
    def inside(self) -> tuple[str, ...]:
        """What to put before a command that shall run in its mount and network namespaces."""
        return ("nsenter", f"--target={self.pid}", "--mount", "--net", "--uts", "--")

    def virsh(self, *arguments: str, text: str = "", check: bool = True) -> str:
        """
        What virsh says of this host.

        Raises:
            BedError: it was refused, and ``check`` is set.
        """
        command = ["virsh", "-q", "-c", self.uri, *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)
        if check and done.returncode:
            raise BedError(f"virsh {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def destroy_all(self) -> None:
        """End all guests, which would outlive it."""
        for uuid in self.virsh("list", "--uuid", check=False).split():
            self.virsh("destroy", uuid, check=False)


@contextmanager
def serving(
    directory: Path,
    *,
    machine: Path | None = None,
    name: str = "",
    host_uuid: str = HOST_UUID,
    preload: Path | None = None,
    listening: str = "",
    environment: Mapping[str, str] | None = None,
) -> Iterator[Libvirtd]:
    """
    A libvirtd with state of its own in ``directory``: over this machine's /sys, or over that of a synthetic machine.

    A synthetic one has a network namespace, so that its udev events are heard by nobody else. With a ``name`` it has a
    host name of its own; two that shall know each other for two hosts need a ``host_uuid`` each. ``listening``
    has lines of libvirtd.conf for ports that it opens besides its socket.
    """
    for folder in ("run", "lib", "log"):
        (directory / folder).mkdir(parents=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    shutil.copytree("/etc/libvirt", directory / "etc", ignore=shutil.ignore_patterns("autostart"))
    (directory / "etc/qemu.conf").write_text(QEMU_CONF, encoding="utf-8")
    config = LIBVIRTD_CONF.format(run=directory / "run", log=directory / "log", host_uuid=host_uuid)
    (directory / "etc/libvirtd.conf").write_text(config + listening, encoding="utf-8")
    namespaces = ["--mount", *(["--net"] if machine else []), *(["--uts"] if name else [])]
    script = MOUNTS + (NAMED if name else "") + (SYNTHETIC if machine else "") + SERVE
    command = ["unshare", *namespaces, "--propagation", "private", "bash", "-c", script, "libvirtd"]
    command += [str(directory), str(machine or ""), str(preload or ""), name, "--listen" if listening else ""]
    command.append(str(CACHE))
    log = directory / "log/out"
    child = start(command, directory=directory, log=log, environment=environment)
    socket = directory / "run/libvirt-sock"
    uri = f"qemu:///system?socket={socket}"
    try:
        for _ in range(200):
            if subprocess.run(["virsh", "-c", uri, "uri"], capture_output=True, check=False).returncode == 0:
                break
            time.sleep(0.05)
        else:
            raise BedError(f"libvirtd does not answer: {tail(log)}")
        yield Libvirtd(uri, socket, child.process.pid)
    finally:
        stop(child)
