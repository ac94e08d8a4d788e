"""Which classes the configuration still offers, so that what an operator reserved of a root's total of them waits."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.sync.outcome import Status
from beds.one_host import FORCE, ROOT, OneHost
from drivers.by_suffix import BySuffix
from drivers.devices.odd import away
from drivers.facts import NetDevice
from drivers.libvirt.host_inventories import reserved_cells_text
from drivers.policy import Bandwidth, DevicePolicy, DeviceRule, MdevRule, Policy, RuleNetwork
from drivers.reasons import Reasoned
from hardware import card, host
from reportclient.names import BANDWIDTH, NO_DEVICES
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

NIC, VF = "0000:81:00.0", "SRIOV_NET_VF"
EGRESS = "NET_BW_EGR_KILOBIT_PER_SEC"
NVIDIA = DeviceRule(number=1, vendor_id="10de", class_attribute="nvidia/current_vgpu_type")


def by(rule: DeviceRule, *, report: bool = True) -> DevicePolicy:
    return DevicePolicy(report=report, rules=(rule,))


@pytest.mark.parametrize(
    ("policy", "name", "waits"),
    [
        (DevicePolicy(discover_all=True), "SRIOV_NET_VF", True),
        (DevicePolicy(), "SRIOV_NET_VF", False),
        (DevicePolicy(mdevs=(MdevRule(type="a"),)), "VGPU", True),
        (DevicePolicy(mdevs=(MdevRule(type="a", resource_class="CUSTOM_A"),)), "VGPU", False),
        (DevicePolicy(), "MEM_ENCRYPTION_CONTEXT", True),
        (by(DeviceRule(number=1, resource_class="CUSTOM_A")), "CUSTOM_A", True),
        (by(DeviceRule(number=1, resource_class="CUSTOM_A")), "CUSTOM_B", False),
        (by(DeviceRule(number=1, resource_class="CUSTOM_A"), report=False), "CUSTOM_A", False),
        (by(NVIDIA), "CUSTOM_NVIDIA_1428", True),
        (by(NVIDIA), "CUSTOM_PCI_10DE_1EB8", False),
        (by(DeviceRule(number=1, vendor_id="10de", product_id="1eb8")), "CUSTOM_PCI_10DE_1EB8", True),
        (by(DeviceRule(number=1, product_id="1eb8")), "CUSTOM_PCI_10DE_1EB8", True),
        (by(DeviceRule(number=1, vendor_id="8086")), "CUSTOM_PCI_10DE_1EB8", False),
        (by(DeviceRule(number=1)), "CUSTOM_A", False),
        (DevicePolicy(link_bandwidth=True), EGRESS, True),
        (by(DeviceRule(number=1, network=RuleNetwork(bandwidth=Bandwidth()))), EGRESS, True),
        (by(DeviceRule(number=1)), EGRESS, False),
        (DevicePolicy(discover_all=True), "VCPU", False),
    ],
)
def test_a_reservation_waits_for_devices_that_the_configuration_offers(
    policy: DevicePolicy, name: str, waits: bool
) -> None:
    root = Provider(name="host", inventories={name: Inventory(total=4, reserved=2)})
    standing = BySuffix(ObservedTree((ObservedProvider(uuid="u", generation=1, provider=root),)))

    found = {key: (stock.total, stock.reserved) for key, (stock, _) in away(policy, standing, ()).items()}

    assert found == ({name: (2, 2)} if waits else {})
    assert away(policy, standing, (name,)) == {}


def test_the_rule_of_a_cell_that_is_reserved_whole_names_the_option_where_it_is_set() -> None:
    assert "as [agent] reserved_cells is not set" in reserved_cells_text(Policy(layout="cells"))
    assert reserved_cells_text(Policy(reserved_cells=frozenset({1}))).endswith("by [agent] reserved_cells")


def test_a_provider_may_have_no_traits() -> None:
    assert Reasoned(name="host").provider == Provider(name="host")


def test_what_an_operator_reserved_of_a_class_that_no_device_has_now_is_marked_as_held(tmp_path: Path) -> None:
    one = OneHost(
        tmp_path, host(*card("0000:81:00.0", 4)), Policy(layout="flat", devices=DevicePolicy(discover_all=True))
    )
    one.sync()
    one.set_by_hand("", "SRIOV_NET_VF", reserved=2)
    one.sync()

    one.sync(FORCE, facts=host())

    assert one.stock()["SRIOV_NET_VF"] == (2, 2)
    assert "CUSTOM_DEVICE_HELD" in one.marks()


WITH_LINK = DevicePolicy(discover_all=True, link_bandwidth=True)


@pytest.mark.parametrize(
    ("later", "status", "left"),
    [
        pytest.param(DevicePolicy(discover_all=True), Status.CHANGED, {VF}, id="its bandwidth"),
        pytest.param(DevicePolicy(), Status.CHANGED, set(), id="all of it"),
        pytest.param(WITH_LINK, Status.UNSAFE, {VF, *BANDWIDTH}, id="nothing"),
    ],
)
def test_what_a_person_withdrew_of_a_total_goes_at_once_and_what_is_lost_waits(
    tmp_path: Path, later: DevicePolicy, status: Status, left: set[str]
) -> None:
    """As in the other layouts, where a card that is seen and gives nothing any more shows that."""
    link = (NetDevice("ens1", "up", 10_000),)
    one = OneHost(tmp_path, host(*card(NIC, 4, net_devices=link)), Policy(layout="flat", devices=WITH_LINK))
    one.sync()
    if later == WITH_LINK:
        one.facts = host()

    done = one.sync(policy=replace(one.policy, devices=later))

    assert (done.status, one.stock().keys() - NO_DEVICES) == (status, left)


def test_bandwidth_that_neutrons_agent_begins_to_report_goes_from_the_card_but_for_what_guests_have(
    tmp_path: Path,
) -> None:
    link = (NetDevice("ens1", "up", 10_000),)
    one = OneHost(tmp_path, host(*card(NIC, 4, net_devices=link)), Policy(layout="devices", devices=WITH_LINK))
    one.sync()
    one.claim({NIC: {VF: 1, EGRESS: 5}})
    agent = one.by_hand.add_provider("host:NIC Switch agent", parent=ROOT)
    one.by_hand.add_child(agent, "host:NIC Switch agent:ens1", EGRESS, 10_000_000)

    done = one.sync()

    assert (done.status, one.stock(NIC)) == (Status.CHANGED, {VF: (4, 0), EGRESS: (5, 5)})
    assert {condition.kind for condition in done.conditions} == {"twice", "held"}
    one.claim({})
    assert (one.sync().status, one.stock(NIC)) == (Status.CHANGED, {VF: (4, 0)})


def test_bandwidth_that_neutrons_agent_begins_to_report_stays_in_a_total_of_which_guests_have_some(
    tmp_path: Path,
) -> None:
    link = (NetDevice("ens1", "up", 10_000),)
    one = OneHost(tmp_path, host(*card(NIC, 4, net_devices=link)), Policy(layout="flat", devices=WITH_LINK))
    one.sync()
    one.claim({"": {VF: 1, EGRESS: 5}})
    before = one.stock()
    agent = one.by_hand.add_provider("host:NIC Switch agent", parent=ROOT)
    one.by_hand.add_child(agent, "host:NIC Switch agent:ens1", EGRESS, 10_000_000)

    done = one.sync()

    assert (done.status, one.stock()) == (Status.UNCHANGED, before)
    assert [(one.kind, "stays on offer" in one.text) for one in done.conditions] == [("twice", True)]
