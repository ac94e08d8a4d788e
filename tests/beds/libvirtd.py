"""A real libvirtd of our own, in a mount namespace, that caches what it finds out about QEMU (user = root)."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from beds.process import BedError, start, stop, tail

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
host_uuid = "5f0c6a5e-2f55-4d0a-9d0a-3b1c2a9a7e01"
log_level = 4
log_outputs = "4:file:{log}/libvirtd.log"
"""
MOUNTS = """\
set -e
mount --bind "$1/etc" /etc/libvirt
mount --bind "$1/lib" /var/lib/libvirt
mount --bind "$1/cache" /var/cache/libvirt
mount --bind "$1/log" /var/log/libvirt
mkdir -p /run/libvirt
mount --bind "$1/run" /run/libvirt
exec /usr/sbin/libvirtd -p "$1/run/libvirtd.pid"
"""


@dataclass(frozen=True, slots=True)
class Libvirtd:
    """A running libvirtd; ``socket`` is its read-write socket."""

    uri: str
    socket: Path


@contextmanager
def serving(directory: Path) -> Iterator[Libvirtd]:
    """A libvirtd over this machine's own /sys, with state of its own in ``directory``."""
    for name in ("run", "lib", "cache", "log"):
        (directory / name).mkdir(parents=True)
    shutil.copytree("/etc/libvirt", directory / "etc", ignore=shutil.ignore_patterns("autostart"))
    (directory / "etc/qemu.conf").write_text(QEMU_CONF, encoding="utf-8")
    config = LIBVIRTD_CONF.format(run=directory / "run", log=directory / "log")
    (directory / "etc/libvirtd.conf").write_text(config, encoding="utf-8")
    command = ["unshare", "--mount", "--propagation", "private", "bash", "-c", MOUNTS, "libvirtd", str(directory)]
    log = directory / "log/out"
    child = start(command, directory=directory, log=log)
    socket = directory / "run/libvirt-sock"
    uri = f"qemu:///system?socket={socket}"
    try:
        for _ in range(200):
            if subprocess.run(["virsh", "-c", uri, "uri"], capture_output=True, check=False).returncode == 0:
                break
            time.sleep(0.05)
        else:
            raise BedError(f"libvirtd does not answer: {tail(log)}")
        yield Libvirtd(uri, socket)
    finally:
        stop(child)
