"""Units of systemd that only one synthetic host sees."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from beds.synthetic.bed import Host

FOLDERS = """
set -e
mkdir -p /etc/systemd
mount -t tmpfs tmpfs /etc/systemd
mkdir -p /etc/systemd/system/multi-user.target.wants
"""
ENABLE = """
set -e
touch "/etc/systemd/system/$1"
ln -s "/etc/systemd/system/$1" "/etc/systemd/system/multi-user.target.wants/$1"
"""


@contextmanager
def units_of_its_own(host: Host) -> Iterator[Callable[[str], None]]:
    """A folder of units that only this host sees; yields what enables a unit there."""

    def inside(script: str, *arguments: str) -> None:
        subprocess.run([*host.inside, "sh", "-c", script, "sh", *arguments], check=True)

    inside(FOLDERS)
    try:
        yield lambda unit: inside(ENABLE, unit)
    finally:
        inside("umount /etc/systemd")
