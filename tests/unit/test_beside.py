"""The role beside: nova reports the root and its devices, and this agent what nova leaves out."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.audit.run import witness
from agent.sync.leave import hand_over_node, retire_node
from agent.sync.outcome import Status
from beds.one_host import FORCE, OneHost
from drivers.facts import HostFacts
from drivers.policy import DevicePolicy, DeviceRule, MdevRule, Policy
from drivers.rules import parse_rule
from hardware import card, gpu, host, hosts, parent, plain, policies, rules
from reportclient.ownership import MARKER, OWNER_NOVA
from reportclient.tree import ObservedProvider

NIC, OTHER, GPU, PLAIN = "0000:81:00.0", "0000:82:00.0", "pci_0000_84_00_0", "0000:05:00.0"
NICS = (*card(NIC, 4), *card(OTHER, 2))
HOST = host(*NICS, plain(PLAIN), gpu(), parents=(parent(gpu(), a=16),))
OF_NOVA = DeviceRule(number=1, product_id="1533")
OF_NETWORK = parse_rule({"address": NIC, "product_id": "1515", "physical_network": "a"}, 2)
DEVICES = replace(rules(OF_NOVA, OF_NETWORK), mdevs=(MdevRule(type="a"),))
Begin = Callable[..., OneHost]


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    """A host that nova reports, with these devices, and an agent beside it."""

    def beside(devices: DevicePolicy = DEVICES, facts: HostFacts = HOST) -> OneHost:
        return beside_nova(tmp_path, devices, facts)

    return beside


def beside_nova(folder: Path, devices: DevicePolicy, facts: HostFacts) -> OneHost:
    one = OneHost(folder, facts, Policy(devices=replace(devices, rules=novas(devices), discover_all=False)))
    assert one.sync().status is Status.CHANGED
    one.give_to_nova()
    one.policy, one.role = Policy(devices=devices), "beside"
    return one


def novas(devices: DevicePolicy) -> tuple[DeviceRule, ...]:
    """The rules whose devices nova reports."""
    return tuple(rule for rule in devices.rules if rule.novas)


def of_nova(one: OneHost) -> list[ObservedProvider]:
    """What nova reports, with the generations that tell of any write."""
    return [seen for seen in one.tree() if OWNER_NOVA in seen.provider.traits]


def own(one: OneHost) -> dict[str, dict[str, int]]:
    """Our children's stock, by the end of their names."""
    return {
        seen.name.removeprefix(f"{one.facts.hostname}_"): {
            name: stock.total for name, stock in seen.provider.inventories.items()
        }
        for seen in one.tree()
        if MARKER in seen.provider.traits
    }


def test_only_devices_that_nova_leaves_out_are_reported(begin: Begin) -> None:
    one = begin()
    before = of_nova(one)
    assert [seen.name.removeprefix(f"{one.facts.hostname}_") for seen in before[1:]] == [PLAIN, GPU]

    done = one.sync()

    assert (done.status, own(one)) == (Status.CHANGED, {NIC: {"CUSTOM_PCI_8086_1515": 4}})
    assert {"CUSTOM_PHYSNET_A", "HW_NIC_SRIOV", MARKER} <= one.traits(NIC)
    assert of_nova(one) == before
    assert one.sync().status is Status.UNCHANGED


def test_vfs_that_discovery_finds_and_vfs_that_are_vgpus_are_reported(begin: Begin) -> None:
    typed = card("0000:90:00.0", 2, vendor_id="10de")
    vfs = (replace(vf, vendor_id="10de", attributes=(("nvidia/current_vgpu_type", "1414"),)) for vf in typed[1:])
    record = {"vendor_id": "10de", "product_id": "1515", "resource_class_attribute": "nvidia/current_vgpu_type"}
    devices = replace(rules(OF_NOVA, parse_rule(record, 2)), discover_all=True)
    one = begin(devices, host(*NICS, plain(PLAIN), typed[0], *vfs))

    assert one.sync().status is Status.CHANGED

    found = {NIC: {"SRIOV_NET_VF": 4}, OTHER: {"SRIOV_NET_VF": 2}, "0000:90:00.0": {"CUSTOM_NVIDIA_1414": 2}}
    assert own(one) == found


def test_what_nova_writes_on_its_providers_is_no_contest(begin: Begin) -> None:
    one = begin()
    one.sync()
    one.set_by_hand("", "VCPU", total=1, max_unit=1)
    one.set_by_hand(GPU, "VGPU", total=8)
    before = of_nova(one)

    assert one.sync().status is Status.UNCHANGED
    assert one.sync(facts=host(*card(NIC, 3), plain(PLAIN), gpu(), parents=(parent(gpu(), a=16),))).notes == ()
    assert own(one) == {NIC: {"CUSTOM_PCI_8086_1515": 3}}
    assert of_nova(one) == before


