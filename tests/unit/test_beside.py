"""The role beside: nova reports the root and its devices, and this agent what nova leaves out."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.audit.audit import witness
from agent.sync.decide.view import Wishes
from agent.sync.leave import hand_over_node, retire_node
from agent.sync.outcome import Status
from beds.one_host import FORCE, OneHost
from drivers.facts import HostFacts, NetDevice
from drivers.policy import DevicePolicy, DeviceRule, MdevRule, Policy, RuleNetwork
from drivers.rules import parse_rule
from hardware import NVIDIA, card, gpu, host, hosts, parent, plain, policies, rules
from reportclient.errors import Absent, TreeMismatch
from reportclient.ownership import MANAGED, MARKER, OWNER_NOVA
from reportclient.renaming import child_uuid
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


@pytest.fixture
def one(begin: Begin) -> OneHost:
    """Such a host after the first pass of its agent."""
    begun = begin()
    begun.sync()
    return begun


def beside_nova(folder: Path, devices: DevicePolicy, facts: HostFacts, *, marked: bool = True) -> OneHost:
    one = OneHost(folder, facts, Policy(devices=replace(devices, rules=novas(devices), discover_all=False)))
    assert one.sync().status is Status.CHANGED
    one.give_to_nova(marked=marked)
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


TYPED = card("0000:90:00.0", 2, vendor="10de")
VGPUS = (
    TYPED[0],
    *(replace(vf, ids=NVIDIA, attributes=(("nvidia/current_vgpu_type", "1414"),)) for vf in TYPED[1:]),
)
OF_TYPE = parse_rule(
    {"vendor_id": "10de", "product_id": "1515", "resource_class_attribute": "nvidia/current_vgpu_type"}, 2
)
TYPES = rules(OF_NOVA, OF_TYPE)


def test_vfs_that_discovery_finds_and_vfs_that_are_vgpus_are_reported(begin: Begin) -> None:
    one = begin(replace(TYPES, discover_all=True), host(*NICS, plain(PLAIN), *VGPUS))

    assert one.sync().status is Status.CHANGED

    found = {NIC: {"SRIOV_NET_VF": 4}, OTHER: {"SRIOV_NET_VF": 2}, "0000:90:00.0": {"CUSTOM_NVIDIA_1414": 2}}
    for _ in range(3):
        assert own(one) == found
        assert one.sync().status is Status.UNCHANGED
    assert MANAGED not in one.traits("0000:90:00.0")  # nova's PCI tracker deletes such providers that it does not know


def test_a_reservation_of_our_children_is_theirs_in_this_role_too(one: OneHost) -> None:
    """Held, ill, and well again, with the memory lost in between: the operator's word stands in the end."""
    one.set_by_hand(NIC, "CUSTOM_PCI_8086_1515", reserved=1)
    one.claim({NIC: {"CUSTOM_PCI_8086_1515": 3}})

    one.sync(FORCE, facts=host(*card(NIC, 1), plain(PLAIN), gpu(), parents=(parent(gpu(), a=16),)))
    one.sync(FORCE, facts=HOST)
    one.claim({})
    one.sync()
    assert (one.stock(NIC), one.marks(NIC)) == ({"CUSTOM_PCI_8086_1515": (4, 1)}, frozenset())

    ill = card(NIC, 4, net_devices=(NetDevice("ens1", "down", 10_000),))
    one.sync(facts=host(*ill, plain(PLAIN), gpu(), parents=(parent(gpu(), a=16),)))
    one.forget()
    one.sync(facts=HOST)
    assert (one.stock(NIC), one.marks(NIC)) == ({"CUSTOM_PCI_8086_1515": (4, 1)}, frozenset())


def test_mediated_devices_of_any_class_are_novas(tmp_path: Path) -> None:
    """Their class is the operator's, so only the host's side tells that nova reports them."""
    devices = replace(DEVICES, mdevs=(MdevRule(type="a", resource_class="CUSTOM_GPU"),))
    one = OneHost(tmp_path, HOST, Policy(devices=devices))
    one.sync()
    one.role = "beside"

    assert hand_over_node(one.node).status is Status.CHANGED
    assert (set(own(one)), MARKER in one.traits(GPU)) == ({NIC}, False)
    stands = one.tree().by_name[f"{one.facts.hostname}_{GPU}"]
    assert one.sync(FORCE).status is Status.UNCHANGED

    assert one.tree().by_name[f"{one.facts.hostname}_{GPU}"] == stands


