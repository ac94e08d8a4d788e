"""Which devices are offered, as what, on which provider, and why."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from agent.settings.host_policy import parse_rules
from drivers.by_suffix import BySuffix
from drivers.devices import device_stock, present
from drivers.devices import idle_devices as idle
from drivers.devices.inventories import DeviceStock
from drivers.devices.match import find_rules
from drivers.devices.memory import hidden_stock
from drivers.errors import PolicyError
from drivers.facts import HostFacts, Mdev, MdevParent, NetDevice, PciIds, SevKernel, Sriov, Tenant, Versions
from drivers.libvirt.shape import shape
from drivers.policy import Bandwidth, DevicePolicy, DeviceRule, MdevRule, Policy, RuleNetwork, RulePlace
from drivers.rules import parse_rule
from fakes import FACTS, PC, offering
from hardware import BRIDGE, NVIDIA, at, card, gpu, guest_with, host, parent, plain, rules
from reportclient.ownership import MANAGED, MARKER
from reportclient.reserve import UNHEALTHY
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

NOWHERE = BySuffix(None)
ALL = DevicePolicy(discover_all=True)
ANY = DeviceRule(number=1)
VFS = DeviceRule(number=1, product_id="1515")
OF_NETWORK = rules(replace(VFS, network=RuleNetwork(name="net")))
VF = frozenset({at("0000:81:10.0")})
VDPA = "/dev/vhost-vdpa-0"
NOVAS = Tenant("project", "user", None)
BOOKED = replace(NOVAS, overridden={"SRIOV_NET_VF": 1})


def standing(suffix: str, traits: frozenset[str] = frozenset(), **stock: Inventory) -> BySuffix:
    """A placement that holds one child of this host."""
    root = ObservedProvider(uuid="r", generation=1, provider=Provider(name="host"))
    provider = Provider(name=f"host_{suffix}", parent="host", inventories=stock, traits=traits | {MARKER})
    return BySuffix(ObservedTree((root, ObservedProvider(uuid="c", generation=1, provider=provider))))


def offered(
    facts: HostFacts, policy: DevicePolicy, stands: BySuffix = NOWHERE
) -> dict[str, dict[str, tuple[int, int]]]:
    """suffix -> class -> (total, reserved)."""
    return {
        one.suffix: {name: (stock.total, stock.reserved) for name, (stock, _) in one.inventories.items()}
        for one in device_stock(facts, policy, stands)
    }


def only(facts: HostFacts, policy: DevicePolicy, stands: BySuffix = NOWHERE) -> DeviceStock:
    (one,) = device_stock(facts, policy, stands)
    return one


def test_vfs_are_stock_of_their_pf_and_a_plain_device_of_its_own() -> None:
    facts = host(*card("0000:81:00.0", 8), plain("0000:05:00.0"))

    found = offered(facts, rules(DeviceRule(number=1, product_id="1515"), DeviceRule(number=2, product_id="1533")))

    assert found == {
        "0000:05:00.0": {"CUSTOM_PCI_8086_1533": (1, 0)},
        "0000:81:00.0": {"CUSTOM_PCI_8086_1515": (8, 0)},
    }


@pytest.mark.parametrize("serial", [None, "MT2113X00000"])
@pytest.mark.parametrize("of_vf", [False, True], ids=["on the PF", "on each VF"])
def test_remote_managed_vfs_are_offered_where_their_card_has_a_serial_number(serial: str | None, of_vf: bool) -> None:
    """As in nova's tests of the same name in tests/unit/pci/test_devspec.py: Neutron finds the card by it."""
    functions = [
        replace(one, serial_number=serial) if of_vf == one.is_vf else one for one in card("0000:81:00.0", vfs=3)
    ]
    record = {"vendor_id": "8086", "product_id": "1515", "physical_network": None, "remote_managed": "true"}

    found = offered(host(*functions), rules(parse_rule(record, 1)))

    assert found == ({"0000:81:00.0": {"CUSTOM_PCI_8086_1515": (3, 0)}} if serial else {})


@pytest.mark.parametrize(
    ("device_class", "has_bridge_header", "is_offered"),
    [
        pytest.param(BRIDGE, False, False, id="between two buses"),
        pytest.param(0x060000, False, False, id="of the host"),
        pytest.param(0x060980, True, False, id="by its header"),
        pytest.param(0x068000, False, True, id="NVSwitch"),
    ],
)
def test_what_connects_buses_is_never_offered_and_a_switch_of_gpus_is(
    device_class: int, has_bridge_header: bool, is_offered: bool
) -> None:
    ids = PciIds("8086", "1533", device_class, has_bridge_header)
    assert bool(offered(host(plain(ids=ids)), rules(ANY))) is is_offered


def test_a_device_in_a_pci_domain_that_nova_does_not_know_is_left_out_and_told() -> None:
    facts = host(plain("10000:01:00.0"), plain("0000:02:00.0"), *card("10001:81:00.0", 1))

    for policy in (rules(ANY), replace(rules(ANY), discover_all=True)):
        assert offered(facts, policy).keys() == {"0000:02:00.0"}
        assert idle(facts, policy)[-1].startswith("10000:01:00.0, 10001:81:00.0, 10001:81:10.0: left out, as nova")
    assert offered(facts, ALL) == {}
    assert idle(facts, ALL)[0].startswith("10001:81:10.0: left out")
    assert idle(facts, DevicePolicy()) == ()


