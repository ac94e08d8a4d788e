"""What ``discover --suggest`` makes of devices: options where it is certain, comments where a person must choose."""

from dataclasses import replace

import pytest

from agent.command.suggestion import suggestion
from drivers.facts import Devices, Mdev, MdevParent, MdevType, PciFunction, PciIds
from drivers.pci import parse_pci_address

CARD, OTHER = "0000:06:00.0", "0000:86:00.0"
KINDS = (MdevType("nvidia-1", "A", 4), MdevType("nvidia-2", "", 2))


def parent(address: str, *kinds: MdevType) -> MdevParent:
    name = f"pci_{address.replace(':', '_').replace('.', '_')}"
    return MdevParent(name=name, address=parse_pci_address(address), types=kinds)


def function(address: str, driver: str | None = None, device_class: int = 0x030000) -> PciFunction:
    ids = PciIds("10de", "20b5", device_class)
    return PciFunction(address=parse_pci_address(address), ids=ids, driver=driver)


def test_a_host_without_devices_gets_a_comment_alone() -> None:
    assert suggestion(Devices()).startswith("# no VFs")
    assert suggestion(Devices(functions=(function(CARD, "nvidia"),))).startswith("# no VFs")
    assert suggestion(Devices(mdev_parents=(parent(CARD),))).startswith("# no VFs")


def test_what_is_bound_for_guests_gets_a_rule_unless_it_is_a_bridge() -> None:
    bridge = function(OTHER, "vfio-pci", 0x060400)

    assert suggestion(Devices(functions=(function(CARD, "vfio-pci"), bridge))).splitlines() == [
        "[pci]",
        "report_in_placement = true",
        f"# bound to vfio-pci: {CARD} (10de:20b5)",
        f'device_spec = {{"address": "{CARD}"}}',
    ]


def test_vfs_of_their_own_kind_get_one_rule_and_others_one_each() -> None:
    vfs = (replace(function(f"0000:06:10.{n}", "vfio-pci"), pf=function(CARD).address) for n in (0, 1))
    virtual = tuple(replace(vf, ids=PciIds("10de", "9999")) for vf in vfs)
    pf = replace(function(CARD, "vfio-pci"), total_vfs=2, vfs=tuple(one.address for one in virtual))
    alike = tuple(replace(one, ids=pf.ids) for one in virtual)

    own_kind, *others = (
        suggestion(Devices(functions=(pf, *vfs))).splitlines()[3:] for vfs in (virtual, alike, (virtual[0], alike[1]))
    )

    assert own_kind == [f'device_spec = {{"address": "{CARD}", "vendor_id": "10de", "product_id": "9999"}}']
    assert others == [[f'device_spec = {{"address": "0000:06:10.{n}"}}' for n in (0, 1)]] * 2


def test_vfs_with_a_type_count_as_what_their_file_says() -> None:
    typed = replace(
        function("0000:06:10.0"), pf=function(CARD).address, attributes=(("nvidia/current_vgpu_type", "1055"),)
    )
    pf = replace(function(CARD), total_vfs=1, vfs=(typed.address,))

    assert suggestion(Devices(functions=(pf, typed))).splitlines()[3:] == [
        f'device_spec = {{"address": "{CARD}", "vendor_id": "10de", "product_id": "20b5", '
        f'"resource_class_attribute": "nvidia/current_vgpu_type"}}'
    ]


def test_a_card_whose_vfs_are_not_all_listed_gets_rules_for_those_that_are() -> None:
    listed = replace(function("0000:06:10.0"), pf=function(CARD).address)
    pf = replace(function(CARD), total_vfs=2, vfs=(listed.address, function("0000:06:10.1").address))

    assert suggestion(Devices(functions=(pf, listed))).splitlines()[3:] == ['device_spec = {"address": "0000:06:10.0"}']


def test_cards_of_a_network_are_found_without_rules() -> None:
    vf = replace(function("0000:06:10.0", device_class=0x020000), pf=function(CARD).address)
    pf = replace(function(CARD, device_class=0x020000), total_vfs=1, vfs=(vf.address,))

    assert suggestion(Devices(functions=(pf, vf))).splitlines() == [
        "[pci]",
        f"# 1 VFs of {CARD} (10de:20b5)",
        "discover = all",
    ]


def test_a_type_without_a_choice_is_taken_for_all_cards() -> None:
    elsewhere = MdevParent(name="css_0_0_0023", address=None, types=KINDS[:1])

    assert suggestion(Devices(mdev_parents=(parent(CARD, KINDS[0]), elsewhere))).splitlines() == [
        "[devices]",
        f"# {CARD} can make nvidia-1 (A)",
        "# css_0_0_0023 can make nvidia-1 (A)",
        "enabled_mdev_types = nvidia-1",
    ]


def test_of_several_types_a_person_chooses() -> None:
    assert suggestion(Devices(mdev_parents=(parent(CARD, *KINDS),))).splitlines() == [
        "[devices]",
        f"# {CARD} can make nvidia-1 (A), nvidia-2: choose one",
        "# enabled_mdev_types = TYPE",
    ]


def test_the_type_in_use_is_taken_and_only_on_its_card_while_another_awaits_a_choice() -> None:
    cards = (parent(CARD, *KINDS), parent(OTHER, *KINDS))
    used = Mdev("4a5f7e9c-0d27-4e43-8f6f-2a3b1c9d8e70", "nvidia-2", cards[0].name)

    lines = suggestion(Devices(mdev_parents=cards, mdevs=(used,))).splitlines()

    assert "enabled_mdev_types = nvidia-2" in lines
    assert lines[-2:] == ["[mdev_nvidia-2]", f"device_addresses = {CARD}"]
    assert lines[2].endswith(": choose one")


@pytest.mark.parametrize(
    ("card", "maker"),
    [
        (function(CARD, "vfio-pci"), CARD),
        (replace(function(CARD), vfs=(parse_pci_address(OTHER),)), CARD),
        (replace(function(CARD), vfs=(parse_pci_address(OTHER),)), OTHER),
    ],
    ids=["card", "card with VFs", "VF"],
)
def test_a_card_that_makes_mediated_devices_is_no_pci_device(card: PciFunction, maker: str) -> None:
    devices = Devices(functions=(card,), mdev_parents=(parent(maker, KINDS[0]),))

    assert "[pci]" not in suggestion(devices)
