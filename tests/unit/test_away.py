"""Which classes the configuration still offers, so that what an operator reserved of a root's total of them waits."""

import pytest

from drivers.by_suffix import BySuffix
from drivers.devices.away import away
from drivers.policy import Bandwidth, DevicePolicy, DeviceRule, MdevRule
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

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
        (by(DeviceRule(number=1, bandwidth=Bandwidth())), EGRESS, True),
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
