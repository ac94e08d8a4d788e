"""
Runs in nova's virtual environment: the root provider that nova's own libvirt driver reports here, as JSON.

Usage: nova_tree.py CONFIG_FILE. Neither nova's database nor its message bus is needed: the driver is asked as
nova-compute asks it at start, and what nova's resource tracker adds to the answer is added here.
"""

# ruff: noqa: E402 - nova wants its threads chosen before anything else of it is imported

import json
import logging
import os
import sys

from nova import monkey_patch

monkey_patch.patch(backend="threading")

import nova.conf
from nova import objects
from nova.compute.provider_tree import ProviderTree
from nova.virt import fake
from nova.virt.libvirt.driver import LibvirtDriver

TRACKER_TRAITS = {"COMPUTE_NODE", "OWNER_NOVA"}  # ResourceTracker._get_traits
NEEDS_DEVICES = {"COMPUTE_REMOTE_MANAGED_PORTS"}  # the tracker takes it away where no such PCI device is configured
ROOT_UUID = "11111111-1111-1111-1111-111111111111"


def main() -> None:
    """Print ``{"providers": {NAME: {"inventories", "traits"}}}``."""
    nova.conf.CONF(["--config-file", sys.argv[1]], project="nova", default_config_files=[])
    logging.disable(logging.CRITICAL)
    objects.register_all()
    driver = LibvirtDriver(fake.FakeVirtAPI(), read_only=False)
    driver._host.initialize()
    driver._update_host_specific_capabilities()  # as init_host does
    name = driver._host.get_hostname()
    tree = ProviderTree()
    tree.new_root(name, ROOT_UUID, generation=0)
    driver.update_provider_tree(tree, name)
    root = tree.data(name)
    capabilities = {trait for trait, supported in driver.capabilities_as_traits().items() if supported}
    traits = root.traits | (capabilities - NEEDS_DEVICES) | TRACKER_TRAITS
    print(json.dumps({"providers": {name: {"inventories": root.inventory, "traits": sorted(traits)}}}), flush=True)
    os._exit(0)  # the driver's threads would stay


main()