def test_reporting_cannot_be_turned_off_while_devices_stand_in_placement() -> None:
    stands = standing("0000:05:00.0", frozenset({MANAGED}), CUSTOM_PCI_8086_1533=Inventory(total=1))

    with pytest.raises(PolicyError, match="report_in_placement is off, and placement holds host_0000:05"):
        device_stock(host(plain()), DevicePolicy(), stands)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        pytest.param(rules(ANY), "offers both 0000:81:00.0 and its VF 0000:81:10.0", id="a PF whole and as VFs"),
        pytest.param(
            rules(DeviceRule(number=1, product_id="1515", one_time_use=False)),
            "one_time_use for 0000:81:10.0",
            id="one-time VF",
        ),
        pytest.param(
            rules(DeviceRule(number=1, product_id="1515", live_migratable=True)),
            "needs libvirt 10.0.0 and QEMU 8.2.2",
            id="old libvirt",
        ),
        pytest.param(
            rules(DeviceRule(number=1, place=RulePlace(exact=at("0000:81:00.0")), remote_managed=True)),
            "remote_managed for 0000:81:00.0, which is no VF",
            id="remote-managed PF",
        ),
    ],
)
def test_what_nova_refuses_is_refused(policy: DevicePolicy, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        device_stock(host(*card()), policy, NOWHERE)


@pytest.mark.parametrize(
    ("wish", "cls"),
    [("only the PF, ", "CUSTOM_PCI_8086_1528"), ("only its VFs, give that rule ", "CUSTOM_PCI_8086_1515")],
)
def test_the_refusal_of_a_pf_with_its_vfs_advises_what_is_not_refused(wish: str, cls: str) -> None:
    facts = host(*card(), *card("0000:82:00.0"))
    with pytest.raises(PolicyError) as caught:
        device_stock(facts, rules(ANY), NOWHERE)

    (product,) = re.findall(f'{wish}("product_id": "[^"]*")', str(caught.value))
    found = offered(facts, rules(*parse_rules([f"{{{product}}}"])))

    assert {suffix: list(stock) for suffix, stock in found.items()} == {"0000:81:00.0": [cls], "0000:82:00.0": [cls]}


@pytest.mark.parametrize(
    ("second", "message"),
    [
        pytest.param({"resource_class": "CUSTOM_B"}, "as CUSTOM_A and CUSTOM_B", id="classes"),
        pytest.param(
            {"resource_class": "CUSTOM_A", "traits": frozenset({"CUSTOM_T"})}, "different traits", id="traits"
        ),
    ],
)
def test_all_vfs_of_a_pf_are_offered_alike(second: dict[str, object], message: str) -> None:
    place = RulePlace(exact=at("0000:81:10.0"))
    first = DeviceRule(number=1, place=place, product_id="1515", resource_class="CUSTOM_A")
    facts = host(*card(vfs=2))
    narrow = replace(first, place=replace(place, address=tuple(map(re.compile, ("0000", "81", "10", "0")))))
    other = DeviceRule(number=2, product_id="1515", **second)  # type: ignore[arg-type]

    with pytest.raises(PolicyError, match=message):
        device_stock(facts, rules(narrow, other), NOWHERE)


def test_live_migration_is_promised_where_libvirt_can() -> None:
    facts = replace(host(*card()), hypervisor=offering(PC, versions=Versions(10_000_000, 8_002_002)))

    one = only(facts, rules(DeviceRule(number=1, product_id="1515", live_migratable=True)))

    assert set(one.traits) == {MANAGED, "HW_PCI_LIVE_MIGRATABLE"}


def test_devices_of_a_physical_network_are_not_for_novas_own_requests() -> None:
    one = only(host(*card()), rules(DeviceRule(number=1, product_id="1515", network=RuleNetwork(name="net-1"))))

    assert set(one.traits) == {"HW_NIC_SRIOV", "CUSTOM_PHYSNET_NET_1"}


def test_discover_all_offers_every_vf_of_a_network_card_and_no_pf() -> None:
    facts = host(*card("0000:81:00.0", 8), *card("0000:01:00.0", 0), plain(), gpu())

    one = only(facts, ALL)

    assert (one.suffix, one.cell, set(one.traits)) == ("0000:81:00.0", 1, {"HW_NIC_SRIOV"})
    assert offered(facts, ALL) == {"0000:81:00.0": {"SRIOV_NET_VF": (8, 0)}}


def test_discover_all_leaves_cards_alone_of_which_a_rule_speaks() -> None:
    facts = host(*card("0000:81:00.0", 4), *card("0000:01:00.0", 4))
    whole = replace(rules(DeviceRule(number=1, product_id="1528")), discover_all=True)

    assert offered(facts, whole) == {
        "0000:01:00.0": {"CUSTOM_PCI_8086_1528": (1, 0)},
        "0000:81:00.0": {"CUSTOM_PCI_8086_1528": (1, 0)},
    }


@pytest.mark.parametrize("carries", [True, None])
def test_a_vf_that_may_carry_the_hosts_own_traffic_is_reserved_unless_a_rule_offers_it(carries: bool | None) -> None:
    pf, first, second = card(vfs=2)
    busy = replace(first, net_devices=(NetDevice("mgmt", "up", 1000, carries_host_traffic=carries),))
    second = replace(second, net_devices=(NetDevice("ens1v1", "up"),))

    assert offered(host(pf, busy, second), ALL) == {"0000:81:00.0": {"SRIOV_NET_VF": (2, 1)}}
    ruled = rules(DeviceRule(number=1, product_id="1515"))
    assert offered(host(pf, busy, second), ruled) == {"0000:81:00.0": {"CUSTOM_PCI_8086_1515": (2, 0)}}


def test_a_vf_that_guests_share_by_macvtap_is_reserved_unless_a_rule_offers_it() -> None:
    pf, first, second = card(vfs=2, net_devices=(NetDevice("ens1", "up"),))
    busy, second = (replace(one, net_devices=(NetDevice(f"ens1v{n}", "up"),)) for n, one in enumerate((first, second)))
    guests = tuple(guest_with(shared=frozenset({name, "gone0"})) for name in ("ens1v0", "ens1v0", "ens1"))
    facts = replace(host(pf, busy, second), guests=guests)

    one = only(facts, ALL)

    assert offered(facts, ALL) == {"0000:81:00.0": {"SRIOV_NET_VF": (2, 1)}}
    assert one.traits[UNHEALTHY].fact == "0000:81:10.0: a guest has its interface by macvtap"
    assert offered(facts, rules(VFS)) == {"0000:81:00.0": {"CUSTOM_PCI_8086_1515": (2, 0)}}
    assert shape(facts, Policy(devices=ALL), None).holdings.undecided == {}


@pytest.mark.parametrize(
    ("changes", "guest", "reason"),
    [
        pytest.param(
            {}, {}, "its driver ixgbevf shows no interface of it: it may be in another", id="another namespace"
        ),
        pytest.param({}, {"pci": VF}, "", id="a guest has it"),
        pytest.param({"vdpa": (VDPA,)}, {}, "", id="a vDPA device"),
        pytest.param({"driver": None}, {}, "", id="no driver"),
        pytest.param({"driver": "mlx5_vfio_pci"}, {}, "", id="a driver for guests"),
        pytest.param({"driver": "uio_pci_generic"}, {}, "uio_pci_generic is for programs of the host", id="DPDK"),
        pytest.param(
            {"driver": "igb_uio"}, {}, "its driver igb_uio is for programs of the host", id="DPDK's own driver"
        ),
        pytest.param({"net_devices": (NetDevice("ens1v0", "down"),)}, {}, "", id="its interface is there"),
    ],
)
def test_a_vf_whose_driver_shows_no_interface_of_it_is_reserved_unless_a_rule_offers_it(
    changes: dict[str, Any], guest: dict[str, Any], reason: str
) -> None:
    pf, first, second = card(vfs=2)
    shown = replace(second, net_devices=(NetDevice("ens1v1", "up"),))
    facts = replace(host(pf, replace(first, **changes), shown), guests=(guest_with(**guest),))

    one = only(facts, ALL)

    assert one.inventories["SRIOV_NET_VF"][0].reserved == bool(reason)
    assert reason in one.traits[UNHEALTHY].fact if reason else UNHEALTHY not in one.traits
    assert offered(facts, rules(VFS)) == {"0000:81:00.0": {"CUSTOM_PCI_8086_1515": (2, 0)}}


def test_vfs_are_offered_where_their_driver_shows_no_interface_of_any_of_them() -> None:
    """As of InfiniBand without IPoIB, or where devlink switched Ethernet off (enable_eth) for vDPA."""
    pf, first, second = card(vfs=2)
    other = replace(second, driver="iavf", net_devices=(NetDevice("ens1v1", "up"),))

    assert offered(host(pf, first, second), ALL) == {"0000:81:00.0": {"SRIOV_NET_VF": (2, 0)}}
    assert offered(host(pf, first, other), ALL) == {"0000:81:00.0": {"SRIOV_NET_VF": (2, 0)}}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"driver": None}, "PF 0000:81:00.0 has no driver", id="driver gone"),
        pytest.param(
            {"driver": "vfio-pci", "net_devices": ()}, "0000:81:00.0 is bound to vfio-pci", id="PF given away"
        ),
        pytest.param(
            {"net_devices": (NetDevice("ens1", "down"),)}, "link of its PF is down \\(ens1\\)", id="link down"
        ),
        pytest.param(
            {"net_devices": (NetDevice("ens1", "testing"),)}, "link of its PF is down \\(ens1\\)", id="link in a test"
        ),
        pytest.param(
            {"net_devices": (NetDevice("eth0", "up", represents="pf0vf0"), NetDevice("ens1", "down"))},
            "link of its PF is down \\(ens1\\)",
            id="uplink down beside a representor",
        ),
        pytest.param({"power_state": "error"}, "power state of its PF 0000:81:00.0 as error", id="PCI error"),
    ],
)
def test_an_ill_pf_has_all_its_vfs_reserved_with_the_reason(changes: dict[str, object], reason: str) -> None:
    facts = host(*card(vfs=4, **changes))  # type: ignore[arg-type]

    one = only(facts, ALL)

    stock, why = one.inventories["SRIOV_NET_VF"]
    assert (stock.total, stock.reserved) == (4, 4)
    assert "4 of them unhealthy" in why.fact
    assert re.search(reason, one.traits[UNHEALTHY].fact)


