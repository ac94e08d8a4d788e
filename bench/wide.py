"""
Times device discovery on the libvirt at a URI beside listing and dumping every device once, in turns; prints JSON.

Usage: python wide.py URI ROUNDS. Run on the host whose libvirt it is.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import libvirt

from drivers.host.archive import KernelFiles
from drivers.host.pci_functions import complete
from drivers.libvirt.connection import LiveConnection
from drivers.libvirt.nodedev import parse_devices

CALLS: Counter[str] = Counter()


def counted(owner: Any, name: str) -> None:
    original: Callable[..., Any] = getattr(owner, name)

    @wraps(original)
    def call(*arguments: Any) -> Any:
        CALLS[name] += 1
        return original(*arguments)

    setattr(owner, name, call)


def timed(work: Callable[[], object]) -> dict[str, Any]:
    CALLS.clear()
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "calls": dict(CALLS),
        "devices": len(result) if isinstance(result, list) else 0,
    }


def main() -> None:
    uri, rounds = sys.argv[1], int(sys.argv[2])
    for name in ("listAllDevices", "nodeDeviceLookupByName"):
        counted(libvirt.virConnect, name)
    counted(libvirt.virNodeDevice, "XMLDesc")
    connection = libvirt.open(uri)
    files, live = KernelFiles(Path("/"), live=True), LiveConnection(uri)
    found: dict[str, list[dict[str, Any]]] = {"plain": [], "ours": []}
    for _ in range(rounds):
        found["plain"].append(timed(lambda: [device.XMLDesc(0) for device in connection.listAllDevices(0)]))
        found["ours"].append(timed(lambda: list(complete(files, parse_devices(live.node_devices()), {}).functions)))
    print(json.dumps(found))


main()
