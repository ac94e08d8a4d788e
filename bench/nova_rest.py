"""
Runs in nova's virtual environment: what nova-compute's own modules take of memory, and of CPU for a pass at rest.

Usage: nova_rest.py CONFIG_FILE URL PASSES. A pass asks nova's libvirt driver what ResourceTracker asks it in each of
its audits, and reports it with nova's SchedulerReportClient. Neither nova's database nor its bus is there, whose share
of a real pass comes on top. Prints ``{"loaded": {...}, "at_rest": {...}, "cpu_s": SECONDS A PASS, "window_s": [BEGIN,
END]}``, memory in KiB, the window by the monotonic clock.
"""

# ruff: noqa: E402 - nova wants its threads chosen before anything else of it is imported

import json
import logging
import os
import sys
import time
import traceback
from pathlib import Path

from nova import monkey_patch

monkey_patch.patch(backend="threading")

import nova.compute.manager
import nova.compute.resource_tracker
import nova.conf
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token
from nova import context, objects
from nova.scheduler.client.report import SchedulerReportClient
from nova.virt import fake
from nova.virt.libvirt.driver import LibvirtDriver
from requests import Session as Http

PERIOD_S = 1  # as the service is told too: what rests a while finds its caches cold
ROOT_UUID = "11111111-1111-1111-1111-111111111112"


def memory_kib() -> dict[str, int]:
    """Resident and unique memory (proc(5), smaps_rollup)."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    sums = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return {"resident": sums["Rss"], "unique": sums["Private_Clean"] + sums["Private_Dirty"]}


def main() -> None:
    """Load, report, and report the same again."""
    config, url, passes = sys.argv[1], sys.argv[2], int(sys.argv[3])
    loaded = memory_kib()
    nova.conf.CONF(["--config-file", config], project="nova", default_config_files=[])
    nova.conf.neutron.register_dynamic_opts(nova.conf.CONF)
    logging.disable(logging.CRITICAL)
    objects.register_all()
    driver = LibvirtDriver(fake.FakeVirtAPI(), read_only=False)
    driver._host.initialize()
    driver._update_host_specific_capabilities()
    http = Http()
    http.headers["X-Roles"] = "admin,service"
    keystone = Session(auth=Token(url, "admin"), session=http)
    client = SchedulerReportClient(Adapter(keystone, service_type="placement", endpoint_override=url, raise_exc=False))
    admin = context.get_admin_context()
    name = driver._host.get_hostname()

    def take_pass() -> None:
        driver.get_available_resource(name)
        tree = client.get_provider_subtree_and_ensure_root(admin, ROOT_UUID, name="nova-" + name)
        driver.update_provider_tree(tree, "nova-" + name)
        client.get_allocations_for_provider_tree(admin, "nova-" + name)
        client.update_from_provider_tree(admin, tree)

    for _ in range(2):
        take_pass()
    window_s, began = [time.monotonic()], time.process_time()
    for _ in range(passes):
        take_pass()
        time.sleep(PERIOD_S)
    cpu_s = (time.process_time() - began) / passes
    window_s.append(time.monotonic())
    print(json.dumps({"loaded": loaded, "at_rest": memory_kib(), "cpu_s": cpu_s, "window_s": window_s}), flush=True)


try:
    main()
except Exception:
    traceback.print_exc()
    os._exit(1)
os._exit(0)  # the driver's threads would stay