@pytest.mark.parametrize(
    ("guest", "policy", "reserved"),
    [
        pytest.param({"ports": VF, "tenant": NOVAS}, ALL, 1, id="a VF in a port"),
        pytest.param({"netdevs": frozenset({"ens1v0"}), "tenant": NOVAS}, ALL, 1, id="by its interface"),
        pytest.param({"vdpa": frozenset({VDPA}), "tenant": NOVAS}, ALL, 1, id="by its vDPA device"),
        pytest.param({"ports": VF, "tenant": NOVAS}, OF_NETWORK, 1, id="of a rule with a network"),
        pytest.param({"tenant": NOVAS}, OF_NETWORK, 1, id="of such a rule, not as an interface"),
        pytest.param({"tenant": NOVAS}, ALL, 0, id="a device, which is allocated"),
        pytest.param({"ports": VF, "tenant": BOOKED}, ALL, 0, id="a port whose flavor names the class"),
        pytest.param({"ports": VF}, ALL, 0, id="of another program, which may allocate it"),
        pytest.param({"ports": VF, "tenant": NOVAS}, rules(VFS), 1, id="of a rule without a network"),
        pytest.param({"netdevs": frozenset({"ens1v0"}), "tenant": NOVAS}, rules(VFS), 1, id="so by its interface"),
        pytest.param({"tenant": NOVAS}, rules(VFS), 0, id="of such a rule, a device of an alias"),
    ],
)
def test_a_vf_that_neutron_gave_to_a_guest_is_not_on_offer(
    guest: dict[str, Any], policy: DevicePolicy, reserved: int
) -> None:
    pf, vf, *rest = (replace(one, driver=one.driver if one.is_pf else None) for one in card(vfs=8))
    vf = replace(vf, driver="ixgbevf", net_devices=(NetDevice("ens1v0", "up"),), vdpa=(VDPA,))
    has = guest_with(**{"pci": frozenset() if {"netdevs", "vdpa"} & guest.keys() else VF, **guest})

    facts = replace(host(pf, vf, *rest), guests=(has,))
    one = only(facts, policy)

    (stock,) = (stock for stock, _ in one.inventories.values())
    assert (stock.total, stock.reserved, UNHEALTHY in one.traits) == (8, reserved, bool(reserved))
    assert shape(facts, Policy(devices=policy), None).holdings.undecided == {}


