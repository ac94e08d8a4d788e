"""
Times nova's own discovery of PCI and mediated devices on the libvirt at a URI; prints JSON. Runs in nova's environment.

Usage: python nova_wide.py URI
"""

import json
import sys
import time
from collections import Counter
from typing import Any

from nova import monkey_patch

monkey_patch.patch(backend="threading")

import libvirt  # noqa: E402
import nova.conf  # noqa: E402
from nova import objects  # noqa: E402
from nova.virt import fake  # noqa: E402
from nova.virt.libvirt import driver  # noqa: E402

CALLS: Counter[str] = Counter()


def counted(owner: Any, name: str) -> None:
    original = getattr(owner, name)

    def call(*arguments: Any) -> Any:
        CALLS[name] += 1
        return original(*arguments)

    setattr(owner, name, call)


def main() -> None:
    conf = nova.conf.CONF
    conf([], project="nova", default_config_files=[])
    conf.set_override("connection_uri", sys.argv[1], "libvirt")
    conf.set_override("virt_type", "qemu", "libvirt")
    conf.set_override("device_spec", ['{"vendor_id": "8086", "product_id": "10ed"}'], "pci")
    conf.set_override("enabled_mdev_types", ["nvidia-222"], "devices")
    nova.conf.devices.register_dynamic_opts(conf)
    objects.register_all()
    for name in ("listAllDevices", "nodeDeviceLookupByName"):
        counted(libvirt.virConnect, name)
    counted(libvirt.virNodeDevice, "XMLDesc")
    one = driver.LibvirtDriver(fake.FakeVirtAPI(), read_only=False)
    one._host.initialize()
    CALLS.clear()
    wall, cpu = time.perf_counter(), time.process_time()
    functions = json.loads(one._get_pci_passthrough_devices())
    one._get_mdev_capable_devices(["nvidia-222"])
    one._get_mediated_devices(["nvidia-222"])
    record = {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "calls": dict(CALLS),
        "devices": len(functions),
    }
    print(json.dumps(record), flush=True)


main()
import os  # noqa: E402

os._exit(0)  # nova's threads stay
