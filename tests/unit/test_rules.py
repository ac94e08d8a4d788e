"""The text of ``[pci] device_spec`` and of vGPU options into rules."""

import json
from dataclasses import replace
from typing import Any

import pytest

from agent.settings.host_policy import parse_mdev_rules, parse_page, parse_rules
from drivers.pci import PciAddress
from drivers.policy import Bandwidth, DevicePolicy, DeviceRule, MdevRule, ReservedPages, RuleNetwork, RulePlace
from drivers.rules import matches, parse_rule, rule_attributes
from hardware import card, plain
from reportclient.ownership import MARKER, SET
from reportclient.reserve import HELD, KEEP, keeps
from reportclient.tree import MAX_INT


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param({}, True, id="nothing said: everything"),
        pytest.param({"vendor_id": "8086", "product_id": "1533"}, True, id="ids"),
        pytest.param({"vendor_id": "0x8086"}, True, id="ids with 0x"),
        pytest.param({"vendor_id": "*", "product_id": "1528"}, False, id="another product"),
        pytest.param({"vendor_id": "15b3", "product_id": "1533"}, False, id="another vendor"),
        pytest.param({"address": "0000:05:00.0"}, True, id="address"),
        pytest.param({"address": "5:0.0"}, True, id="short address"),
        pytest.param({"address": "05:00.1"}, False, id="another function"),
        pytest.param({"address": "*:05:*.*"}, True, id="glob"),
        pytest.param({"address": ":00."}, True, id="what is left out is any"),
        pytest.param({"address": "0000:05:00."}, True, id="any function"),
        pytest.param({"address": {"bus": "0[4-6]"}}, True, id="regular expression"),
        pytest.param({"address": {"bus": "0[67]"}}, False, id="another expression"),
        pytest.param(
            {"address": {"domain": ".*", "bus": "05", "slot": "0", "function": "[0-2]"}}, True, id="from its start"
        ),
    ],
)
def test_which_functions_a_rule_is_about(record: dict[str, Any], expected: bool) -> None:
    assert matches(parse_rule(record, 1), plain("0000:05:00.0")) is expected