@pytest.mark.parametrize(
    ("ports", "others", "named", "reserved"),
    [
        pytest.param("01", "", 1, {"81": 1}, id="two ports and one unit"),
        pytest.param("01", "", 2, {"81": 0}, id="two ports and two units"),
        pytest.param("0", "1", 1, {"81": 1}, id="a port beside the device that the flavor gives"),
        pytest.param("0", "1", None, {"81": 1}, id="a port beside a device of an alias"),
        pytest.param("0", "", 0, {"81": 1}, id="no unit"),
        pytest.param("0", "", "odd", {"81": 1}, id="an amount that nova cannot read either"),
        pytest.param("02", "", 1, {"81": 1, "83": 1}, id="ports on two cards, either of which may have the unit"),
    ],
)
def test_a_port_beyond_the_amount_that_its_flavor_names_is_not_on_offer(
    ports: str, others: str, named: int | str | None, reserved: dict[str, int]
) -> None:
    vfs = [at("0000:81:10.0"), at("0000:81:10.1"), at("0000:83:10.0")]
    has = [frozenset(vfs[int(one)] for one in some) for some in (ports, others)]
    flavor = {} if named is None else {"SRIOV_NET_VF": named if isinstance(named, int) else None}
    guest = guest_with(tenant=replace(NOVAS, overridden=flavor), pci=has[0] | has[1], ports=has[0])

    found = offered(replace(host(*card(vfs=4), *card("0000:83:00.0", 4)), guests=(guest,)), ALL)

    assert {bus: found[f"0000:{bus}:00.0"]["SRIOV_NET_VF"] for bus in reserved} == {
        bus: (4, amount) for bus, amount in reserved.items()
    }


def test_a_pf_is_not_offered_whole_while_a_guest_has_the_interface_of_its_vf() -> None:
    pf, vf = card(vfs=1)
    functions = (pf, replace(vf, net_devices=(NetDevice("ens1v0", "up"),)))
    facts = replace(host(*functions), guests=(guest_with(netdevs=frozenset({"ens1v0"})),))

    assert offered(facts, rules(DeviceRule(number=1, product_id="1528"))) == {
        "0000:81:00.0": {"CUSTOM_PCI_8086_1528": (1, 1)}
    }


@pytest.mark.parametrize(
    ("has", "step", "reserved"),
    [
        pytest.param("0000:81:10.1", (0x80, 1), 1, id="its second VF"),
        pytest.param("0000:82:10.4", (0x180, 2), 1, id="on the next bus"),
        pytest.param("0000:82:10.3", (0x180, 2), 0, id="between its VFs"),
        pytest.param("0000:81:00.3", (0x80, 1), 0, id="before its VFs"),
        pytest.param("0001:81:10.1", (0x80, 1), 0, id="in another domain"),
        pytest.param("0000:81:10.1", (0, 1), 0, id="a card that can have none now"),
    ],
)
@pytest.mark.parametrize("shown", [0, 1])
def test_a_pf_is_not_offered_whole_while_a_guest_has_a_vf_that_it_does_not_show(
    has: str, step: tuple[int, int] | None, reserved: int, shown: int
) -> None:
    """Listed or not, a function names no PF while it is taken away."""
    pf, vf = replace(card(vfs=1)[0], vfs=(), sriov=Sriov(63, step)), replace(card(vfs=1)[1], pf=None, address=at(has))
    facts = replace(host(pf, *(vf,) * shown), guests=(guest_with(pci=frozenset({at(has)})),))

    found = offered(facts, rules(DeviceRule(number=1, product_id="1528")))

    assert found == {"0000:81:00.0": {"CUSTOM_PCI_8086_1528": (1, reserved)}}


@pytest.mark.parametrize(("has", "reserved"), [("0000:81:10.0", 1), ("0000:82:10.0", 0)], ids=["its bus", "another"])
def test_a_guests_function_after_a_pf_may_be_its_vf_where_no_file_tells_their_place(has: str, reserved: int) -> None:
    pf = replace(card(vfs=1)[0], vfs=(), sriov=Sriov(63))
    facts = replace(host(pf), guests=(guest_with(pci=frozenset({at(has)})),))

    assert offered(facts, rules(DeviceRule(number=1, product_id="1528"))) == {
        "0000:81:00.0": {"CUSTOM_PCI_8086_1528": (1, reserved)}
    }


def test_a_vf_that_is_a_parent_of_mediated_devices_is_as_well_as_its_pf() -> None:
    """NVIDIA's cards from Ampere on: an mdev parent on each VF."""
    pf, vf = card("0000:84:00.0", 1, ids=PciIds("10de", "1528", 0x030200), net_devices=())
    policy = DevicePolicy(mdevs=(MdevRule(type="a"),))
    name = parent(vf).name

    assert offered(host(pf, vf, parents=(parent(vf, a=1),)), policy) == {name: {"VGPU": (1, 0)}}
    silent = replace(pf, driver=None)
    assert offered(host(silent, vf, parents=(parent(vf, a=1),)), policy) == {name: {"VGPU": (1, 1)}}


def test_a_pf_never_shows_what_its_vfs_are_and_is_not_missed() -> None:
    """A rule of nothing but the vendor means the PF too; a VF that was made no vGPU on purpose is not kept for it."""
    attribute = "nvidia/current_vgpu_type"
    pf, one, other = card(vfs=2, vendor="10de", net_devices=())
    one = replace(one, ids=NVIDIA, attributes=((attribute, "1428"),))
    other = replace(other, ids=NVIDIA, attributes=((attribute, "0"),))
    policy = rules(DeviceRule(number=1, vendor_id="10de", class_attribute=attribute))
    before = standing("0000:81:00.0", CUSTOM_NVIDIA_1428=Inventory(total=2))

    assert offered(host(pf, one, other), policy, before) == {"0000:81:00.0": {"CUSTOM_NVIDIA_1428": (1, 0)}}


