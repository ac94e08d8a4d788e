"""
nova's own functional tests of what a libvirt host reports, with our class in place of nova's.

Each test runs nova's services and placement in this process. libvirt is nova's fake; what it lacks, ``Whole`` adds.
The kernel's files are absent: what our driver would read there, ``Reading`` takes from nova's mocks. ``DIFFERENT``
lists the tests that our driver does not pass, and why.
"""

# ruff: noqa: E402 - nova wants its threads chosen before anything else of it is imported

import unittest
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("nova.monkey_patch").patch()
pytest.importorskip("placement.tests.functional.fixtures.placement")

import nova.conf
import nova.privsep.libvirt
from nova.tests.fixtures import libvirt as novas_fake
from oslo_config import cfg

from drivers.base import Survey
from drivers.facts import DiskSpace, SevKernel
from drivers.host.archive import Document
from drivers.libvirt.connection import LiveConnection
from drivers.libvirt.driver import OLDEST_LIBVIRT
from inside_nova import driver as ours
from inside_nova.host import Host, open_host

CONF = nova.conf.CONF
GIB = 1024**3
MODULES = (
    "test_reshape",
    "test_vgpu",
    "test_amd_sev",
    "test_intel_tdx",
    "test_report_cpu_traits",
    "test_shared_resource_provider",
    "test_numa_servers",
    "test_pci_in_placement",
    "test_vpmem",
)
TOO_FEW = "the test enables CPUs that its fake host does not have: refused"
OTHERWISE = "refused, in our words"
HELD = "what a guest has is kept as nova keeps it, and our trait CUSTOM_DEVICE_HELD says so"
DIFFERENT = {
    "test_reshape.VGPUReshapeTests.test_create_servers_with_vgpu": "the fake lists mediated devices without their "
    "cards: refused, as guests have stock of them",
    "test_vgpu.VGPULimitMultipleTypesTests.test_create_servers_with_vgpu": "a card that can make more than "
    "max_instances is offered with that many; nova offers none of it",
    "test_vgpu.VGPULiveMigrationTests.test_live_migration_fails_due_to_non_supported_mdev_types": "the stock of a card "
    "goes with its type, so the scheduler does not choose that host; nova leaves the stock and refuses later",
    "test_vgpu.VGPULiveMigrationTestsLMFailed.test_live_migration_fails_due_to_non_supported_mdev_types": "as above",
    "test_numa_servers.NUMAServersTest.test_resize_dedicated_policy_race_on_dest_bug_1953359": TOO_FEW,
    "test_numa_servers.NUMAServerTestWithCountingQuotaFromPlacement."
    "test_resize_dedicated_policy_race_on_dest_bug_1953359": TOO_FEW,
    "test_numa_servers.ReshapeForPCPUsTest.test_vcpu_to_pcpu_reshape": "the pinned guest of a migration that left this "
    "host is in nova's database alone, so what its CPUs are is not known: refused",
    **dict.fromkeys(
        (
            f"test_pci_in_placement.PlacementPCIInventoryReportingTests.test_{name}"
            for name in (
                "dependent_device_config_is_rejected",
                "device_reconfiguration_with_allocations_config_change_stop",
                "devname_based_dev_spec_rejected",
                "reporting_cannot_be_disable_once_it_is_enabled",
                "sibling_vfs_with_contradicting_resource_classes_rejected",
                "sibling_vfs_with_contradicting_traits_rejected",
            )
        ),
        OTHERWISE,
    ),
    **dict.fromkeys(
        (
            f"test_pci_in_placement.PlacementPCIInventoryReportingTests.test_{name}"
            for name in (
                "device_reconfiguration_with_allocations_config_change_warn",
                "last_vf_devspec_removed_while_allocated",
                "non_last_vf_devspec_removed_while_allocated",
                "pf_devspec_removed_while_allocated",
            )
        ),
        HELD,
    ),
    "test_pci_in_placement.PlacementPCIInventoryReportingTests.test_neutron_sriov_devs_ignored": "devices of a "
    "physical network are reported too, as our own",
}
FAR = "qemu://far/system"  # so the files of this machine's kernel are not read


class Whole:
    """nova's fake connection, with what our driver asks beyond nova's."""

    def __init__(self, fake: Any) -> None:
        self._fake = fake

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fake, name)

    def listAllDomains(self, flags: int = 0) -> list["WholeDomain"]:  # noqa: N802
        return [WholeDomain(domain) for domain in self._fake._vms.values()]

    def listAllDevices(self, flags: int = 0) -> list[Any]:  # noqa: N802
        known = (self._fake.pci_info, self._fake.mdev_info)
        return [novas_fake.NodeDevice(self, xml=one.XMLDesc(0)) for info in known for one in info.devices.values()]

    def getLibVersion(self) -> int:  # noqa: N802
        """Return the version of nova's fake, but no older than what our driver takes."""
        return max(int(self._fake.getLibVersion()), OLDEST_LIBVIRT)

    def nodeDeviceEventRegisterAny(self, *_: object) -> int:  # noqa: N802
        return 1

    def isAlive(self) -> bool:  # noqa: N802
        return True


