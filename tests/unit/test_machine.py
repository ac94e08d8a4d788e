"""To which machine an identity belongs: a cloned disk is refused, and a changed part of one machine is not."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from agent.audit.audit import witness
from agent.command.adopt_verb import _choose
from agent.state.machine import FILE, Machine, probe_machine, read_machine, tie_machine
from agent.sync.decide.view import Wishes
from agent.sync.node import ComputeNode
from agent.sync.outcome import Status
from agent.sync.run import foresee, run_pass
from beds.one_host import ROOT, OneHost
from drivers.facts import ServiceSigns
from drivers.policy import Policy
from fakes import FACTS
from reportclient.errors import TreeMismatch

HERE = Machine(product="aa", machine_id="11", boot="monday")


@dataclass
class Room:
    """A live host in a folder; another machine gets a copy of its disk."""

    host: OneHost

    def node(self, machine: Machine, folder: Path | None = None) -> ComputeNode:
        host = replace(self.host, folder=folder or self.host.folder)
        return replace(host.node, machine=lambda _product, _boot: machine)


@pytest.fixture
def room(tmp_path: Path) -> Room:
    made = Room(OneHost(tmp_path / "disk", FACTS, Policy(), signs=ServiceSigns()))
    made.host.folder.mkdir()
    assert run_pass(made.node(HERE)).status is Status.CHANGED
    return made


def test_a_clone_neither_plans_nor_writes_nor_audits(room: Room, tmp_path: Path) -> None:
    """Its audit would take the guests of the first machine for orphans."""
    shutil.copytree(room.host.folder, tmp_path / "clone")
    clone = room.node(Machine(product="bb", machine_id="11", boot="tuesday"), tmp_path / "clone")
    writes = room.host.sender.writes

    acts: tuple[Callable[[], object], ...] = (
        lambda: run_pass(clone),
        lambda: foresee(clone, Wishes()),
        lambda: witness(clone),
        lambda: clone.view(any_role=True),
    )
    for act in acts:
        with pytest.raises(TreeMismatch, match="product uuid aa, and this one has bb") as refused:
            act()
    assert f"adopt {ROOT}" in str(refused.value)
    assert str(tmp_path / "clone" / "compute_id") in str(refused.value)

    assert room.host.sender.writes == writes
    assert run_pass(room.node(HERE)).status is Status.UNCHANGED


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(replace(HERE, boot="tuesday"), id="a reboot"),
        pytest.param(replace(HERE, boot="tuesday", machine_id="22"), id="a new system on the same board"),
        pytest.param(replace(HERE, boot="tuesday", machine_id=""), id="a container, whose machine-id is its own"),
        pytest.param(replace(HERE, boot="tuesday", product=""), id="libvirt tells no uuid any more"),
        pytest.param(Machine(), id="nothing is known"),
        pytest.param(replace(HERE, product="cc"), id="libvirt made up another uuid in the same boot"),
    ],
)
def test_the_same_machine_goes_on(room: Room, now: Machine) -> None:
    assert run_pass(room.node(now)).status is Status.UNCHANGED
    assert run_pass(room.node(replace(HERE, boot="wednesday", product=now.product or "aa"))).status is Status.UNCHANGED


MADE_UP = tuple(f"6f1f6a0c-4d3c-4b7e-8b9a-2f6b7a1c0d4{digit}" for digit in "123")


def test_a_uuid_that_libvirt_may_have_made_up_counts_once_it_lasted_over_a_boot(tmp_path: Path) -> None:
    first, other, third = (Machine(product=uuid, machine_id="11", boot=uuid) for uuid in MADE_UP)
    tie_machine(tmp_path, ROOT, first)
    assert not other.unlike(read_machine(tmp_path, ROOT))
    tie_machine(tmp_path, ROOT, other)
    assert not third.unlike(read_machine(tmp_path, ROOT))

    tie_machine(tmp_path, ROOT, replace(other, boot="a later one"))
    tie_machine(tmp_path, ROOT, Machine(boot="one more"))
    assert third.unlike(read_machine(tmp_path, ROOT))
    tie_machine(tmp_path, ROOT, third, anew=True)
    assert not first.unlike(read_machine(tmp_path, ROOT))


def test_while_a_uuid_may_be_made_up_the_machine_id_decides(tmp_path: Path) -> None:
    first, other = (Machine(product=uuid, machine_id=uuid[-1], boot=uuid) for uuid in MADE_UP[:2])
    tie_machine(tmp_path, ROOT, first)

    assert other.unlike(read_machine(tmp_path, ROOT)) == "a machine with the machine-id 1, and this one has 2"


def test_without_a_product_uuid_the_machine_id_decides() -> None:
    assert Machine(machine_id="22", boot="b").unlike(replace(HERE, product=""))
    assert not Machine(machine_id="11", boot="b").unlike(replace(HERE, product=""))


@pytest.mark.parametrize("text", [None, "", "{}", "[1]"], ids=["none", "empty", "no seal", "no object"])
def test_a_host_whose_memory_of_its_machine_is_lost_is_tied_anew(room: Room, text: str | None) -> None:
    """Also that of a version that had no such memory: what is not known is no doubt."""
    path = room.host.folder / FILE
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    there = Machine(product="bb", boot="tuesday")

    assert run_pass(room.node(there)).status is Status.UNCHANGED
    assert read_machine(room.host.folder, ROOT) == there
    with pytest.raises(TreeMismatch):
        run_pass(room.node(replace(HERE, boot="wednesday")))


def test_another_identity_is_not_tied(tmp_path: Path) -> None:
    tie_machine(tmp_path, ROOT, HERE)

    assert read_machine(tmp_path, "another") == Machine()


def test_a_person_ties_an_identity_anew(tmp_path: Path) -> None:
    tie_machine(tmp_path, ROOT, HERE)
    tie_machine(tmp_path, ROOT, Machine(boot="tuesday"))
    assert read_machine(tmp_path, ROOT) == replace(HERE, boot="tuesday", lasting=False)

    tie_machine(tmp_path, ROOT, Machine(machine_id="22", boot="tuesday"), anew=True)

    assert read_machine(tmp_path, ROOT) == Machine(machine_id="22", boot="tuesday")


@pytest.mark.parametrize(
    ("files", "product", "machine_id"),
    [
        pytest.param(("etc/machine-id", "sys/class/dmi/id/product_uuid"), "aa", "11", id="a machine"),
        pytest.param(("etc/machine-id",), "", "11", id="no firmware tells, so libvirt makes one up"),
        pytest.param(("etc/machine-id", "run/.containerenv", "sys/class/dmi/id/product_uuid"), "aa", "", id="inside"),
        pytest.param((), "", "", id="nothing"),
    ],
)
def test_a_machine_is_told_by_what_can_be_read(
    files: tuple[str, ...], product: str, machine_id: str, tmp_path: Path
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("11\n")

    assert probe_machine("AA", "monday", tmp_path) == Machine(product=product, machine_id=machine_id, boot="monday")


@pytest.mark.parametrize(("named", "chosen"), [(ROOT, ROOT), (None, None), ("another", None)])
def test_only_a_person_who_names_it_gives_a_machine_the_identity_of_another(
    named: str | None, chosen: str | None
) -> None:
    """Also where nothing stands in placement."""
    assert _choose([], 0, "host", named, sure=True, known=ROOT)[0] == chosen