def test_what_a_person_reserved_counts_beside_what_is_ill_as_it_names_no_device() -> None:
    pf, first, second, *rest = card(vfs=5)
    ill = (pf, *(replace(one, power_state="error") for one in (first, second)), *rest)
    before = standing("0000:81:00.0", SRIOV_NET_VF=Inventory(total=5, reserved=2))

    during = only(host(*ill), ALL, before)
    stock, why = during.inventories["SRIOV_NET_VF"]
    after = standing("0000:81:00.0", frozenset(during.traits), SRIOV_NET_VF=stock)
    more = only(host(pf, *ill[1:3], replace(rest[0], power_state="error"), *rest[1:]), ALL, after)

    assert (stock.reserved, why.fact.partition("; ")[2]) == (4, "2 of them unhealthy; 2 reserved in placement")
    assert more.inventories["SRIOV_NET_VF"][0].reserved == 5
    assert offered(host(*card(vfs=5)), ALL, after) == {"0000:81:00.0": {"SRIOV_NET_VF": (5, 2)}}


@pytest.mark.parametrize(
    ("held", "stands", "marks", "reserved"),
    [
        pytest.param(False, 0, (), 0, id="never used"),
        pytest.param(True, 0, (), 1, id="a guest has it"),
        pytest.param(False, 1, (), 1, id="a guest had it: only a person gives it back"),
        pytest.param(False, 1, (UNHEALTHY,), 0, id="it was ill, and no guest had it"),
    ],
)
def test_a_one_time_device_is_reserved_once_a_guest_has_it(
    held: bool, stands: int, marks: tuple[str, ...], reserved: int
) -> None:
    guest = guest_with(pci=frozenset({at("0000:05:00.0")}))
    facts = replace(host(plain()), guests=(guest,) if held else ())
    policy = rules(DeviceRule(number=1, product_id="1533", one_time_use=True))
    before = standing("0000:05:00.0", frozenset(marks), CUSTOM_PCI_8086_1533=Inventory(total=1, reserved=stands))

    assert offered(facts, policy, before) == {"0000:05:00.0": {"CUSTOM_PCI_8086_1533": (1, reserved)}}
    assert "HW_PCI_ONE_TIME_USE" in only(facts, policy).traits


@pytest.mark.parametrize(
    ("bandwidth", "net", "stands", "expected"),
    [
        pytest.param(Bandwidth(), (NetDevice("e", "up", 25_000),), None, 25_000_000, id="its link"),
        pytest.param(Bandwidth(7, 7), (), None, 7, id="the rule's number"),
        pytest.param(Bandwidth(), (NetDevice("e", "down"),), 9, 9, id="no speed now: what stands"),
        pytest.param(Bandwidth(), (), None, None, id="no speed, nothing stands"),
        pytest.param(
            Bandwidth(),
            (NetDevice("eth0", "up", represents="pf0vf0"), NetDevice("ens1", "up", 1_000)),
            10_000_000,
            1_000_000,
            id="the uplink's, beside a representor without a speed",
        ),
    ],
)
def test_bandwidth_of_a_pf(
    bandwidth: Bandwidth, net: tuple[NetDevice, ...], stands: int | None, expected: int | None
) -> None:
    facts = host(*card(net_devices=net))
    stock = (
        {"NET_BW_EGR_KILOBIT_PER_SEC": Inventory(total=stands), "NET_BW_IGR_KILOBIT_PER_SEC": Inventory(total=stands)}
        if stands
        else {}
    )
    policy = rules(DeviceRule(number=1, product_id="1515", network=RuleNetwork(bandwidth=bandwidth)))

    found = offered(facts, policy, standing("0000:81:00.0", frozenset(), **stock))["0000:81:00.0"]

    totals = {total for name, (total, _) in found.items() if name.startswith("NET_BW")}
    assert totals == ({expected} if expected else set())


@pytest.mark.parametrize(
    ("name", "neutrons"),
    [
        ("host:NIC Switch agent:ens1", True),
        ("host.example:NIC Switch agent:ens1", True),
        ("host:NIC Switch agent:ens10", False),
        ("host:Open vSwitch agent:br-ens1", False),
    ],
)
@pytest.mark.parametrize(
    "policy",
    [
        DevicePolicy(discover_all=True, link_bandwidth=True),
        rules(DeviceRule(number=1, product_id="1515", network=RuleNetwork(bandwidth=Bandwidth(7, 7)))),
    ],
)
def test_bandwidth_that_neutrons_sriov_agent_reports_of_the_same_interface_is_left_out_and_said(
    name: str, neutrons: bool, policy: DevicePolicy
) -> None:
    facts = host(*card(net_devices=(NetDevice("ens1", "up", 25_000),)))
    root = ObservedProvider(uuid="r", generation=1, provider=Provider(name="host"))
    stock = {"NET_BW_EGR_KILOBIT_PER_SEC": Inventory(total=1), "NET_BW_IGR_KILOBIT_PER_SEC": Inventory(total=1)}
    port = ObservedProvider(uuid="n", generation=1, provider=Provider(name=name, parent="agent", inventories=stock))
    observed = ObservedTree((root, port))

    one = only(facts, policy, BySuffix(observed))
    said = shape(facts, Policy(layout="devices", devices=policy), observed).holdings.twice

    assert len(one.inventories) == (1 if neutrons else 3)
    assert (one.twice, said) == ((said[0], said) if neutrons else ("", ()))
    assert neutrons == (f"0000:81:00.0: its bandwidth is left out, as {name} has that of ens1" in one.twice)


