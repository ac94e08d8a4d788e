"""Mediated devices that nova makes for Cyborg's requests: their allocations are on Cyborg's providers."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.audit.audit import witness
from agent.audit.decide.findings import Finding, Kind
from beds.one_host import GUEST, OneHost
from drivers.facts import GuestMemory, Mdev, Tenant
from drivers.policy import DevicePolicy, Layout, MdevRule, Policy
from hardware import gpu, guest_with, host, parent
from reportclient.ownership import MARKER

TYPE_A = DevicePolicy(mdevs=(MdevRule(type="a"),))
CARD = "0000:84:00.0"
GPU, OTHER_GPU, CYBORGS = "pci_0000_84_00_0", "pci_0000_85_00_0", "cyborg_gpu"
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


def findings_of(one: OneHost) -> tuple[Finding, ...]:
    return witness(replace(one.node, settings=replace(one.settings, audit_grace_s=0))).findings


@pytest.mark.parametrize("types", [(), ("b",)], ids=["no type", "another type"])
@pytest.mark.parametrize("layout", ["flat", "devices"])
def test_a_device_of_cyborgs_alone_is_nobodys_fault(tmp_path: Path, layout: Layout, types: tuple[str, ...]) -> None:
    one = audited(tmp_path, layout, *types)

    assert findings_of(one) == ()


@pytest.mark.parametrize("marks", [("OWNER_CYBORG",), ()], ids=["its mark", "no mark"])
@pytest.mark.parametrize("layout", ["flat", "devices", "numa"])
def test_a_card_that_both_offer_is_told_with_both_owners(
    tmp_path: Path, layout: Layout, marks: tuple[str, ...]
) -> None:
    """Cyborg names its provider by the address of the card (cyborg/accelerator/drivers/gpu/nvidia/sysinfo.py)."""
    one = OneHost(tmp_path, host(gpu(), parents=(parent(gpu(), a=4),)), Policy(layout=layout, devices=TYPE_A))
    one.sync()
    one.make_as_nova(CARD, "VGPU")
    one.remove_traits(CARD, *one.traits(CARD))
    for mark in marks:
        one.put_trait(CARD, mark)

    found = [each for each in findings_of(one) if each.kind is Kind.DUPLICATE]

    assert f"host_{CARD}" in {each.provider for each in found}
    for each in found:
        assert "CYBORG" in each.seen.upper()
        assert MARKER in each.seen
        assert each.seen.endswith("out of one service")


@pytest.mark.parametrize("marks", [("OWNER_CYBORG",), ("CUSTOM_OWNER_SITE", "OWNER_CYBORG")], ids=["its mark", "two"])
@pytest.mark.parametrize(
    "held", [{"": {"VCPU": 1, "MEMORY_MB": 64}}, {}], ids=["a device lacks", "all of nova's is lost"]
)
@pytest.mark.parametrize("layout", ["flat", "devices"])
def test_a_type_that_both_manage_is_told_with_both_owners_and_never_repaired(
    tmp_path: Path, layout: Layout, held: dict[str, dict[str, int]], marks: tuple[str, ...]
) -> None:
    one = audited(tmp_path, layout, "a")
    for mark in marks:
        one.put_trait(CYBORGS, mark)
    one.claim({CYBORGS: {"VGPU": 1}} | held)

    found = findings_of(one)

    assert {"VGPU"} <= {each.resource_class for each in found}
    for each in found:
        assert (each.repair, each.safe) == (None, False)
        assert f"1 VGPU of host_{CYBORGS}, which Cyborg reports" in each.seen
        assert "[devices] enabled_mdev_types or for Cyborg, not for both" in each.seen


@pytest.mark.parametrize("held", [{"": {"VCPU": 1, "MEMORY_MB": 64}}, {}], ids=["of Cyborg's", "all"])
@pytest.mark.parametrize("layout", ["flat", "devices"])
def test_a_device_whose_allocation_of_cyborgs_is_lost_is_not_allocated_on_novas_card(
    tmp_path: Path, layout: Layout, held: dict[str, dict[str, int]]
) -> None:
    one = audited(tmp_path, layout, "a")
    one.claim(held)

    found = findings_of(one)

    assert {"VGPU"} <= {each.resource_class for each in found}
    for each in found:
        assert (each.repair, each.safe) == (None, False)
        assert f"0 VGPU of host_{CYBORGS}, which Cyborg reports" in each.seen


def test_a_device_of_cyborgs_is_no_place_to_which_an_allocation_of_novas_goes(tmp_path: Path) -> None:
    """The guest has a stale row of one card, and Cyborg's device on another card, whose type is enabled too."""
    cards, types = (gpu(), gpu("0000:85:00.0")), (("a", "0000:84:00.0"), ("b", "0000:85:00.0"))
    guest = guest_with(GUEST, Tenant("p", "u", 0, {}), mdevs=frozenset({MDEV}))
    facts = host(*cards, parents=(parent(cards[0], a=4), parent(cards[1], b=4)), mdevs=(Mdev(MDEV, "b", OTHER_GPU),))
    guests = (replace(guest, vcpus=(frozenset(),), memory=(GuestMemory(64),)),)
    rules = tuple(MdevRule(type=one, addresses=frozenset({address})) for one, address in types)
    policy = Policy(layout="devices", devices=DevicePolicy(mdevs=rules))
    one = OneHost(tmp_path, replace(facts, guests=guests), policy)
    one.sync()
    one.make_as_nova(CYBORGS, "VGPU")
    one.put_trait(CYBORGS, "OWNER_CYBORG")
    one.claim({"": {"VCPU": 1, "MEMORY_MB": 64}, GPU: {"VGPU": 1}, CYBORGS: {"VGPU": 1}})

    found = findings_of(one)

    assert {each.provider for each in found} == {f"host_{GPU}", f"host_{OTHER_GPU}"}
    assert [(each.repair, each.safe) for each in found] == [(None, False)] * 2


