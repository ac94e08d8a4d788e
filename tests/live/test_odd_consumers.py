"""Consumers over which others stumble when a host changes its shape: each is converted, or refused with one line."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from beds.guests import GuestSpec, add_guests
from beds.placement import PlacementServer
from beds.trees import add_consumer, identity
from beds.upgrades import UPGRADES, Story, Upgrade, recorded_host

pytestmark = pytest.mark.live

Lab = Callable[..., Upgrade]
FIRST, SECOND = "four-cells_pci_0000_06_00_0", "four-cells_pci_0000_86_00_0"
ON_FIRST = "c2177883-f1bb-47f0-914d-32a22e3a8804"  # a mediated device of each card
ON_SECOND = "1b20d080-1b54-4048-85b3-a6a62d165c01"
REST = {"VCPU": 1, "MEMORY_MB": 512}
WHOLE = {"VCPU": 1, "MEMORY_MB": 512, "VGPU": 1}
ELSEWHERE = {
    "other-host": {"parent": None, "inventories": {"VCPU": {"total": 8}, "MEMORY_MB": {"total": 8192},
                                                   "VGPU": {"total": 4}}},
    "storage": {"parent": None, "inventories": {"DISK_GB": {"total": 100}}},
}  # fmt: skip


@pytest.fixture
def lab(placement_server: PlacementServer, tmp_path: Path) -> Lab:
    """Makes a flat host whose guests have these mediated devices, and these consumers: provider -> resources."""
    flat = Story(UPGRADES / "01-flat-vgpu-to-gpus").data["before"]["providers"]["four-cells"]

    def make(guests: Mapping[str, list[str]], **consumers: Any) -> Upgrade:
        return recorded_host(
            placement_server.url,
            tmp_path,
            guests={name: {"mdevs": mdevs} for name, mdevs in guests.items()},
            providers={"four-cells": flat, **ELSEWHERE},
            consumers=consumers,
            synced=False,
            agent={"audit_grace": 0},
        )

    return make


def converted(found: Upgrade) -> Any:
    """Who has what where, once the host is converted."""
    done = found.run("reshape", "--apply")
    assert done.code == 0, done.out + done.err
    return {name: one["allocations"] for name, one in found.stands()["consumers"].items()}


def refused(found: Upgrade, *, reserves: bool = False) -> str:
    """The line of a conversion that was refused and changed nothing, but for what it ``reserves``, a second line."""
    kept = but_for_reserved if reserves else lambda tree: tree
    before = kept(found.stands())
    done = found.run("reshape", "--apply")
    assert done.code == 4, done.out + done.err
    assert kept(found.stands()) == before
    assert len(done.json["notes"]) == 1 + reserves
    note: str = done.json["notes"][0]
    assert "\n" not in note
    return note


def but_for_reserved(tree: dict[str, Any]) -> dict[str, Any]:
    for one in tree["providers"].values():
        one["traits"] = [trait for trait in one["traits"] if not trait.startswith("CUSTOM_DEVICE_")]
        for stock in one["inventories"].values():
            stock["reserved"] = 0
    return tree


def test_a_guest_with_a_vgpu_in_the_middle_of_a_migration_keeps_its_card(lab: Lab) -> None:
    """It runs here and has its allocations at its destination already; what it has here is its migration's."""
    found = lab(
        {"guest": [ON_SECOND]},
        migration={"type": "MIGRATION", "allocations": {"four-cells": WHOLE}},
        guest={"other-host": WHOLE},
    )

    assert converted(found) == {
        "guest": {"other-host": WHOLE},
        "migration": {"four-cells": REST, SECOND: {"VGPU": 1}},
    }


def test_two_migrations_of_guests_that_are_alike_are_refused(lab: Lab) -> None:
    found = lab(
        {"a": [ON_FIRST], "b": [ON_SECOND]},
        m1={"four-cells": WHOLE},
        m2={"four-cells": WHOLE},
        a={"other-host": WHOLE},
        b={"other-host": WHOLE},
    )

    note = refused(found)

    assert "has 1 VGPU and matches no guest on this host" in note
    assert "end the migration or evacuation" in note
    assert identity("m1") in note