def test_the_class_of_a_vf_can_come_from_its_vendors_driver() -> None:
    """One rule for all vGPUs of NVIDIA's vendor-specific VFIO framework; a VF without a type is not offered."""
    kinds = ("1428", "1414", "1428", "0")
    pf, *vfs = card(vfs=4, ids=PciIds("10de", "1528", 0x030200), net_devices=())
    typed = [
        replace(vf, ids=NVIDIA, attributes=(("nvidia/current_vgpu_type", kind),))
        for vf, kind in zip(vfs, kinds, strict=True)
    ]
    policy = rules(
        DeviceRule(number=1, vendor_id="10de", product_id="1515", class_attribute="nvidia/current_vgpu_type")
    )

    assert offered(host(pf, *typed), policy) == {
        "0000:81:00.0": {"CUSTOM_NVIDIA_1414": (1, 0), "CUSTOM_NVIDIA_1428": (2, 0)}
    }


def test_vgpus_are_those_that_exist_and_those_that_can_be_made() -> None:
    card_ = gpu()
    mdevs = (Mdev("u1", "a", "pci_0000_84_00_0"), Mdev("u2", "other", "pci_0000_84_00_0"))
    facts = host(card_, parents=(parent(card_, a=15, b=8),), mdevs=mdevs)

    assert offered(facts, DevicePolicy(mdevs=(MdevRule(type="a"),))) == {"pci_0000_84_00_0": {"VGPU": (16, 0)}}


def test_max_instances_caps_card_by_card_and_never_below_what_exists() -> None:
    one, other = gpu("0000:84:00.0"), gpu("0000:85:00.0")
    mdevs = tuple(Mdev(f"u{n}", "a", "pci_0000_85_00_0") for n in range(3))
    facts = host(one, other, parents=(parent(one, a=16), parent(other, a=13)), mdevs=mdevs)

    assert offered(facts, DevicePolicy(mdevs=(MdevRule(type="a", max_instances=10),))) == {
        "pci_0000_84_00_0": {"VGPU": (7, 0)},
        "pci_0000_85_00_0": {"VGPU": (3, 0)},
    }


def test_an_mdev_made_by_hand_takes_the_place_of_none_that_may_be_claimed() -> None:
    """Of another type with the same class, nova gives none; a guest's own counts, whatever the configuration was."""
    one, other = gpu("0000:84:00.0"), gpu("0000:85:00.0")
    by_hand = Mdev("u1", "a", "pci_0000_85_00_0")
    facts = host(one, other, parents=(parent(one, a=16), parent(other, a=15)), mdevs=(by_hand,))
    limited = DevicePolicy(mdevs=(MdevRule(type="a", max_instances=1),))
    stands = standing("pci_0000_84_00_0", VGPU=Inventory(total=1))
    has = replace(facts, guests=(guest_with(mdevs=frozenset({"u1"})),))

    assert offered(facts, limited) == {"pci_0000_85_00_0": {"VGPU": (1, 0)}}
    assert offered(facts, limited, stands) == {"pci_0000_84_00_0": {"VGPU": (1, 0)}}
    assert offered(has, limited, stands) == {"pci_0000_85_00_0": {"VGPU": (1, 0)}}


@pytest.mark.parametrize(("guests", "total"), [((), 3), (("u1",), 4), (("u2",), 3)])
def test_an_mdev_of_another_type_than_its_cards_counts_only_while_a_guest_has_it(
    guests: tuple[str, ...], total: int
) -> None:
    """Nova gives none of another type, though both types have one class."""
    one = gpu()
    mdevs = (Mdev("u1", "b", "pci_0000_84_00_0"), Mdev("u2", "a", "pci_0000_84_00_0"))
    facts = host(one, parents=(parent(one, a=2, b=0),), mdevs=mdevs)
    facts = replace(facts, guests=tuple(guest_with(each, mdevs=frozenset({each})) for each in guests))
    both = (MdevRule(type="a"), MdevRule(type="b", addresses=frozenset({"x"})))

    assert offered(facts, DevicePolicy(mdevs=both)) == {"pci_0000_84_00_0": {"VGPU": (total, 0)}}


def test_a_parent_that_is_not_on_pci_is_known_by_its_name_and_has_no_cell() -> None:
    facts = host(parents=(replace(parent(gpu(), **{"mtty-1": 24}), name="mtty_mtty", address=None),))

    one = only(facts, DevicePolicy(mdevs=(MdevRule(type="mtty-1", addresses=frozenset({"mtty_mtty"})),)))

    assert (one.suffix, one.cell) == ("mtty_mtty", None)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        pytest.param(SevKernel(True, False, False), {"amd_sev": 100}, id="SEV"),
        pytest.param(SevKernel(True, True, False), {"amd_sev": 100, "amd_sev_es": 15}, id="and SEV-ES"),
        pytest.param(
            SevKernel(True, True, True), {"amd_sev": 100, "amd_sev_snp": 15}, id="SEV-SNP takes SEV-ES's slots"
        ),
        pytest.param(SevKernel(False, False, False), {}, id="switched off"),
        pytest.param(None, {"amd_sev": 100}, id="the kernel does not tell: what libvirt does"),
    ],
)
def test_memory_encryption_contexts(kernel: SevKernel | None, expected: dict[str, int]) -> None:
    sev = replace(PC.encryption, sev_guests=100, sev_es_guests=15, launch_security=frozenset({"sev-snp"}))
    hypervisor = offering(replace(PC, encryption=sev), versions=Versions(10_005_000, 8_002_000))
    facts = replace(host(), cpu=replace(FACTS.cpu, sev=kernel), hypervisor=hypervisor)

    found = {
        one.suffix: one.inventories["MEM_ENCRYPTION_CONTEXT"][0] for one in device_stock(facts, DevicePolicy(), NOWHERE)
    }

    assert {suffix: stock.total for suffix, stock in found.items()} == expected
    assert {stock.max_unit for stock in found.values()} <= {1}


def test_slots_that_are_all_set_aside_for_sev_es_are_offered() -> None:
    sev = replace(PC.encryption, sev_es_guests=509)
    hypervisor = offering(replace(PC, encryption=sev), versions=Versions(10_005_000, 8_002_000))
    facts = replace(host(), cpu=replace(FACTS.cpu, sev=SevKernel(True, True, False)), hypervisor=hypervisor)

    assert [
        (one.suffix, one.inventories["MEM_ENCRYPTION_CONTEXT"][0].total)
        for one in device_stock(facts, DevicePolicy(), NOWHERE)
    ] == [("amd_sev_es", 509)]


