"""A conversion is taken back: exactly what was before it, or nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from beds.guests import GuestSpec, domain_xml
from beds.placement import PlacementServer
from beds.proxy import Answer, Forward, Proxy, Request, losing, pass_on, refusing
from beds.trees import add_consumer, identity
from beds.upgrades import UPGRADES, Story, Upgrade, stories

pytestmark = pytest.mark.live

DEVICES_TO_NUMA = Story(UPGRADES / "05-devices-to-numa")
OF_ANOTHER_CONFIGURATION = ("01-flat-vgpu-to-gpus", "02-vcpu-to-pcpu", "09-custom-to-standard")  # the old trees


@pytest.mark.parametrize("story", [pytest.param(story, id=story.folder.name) for story in stories()])
def test_a_conversion_is_taken_back_whole_or_not_at_all(
    story: Story, placement_server: PlacementServer, tmp_path: Path
) -> None:
    lab = Upgrade(story.data, placement_server.url, tmp_path)
    before = lab.stands()
    assert lab.run("reshape", "--apply").code == 0
    converted = lab.stands()

    planned = lab.run("undo")
    untouched = lab.stands()
    applied = lab.run("undo", "--apply", "--digest", planned.json["digest"])

    assert untouched == converted
    if story.folder.name in OF_ANOTHER_CONFIGURATION:
        assert (planned.code, applied.code) == (4, 4)
        assert "would not be as it was before the conversion" in planned.json["notes"][0]
        assert lab.stands() == converted
        return
    assert (planned.code, applied.code) == (3, 0), planned.err + applied.out + applied.err
    assert "take it back with: compute-node-agent undo" in applied.err
    assert told(lab.stands(), story) == told(before, story)
    assert len(lab.run("undo", "--list").json["conversions"]) == 2


def told(tree: dict[str, Any], story: Story) -> dict[str, Any]:
    """What stands; of a tree of nova's without the traits, as this agent's marks stay."""
    if story.folder.name != "07-nova-tree-to-numa":
        return tree
    providers = {name: {**one, "traits": []} for name, one in tree["providers"].items()}
    return {**tree, "providers": providers}


@pytest.fixture
def converted(placement_server: PlacementServer, tmp_path: Path) -> Upgrade:
    """A host with guests, just converted from devices to numa."""
    lab = Upgrade(DEVICES_TO_NUMA.data, placement_server.url, tmp_path)
    assert lab.run("reshape", "--apply").code == 0
    return lab


def start(lab: Upgrade, spec: GuestSpec) -> str:
    """Let a guest run on the recorded host."""
    archive = Path(str(lab.options[1]))
    newcomer = identity("newcomer")
    (archive / f"libvirt/domains/{newcomer}.xml").write_text(domain_xml(newcomer, "newcomer", spec), encoding="utf-8")
    states = archive / "libvirt/domains.json"
    states.write_text(json.dumps({**json.loads(states.read_text()), newcomer: "running"}), encoding="utf-8")
    return newcomer


def test_claims_that_came_since_are_kept(converted: Upgrade) -> None:
    newcomer = start(converted, GuestSpec(vcpus=1, memory_mib=512))
    rows = {"four-cells_NUMA1": {"VCPU": 1}, "four-cells_NUMA1_PAGES_4": {"MEMORY_MB": 512}}
    add_consumer(converted.placement, "newcomer", {"allocations": rows})

    applied = converted.run("undo", "--apply")

    assert applied.code == 0, applied.out + applied.err
    held = converted.run("show").json["allocations"]
    assert held[newcomer] == {"four-cells": {"VCPU": 1, "MEMORY_MB": 512}}


def test_a_guest_that_came_since_and_has_no_place_in_the_old_shape_holds_all(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    lab = Upgrade(Story(UPGRADES / "06-numa-to-devices").data, placement_server.url, tmp_path)
    assert lab.run("reshape", "--apply").code == 0
    newcomer = start(lab, GuestSpec(vcpus=1, memory_mib=60_000, cells=(1,)))  # a cell has less
    add_consumer(lab.placement, "newcomer", {"allocations": {"four-cells": {"VCPU": 1, "MEMORY_MB": 60_000}}})
    before = lab.run("show").json

    refused = lab.run("undo", "--apply")

    assert refused.code == 4
    assert newcomer in refused.json["notes"][0]
    assert "60000 MEMORY_MB" in refused.json["notes"][0]
    after = lab.run("show").json
    assert {**after, "about": None, "conditions": None} == {**before, "about": None, "conditions": None}


def test_nothing_is_taken_back_while_the_next_pass_would_convert_again(converted: Upgrade) -> None:
    config = Path(str(converted.options[-1]))
    config.write_text(config.read_text().replace("[agent]", "[agent]\nallow_reshape = true"), encoding="utf-8")

    refused = converted.run("undo", "--apply")

    assert refused.code == 1
    assert "set [compute] layout = devices first" in refused.err


def test_an_entry_that_cannot_be_trusted_is_not_taken_back(converted: Upgrade, tmp_path: Path) -> None:
    (path,) = (tmp_path / "state/journal").iterdir()
    entry = json.loads(path.read_text())
    for change in ({"layout": "flat"}, {"checksum": None}):
        path.write_text(json.dumps(entry | change), encoding="utf-8")
        refused = converted.run("undo", "--apply")
        assert (refused.code, "is damaged" in refused.err) == (1, True)


def test_a_conversion_that_was_cut_off_and_gone_on_with_is_taken_back_whole(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    left = [2]  # so many reshapes are refused, as where another writer comes first

    def refuse(request: Request, forward: Forward) -> Answer:
        if not request.path.startswith("/reshaper") or left[0] == 0:
            return forward(request)
        left[0] -= 1
        return Answer(503, (("Content-Type", "text/plain"),), b"busy")

    with Proxy(placement_server.url, hook=refuse) as proxy:
        lab = Upgrade(DEVICES_TO_NUMA.data, proxy.url, tmp_path)
        before = lab.stands()
        digest = lab.run("reshape").json["digest"]
        applied = lab.run("reshape", "--apply", "--digest", digest)
        listed = lab.run("undo", "--list").json["conversions"]
        undone = lab.run("undo", "--apply")

        assert (applied.code, left, undone.code) == (0, [0], 0), applied.err + undone.out
        assert len(list((tmp_path / "state/journal").iterdir())) >= 3
        assert [(one["digest"], one["outcome"]) for one in listed] == [(digest, "done")]
        assert lab.stands() == before


def test_a_conversion_whose_answer_was_lost_is_taken_back(placement_server: PlacementServer, tmp_path: Path) -> None:
    with Proxy(placement_server.url, hook=losing("/reshaper")) as proxy:
        lab = Upgrade(DEVICES_TO_NUMA.data, proxy.url, tmp_path)
        before = lab.stands()
        assert (lab.run("undo").code, lab.run("undo", "--list").json["conversions"]) == (4, [])
        applied = lab.run("reshape", "--apply", "--patience", "60")
        proxy.hook = pass_on
        undone = lab.run("undo", "--apply")

        assert (applied.code, undone.code) == (0, 0), applied.out + applied.err + undone.out
        assert lab.stands() == before


def option(folder: Path, text: str) -> Path:
    path = folder / "more.conf"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_conversion_of_a_host_without_guests_is_taken_back_too(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    lab = Upgrade(DEVICES_TO_NUMA.data, placement_server.url, tmp_path)
    for consumer in lab.before["consumers"]:
        lab.placement.send("DELETE", f"/allocations/{identity(consumer)}")
    before = lab.stands()
    assert lab.run("reshape", "--apply").code == 0
    assert lab.stands() != before

    refused = lab.run("undo", "--apply")
    devices = option(tmp_path, "[compute]\nlayout = devices\n")
    undone = lab.run("undo", "--apply", "--config-file", devices)

    assert refused.code == 4
    assert "set [compute] layout = devices first" in refused.json["notes"][0]
    assert undone.code == 0, undone.out + undone.err
    assert lab.stands() == before


def test_a_way_back_that_placement_refused_is_gone_on_with(placement_server: PlacementServer, tmp_path: Path) -> None:
    with Proxy(placement_server.url) as proxy:
        lab = Upgrade(DEVICES_TO_NUMA.data, proxy.url, tmp_path)
        before = lab.stands()
        assert lab.run("reshape", "--apply").code == 0
        (there,) = lab.run("undo", "--list").json["conversions"]
        proxy.hook = refusing("/reshaper")
        failed = lab.run("undo", "--apply")
        listed = lab.run("undo", "--list").json["conversions"]
        proxy.hook = pass_on
        undone = lab.run("undo", "--apply")

        assert failed.code == 1
        assert [one["digest"] for one in listed] == [there["digest"]]
        assert "it is being taken back" in listed[0]["outcome"]
        assert undone.code == 0, undone.out + undone.err
        assert lab.stands() == before
        assert len(lab.run("undo", "--list").json["conversions"]) == 2


def test_a_tree_that_was_converted_elsewhere_since_has_nothing_to_take_back(converted: Upgrade, tmp_path: Path) -> None:
    elsewhere = option(tmp_path, f"[agent]\nstate_directory = {tmp_path / 'elsewhere'}\n")
    cells = converted.run("reshape", "--to", "cells", "--apply", "--config-file", elsewhere)
    assert cells.code == 0, cells.out + cells.err
    before = converted.stands()

    refused = converted.run("undo", "--apply")

    assert refused.code == 4
    assert "stands in the layout cells" in refused.json["notes"][0]
    assert converted.stands() == before
