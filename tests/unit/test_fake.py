"""A host made up from a seed is reported on the same path as a real one."""

import json
from pathlib import Path

import pytest

from beds.made_up_host import MDEV_TYPE, SHAPES, files_of, host_of
from drivers.base import Driver
from drivers.fake import MADE_UP, write_host
from drivers.fake import SHAPES as NAMES
from drivers.host.archive import HostArchive
from drivers.libvirt.driver import LibvirtDriver
from drivers.libvirt.recorded import RecordedConnection
from drivers.libvirt.shape import idle
from drivers.policy import DevicePolicy, InstancesFolder, MdevRule, Policy

OF_ITS_NAME = ("compute_id", "host.json")  # files with what differs from host to host
POLICY = Policy(devices=DevicePolicy(discover_all=True, mdevs=(MdevRule(type=MDEV_TYPE),)))


def driver_of(archive: HostArchive) -> Driver:
    return LibvirtDriver(RecordedConnection(archive), POLICY, InstancesFolder(instances=Path("/nowhere")))


def files(archive: HostArchive) -> dict[str, str]:
    """An archive's files and their texts."""
    return {str(path.relative_to(archive.root)): path.read_text() for path in archive.root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_file_of_a_shape_has_what_its_libvirt_would_answer(shape: str, request: pytest.FixtureRequest) -> None:
    files = files_of(host_of(shape))
    made = {path: text for path, text in files.items() if path not in OF_ITS_NAME}
    if request.config.getoption("--update-golden"):
        (MADE_UP / f"{shape}.json").write_text(json.dumps(made, indent=1) + "\n")

    assert json.loads((MADE_UP / f"{shape}.json").read_text()) == made
    assert (*sorted(SHAPES),) == NAMES


@pytest.mark.parametrize("shape", SHAPES)
def test_a_made_up_host_is_reported_by_its_name_and_size(shape: str, tmp_path: Path) -> None:
    driver = driver_of(write_host(tmp_path, seed=7, shape=shape))

    survey = driver.survey(driver.name())

    tree, holdings = driver.shape(survey, POLICY, None)
    of = SHAPES[shape]
    assert driver.name() == tree.root.name == f"fake-7-{shape}"
    assert tree.root.inventories["VCPU"].total == of.cells * of.cores
    assert tree.root.inventories["MEMORY_MB"].total == of.cells * of.memory_gib * 1024
    assert tree.root.inventories["DISK_GB"].total == of.disk_gib
    assert tree.root.inventories.keys() <= driver.emitted.classes
    assert holdings.guests == frozenset()
    assert len(survey.facts.devices.mdev_parents) == of.gpus
    cards = [one.inventories for one in tree if one.parent]
    assert [stock.keys() for stock in cards] == [{"SRIOV_NET_VF"}] * of.nics + [{"VGPU"}] * of.gpus
    assert {one.total for stock in cards for one in stock.values()} <= {8}
    assert (idle(survey.facts, POLICY) == ()) == bool(of.gpus)


def test_the_same_seed_makes_the_same_host_and_another_one_another(tmp_path: Path) -> None:
    first, again, other = (
        write_host(tmp_path / name, seed=seed, shape="small")
        for name, seed in (("first", 1), ("again", 1), ("other", 2))
    )

    assert files(first) == files(again)
    assert (first.compute_id(), first.hostname()) != (other.compute_id(), other.hostname())