@pytest.mark.parametrize(
    ("offered_by_libvirt", "passthrough", "kernel", "configured", "expected"),
    [
        pytest.param(True, True, 63, None, 63, id="the kernel's number"),
        pytest.param(True, True, None, 63, 63, id="the kernel does not tell"),
        pytest.param(True, True, 63, 1, 1, id="less is wanted"),
        pytest.param(True, True, 63, 100, 63, id="never more than the kernel says"),
        pytest.param(True, True, None, None, None, id="nobody tells"),
        pytest.param(True, True, 63, 0, None, id="none is wanted"),
        pytest.param(True, False, 63, None, None, id="guests do not see the host's own CPU"),
        pytest.param(False, True, 63, None, None, id="libvirt or QEMU cannot"),
    ],
)
def test_intel_tdx_is_offered_as_nova_34_says(
    offered_by_libvirt: bool, passthrough: bool, kernel: int | None, configured: int | None, expected: int | None
) -> None:
    """As in nova (TestLibvirtTDXSupported in tests/unit/virt/libvirt/test_host.py), which says 100 where 63 are."""
    offered = offering(replace(PC, encryption=replace(PC.encryption, tdx=offered_by_libvirt)))
    facts = replace(host(), cpu=replace(FACTS.cpu, tdx_guests=kernel), hypervisor=offered)

    found = device_stock(facts, DevicePolicy(tdx=passthrough, tdx_guests=configured), NOWHERE)

    assert [(one.suffix, one.inventories["MEM_ENCRYPTION_CONTEXT"][0]) for one in found] == (
        [("intel_tdx", Inventory(total=expected, max_unit=1))] if expected else []
    )
    assert all(one.traits.keys() == {"HW_CPU_X86_INTEL_TDX"} and one.novas for one in found)


@pytest.mark.parametrize(
    ("stands", "configured", "expected"),
    [
        pytest.param(63, None, [63], id="what placement has"),
        pytest.param(63, 1, [1], id="less is wanted"),
        pytest.param(63, 0, [], id="none is wanted, and nothing stays"),
        pytest.param(63, 80, [63], id="more is wanted"),
        pytest.param(None, 8, [8], id="an option alone has a number, as in nova"),
        pytest.param(None, None, [], id="nothing has a number"),
    ],
)
@pytest.mark.parametrize("suffix", ["intel_tdx", ""], ids=["on its provider", "on a flat root"])
def test_where_a_container_hides_the_number_of_tdx_guests_it_stays_as_placement_has_it(
    stands: int | None, configured: int | None, expected: list[int], suffix: str
) -> None:
    offered = offering(replace(PC, encryption=replace(PC.encryption, tdx=True)))
    facts = replace(host(), cpu=replace(FACTS.cpu, tdx_hidden=True), hypervisor=offered)
    stock = {"MEM_ENCRYPTION_CONTEXT": Inventory(total=stands, max_unit=1)} if stands else {}
    root = Provider(name="host", inventories=stock)
    on_root = BySuffix(ObservedTree((ObservedProvider(uuid="r", generation=1, provider=root),)))
    policy = DevicePolicy(tdx=True, tdx_guests=configured)

    found = device_stock(facts, policy, standing(suffix, frozenset(), **stock) if suffix else on_root)

    assert [one.inventories["MEM_ENCRYPTION_CONTEXT"][0].total for one in found] == expected
    assert ("stays as placement has it" in " ".join(hidden_stock(facts, policy))) == (configured != 0)


def test_present_names_every_provider_that_the_hardware_could_have() -> None:
    facts = host(plain(), parents=(MdevParent("mtty_mtty", None, ()),))

    assert present(facts) == {"0000:05:00.0", "pci_0000_05_00_0", "mtty_mtty"}


def test_rules_that_are_about_nothing_here_are_told_as_slips_of_the_pen() -> None:
    one = gpu()
    facts = host(plain(), one, parents=(parent(one, a=2),))
    used, beside = DeviceRule(number=1, product_id="1533"), DeviceRule(number=2, vendor_id="8086", product_id="1533")
    policy = DevicePolicy(report=True, rules=(used, beside), mdevs=(MdevRule(type="a"), MdevRule(type="b")))

    assert idle(facts, policy) == (
        "[pci] device_spec rule 2 applies to no device of this host: rule 1 matches 0000:05:00.0 first",
        "[devices] enabled_mdev_types has b, which no card of this host can make: correct it (they make a) or load "
        "the card's driver",
    )
    assert "has no effect without report_in_placement" in idle(facts, DevicePolicy(rules=(used,)))[-1]
    assert idle(facts, DevicePolicy()) == ()


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        pytest.param(
            {"product_id": "ffff"}, "no device fits its devname, address, vendor_id and product_id", id="no such device"
        ),
        pytest.param({"address": "0000:06:00.0"}, "0000:06:00.0 is a bridge, which cannot be offered", id="a bridge"),
        pytest.param(
            {"product_id": "1515", "remote_managed": "true"},
            "remote_managed needs the serial number of the card, and libvirt shows none in the vital product data "
            "(VPD) of 0000:81:00.0 and of its VF 0000:81:10.0: look at virsh nodedev-dumpxml",
            id="a card without a number",
        ),
    ],
)
def test_a_rule_about_nothing_here_is_told_with_its_reason(record: dict[str, object], reason: str) -> None:
    facts = host(*card(), *card("0000:82:00.0", 0), plain("0000:06:00.0", ids=PciIds("8086", "1533", BRIDGE)))
    policy = rules(parse_rule({"address": "0000:81:00.0", "product_id": "1528"}, 1), parse_rule(record, 2))

    assert idle(facts, policy) == (f"[pci] device_spec rule 2 applies to no device of this host: {reason}",)


