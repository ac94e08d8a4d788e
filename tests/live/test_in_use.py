"""What takes allocations from a guest that runs on this host: nothing that it uses comes on offer unsaid."""

import json
from pathlib import Path

import pytest

from beds.agents import Result
from beds.placement import PlacementServer
from beds.trees import add_consumer, identity
from beds.upgrades import Upgrade, recorded_host

pytestmark = pytest.mark.live

ROOT = "four-cells"
SMALL = {"VCPU": 1, "MEMORY_MB": 512}


@pytest.fixture
def lab(placement_server: PlacementServer, tmp_path: Path) -> Upgrade:
    """A host with a guest that runs and one that is shut off; a third is gone and has allocations; another host."""
    return recorded_host(
        placement_server.url,
        tmp_path,
        guests={"runs": {}, "off": {"state": "shutoff"}},
        providers={"away": {"parent": None, "inventories": {"VCPU": {"total": 8}}}},
        consumers={name: {ROOT: SMALL} for name in ("runs", "off", "gone")},
        compute={"layout": "flat"},
    )


def held(lab: Upgrade, name: str) -> object:
    return lab.stands()["consumers"][name]["allocations"]


def test_a_guest_that_runs_here_is_released_by_force_only(lab: Upgrade) -> None:
    refused = lab.run("release", identity("runs"))
    assert (refused.code, refused.json["outcome"], held(lab, "runs")) == (4, "refused", {ROOT: SMALL})
    assert f"release {identity('runs')} --force" in refused.json["note"]

    done = lab.run("release", identity("runs"), "--force")
    assert (done.code, done.json["outcome"], held(lab, "runs")) == (0, "done", {})
    for told in (refused.json["note"], done.json["note"], done.err):
        assert "512 MEMORY_MB on four-cells" in told
        assert "1 VCPU on four-cells" in told


def test_a_claim_takes_nothing_that_a_guest_here_uses_unless_by_force(lab: Upgrade, tmp_path: Path) -> None:
    """What it has beyond that may go: a resize that the hypervisor has done already, or a wrong amount."""

    def claim(provider: str, *more: str, **amounts: int) -> Result:
        body = {"allocations": {identity(provider): {"resources": amounts}}}
        (tmp_path / "request.json").write_text(json.dumps(body), encoding="utf-8")
        return lab.run("claim", identity("runs"), "--request", tmp_path / "request.json", *more)

    for amounts in ({"VCPU": 2, "MEMORY_MB": 512}, SMALL):
        assert claim(ROOT, "--replace", **amounts).code == 0
        assert held(lab, "runs") == {ROOT: amounts}
    (tmp_path / "before.json").write_text((tmp_path / "request.json").read_text(encoding="utf-8"), encoding="utf-8")
    for more in (("--replace",), ("--merge", "--instead-of", str(tmp_path / "before.json"))):
        refused = claim("away", *more, VCPU=1)
        assert (refused.code, held(lab, "runs")) == (4, {ROOT: SMALL})
        assert "512 MEMORY_MB on four-cells, 1 VCPU on four-cells a second time" in refused.json["note"]
    less = claim(ROOT, "--replace", VCPU=1, MEMORY_MB=256)
    assert (less.code, held(lab, "runs")) == (4, {ROOT: SMALL})

    done = claim("away", "--replace", "--force", VCPU=1)
    assert (done.code, held(lab, "runs")) == (0, {"away": {"VCPU": 1}})
    assert "a second time" in done.json["note"]


def test_a_host_that_cannot_be_read_stops_no_repair_by_force(lab: Upgrade, tmp_path: Path) -> None:
    body = {"allocations": {identity(ROOT): {"resources": {"VCPU": 1}}}}
    (tmp_path / "request.json").write_text(json.dumps(body), encoding="utf-8")
    (Path(lab.options[1]) / "libvirt/capabilities.xml").write_text("<torn", encoding="utf-8")

    for order in (
        ("claim", identity("runs"), "--request", tmp_path / "request.json", "--replace"),
        ("release", identity("runs")),
    ):
        assert lab.run(*order).code == 1
        done = lab.run(*order, "--force")
        assert done.code == 0
        assert "it is not known whether guest" in done.json["note"]


def test_a_move_is_not_reverted_while_the_guest_runs_at_its_new_place(lab: Upgrade) -> None:
    add_consumer(lab.placement, "migration", {"type": "MIGRATION", "allocations": {"away": {"VCPU": 1}}})
    order = ("revert", identity("runs"), "--migration", identity("migration"))

    refused = lab.run(*order)
    assert (refused.code, held(lab, "runs")) == (4, {ROOT: SMALL})
    assert "512 MEMORY_MB on four-cells, 1 VCPU on four-cells a second time" in refused.json["note"]
    done = lab.run(*order, "--force")
    assert (done.code, held(lab, "runs")) == (0, {"away": {"VCPU": 1}})