@pytest.mark.parametrize("vgpus", [0, 2], ids=["a device lacks", "one too many"])
def test_a_guest_with_another_accelerator_of_cyborgs_gets_what_it_has(tmp_path: Path, vgpus: int) -> None:
    one = audited(tmp_path, "flat", "a")
    one.make_as_nova("cyborg_fpga", "FPGA")
    one.put_trait("cyborg_fpga", "OWNER_CYBORG")
    had = {"VCPU": 1, "MEMORY_MB": 64} | ({"VGPU": vgpus} if vgpus else {})
    one.claim({"": had, "cyborg_fpga": {"FPGA": 1}})
    one.send("DELETE", f"/resource_providers/{one.tree().by_name[f'host_{CYBORGS}'].uuid}")

    (found,) = findings_of(one)

    assert (found.resource_class, found.expected, found.safe) == ("VGPU", 1, True)


@pytest.mark.parametrize("more", [{}, {CYBORGS: {"VGPU": 1}}], ids=["nova's alone", "Cyborg's too"])
def test_what_is_left_of_a_server_with_a_device_of_cyborgs_is_left_to_a_person(
    tmp_path: Path, more: dict[str, dict[str, int]]
) -> None:
    one = audited(tmp_path, "devices", "a")
    gone = "9e3f8b8e-6d35-4a0c-9a4f-3f9f7f0a5d11"
    one.claim({"": {"VCPU": 1, "MEMORY_MB": 64}} | more, gone)

    found = [each for each in findings_of(one) if each.consumer == gone]

    assert {each.kind for each in found} == {Kind.ORPHANED}
    assert {each.safe for each in found} == {not more}
    assert all(("openstack accelerator arq list" in each.seen) == bool(more) for each in found)
    assert all(each.seen.endswith(f"run compute-node-agent release {gone}") for each in found if more)
