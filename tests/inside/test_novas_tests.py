"""
nova's own unit tests of ``LibvirtDriver.update_provider_tree``, with our class in place of nova's.

nova's tests mock nova's methods that read the host. ``StandIn`` makes a survey of what these mocks return, so the tests
ask our shape and our moves about the same host. ``DIFFERENT`` lists the tests that our driver does not pass, and why.
"""

# ruff: noqa: E402 - nova wants its threads chosen before anything else of it is imported

import unittest
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("nova.monkey_patch").patch()
pytest.importorskip("testtools")

import nova.conf
from nova import context, objects
from nova.tests.unit.virt.libvirt import test_driver
from nova.virt.libvirt import driver as novas

from drivers.base import Survey
from drivers.facts import (
    Cpu,
    CpuMap,
    Devices,
    DiskSpace,
    Guest,
    GuestDevices,
    HostFacts,
    Hypervisor,
    Mdev,
    MdevParent,
    MdevType,
    Namespace,
    NumaCell,
    SevKernel,
    Versions,
)
from drivers.host.archive import Document
from drivers.libvirt.capabilities import parse_domain_capabilities
from drivers.libvirt.driver import LibvirtDriver
from drivers.policy import CpuPolicy, DevicePolicy, DiskPolicy, GuestPolicy, MdevRule, Policy
from inside_nova.driver import LibvirtDriver as Ours
from inside_nova.host import Host

CONF = nova.conf.CONF
GIB = 1024**3
DIFFERENT = {
    "test_update_provider_tree_for_pcpu_reshape": "the pinned guest of a migration that left this host is in nova's "
    "database alone: libvirt here does not know it, so its VCPU stay VCPU",
    "test_update_provider_tree_for_vgpu_reshape_fails": "what a consumer has outside this tree is left alone",
    "test_update_provider_tree_for_memory_encryption_reshape_fails": "what a consumer has outside this tree is left "
    "alone",
    "test_update_provider_tree_with_tpm_traits_supported": "its libvirt is from before 8.6, which names no version "
    "of a TPM; ours is 9.0 at least, which does",
    "test_update_provider_tree_with_memory_encryption_sev_es": "the provider has our mark beside nova's traits",
    "test_update_provider_tree_with_memory_encryption_sev_snp": "the provider has our mark beside nova's traits",
}


class NoConnection:
    """A connection without events."""

    def nodeDeviceEventRegisterAny(self, *_: object) -> int:  # noqa: N802
        return 1


