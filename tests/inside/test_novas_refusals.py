"""What ``upgrade check --nova 34`` foretells of a host, beside what nova's own code does there at its start."""

# ruff: noqa: E402 - nova wants its threads chosen before anything else of it is imported

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import requests

pytest.importorskip("nova.monkey_patch").patch(backend="threading")

import nova.conf
from nova import exception, objects
from nova.compute.manager import ComputeManager
from nova.compute.resource_tracker import ResourceTracker
from nova.context import RequestContext
from nova.objects import fields
from nova.scheduler.client.report import SchedulerReportClient
from nova.virt import fake
from nova.virt.libvirt.driver import LibvirtDriver

from beds.memory import MemoryPlacement
from beds.nova_numbers import Connection
from beds.nova_starts import GUEST, NODE, ROOT, SCENES, Scene, archive_of, config_of, foretold, placement_of
from drivers.host.archive import HostArchive


def instance_of(scene: Scene) -> objects.Instance:
    """The guest, as nova's database has it."""
    flavor = objects.Flavor(name="f", vcpus=1, memory_mb=64, extra_specs=dict(scene.specs))
    image = {"image_hw_firmware_type": "uefi", "image_hw_machine_type": "q35"}
    cell = objects.InstanceNUMACell(
        id=0,
        cpuset=set(),
        pcpuset={0},
        memory=64,
        cpu_pinning={0: 1},
        cpu_policy=fields.CPUAllocationPolicy.DEDICATED,
    )
    topology = objects.InstanceNUMATopology(cells=[cell]) if scene.pinned else None
    return objects.Instance(
        uuid=GUEST,
        deleted=False,
        flavor=flavor,
        numa_topology=topology,
        system_metadata=image,
        image_ref="",
        info_cache=None,
    )


class Sender:
    """What nova's report client needs of an adapter, over a placement in memory."""

    def __init__(self, placement: MemoryPlacement) -> None:
        self.get, self.put, self.post, self.delete = (
            partial(self._ask, placement, method) for method in ("GET", "PUT", "POST", "DELETE")
        )

    @staticmethod
    def _ask(
        placement: MemoryPlacement,
        method: str,
        url: str,
        *,
        json: Any = None,
        **_: Any,
    ) -> requests.Response:
        answer = placement.request(url, method, json=json, microversion="1.37")  # nova says which, up to 1.36
        found = requests.Response()
        found.status_code, found._content = answer.status_code, answer.text.encode()
        found.headers.update(answer.headers)
        return found


def begin(scene: Scene, placement: MemoryPlacement, archive: Path, config: Path) -> None:
    """What nova-compute does at its start, as far as it may refuse; raises what ends it."""
    nova.conf.CONF.clear()
    nova.conf.CONF(["--config-file", str(config)], project="nova", default_config_files=[])
    nova.conf.CONF.set_override("compute_driver", "libvirt.LibvirtDriver")
    objects.register_all()
    with mock.patch("nova.privsep.libvirt.get_pmem_namespaces", return_value="[]"):
        driver = LibvirtDriver(fake.FakeVirtAPI())
    driver._host.get_connection = lambda: Connection(HostArchive(archive))
    parameters = str(archive / "sys/module/kvm_amd/parameters/%s")
    manager = mock.Mock(spec=ComputeManager, host=NODE, driver=driver)
    service = mock.Mock(version=74)  # of nova 34
    node = objects.ComputeNode(uuid=ROOT, host=NODE, hypervisor_hostname=scene.name)
    known = ROOT if scene.compute_id else None
    with ExitStack() as stack:
        for name in ("initialize", "get_online_cpus"):
            stack.enter_context(mock.patch.object(driver._host, name, return_value=set(range(8))))
        for name in ("_do_quality_warnings", "_get_supported_perf_events", "_start_inactive_mediated_devices"):
            stack.enter_context(mock.patch.object(driver, name))
        stack.enter_context(mock.patch("nova.virt.libvirt.host.SEV_KERNEL_PARAM_FILE", parameters))
        stack.enter_context(mock.patch("nova.virt.node.read_local_node_uuid", return_value=known))
        nodes = objects.ComputeNodeList(objects=[node])
        stack.enter_context(mock.patch("nova.objects.ComputeNodeList.get_all_by_uuids", return_value=nodes))
        stack.enter_context(mock.patch.object(driver, "get_nodenames_by_uuid", return_value={ROOT: NODE}))
        stack.enter_context(mock.patch.object(driver, "_register_all_undefined_instance_details"))
        driver.init_host(NODE)
        ComputeManager._ensure_existing_node_identity(manager, service)
        ComputeManager._get_nodes(manager, None)
        driver.capabilities["supports_pcpus"] = True
        driver.process_instances_at_startup(None, [instance_of(scene)])
        report_to(placement, driver, scene)


def report_to(placement: MemoryPlacement, driver: LibvirtDriver, scene: Scene) -> None:
    """What nova-compute writes to placement at its start, where a class that it does not report goes."""
    client = SchedulerReportClient(adapter=Sender(placement))
    tracker = ResourceTracker(NODE, driver, reportclient=client)
    node = objects.ComputeNode(uuid=ROOT, hypervisor_hostname=scene.name)
    dedicated = {0, 1} if nova.conf.CONF.compute.cpu_dedicated_set else set[int]()
    cards = {"pci_0000_84_00_0": {"total": 4, "max_unit": 4}} if nova.conf.CONF.devices.enabled_mdev_types else {}
    told = {
        "_get_local_gb_info": {"total": 10},
        "_get_vcpu_available": set(range(8)) - dedicated,
        "_get_pcpu_available": dedicated,
        "_get_disk_size_reserved_for_image_cache": 0,
        "_get_gpu_inventories": cards,
        "_get_all_assigned_mediated_devices": {},
        "_get_resource_class_for_device": "VGPU",
        "_get_traits": ["COMPUTE_NODE"],
    }
    with ExitStack() as stack:
        for name, value in told.items():
            of = tracker if name == "_get_traits" else driver
            stack.enter_context(mock.patch.object(of, name, return_value=value))
        stack.enter_context(mock.patch.object(driver._host, "get_memory_mb_total", return_value=1024))
        tracker._update_to_placement(RequestContext(), node, startup=True)


@pytest.fixture(autouse=True)
def options_as_before() -> Iterator[None]:
    yield
    nova.conf.CONF.clear()


@pytest.mark.parametrize("scene", [pytest.param(scene, id=name) for name, scene in SCENES.items()])
def test_nova_refuses_to_start_where_that_was_foretold_and_nowhere_else(scene: Scene, tmp_path: Path) -> None:
    archive, config = archive_of(scene, tmp_path), config_of(scene, tmp_path)

    placement = placement_of(scene)

    stops, refusal = foretold(placement, archive, config), ""
    try:
        begin(scene, placement, archive, config)
    except (exception.NovaException, ValueError) as error:
        refusal = str(error)

    assert scene.refusal in refusal
    assert bool(stops) == bool(refusal) == bool(scene.refusal), (stops, refusal)