def test_nova_that_deletes_and_makes_its_own_again_is_left_alone(begin: Begin) -> None:
    one = begin()
    one.sync()
    gpus = one.tree().by_name[f"{one.facts.hostname}_{GPU}"]
    one.send("DELETE", f"/resource_providers/{gpus.uuid}")

    assert one.sync().status is Status.UNCHANGED
    assert GPU not in own(one)


def test_a_device_that_nova_reports_too_stays_novas(begin: Begin) -> None:
    """Both configurations name it: nova was first."""
    one = begin(replace(DEVICES, rules=(OF_NOVA, replace(OF_NETWORK, physical_network=None))))
    before = of_nova(one)

    assert one.sync(policy=Policy(devices=DEVICES)).status is Status.UNCHANGED
    assert (own(one), of_nova(one)) == ({}, before)


def test_what_guests_hold_of_a_device_that_is_no_longer_offered_is_kept_until_they_let_go(begin: Begin) -> None:
    one = begin()
    one.sync()
    one.claim({"": {"VCPU": 1}, NIC: {"CUSTOM_PCI_8086_1515": 2}})
    withdrawn = Policy(devices=replace(DEVICES, rules=(OF_NOVA,)))

    assert one.sync(FORCE, policy=withdrawn).status is Status.CHANGED
    assert one.stock(NIC) == {"CUSTOM_PCI_8086_1515": (2, 2)}
    assert one.held()[one.facts.hostname] == {"VCPU": 1}
    one.claim({})
    assert one.sync(FORCE).status is Status.CHANGED

    assert own(one) == {}


def test_the_operators_files_add_to_our_children_and_not_to_novas(begin: Begin) -> None:
    one = begin()
    one.sync()
    before = of_nova(one)

    one.write_provider_config("", "CUSTOM_LICENCE", 4)
    assert one.sync().status is Status.UNCHANGED
    one.write_provider_config(GPU, "CUSTOM_LICENCE", 4)
    assert one.sync().status is Status.UNCHANGED
    one.write_provider_config(NIC, "CUSTOM_LICENCE", 4)
    assert one.sync().status is Status.CHANGED

    assert own(one) == {NIC: {"CUSTOM_PCI_8086_1515": 4, "CUSTOM_LICENCE": 4}}
    assert of_nova(one) == before


def test_without_a_root_of_novas_nothing_is_written(tmp_path: Path) -> None:
    one = OneHost(tmp_path, HOST, Policy(devices=DEVICES), role="beside")

    done = one.sync(FORCE)

    assert (done.status, one.sender.writes) == (Status.CONTESTED, 0)
    assert "which nova-compute makes at its first start" in done.notes[0]


def test_below_a_root_that_this_agent_reported_nothing_is_written_until_it_is_handed_over(tmp_path: Path) -> None:
    one = OneHost(tmp_path, HOST, Policy(devices=DEVICES))
    one.sync()
    one.role = "beside"

    refused = one.sync()
    handed_over = hand_over_node(one.node)

    assert (refused.status, handed_over.status) == (Status.CONTESTED, Status.CHANGED)
    assert "give the host to nova with hand-over" in refused.notes[0]
    assert own(one).keys() == {NIC}  # this agent goes on reporting it
    assert one.sync().status is Status.UNCHANGED


def test_retiring_takes_away_our_children_only(begin: Begin) -> None:
    one = begin()
    one.sync()
    before = of_nova(one)
    one.claim({NIC: {"CUSTOM_PCI_8086_1515": 1}})

    refused = retire_node(one.node)
    one.claim({"": {"VCPU": 1}})
    done = retire_node(one.node)

    assert "consumers hold allocations here" in refused.notes[0]
    assert (refused.status, done.status, own(one)) == (Status.UNSAFE, Status.CHANGED, {})
    assert [seen.provider for seen in of_nova(one)] == [seen.provider for seen in before]


def test_an_audit_takes_our_children_for_ours_and_novas_for_novas(begin: Begin) -> None:
    one = begin()
    one.sync()
    one.claim({NIC: {"CUSTOM_PCI_8086_1515": 1}})

    assert {finding.kind.value for finding in witness(one.node).findings} <= {"orphaned", "untyped"}


@given(hosts(), policies, st.booleans())
def test_beside_nova_no_provider_of_novas_is_ever_written(
    facts: HostFacts, devices: DevicePolicy, network: bool
) -> None:
    given_rules = tuple(replace(rule, physical_network="a" if network else None) for rule in devices.rules)
    with tempfile.TemporaryDirectory() as folder:
        one = beside_nova(Path(folder), replace(devices, rules=given_rules), facts)
        before = of_nova(one)

        done = one.sync(FORCE)

        assert done.status in (Status.CHANGED, Status.UNCHANGED)
        assert of_nova(one) == before
        assert MARKER not in one.traits()
        assert one.sync().status is Status.UNCHANGED