class StandIn(LibvirtDriver):
    """Our driver, whose survey is made of the answers of nova's mocked methods."""

    def __init__(self, nova: Any) -> None:
        self._nova = nova
        self._known: dict[str, dict[str, str]] = {}

    def survey(self, node: str) -> Survey:
        nova = self._nova
        cpus = max(1, len(nova._get_vcpu_available()) + len(nova._get_pcpu_available()))
        return Survey(
            HostFacts(
                hostname=node,
                hypervisor=Hypervisor(Versions(10_005_000, 8_002_000), (self._capabilities(),)),
                cpu=Cpu(
                    "x86_64",
                    frozenset({"avx512f", "bmi1"}),  # those of the tests' cpu_traits
                    sev=SevKernel(
                        bool(nova._host._supports_amd_sev),
                        bool(nova._host._supports_amd_sev_es),
                        bool(nova._host._supports_amd_sev_snp),
                    ),
                ),
                cpu_map=CpuMap(cpus, frozenset(range(cpus))),
                cells=(
                    NumaCell(
                        0,
                        nova._host.get_memory_mb_total() * 1024,
                        frozenset(range(cpus)),
                    ),
                ),
                disk=self._disk_space(),
                devices=self._devices(),
                guests=self._guests_here(),
            )
        )

    def policy_of_nova(self) -> Policy:
        nova, compute = self._nova, CONF.compute
        vcpus, pcpus = len(nova._get_vcpu_available()), len(nova._get_pcpu_available())
        shared, dedicated = frozenset(range(vcpus)), frozenset(range(vcpus, vcpus + pcpus))
        if compute.cpu_dedicated_set:
            shared, dedicated = frozenset(nova._get_vcpu_available()), frozenset(nova._get_pcpu_available())
        return Policy(
            layout="devices",
            cpus=CpuPolicy(shared=shared, dedicated=dedicated),
            guests=GuestPolicy(
                tpm=CONF.libvirt.swtpm_enabled,
                tpm_secret_security=tuple(CONF.libvirt.supported_tpm_secret_security),
            ),
            devices=DevicePolicy(
                mdevs=tuple(MdevRule(type=name) for name in CONF.devices.enabled_mdev_types),
                pmem={one.name: name for one, name in self._namespaces_by_class().items()},
            ),
            disk=DiskPolicy(reserved_mib=CONF.reserved_host_disk_mb),
        )

    def _namespaces_by_class(self) -> dict[Any, str]:
        """nova's namespaces of persistent memory, each with its class."""
        return {one: name for name, several in self._nova._vpmems_by_rc.items() for one in several}

    def _capabilities(self) -> Any:
        host = self._nova._host
        connection = host.get_connection()
        text = connection.getDomainCapabilities("/usr/bin/qemu-system-x86_64", "x86_64", "pc", "kvm", 0)
        found = parse_domain_capabilities(Document(text, "nova's fake libvirt"))
        return replace(
            found,
            encryption=replace(
                found.encryption,
                sev_guests=(host._max_sev_guests or 0) if host._supports_amd_sev else 0,
                sev_es_guests=(host._max_sev_es_guests or 0) if host._supports_amd_sev else 0,
                launch_security=frozenset({"sev-snp"}),
            ),
        )

    def _devices(self) -> Devices:
        cards = self._nova._get_gpu_inventories() if CONF.devices.enabled_mdev_types else {}
        mdevs = tuple(Mdev(uuid, one["type"], one["parent"]) for uuid, one in sorted(self._mdevs().items()))
        (name,) = CONF.devices.enabled_mdev_types or ("none",)
        parents = tuple(
            MdevParent(card, None, (MdevType(name, "", stock["total"] - sum(one.parent == card for one in mdevs)),))
            for card, stock in sorted(cards.items())
        )
        namespaces = tuple(Namespace(one.name, one.devpath) for one in self._namespaces_by_class())
        return Devices(mdev_parents=parents, mdevs=mdevs, namespaces=namespaces)

    def _mdevs(self) -> dict[str, dict[str, str]]:
        for uuid in self._nova._get_all_assigned_mediated_devices() if CONF.devices.enabled_mdev_types else ():
            if uuid not in self._known:
                self._known[uuid] = self._nova._get_mediated_device_information(uuid)
        return self._known

    def _disk_space(self) -> DiskSpace:
        total = self._nova._get_local_gb_info()["total"]
        total_gib = total if isinstance(total, int) else 10  # one test mocks this too
        return DiskSpace(total_gib * GIB, 0, self._nova._get_disk_size_reserved_for_image_cache() * GIB)

    def _guests_here(self) -> tuple[Guest, ...]:
        if CONF.devices.enabled_mdev_types:
            assigned = self._nova._get_all_assigned_mediated_devices()
            return tuple(
                Guest(uuid=guest, state="running", devices=GuestDevices(mdevs=frozenset({mdev})))
                for mdev, guest in assigned.items()
            )
        if not CONF.compute.cpu_dedicated_set:
            return ()
        return tuple(map(_guest, objects.InstanceList.get_by_host(context.get_admin_context(), "host1")))


def _guest(instance: Any) -> Guest:
    """The domain of an instance: where its CPUs are pinned."""
    cells = instance.numa_topology.cells if instance.numa_topology else ()
    pins = tuple(frozenset({cpu + 10}) for cell in cells for cpu in (cell.cpu_pinning or {}).values())
    return Guest(uuid=instance.uuid, state="running", vcpus=pins or (frozenset(), frozenset()))


class Shaped(Host):
    """A host whose policy follows the flags of a test, and which is surveyed at each call."""

    def update(self, tree: Any, node: str, allocations: Any) -> None:
        self._policy = self._driver.policy_of_nova()  # type: ignore[attr-defined]
        self.outdate()
        super().update(tree, node, allocations)


class TestWithOurs(test_driver.TestUpdateProviderTree):  # type: ignore[misc]
    """nova's tests; each makes its driver in ``setUp``, which becomes ours."""

    __test__ = False

    def setUp(self) -> None:
        super().setUp()
        assert type(self.driver) is novas.LibvirtDriver
        self.driver.__class__ = Ours
        connection = NoConnection()
        self.driver._shaped = Shaped(StandIn(self.driver), Policy(), 0, lambda: connection)


@pytest.mark.parametrize("name", unittest.TestLoader().getTestCaseNames(TestWithOurs))
def test_nova_s_own_test(name: str) -> None:
    result = unittest.TestResult()  # pytest's own runner does not suit testtools

    TestWithOurs(name).run(result)

    problems = [text for _, text in (*result.errors, *result.failures)]
    if name in DIFFERENT:
        assert problems, f"passes now: {DIFFERENT[name]}"
    else:
        assert not problems, problems[0]