def test_an_evacuated_guest_with_allocations_on_two_hosts_is_converted(lab: Lab) -> None:
    found = lab({}, evacuated={"four-cells": WHOLE, "other-host": WHOLE})

    after = converted(found)["evacuated"]

    assert after["other-host"] == WHOLE
    assert after["four-cells"] == REST
    assert after[FIRST] == {"VGPU": 1}


def test_a_guest_whose_type_of_vgpu_is_off_is_not_given_a_vgpu_of_the_other_card(lab: Lab) -> None:
    found = lab({"guest": [ON_FIRST]}, guest={"four-cells": WHOLE})
    found.configured({**found.data["config"], "devices": {"enabled_mdev_types": "nvidia-231"}})

    note = refused(found, reserves=True)

    assert f"consumer {identity('guest')} has 1 VGPU on four-cells" in note
    assert f"devices that may count as VGPU: {ON_FIRST}. Bring back" in note
    assert "Bring back the card, the mdev type or the device_spec rule" in note


def test_a_guest_with_an_emulator_thread_of_its_own_is_refused_until_it_is_allocated_too(
    lab: Lab, tmp_path: Path
) -> None:
    found = lab({}, guest={"four-cells": {"VCPU": 2, "MEMORY_MB": 512}})
    pinned = GuestSpec(vcpus=2, memory_mib=512, pins=("16", "17"), emulator_pin="18")
    add_guests(tmp_path / "host", {identity("guest"): pinned})
    sets = {"layout": "devices", "cpu_shared_set": "4-15", "cpu_dedicated_set": "0-3,16-31"}
    found.configured({**found.data["config"], "compute": sets})

    note = refused(found)
    again = {"project": "project", "user": "user", "allocations": {"four-cells": {"VCPU": 3, "MEMORY_MB": 512}}}
    found.placement.send("DELETE", f"/allocations/{identity('guest')}")
    add_consumer(found.placement, "guest", again)

    assert f"consumer {identity('guest')} has 2 VCPU and 0 PCPU allocated, but really has 3 PCPU" in note
    assert f"or allocate 3 VCPU to the guest (compute-node-agent claim {identity('guest')} --replace" in note
    assert converted(found)["guest"] == {"four-cells": {"PCPU": 3, "MEMORY_MB": 512}}


@pytest.mark.parametrize("layout", ["flat", "numa"])
def test_the_class_of_one_of_two_cards_gets_a_new_name_under_its_guests(layout: str, lab: Lab) -> None:
    found = lab({"one": [ON_FIRST], "two": [ON_SECOND]}, one={"four-cells": WHOLE}, two={"four-cells": WHOLE})
    config = {**found.data["config"], "compute": {"layout": layout}}
    found.configured(config)
    if layout != "flat":
        converted(found)
    found.configured({**config, "mdev_nvidia-231": {"device_addresses": "0000:86:00.0", "mdev_class": "CUSTOM_BIG"}})

    after = converted(found)

    at_first, at_second = ("four-cells", "four-cells") if layout == "flat" else (FIRST, SECOND)
    assert after["one"][at_first]["VGPU"] == 1
    assert after["two"][at_second]["CUSTOM_BIG"] == 1
    assert not any("VGPU" in resources for resources in after["two"].values())


def test_a_consumer_that_the_hypervisor_does_not_know_goes_where_there_is_room(lab: Lab) -> None:
    found = lab({"known": [ON_FIRST]}, known={"four-cells": WHOLE}, unknown={"four-cells": WHOLE})

    planned = found.run("reshape").json
    because = {move["consumer"]: move["because"] for move in planned["moves"]}

    assert converted(found)["unknown"] == {"four-cells": REST, FIRST: {"VGPU": 1}}
    assert "matches no guest on this host" in because[identity("unknown")]


def test_what_a_guest_has_on_shared_storage_stays_and_the_storage_is_not_written(lab: Lab) -> None:
    found = lab({"guest": [ON_FIRST]}, guest={"four-cells": WHOLE, "storage": {"DISK_GB": 10}})
    planned = found.run("reshape").json
    written = [one for step in planned["operations"] if step["operation"] == "reshape" for one in step["inventories"]]

    assert converted(found)["guest"] == {"four-cells": REST, FIRST: {"VGPU": 1}, "storage": {"DISK_GB": 10}}
    assert "storage" not in {one["provider"] for one in written}


