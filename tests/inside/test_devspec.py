"""Rules of [pci] device_spec beside nova's own matcher of them."""

import pytest
from nova.compute.pci_placement_translator import get_resource_class, get_traits
from nova.pci.devspec import PciDeviceSpec

from drivers.devices.match import find_rules
from drivers.facts import Devices, PciFunction, PciIds
from drivers.pci import parse_pci_address
from drivers.policy import DevicePolicy
from drivers.rules import parse_rule

SMART_NIC: dict[str, object] = {
    "vendor_id": "8086",
    "product_id": "1515",
    "physical_network": None,
    "remote_managed": "true",
}


@pytest.mark.parametrize("serial", [None, "MT2113X00000"])
def test_a_remote_managed_vf_is_matched_where_nova_matches_it(serial: str | None) -> None:
    place, pf = parse_pci_address("0000:81:10.0"), parse_pci_address("0000:81:00.0")
    vf = PciFunction(address=place, ids=PciIds("8086", "1515"), pf=pf, serial_number=serial)
    as_nova_sees_it = {
        "vendor_id": vf.ids.vendor,
        "product_id": vf.ids.product,
        "address": str(place),
        "parent_addr": str(pf),
        "capabilities": {"vpd": {"card_serial_number": serial}} if serial else {},
    }

    novas = PciDeviceSpec(dict(SMART_NIC)).match(as_nova_sees_it)
    policy = DevicePolicy(report=True, rules=(parse_rule(SMART_NIC, 1),))

    assert novas is (serial is not None)
    assert bool(find_rules(Devices(functions=(vf,)), policy).rules) is novas


@pytest.mark.parametrize("text", ["fast, slow", "HW_NIC_SRIOV, HW_NIC_SRIOV", "a  b/c", " custom_x,CUSTOM_y"])
def test_the_class_and_the_traits_of_a_rule_have_the_names_that_novas_aliases_ask_for(text: str) -> None:
    first = text.split(",", maxsplit=1)[0]
    rule = parse_rule({"traits": text, "resource_class": first}, 1)

    assert (rule.resource_class, rule.traits) == (get_resource_class(first, "", ""), get_traits(text))