NEUTRONS = {"physical_network": "net"}


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param([NEUTRONS], {}, id="everything"),
        pytest.param([{"address": "0000:81:00.0", **NEUTRONS}], {}, id="the PF's address"),
        pytest.param([{"address": "*:81:*.*", **NEUTRONS}], {}, id="a glob"),
        pytest.param([{"vendor_id": "8086", **NEUTRONS}], {}, id="the vendor"),
        pytest.param([{"product_id": one, **NEUTRONS} for one in ("1515", "1528")], {}, id="a rule for each kind"),
        pytest.param(
            [{"product_id": "1515", **NEUTRONS}, {"product_id": "1528"}],
            {"0000:81:00.0": {"CUSTOM_PCI_8086_1528": (1, 0)}},
            id="VFs of Neutron, and the PF for flavors",
        ),
        pytest.param(
            [{"product_id": "1528", **NEUTRONS}, {"product_id": "1515"}],
            {"0000:81:00.0": {"CUSTOM_PCI_8086_1515": (2, 0)}},
            id="the PF for Neutron, and VFs for flavors",
        ),
        pytest.param(
            [{"address": "0000:81:10.0", **NEUTRONS}, {"product_id": "1515"}],
            {"0000:81:00.0": {"CUSTOM_PCI_8086_1515": (1, 0)}},
            id="one VF for Neutron, and one for flavors",
        ),
        pytest.param([{"product_id": "1515", "one_time_use": "false", **NEUTRONS}], {}, id="a key for PFs alone"),
        pytest.param([{"product_id": "1515", "physical_network": "---"}], {}, id="a network without a trait"),
        pytest.param([{"vendor_id": "8086", "remote_managed": "true", **NEUTRONS}], {}, id="of a SmartNIC"),
    ],
)
def test_neutrons_rules_are_accepted_as_in_nova_and_left_out_where_they_do_not_fit(
    records: list[dict[str, object]], expected: dict[str, dict[str, tuple[int, int]]]
) -> None:
    functions = [replace(one, serial_number="MT21") for one in card()]
    policy = rules(*(parse_rule(one, number) for number, one in enumerate(records, 1)))

    assert offered(host(*functions), policy) == expected
    told = idle(host(*functions), policy)
    assert len(told) == 1
    assert "is left to Neutron and is not reported, as in nova" in told[0]


def test_a_rule_that_offers_the_hosts_own_interfaces_is_named_and_offers_them_all_the_same() -> None:
    ports = [
        plain(f"0000:19:00.{n}", net_devices=(NetDevice(f"eno{n}", "up", carries_host_traffic=n in (0, 2)),))
        for n in range(4)
    ]
    others = plain("0000:20:00.0", net_devices=(NetDevice("ens1", "up", carries_host_traffic=True),))
    facts = host(*ports, others, *card(net_devices=(NetDevice("ens2", "up", carries_host_traffic=True),)))
    policy = rules(parse_rule({"address": "0000:19:*.*"}, 1), replace(VFS, number=2))

    assert idle(facts, policy) == (
        "[pci] device_spec rule 1 offers 0000:19:00.0 (eno0), 0000:19:00.2 (eno2), whose interfaces carry this host's "
        "own traffic: a guest that gets such a device takes it from the host. Leave it out of the rule, as by "
        "naming the addresses of the others",
    )
    assert offered(facts, policy).keys() == {"0000:81:00.0", *(f"0000:19:00.{n}" for n in range(4))}
    assert idle(facts, DevicePolicy(discover_all=True)) == ()


@pytest.mark.parametrize("record", [{"devname": "ens1"}, {"devname": "ens1", "vendor_id": "1", "product_id": "1"}])
def test_a_card_that_a_rule_without_effect_names_is_not_discovered(record: dict[str, object]) -> None:
    quiet = DevicePolicy(rules=parse_rules([json.dumps(record | NEUTRONS)], report=False), discover_all=True)

    assert offered(host(*card()), quiet) == {}
    assert offered(host(*card(net_devices=(NetDevice("ens2", "up"),))), quiet) == {
        "0000:81:00.0": {"SRIOV_NET_VF": (2, 0)}
    }


@pytest.mark.parametrize(("record", "refused"), [({"address": "0000:81:00.0"}, True), ({"vendor_id": "8086"}, False)])
def test_a_remote_managed_pf_is_refused_by_its_address_though_nothing_is_reported(
    record: dict[str, object], refused: bool
) -> None:
    """As nova's ``PciDeviceInvalidPFRemoteManaged``, which stops nova-compute at its start."""
    quiet = DevicePolicy(rules=parse_rules([json.dumps(record | {"remote_managed": "true"})], report=False))

    if refused:
        with pytest.raises(PolicyError, match="which is no VF"):
            device_stock(host(*card()), quiet, NOWHERE)
    else:
        assert offered(host(*card()), quiet) == {}


def test_a_listed_card_that_cannot_make_its_type_is_told_with_those_that_can() -> None:
    one, other = gpu(), gpu("0000:85:00.0")
    facts = host(one, other, parents=(parent(one, a=2), parent(other, b=2)))
    listed = frozenset({"pci_0000_84_00_0", "0000:85:00.0", "0000:99:00.0"})

    assert idle(facts, DevicePolicy(mdevs=(MdevRule(type="a", addresses=listed), MdevRule(type="b")))) == (
        "[mdev_a] device_addresses has 0000:85:00.0, which is no card of this host that can make a: the cards that can "
        "are 0000:84:00.0",
        "[mdev_a] device_addresses has 0000:99:00.0, which is no card of this host that can make a: the cards that can "
        "are 0000:84:00.0",
    )


def test_hidden_are_vfs_that_a_remote_managed_rule_is_about_and_no_other_has() -> None:
    pf, vf, other = card("0000:81:00.0", 2)
    remote, usual = (DeviceRule(number=n, product_id="1515", remote_managed=n == 1) for n in (1, 2))
    found = [find_rules(host(pf, vf, other).devices, rules(*each)).hidden for each in ((remote,), (remote, usual))]

    assert found == [{vf.address: remote, other.address: remote}, {}]
