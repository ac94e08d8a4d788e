"""provider.yaml for a provider below the root that Neutron, Cyborg or a person keeps: nova adds to it, and so do we."""

from pathlib import Path

import pytest

from agent.sync.outcome import Status
from agent.sync.run import run_pass
from beds.one_host import FORCE, Cut, OneHost
from drivers.policy import DevicePolicy, Policy
from hardware import card, host
from reportclient.tree import Inventory, Provider

NIC, THEIRS, CLASS, TRAIT = "0000:81:00.0", "ovs", "CUSTOM_LICENSE", "CUSTOM_FAST"
BANDWIDTH = "NET_BW_EGR_KILOBIT_PER_SEC"


@pytest.fixture(params=["", "OWNER_CYBORG"], ids=["without a mark", "of Cyborg"])
def one(tmp_path: Path, request: pytest.FixtureRequest) -> OneHost:
    """A host with a provider of another service below its root, with stock and perhaps the mark of its owner."""
    found = OneHost(tmp_path, host(*card(NIC)), Policy(layout="devices", devices=DevicePolicy(discover_all=True)))
    assert found.sync().status is Status.CHANGED
    root = found.tree().root
    assert root
    made = found.send("POST", "/resource_providers", {"name": f"host_{THEIRS}", "parent_provider_uuid": root.uuid})
    assert made["uuid"]
    found.add_by_hand(THEIRS, BANDWIDTH, 1000)
    if request.param:
        found.put_trait(THEIRS, request.param)
    return found


def theirs(one: OneHost) -> Provider:
    return one.tree().by_name[f"host_{THEIRS}"].provider


def test_what_a_file_adds_to_it_comes_changes_and_goes_and_all_else_stays(one: OneHost) -> None:
    before = theirs(one)

    one.write_provider_config(THEIRS, CLASS, 8, traits=(TRAIT,))
    assert one.sync().status is Status.CHANGED
    assert theirs(one).inventories == {**before.inventories, CLASS: Inventory(total=8)}
    assert theirs(one).traits == before.traits | {TRAIT}
    assert one.sync().status is Status.UNCHANGED

    one.write_provider_config(THEIRS, CLASS, 7)
    one.sync()
    assert theirs(one) == Provider(
        name=before.name,
        parent=before.parent,
        inventories={**before.inventories, CLASS: Inventory(total=7)},
        traits=before.traits,
    )
    one.write_provider_config("", "CUSTOM_OTHER", 1)
    one.sync()
    assert theirs(one) == before


def test_what_guests_hold_of_it_is_not_withdrawn(one: OneHost) -> None:
    one.write_provider_config(THEIRS, CLASS, 8)
    one.sync()
    one.claim({THEIRS: {CLASS: 2, BANDWIDTH: 5}})
    one.write_provider_config("", "CUSTOM_OTHER", 1)

    done = one.sync()

    assert (done.status, one.stock(THEIRS)[CLASS]) == (Status.UNSAFE, (8, 0))
    assert "2 CUSTOM_LICENSE" in done.notes[0]


@pytest.mark.parametrize("layout", ["flat", "cells", "numa"])
def test_what_guests_hold_of_it_stays_in_a_conversion_there_and_back(one: OneHost, layout: str) -> None:
    one.write_provider_config(THEIRS, CLASS, 8, traits=(TRAIT,))
    one.sync()
    one.claim({THEIRS: {CLASS: 2, BANDWIDTH: 5}})
    before = theirs(one)

    for each in (layout, "devices"):
        assert one.reshape(each).status is Status.CHANGED
        assert theirs(one) == before


def test_a_lost_memory_withdraws_nothing_from_it(one: OneHost) -> None:
    one.write_provider_config(THEIRS, CLASS, 8, traits=(TRAIT,))
    one.sync()
    one.forget()
    before = theirs(one)

    assert one.sync(FORCE).status is not Status.UNSAFE
    one.write_provider_config("", "CUSTOM_OTHER", 1)
    one.sync(FORCE)

    assert theirs(one) == before


@pytest.mark.parametrize("refused", [False, True], ids=["at once", "after a refused pass"])
def test_what_its_owner_wrote_since_is_not_withdrawn(one: OneHost, refused: bool) -> None:
    one.write_provider_config(THEIRS, CLASS, 8, traits=(TRAIT,))
    one.sync()
    one.set_by_hand(THEIRS, CLASS, total=5)
    one.write_provider_config("", "CUSTOM_OTHER", 1)
    if refused:
        assert run_pass(one.node, agree=lambda *_: ("no",)).status is Status.OTHER_PLAN

    one.sync()
    one.sync()

    assert one.stock(THEIRS)[CLASS] == (5, 0)
    assert TRAIT not in theirs(one).traits


def test_the_files_stays_the_files_after_a_pass_that_was_cut_off(one: OneHost) -> None:
    one.write_provider_config(THEIRS, CLASS, 8)
    one.sync()
    one.write_provider_config(THEIRS, CLASS, 7)
    with pytest.raises(Cut), one.ending_after(0):
        one.sync()

    one.sync()

    assert one.stock(THEIRS)[CLASS] == (7, 0)