def test_children_of_ours_stay_ours_through_a_hand_over(tmp_path: Path) -> None:
    one = OneHost(tmp_path, host(plain(PLAIN), *VGPUS), Policy(devices=TYPES))
    one.sync()
    one.role = "beside"

    assert hand_over_node(one.node).status is Status.CHANGED
    assert own(one).keys() == {"0000:90:00.0"}
    assert one.sync().status is Status.CHANGED  # the trait goes by which nova would take it for its own
    assert (hand_over_node(one.node).status, set(own(one))) == (Status.UNCHANGED, {"0000:90:00.0"})


@pytest.mark.parametrize(
    ("suffix", "resource_class"),
    [("0000:81:00.0", "CUSTOM_X"), ("pci_0000_81_10_1", "VGPU"), ("pci_0000_81_00_0", "VGPU")],
)
def test_a_device_that_nova_reports_in_any_form_is_not_reported_twice(
    begin: Begin, suffix: str, resource_class: str
) -> None:
    one = begin()
    one.make_as_nova(suffix, resource_class)

    done = one.sync()

    assert (done.status, own(one)) == (Status.UNCHANGED, {})
    assert f"nova reports {one.facts.hostname}_{suffix} for the same device" in done.notes[0]


def test_a_child_that_nova_takes_over_is_novas_and_the_others_go_on(begin: Begin) -> None:
    """nova looks for the provider of a device by its name, and replaces all its traits."""
    one = begin(replace(DEVICES, discover_all=True))
    one.sync()
    seen = one.tree().by_name[f"{one.facts.hostname}_{NIC}"]
    body = {"traits": [OWNER_NOVA, MANAGED], "resource_provider_generation": seen.generation}
    one.send("PUT", f"/resource_providers/{seen.uuid}/traits", body)

    done = one.sync(facts=host(*card(NIC, 4), *card(OTHER, 3), plain(PLAIN), gpu(), parents=(parent(gpu(), a=16),)))

    assert (done.status, own(one)) == (Status.CHANGED, {OTHER: {"SRIOV_NET_VF": 3}})
    assert "for the same device" in done.notes[0]


def test_a_child_that_a_pass_left_empty_before_it_was_cut_off_is_not_novas(begin: Begin) -> None:
    one = begin()
    name = f"{one.facts.hostname}_{NIC}"
    root = one.tree().providers[0]
    derived = child_uuid(root.uuid, root.name, name)
    one.send("POST", "/resource_providers", {"name": name, "uuid": derived, "parent_provider_uuid": root.uuid})

    assert one.sync().status is Status.CHANGED
    assert own(one) == {NIC: {"CUSTOM_PCI_8086_1515": 4}}


def test_a_child_with_both_marks_is_left_to_nova(one: OneHost) -> None:
    one.put_trait(GPU, MARKER)
    before = of_nova(one)

    done = one.sync(FORCE)

    assert (done.status, of_nova(one)) == (Status.UNCHANGED, before)


def test_a_class_that_novas_root_has_is_not_put_below_it(begin: Begin) -> None:
    one = begin()
    one.add_by_hand("", "CUSTOM_PCI_8086_1515", 4)

    done = one.sync()

    assert (done.status, own(one)) == (Status.UNSAFE, {})
    assert "take them out of nova's provider.yaml" in done.notes[0]


def test_novas_root_is_not_renamed(one: OneHost) -> None:
    before = of_nova(one)

    with pytest.raises(TreeMismatch, match="nova does not rename it"):
        one.sync(Wishes(rename_from="host"), facts=replace(HOST, hostname="newname"))

    assert of_nova(one) == before


def test_after_a_change_of_the_role_nothing_of_novas_is_taken_for_ours(begin: Begin) -> None:
    one = begin()
    for name in ("HW_GPU_API_VULKAN", "CUSTOM_BY_OPERATOR"):
        one.put_trait("", name)
    one.add_by_hand("", "CUSTOM_LICENCE", 5)
    one.sync()
    one.sync()

    one.role = "sole"
    assert one.sync(Wishes(take_over=True, force=True)).status is Status.CHANGED

    assert {OWNER_NOVA, "HW_GPU_API_VULKAN", "CUSTOM_BY_OPERATOR", MARKER} <= one.traits()
    assert one.stock()["CUSTOM_LICENCE"] == (5, 0)


def test_a_memory_of_another_role_does_not_bring_the_old_root_back(tmp_path: Path) -> None:
    one = OneHost(tmp_path, HOST, Policy(devices=DEVICES))
    one.sync()
    one.sync()
    for suffix in ("", GPU, PLAIN):
        one.remove_traits(suffix, MARKER)
    one.set_by_hand("", "VCPU", total=1, max_unit=1)
    one.role = "beside"

    one.sync(FORCE)

    assert (one.stock()["VCPU"][0], MARKER in one.traits()) == (1, False)


