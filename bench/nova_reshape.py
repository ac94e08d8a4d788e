"""
Runs in nova's virtual environment: nova's own SchedulerReportClient moves VGPU from a root to a child for each GPU.

Usage: nova_reshape.py URL FILE. FILE holds the tree as it is to be and where each guest's device is:
``{"uuid", "name", "inventories", "traits", "children": {NAME: {"inventories", "traits"}}, "guests": {UUID: NAME}}``.
Does what ``ResourceTracker._update_to_placement`` does at service start, with a cache that is cold; what nova's virt
driver adds to tree and allocations there is added here.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import requests
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token
from nova import conf, context
from nova.scheduler.client.report import SchedulerReportClient


def main() -> None:
    """Reshape once."""
    url, wanted = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
    conf.CONF([], project="nova", default_config_files=[])
    session = requests.Session()
    session.headers["X-Roles"] = "admin,service"  # what noauth2 goes by; nova's own user has both
    keystone = Session(auth=Token(url, "admin"), session=session)
    client = SchedulerReportClient(Adapter(keystone, service_type="placement", endpoint_override=url, raise_exc=False))
    admin = context.get_admin_context()
    tree = client.get_provider_subtree_and_ensure_root(admin, wanted["uuid"], name=wanted["name"])
    held = client.get_allocations_for_provider_tree(admin, wanted["name"])
    _update(tree, wanted)
    _move(held, tree, wanted)
    client.update_from_provider_tree(admin, tree, allocations=held)
    os._exit(0)


def _update(tree: Any, wanted: dict[str, Any]) -> None:
    """As ``LibvirtDriver._ensure_pgpu_providers`` and ``ResourceTracker._get_traits``."""
    for name, child in wanted["children"].items():
        tree.new_child(name, wanted["name"])
        tree.update_inventory(name, child["inventories"])
        tree.add_traits(name, *child["traits"])
    tree.update_inventory(wanted["name"], wanted["inventories"])
    tree.update_traits(wanted["name"], tree.data(wanted["name"]).traits | set(wanted["traits"]))


def _move(held: dict[str, Any], tree: Any, wanted: dict[str, Any]) -> None:
    """As ``LibvirtDriver._reshape_vgpu_allocations``."""
    for guest, name in wanted["guests"].items():
        slots = held[guest]["allocations"]
        amount = slots[wanted["uuid"]]["resources"].pop("VGPU")
        slots[tree.data(name).uuid] = {"resources": {"VGPU": amount}}


main()
