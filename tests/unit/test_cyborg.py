"""Mediated devices that nova makes for Cyborg's requests: their allocations are on Cyborg's providers."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.audit.audit import witness
from beds.one_host import GUEST, OneHost
from drivers.facts import GuestMemory, Mdev, Tenant
from drivers.policy import DevicePolicy, Layout, MdevRule, Policy
from hardware import gpu, guest_with, host, parent

GPU, CYBORGS = "pci_0000_84_00_0", "cyborg_gpu"
MDEV = "0badcafe-0000-4000-8000-000000000099"


def audited(folder: Path, layout: Layout, *types: str) -> OneHost:
    """A host with these types, whose guest has a device of type a by Cyborg."""
    guest = guest_with(GUEST, Tenant("p", "u", 0, {}), mdevs=frozenset({MDEV}))
    facts = host(gpu(), parents=(parent(gpu(), a=4, b=2),))
    facts = replace(
        facts,
        devices=replace(facts.devices, mdevs=(Mdev(MDEV, "a", GPU),)),
        guests=(replace(guest, vcpus=(frozenset(),), memory=(GuestMemory(64),)),),
    )
    mdevs = DevicePolicy(mdevs=tuple(MdevRule(type=one) for one in types))
    one = OneHost(folder, facts, Policy(layout=layout, devices=mdevs))
    one.sync()
    one.make_as_nova(CYBORGS, "VGPU")
    one.remove_traits(CYBORGS, *one.traits(CYBORGS))
    one.put_trait(CYBORGS, "OWNER_CYBORG")
    one.claim({"": {"VCPU": 1, "MEMORY_MB": 64}, CYBORGS: {"VGPU": 1}})
    return one


@pytest.mark.parametrize("types", [(), ("b",)], ids=["no type", "another type"])
@pytest.mark.parametrize("layout", ["flat", "devices"])
def test_a_device_of_cyborgs_alone_is_nobodys_fault(tmp_path: Path, layout: Layout, types: tuple[str, ...]) -> None:
    one = audited(tmp_path, layout, *types)

    assert witness(replace(one.node, settings=replace(one.settings, audit_grace_s=0))).findings == ()


@pytest.mark.parametrize("layout", ["flat", "devices"])
def test_a_type_that_both_manage_is_told_with_both_owners_and_never_repaired(tmp_path: Path, layout: Layout) -> None:
    one = audited(tmp_path, layout, "a")

    (found,) = witness(replace(one.node, settings=replace(one.settings, audit_grace_s=0))).findings

    assert (found.resource_class, found.repair, found.safe) == ("VGPU", None, False)
    assert f"1 VGPU of host_{CYBORGS}, which Cyborg reports" in found.seen
    assert "[devices] enabled_mdev_types or for Cyborg, not for both" in found.seen
