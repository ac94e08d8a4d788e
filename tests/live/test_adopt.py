"""``adopt``: a host whose compute_id was lost finds its tree again by its name and by what its guests hold."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beds.by_hand import ByHand
from beds.guests import GuestSpec
from beds.placement import PlacementServer
from beds.synthetic.bed import Host
from beds.synthetic.hosts import QUEENS_FIRST
from beds.synthetic.model import Machine

pytestmark = pytest.mark.live


class Lab:
    """A host that reports itself, and then loses its identity."""

    def __init__(self, host: Host, config: Path, placement: ByHand, home: Path) -> None:
        self.host, self.config, self.placement, self.home = host, config, placement, home

    def run(self, *arguments: object) -> Any:
        return self.host.run(*arguments, "--config-file", self.config)

    def lose(self) -> str:
        """Report the host, and lose its compute_id; returns what it was."""
        assert self.run("sync").code == 0
        path = self.home / "compute_id"
        known = path.read_text().strip()
        path.unlink()
        assert "put its uuid into" in self.run("sync").err
        return known

    def hold(self, guest: str, root: str) -> None:
        self.placement.claim(guest, {root: {"VCPU": 1, "MEMORY_MB": 32}})

    def other_root(self, name: str) -> str:
        return self.placement.add_provider(name, stock={"VCPU": {"total": 4}, "MEMORY_MB": {"total": 4096}})

    def kept(self) -> str:
        path = self.home / "compute_id"
        return path.read_text().strip() if path.exists() else ""


@pytest.fixture
def lab(
    synthetic: Callable[[Machine], Host],
    placement_server: PlacementServer,
    write_config: Callable[..., Path],
    tmp_path: Path,
) -> Iterator[Lab]:
    host = synthetic(QUEENS_FIRST)
    with host.doorway(placement_server.url) as url:
        config = write_config(
            libvirt={"connection_uri": host.libvirtd.uri, "virt_type": "qemu"},
            placement={"auth_type": "none", "endpoint": url},
            agent={"state_directory": tmp_path / "state"},
            DEFAULT={"state_path": tmp_path / "state"},
        )
        yield Lab(host, config, ByHand(placement_server.url), tmp_path / "state")


@pytest.fixture
def guest(lab: Lab) -> Iterator[str]:
    with lab.host.running(GuestSpec()) as own:
        yield own


def test_name_and_guests_tell_the_tree_and_the_next_pass_finds_it(lab: Lab, guest: str) -> None:
    known = lab.lose()
    lab.hold(guest, known)

    asked = lab.run("adopt")
    assert (asked.code, lab.kept()) == (3, "")
    assert f"nothing was written: adopt {known} --yes writes it" in asked.err
    done = lab.run("adopt", "--yes")

    assert (done.code, lab.kept()) == (0, known), done.err
    assert "all 1 guests of this host that hold anything hold it there" in done.out
    assert lab.run("sync", "--format", "json").json["outcome"] in ("unchanged", "changed")
    again = lab.run("adopt", "--yes")
    assert again.code == 1
    assert f"this host has the compute_id {known}: nothing is lost" in again.err


def test_by_name_alone_a_person_names_it(lab: Lab) -> None:
    known = lab.lose()

    refused = lab.run("adopt", "--yes")
    assert (refused.code, lab.kept()) == (4, "")
    assert f"name it, adopt {known} --yes" in refused.err
    assert lab.run("adopt", known, "--yes").code == 0

    assert lab.kept() == known


def test_a_damaged_file_is_removed_and_then_adopted(lab: Lab) -> None:
    known = lab.lose()
    (lab.home / "compute_id").write_text("")

    told = lab.run("adopt", known, "--yes")
    assert told.code == 1
    assert "or remove it and run compute-node-agent adopt" in told.err
    (lab.home / "compute_id").unlink()
    asked = lab.run("adopt")

    assert (asked.code, lab.kept()) == (3, "")
    assert f"adopt {known} --yes writes it" in asked.err


def test_name_and_guests_that_contradict_each_other_are_left_to_a_person(lab: Lab, guest: str) -> None:
    known = lab.lose()
    other = lab.other_root("another-host")
    lab.hold(guest, other)

    refused = lab.run("adopt", "--yes")

    assert (refused.code, lab.kept()) == (4, "")
    assert known in refused.out
    assert other in refused.out
    assert "do not tell one tree" in refused.err


def test_a_tree_of_nobody_is_not_adopted(lab: Lab) -> None:
    lab.lose()
    stranger = lab.other_root("stranger")

    refused = lab.run("adopt", stranger, "--yes")

    assert (refused.code, lab.kept()) == (4, "")
    assert "neither of this host's name nor held by its guests" in refused.err