@dataclass
class WholeDomain:
    """nova's fake domain, with its state."""

    fake: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fake, name)

    def state(self) -> list[int]:
        return [self.fake._state, 0]

    def jobStats(self) -> dict[str, int]:  # noqa: N802
        return {}


class Reading:
    """Our driver, with nova's mocks of the disk and of the kernel."""

    def __init__(self, real: Any, nova_driver: Any) -> None:
        self._real = real
        self._nova = nova_driver

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def survey(self, node: str) -> Survey:
        found: Survey = self._real.survey(node)
        host = self._nova._host
        _ = host.supports_amd_sev, host.supports_amd_sev_es, host.supports_amd_sev_snp  # the tests ask what these found
        kernel = SevKernel(*(host._kernel_supports_amd_sev(kind) for kind in ("sev", "sev-es", "sev-snp")))
        total_gib = self._nova._get_local_gb_info()["total"]
        disk = DiskSpace((total_gib if isinstance(total_gib, int) else 10) * GIB, 0, 0)  # some tests mock this too
        cpu = replace(found.facts.cpu, sev=kernel, tdx_guests=host.max_intel_tdx_guests, tdx_hidden=False)
        return replace(found, facts=replace(found.facts, cpu=cpu, disk=disk))


class Tested(ours.LibvirtDriver):
    """Our class as nova loads it, on nova's fake libvirt, with the flags of the test as its configuration."""

    def __init__(self, virtapi: Any, read_only: bool = False) -> None:
        self._whole: dict[int, Whole] = {}
        with mock.patch.object(ours, "open_host", self._open):
            super().__init__(virtapi, read_only)

    def _open(self, _files: object, _directories: object, _lend: object, added: Mapping[str, frozenset[str]]) -> Host:
        file = Path(CONF.instances_path) / "flags.conf"
        file.parent.mkdir(exist_ok=True)
        file.write_text("\n".join(flags()) + "\n")
        host = open_host([str(file)], (), self._lend, added)
        host._driver = Reading(host._driver, self)
        return host

    def init_host(self, host: str) -> None:
        """Begin as after a start of nova-compute: some of nova's tests start a stopped service with the same driver."""
        super().init_host(host)
        self._shaped._starting = True
        self._shaped.outdate()

    def _lend(self) -> Whole:
        fake = self._host.get_connection()
        return self._whole.setdefault(id(fake), Whole(fake))


def list_namespaces() -> Document:
    """Return what nova's own mock of ndctl answers."""
    return Document(nova.privsep.libvirt.get_pmem_namespaces(), "nova's mock of ndctl")


def flags() -> Iterator[str]:
    """Return what the test has set, as the lines of a nova.conf; libvirt is elsewhere."""
    groups: Iterable[str] = ("compute", "libvirt", "pci", "devices", "workarounds")
    groups = (*groups, *(name for name in CONF._groups if name.startswith("mdev_")))
    yield "[DEFAULT]"
    yield from lines(CONF._opts, CONF)
    for name in groups:
        yield f"[{name}]"
        yield from lines(CONF._groups[name]._opts, CONF[name])
        if name == "libvirt":
            yield f"connection_uri = {FAR}"


def lines(options: Mapping[str, Mapping[str, Any]], values: Mapping[str, Any]) -> Iterator[str]:
    for name, known in options.items():
        value = values[name] if "override" in known else None
        if name in ("connection_uri", "compute_driver") or value is None:
            continue
        if isinstance(known["opt"], cfg.MultiOpt):
            yield from (f"{name} = {one}" for one in value)
        elif isinstance(value, Mapping):
            yield f"{name} = " + ",".join(f"{key}:{one}" for key, one in value.items())
        elif isinstance(value, list | tuple):
            yield f"{name} = " + ",".join(map(str, value))
        else:
            yield f"{name} = {value}"


def cases() -> dict[str, unittest.TestCase]:
    """Return nova's tests by name, without the name of nova's package."""
    found = unittest.defaultTestLoader.loadTestsFromNames([f"nova.tests.functional.libvirt.{name}" for name in MODULES])
    return {one.id().removeprefix("nova.tests.functional.libvirt."): one for one in each(found)}


def each(suite: Any) -> Iterator[unittest.TestCase]:
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from each(one)
        else:
            yield one


CASES = cases()


@pytest.mark.parametrize("name", CASES, ids=ascii)
def test_nova_s_own_test(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nova.virt.libvirt.LibvirtDriver", Tested)
    monkeypatch.setattr(LiveConnection, "namespaces", staticmethod(list_namespaces))
    result = unittest.TestResult()  # pytest's own runner does not suit testtools

    CASES[name](result)

    problems = [text for _, text in (*result.errors, *result.failures)]
    if name in DIFFERENT:
        assert problems, f"passes now: {DIFFERENT[name]}"
    else:
        assert not problems, problems[0].rpartition("}}}")[2]  # without the log
