"""
Runs in nova's virtual environment: reports bare-metal nodes with nova's own Ironic driver and report client.

Usage: nova_ironic.py IRONIC_URL PLACEMENT_URL SECONDS. Does for each node what nova's resource tracker does, one after
the other: first for as many nodes as fit into SECONDS, then for as many of those once more. Prints for both passes
``{"nodes", "ironic", "placement", "wall_s"}`` and at the end the most memory of the process in MiB.
"""

import json
import os
import resource
import sys
import time
from typing import Any
from unittest import mock

import openstack
import requests
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token
from nova import conf, context
from nova.scheduler.client.report import SchedulerReportClient
from nova.virt.ironic.driver import IronicDriver

SEND = requests.Session.send
SENT: list[str] = []


def counted(self: requests.Session, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
    """Send as always."""
    SENT.append(str(request.url))
    return SEND(self, request, **kwargs)


def main() -> None:
    """Two passes."""
    ironic, placement, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    conf.CONF([], project="nova", default_config_files=[])
    http = requests.Session()
    http.headers["X-Roles"] = "admin,service"
    session = Session(auth=Token(placement, "admin"), session=http)
    client = SchedulerReportClient(
        Adapter(session, service_type="placement", endpoint_override=placement, raise_exc=False)
    )
    requests.Session.send = counted
    driver = IronicDriver(None)
    driver._ironic_connection = openstack.connect(
        auth_type="none",
        endpoint=ironic,
        baremetal_endpoint_override=ironic,
        region_name="bench",
        load_yaml_config=False,
        load_envvars=False,
    ).baremetal
    driver.hash_ring = mock.Mock(get_nodes=lambda _node: {conf.CONF.host.lower()})
    driver._refresh_hash_ring = lambda _context: None
    done: set[str] = set()
    passes = []
    with mock.patch("nova.objects.InstanceList.get_uuids_by_host", return_value=[]):
        for _ in range(2):
            SENT.clear()
            began = time.monotonic()
            nodes = [node for node in driver.get_available_nodes() if not passes or node in done]
            reported = 0
            for node in nodes:
                if time.monotonic() - began > seconds:
                    break
                report(client, driver, node)
                reported += 1
                if not passes:
                    done.add(node)
            asked = sum(url.startswith(ironic) for url in SENT)
            passes.append(
                {
                    "nodes": reported,
                    "ironic": asked,
                    "placement": len(SENT) - asked,
                    "wall_s": time.monotonic() - began,
                }
            )
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"passes": passes, "peak_mib": peak_mib}), flush=True)
    os._exit(0)


def report(client: SchedulerReportClient, driver: IronicDriver, node: str) -> None:
    """One node, as ``ResourceTracker._update_to_placement`` does."""
    admin = context.get_admin_context()
    tree = client.get_provider_tree_and_ensure_root(admin, node, name=node)
    driver.update_provider_tree(tree, node)
    client.update_from_provider_tree(admin, tree)


main()