def test_a_consumer_of_unknown_type_keeps_it(lab: Lab) -> None:
    found = lab(
        {"untyped": [ON_FIRST], "typed": [ON_SECOND]},
        untyped={"type": None, "allocations": {"four-cells": WHOLE}},
        typed={"type": "INSTANCE", "allocations": {"four-cells": WHOLE}},
    )

    converted(found)

    consumers = found.stands()["consumers"]
    assert (consumers["untyped"]["type"], consumers["typed"]["type"]) == (None, "INSTANCE")
    assert (consumers["typed"]["project"], consumers["typed"]["user"]) == ("project", "user")


def test_a_guest_that_has_not_what_it_was_given_is_refused(lab: Lab) -> None:
    found = lab({"half": []}, half={"four-cells": WHOLE})

    note = refused(found)

    assert f"consumer {identity('half')} has 1 VGPU on four-cells, and the hypervisor gives its guest none" in note
    assert "plan again" in note


def test_what_has_no_room_in_the_new_tree_is_refused(lab: Lab) -> None:
    """All 22 vGPUs of the two cards are taken, and one more was given by a total that somebody set too high."""
    found = lab({}, large={"four-cells": {"VGPU": 8}}, small={"four-cells": {"VGPU": 14}})
    found.placement.change_stock(identity("four-cells"), VGPU={"total": 23})
    add_consumer(found.placement, "one too many", {"allocations": {"four-cells": {"VGPU": 1}}})

    assert "has 1 VGPU, and 1 of them find no room on" in refused(found, reserves=True)


def test_a_plan_that_was_read_is_carried_out_exactly_or_not_at_all(lab: Lab) -> None:
    found = lab({"a": [ON_FIRST]}, a={"four-cells": WHOLE}, b={"four-cells": {"VGPU": 1}})
    read = found.run("reshape").json["digest"]
    found.placement.send("DELETE", f"/allocations/{identity('b')}")

    other = found.run("reshape", "--apply", "--digest", read)
    unheard = found.run("reshape", "--apply", "--digest", "0123456789ab")
    again = found.run("reshape").json["digest"]
    done = found.run("reshape", "--apply", "--digest", again)

    assert (other.code, unheard.code, done.code) == (4, 4, 0)
    for digest, refused_one in ((read, other), ("0123456789ab", unheard)):
        assert f"no plan has the digest {digest}; the plan now has {again}" in refused_one.json["notes"][0]


def test_a_guest_with_vgpus_of_two_cards_has_a_unit_of_each_there_and_back(lab: Lab) -> None:
    found = lab({"guest": [ON_FIRST, ON_SECOND]}, guest={"four-cells": REST | {"VGPU": 2}})

    assert converted(found) == {"guest": {"four-cells": REST, FIRST: {"VGPU": 1}, SECOND: {"VGPU": 1}}}
    assert found.run("audit").json["findings"] == []

    flat = {**found.data["config"], "compute": {"layout": "flat"}}
    there, found.options = found.options, (*found.options[:2], "--config-file", found.configured(flat, "flat.conf"))
    assert converted(found) == {"guest": {"four-cells": REST | {"VGPU": 2}}}
    found.options = there
    assert converted(found)["guest"][SECOND] == {"VGPU": 1}


def test_a_guest_that_lacks_the_row_of_one_of_its_two_cards_is_found(lab: Lab) -> None:
    found = lab({"guest": [ON_FIRST, ON_SECOND]}, guest={"four-cells": REST | {"VGPU": 2}})
    converted(found)
    found.placement.send("DELETE", f"/allocations/{identity('guest')}")
    add_consumer(found.placement, "guest", {"allocations": {"four-cells": REST, FIRST: {"VGPU": 1}}})

    (one,) = found.run("audit").json["findings"]

    assert (one["kind"], one["consumer"], one["provider"]) == ("wrong-amount", identity("guest"), SECOND)
    assert (one["expected"], one["actual"]) == (1, 0)
