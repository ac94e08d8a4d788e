"""What nova itself says of the same storage, by its own code, with the libraries of Debian that it needs."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from beds.process import BedError
from beds.upgrades import write_config

BENCH = Path(__file__).parents[2] / ".bench"
LIBRARIES = BENCH / "libraries"  # links to Debian's rados and rbd, and nothing else
HERE = Path(__file__).parent


def novas_disk_gb(options: Mapping[str, object], folder: Path) -> int:
    """DISK_GB of a host with these options of [libvirt], as nova's libvirt driver reports it."""
    config = write_config({"libvirt": options}, folder / "nova.conf")
    command = [str(BENCH / "nova/bin/python"), "-P", str(HERE / "nova_disk.py"), "--config-file", str(config)]
    environment = os.environ | {"PYTHONPATH": str(LIBRARIES)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise BedError(done.stderr[-2000:])
    return int(json.loads(done.stdout.splitlines()[-1])["total"])  # nova rounds down too