@pytest.mark.parametrize(
    "address", ["0000:81:00.0", {"domain": "0000", "bus": "81", "slot": "00", "function": "0"}], ids=["text", "table"]
)
def test_the_one_address_of_a_pf_means_its_vfs_and_those_of_no_other(address: object) -> None:
    rule = parse_rule({"address": address}, 1)

    assert [matches(rule, card(pf, 1)[1]) for pf in ("0000:81:00.0", "0000:82:00.0")] == [True, False]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        pytest.param({"devname": "eth0"}, "by devname", id="netdev name"),
        pytest.param({"remote_managed": "perhaps"}, "'perhaps' as remote_managed", id="SmartNIC"),
        pytest.param({"vendor_id": "xyz"}, "'xyz' as its vendor_id", id="vendor"),
        pytest.param({"vendor_id": 8086}, "8086 as its vendor_id, which must be a string", id="a number"),
        pytest.param({"product_id": "12345"}, "which must be four hex digits", id="product"),
        pytest.param({"address": "0000:zz:00.0"}, "'zz' as the bus", id="address"),
        pytest.param({"address": "0000:05:20.0"}, "which must be hex digits, at most 1F", id="slot too high"),
        pytest.param({"address": "0:0:0:0.0"}, "more than domain", id="too many parts"),
        pytest.param({"address": {"bus": "["}}, "no regular expression", id="expression"),
        pytest.param({"address": {"device": "0"}}, "device in its address", id="unknown part"),
        pytest.param({"address": 5}, "neither a string nor an object", id="address of another kind"),
        pytest.param({"address": {"bus": "81", "slot": 1}}, "neither a string nor", id="a pattern of another kind"),
        pytest.param({"one_time_use": "perhaps"}, "'perhaps' as one_time_use", id="switch"),
        pytest.param({"resource_class": "!!!"}, "no valid name for placement can be made", id="class"),
        pytest.param(
            {"resource_class": "X" * 209},
            "of 216 characters, but a class may have at most 215",
            id="class without a trait",
        ),
        pytest.param(
            {"vendor_id": "10de", "resource_class_attribute": "x" * 198}, "at most 215", id="file of a long name"
        ),
        pytest.param({"resource_class": "VCPU"}, "VCPU, which is not a class for devices", id="a host's class"),
        pytest.param(
            {"resource_class": "NET_BW_EGR_KILOBIT_PER_SEC"},
            "which is not a class for devices",
            id="a link's bandwidth",
        ),
        pytest.param(
            {"vendor_id": "10de", "resource_class": "X", "resource_class_attribute": "x"},
            "both resource_class and resource_class_attribute",
            id="two classes",
        ),
        pytest.param({"traits": "a" * 300}, "no valid name for placement can be made", id="trait"),
        pytest.param({"traits": MARKER}, f"has {MARKER}, by which this agent marks", id="our mark"),
        pytest.param({"traits": f"{SET}CUSTOM_A"}, f"has {SET}CUSTOM_A, by which", id="our mark of a trait"),
        pytest.param({"traits": "device_held,fast"}, f"has {HELD}, by which this agent", id="our other mark"),
        pytest.param({"traits": f"{KEEP}3_CUSTOM_A"}, f"has {KEEP}3_CUSTOM_A, by which", id="our memory"),
        pytest.param(
            {"resource_class_attribute": "nvidia/current_vgpu_type"},
            "resource_class_attribute but no vendor_id: add",
            id="whose file",
        ),
        pytest.param(
            {"vendor_id": "10de", "resource_class_attribute": "../x"}, "below the device's folder", id="way out"
        ),
        pytest.param({"bandwidth": "fast"}, "'fast', which must be link, or kbit/s", id="bandwidth"),
        pytest.param({"bandwidth": 0}, "0, which must be link, or kbit/s from 1", id="no bandwidth"),
        pytest.param({"bandwidth": 2**31}, "kbit/s from 1 to 2147483647", id="more than placement takes"),
        pytest.param({"bandwidth": {"egress": 1}}, "does not name egress and ingress", id="half a bandwidth"),
    ],
)
def test_what_cannot_be_meant_is_refused(record: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_rule(record, 1)


@pytest.mark.parametrize(
    "record",
    [
        pytest.param({"devname": "eth0", "physical_network": "net"}, id="netdev name"),
        pytest.param({"resource_class": "VCPU"}, id="a host's class"),
        pytest.param({"resource_class": "X" * 300}, id="a class too long"),
        pytest.param({"resource_class": 5}, id="a class that is a number"),
        pytest.param({"traits": "a" * 300}, id="a trait too long"),
        pytest.param({"traits": ["A"]}, id="a list of traits"),
        pytest.param({"traits": "CUSTOM_DEVICE_HELD"}, id="a mark of ours"),
        pytest.param({"physical_network": "---"}, id="a network without letters"),
        pytest.param({"remote_managed": "perhaps"}, id="nova reads it as false"),
        pytest.param({"resource_class_attribute": "../x", "bandwidth": "fast"}, id="our own keys"),
    ],
)
def test_a_rule_that_counts_for_nothing_may_have_what_only_a_report_refuses(record: dict[str, Any]) -> None:
    (rule,) = parse_rules([json.dumps(record)], report=False)

    assert rule == replace(DeviceRule(number=1), place=RulePlace(interface=record.get("devname")))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        pytest.param({"address": "0000:11:0*.*"}, "'0\\*' as the slot", id="address"),
        pytest.param({"vendor_id": "xyz"}, "'xyz' as its vendor_id", id="vendor"),
        pytest.param({"managed": "perhaps"}, "'perhaps' as managed", id="managed"),
        pytest.param({"live_migratable": "perhaps"}, "'perhaps' as live_migratable", id="live migration"),
        pytest.param({"devname": "eth0", "address": "05:00.0"}, "both devname and address", id="two places"),
        pytest.param({"devname": 5}, "5 as its devname, which must be a string", id="a number"),
    ],
)
def test_a_rule_that_counts_for_nothing_is_refused_where_nova_does_not_start(
    record: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        parse_rules([json.dumps(record)], report=False)


def test_each_key_of_a_rule_counts() -> None:
    record = {
        "vendor_id": "0x8086",
        "product_id": "533",
        "address": "FFFF:ff:1f.7",
        "traits": "fast, HW_NIC_SRIOV,",
        "physical_network": "net",
        "bandwidth": "link",
        "one_time_use": "No",
        "live_migratable": True,
        "remote_managed": 1,
    }

    rule = parse_rule(record | {"resource_class": "nic"}, 7)

    assert rule == DeviceRule(
        number=7,
        vendor_id="8086",
        product_id="0533",
        place=RulePlace(address=rule.place.address, exact=PciAddress(0xFFFF, 0xFF, 0x1F, 7)),
        resource_class="CUSTOM_NIC",
        traits=frozenset({"CUSTOM_FAST", "CUSTOM__HW_NIC_SRIOV"}),
        network=RuleNetwork(name="net", bandwidth=Bandwidth()),
        one_time_use=False,
        live_migratable=True,
        remote_managed=True,
    )
    by_file = parse_rule(record | {"resource_class_attribute": "nvidia/type"}, 7)
    assert by_file == replace(rule, resource_class=None, class_attribute="nvidia/type")


@pytest.mark.parametrize(
    ("words", "means"), [("true 1 yes on t y TRUE", True), ("false 0 no off f n False", False)], ids=["on", "off"]
)
def test_a_switch_is_read_as_in_nova(words: str, means: bool) -> None:
    assert {parse_rule({"one_time_use": word}, 1).one_time_use for word in words.split(" ")} == {means}


def test_an_empty_devname_is_none() -> None:
    assert parse_rule({"devname": "", "vendor_id": "8086"}, 1) == DeviceRule(number=1, vendor_id="8086")


def test_rules_tell_the_files_of_each_vendors_driver_that_must_be_read() -> None:
    """Without reporting no rule counts, and none of them is read."""
    first, second, other, plain_one = (
        parse_rule(record, 1)
        for record in (
            {"vendor_id": "10de", "resource_class_attribute": "nvidia/type"},
            {"vendor_id": "10de", "resource_class_attribute": "nvidia/size"},
            {"vendor_id": "1002", "resource_class_attribute": "gim/type"},
            {"vendor_id": "8086"},
        )
    )
    policy = DevicePolicy(
        report=True, rules=(first, second, other, plain_one, DeviceRule(number=1, class_attribute="x"))
    )

    assert rule_attributes(policy) == {
        "10de": frozenset({"nvidia/type", "nvidia/size"}),
        "1002": frozenset({"gim/type"}),
    }
    assert rule_attributes(replace(policy, report=False)) == {}


def test_the_longest_class_fits_a_trait_with_the_largest_amount() -> None:
    name = f"CUSTOM_{'X' * 208}"

    assert parse_rule({"resource_class": name}, 1).resource_class == name
    assert {len(trait) for trait in keeps({name: MAX_INT})} == {255}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("link", Bandwidth(), id="link"),
        pytest.param(1000, Bandwidth(1000, 1000), id="one number"),
        pytest.param({"egress": 1, "ingress": 2**31 - 1}, Bandwidth(1, 2**31 - 1), id="least and most"),
        pytest.param({"egress": 10, "ingress": "link"}, Bandwidth(10, None), id="each its own"),
    ],
)
def test_bandwidth(value: object, expected: Bandwidth) -> None:
    assert parse_rule({"bandwidth": value}, 1).network.bandwidth == expected


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        pytest.param(["{"], "rule 1 is not JSON", id="no JSON"),
        pytest.param(["[1]"], "rule 1 is no JSON object", id="no object"),
        pytest.param(["{}", '[{}, {"vendor_id": "q"}]'], "rule 3 has 'q' as its vendor_id", id="the third rule"),
    ],
)
def test_a_wrong_rule_is_named_by_its_number(texts: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_rules(texts)


def mdev(**changes: object) -> dict[str, object]:
    return {"device_addresses": [], "max_instances": None, "mdev_class": "VGPU", **changes}


def test_of_types_without_addresses_the_first_counts() -> None:
    assert parse_mdev_rules([("a", mdev()), ("b", mdev())]) == (MdevRule(type="a"),)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        pytest.param(
            mdev(device_addresses=["0000:84:00.0"]), r"in both \[mdev_a\] and \[mdev_b\]", id="one card, two types"
        ),
        pytest.param(mdev(device_addresses=["84:00"]), "'84:00' is no PCI address", id="address"),
        pytest.param(mdev(mdev_class=f"CUSTOM_{'X' * 209}"), "at most 215", id="class without a trait"),
        pytest.param(mdev(mdev_class="PGPU"), "neither VGPU nor CUSTOM_", id="class"),
    ],
)
def test_a_wrong_vgpu_type_is_refused(second: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_mdev_rules([("a", mdev(device_addresses=["0000:84:00.0"])), ("b", second)])


def test_reserved_pages_in_kib_or_with_a_unit() -> None:
    records = [{"node": "0", "size": "2048", "count": "64"}, {"node": "1", "size": "1GB", "count": "1"}]

    assert tuple(map(parse_page, records)) == (ReservedPages(0, 2048, 64), ReservedPages(1, 1048576, 1))


@pytest.mark.parametrize(
    "record", [{"node": "0"}, {"node": "x", "size": "2", "count": "1"}, {"node": "0", "size": "GB", "count": "1"}]
)
def test_pages_that_cannot_be_meant_are_refused(record: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="for instance node:0"):
        parse_page(record)