def test_what_nova_writes_on_its_providers_is_no_contest(one: OneHost) -> None:
    one.set_by_hand("", "VCPU", total=1, max_unit=1)
    one.set_by_hand(GPU, "VGPU", total=8)
    before = of_nova(one)

    assert one.sync().status is Status.UNCHANGED
    assert one.sync(facts=host(*card(NIC, 3), plain(PLAIN), gpu(), parents=(parent(gpu(), a=16),))).notes == ()
    assert own(one) == {NIC: {"CUSTOM_PCI_8086_1515": 3}}
    assert of_nova(one) == before


def test_nova_that_deletes_and_makes_its_own_again_is_left_alone(one: OneHost) -> None:
    gpus = one.tree().by_name[f"{one.facts.hostname}_{GPU}"]
    one.send("DELETE", f"/resource_providers/{gpus.uuid}")

    assert one.sync().status is Status.UNCHANGED
    assert GPU not in own(one)


def test_a_device_that_nova_reports_too_stays_novas(begin: Begin) -> None:
    """Both configurations name it: nova was first."""
    one = begin(replace(DEVICES, rules=(OF_NOVA, replace(OF_NETWORK, network=RuleNetwork()))))
    before = of_nova(one)

    assert one.sync(policy=Policy(devices=DEVICES)).status is Status.UNCHANGED
    assert (own(one), of_nova(one)) == ({}, before)


def test_what_guests_hold_of_a_device_that_is_no_longer_offered_is_kept_until_they_let_go(one: OneHost) -> None:
    one.claim({"": {"VCPU": 1}, NIC: {"CUSTOM_PCI_8086_1515": 2}})
    withdrawn = Policy(devices=replace(DEVICES, rules=(OF_NOVA,)))

    assert one.sync(FORCE, policy=withdrawn).status is Status.CHANGED
    assert one.stock(NIC) == {"CUSTOM_PCI_8086_1515": (2, 2)}
    assert one.held()[one.facts.hostname] == {"VCPU": 1}
    one.claim({})
    assert one.sync(FORCE).status is Status.CHANGED

    assert own(one) == {}


def test_the_operators_files_add_to_our_children_and_not_to_novas(one: OneHost) -> None:
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

    with pytest.raises(Absent, match="which nova-compute makes at its first start"):
        one.sync(FORCE)

    assert one.sender.writes == 0


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


def test_a_child_with_a_strangers_provider_below_is_not_retired(one: OneHost) -> None:
    nic = one.tree().by_name[f"{one.facts.hostname}_{NIC}"]
    body = {"name": "strange", "uuid": str(uuid4()), "parent_provider_uuid": nic.uuid}
    one.send("POST", "/resource_providers", body)

    refused = retire_node(one.node)

    assert (refused.status, one.stock(NIC)) == (Status.UNSAFE, {"CUSTOM_PCI_8086_1515": (4, 0)})
    assert "strange below this agent's providers" in refused.notes[0]


def test_retiring_takes_away_our_children_only(one: OneHost) -> None:
    before = of_nova(one)
    one.claim({NIC: {"CUSTOM_PCI_8086_1515": 1}})

    refused = retire_node(one.node)
    one.claim({"": {"VCPU": 1}})
    done = retire_node(one.node)

    assert "consumers hold allocations here" in refused.notes[0]
    assert (refused.status, done.status, own(one)) == (Status.UNSAFE, Status.CHANGED, {})
    assert [seen.provider for seen in of_nova(one)] == [seen.provider for seen in before]


def test_an_audit_takes_our_children_for_ours_and_novas_for_novas(one: OneHost) -> None:
    one.claim({NIC: {"CUSTOM_PCI_8086_1515": 1}})

    assert {finding.kind.value for finding in witness(one.node).findings} <= {"orphaned", "untyped"}
    one.claim({})
    one.add_by_hand("", "CUSTOM_LICENCE", 4)  # nova's provider.yaml
    one.sync()
    assert witness(one.node).findings == ()


@given(hosts(), policies, st.booleans())
def test_beside_nova_no_provider_of_novas_is_ever_written(
    facts: HostFacts, devices: DevicePolicy, network: bool
) -> None:
    name = "a" if network else None
    given_rules = tuple(replace(rule, network=replace(rule.network, name=name)) for rule in devices.rules)
    with tempfile.TemporaryDirectory() as folder:
        one = beside_nova(Path(folder), replace(devices, rules=given_rules), facts)
        before = of_nova(one)

        done = one.sync(FORCE)

        assert done.status in (Status.CHANGED, Status.UNCHANGED)
        assert of_nova(one) == before
        assert MARKER not in one.traits()
        assert one.sync().status is Status.UNCHANGED
