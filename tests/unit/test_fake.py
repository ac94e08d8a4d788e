"""A fleet of hosts made up from a seed, reported by one driver on the same path as real ones."""

from pathlib import Path

import pytest

from drivers.base import Driver
from drivers.fake.archives import MDEV_TYPE, generate_fleet
from drivers.fake.hosts import SHAPES
from drivers.host.archive import HostArchive
from drivers.libvirt.shape import idle
from drivers.policy import DevicePolicy, GuestPolicy, InstancesFolder, MdevRule, Policy
from drivers.table import DRIVERS, DriverOptions

POLICY = Policy(devices=DevicePolicy(discover_all=True, mdevs=(MdevRule(type=MDEV_TYPE),)))


def driver_of(name: str, archives: tuple[HostArchive, ...], *, archive: HostArchive | None = None) -> Driver:
    options = DriverOptions(
        uri="",
        disk=InstancesFolder(instances=Path("/nowhere")),
        guests=GuestPolicy(virt_type="kvm"),
        archive=archive,
        fleet=archives,
    )
    row = DRIVERS[name]
    return row(options)


def files(archive: HostArchive) -> dict[str, str]:
    """An archive's files and their texts."""
    return {str(path.relative_to(archive.root)): path.read_text() for path in archive.root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("shape", SHAPES)
def test_each_host_of_a_fleet_is_reported_by_its_own_name_and_size(shape: str, tmp_path: Path) -> None:
    driver = driver_of("fake.FakeDriver", generate_fleet(tmp_path, 2, seed=7, shape=shape))

    assert driver.nodes() == (f"fake-7-{shape}-0000", f"fake-7-{shape}-0001")
    of = SHAPES[shape]
    for node in driver.nodes():
        survey = driver.survey(node)
        tree, holdings = driver.shape(survey, POLICY, None)
        assert tree.root.name == node
        assert tree.root.inventories["VCPU"].total == of.cells * of.cores * of.threads
        memory_mib = tree.root.inventories["MEMORY_MB"].total
        assert memory_mib in {of.cells * of.memory_gib * 1024 * factor for factor in (1, 2)}
        assert tree.root.inventories["DISK_GB"].total in {of.disk_gib, of.disk_gib * 2}
        assert tree.root.inventories.keys() <= driver.emitted.classes
        assert holdings.guests == frozenset()
        assert len(survey.facts.devices.mdev_parents) == of.gpus
        cards = [one.inventories for one in tree if one.parent]
        assert [stock.keys() for stock in cards] == [{"SRIOV_NET_VF"}] * of.nics + [{"VGPU"}] * of.gpus
        assert {one.total for stock in cards for one in stock.values()} <= {8, 16}
        assert (idle(survey.facts, POLICY) == ()) == bool(of.gpus)


def test_the_same_seed_makes_the_same_hosts_and_another_one_others(tmp_path: Path) -> None:
    first, again, other = (
        generate_fleet(tmp_path / name, 3, seed=seed, shape="small")
        for name, seed in (("first", 1), ("again", 1), ("other", 2))
    )

    assert [files(one) for one in first] == [files(one) for one in again]
    assert {(one.compute_id(), one.hostname()) for one in first}.isdisjoint(
        (one.compute_id(), one.hostname()) for one in other
    )


@pytest.mark.parametrize("name", ["libvirt.LibvirtDriver", "fake.FakeDriver"])
def test_either_driver_reports_a_recorded_host_instead_of_the_live_one(name: str, tmp_path: Path) -> None:
    (archive,) = generate_fleet(tmp_path, 1, seed=7, shape="small")

    driver = driver_of(name, (), archive=archive)

    assert driver.nodes() == (archive.hostname(),)


def test_there_is_no_driver_of_another_name() -> None:
    with pytest.raises(KeyError, match=r"vmwareapi\.VMwareVCDriver"):
        driver_of("vmwareapi.VMwareVCDriver", ())
