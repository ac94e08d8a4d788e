"""The table of drivers: what each reports, and how it is opened."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from drivers import FAKE, INSIDE, IRONIC, LIBVIRT
from drivers.base import Driver, OnOperation, SurveyedElsewhere, untold
from drivers.host.archive import HostArchive
from drivers.host.commands import NAMESPACES, read_namespaces
from drivers.host.disk import DiskProbe
from drivers.host.sysfs import KernelFiles
from drivers.ironic.client import IronicClient
from drivers.ironic.driver import IronicDriver
from drivers.libvirt.connection import LiveConnection, is_local
from drivers.libvirt.driver import LibvirtDriver
from drivers.libvirt.recorded import RecordedConnection, recorded_disk
from drivers.policy import DiskPlace, GuestPolicy
from reportclient.keystone import Sender


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverOptions:
    """What a driver of hypervisors needs to read its hosts."""

    uri: str  # of libvirt
    disk: DiskPlace
    guests: GuestPolicy
    attributes: Mapping[str, frozenset[str]] = field(default_factory=dict)  # vendor id -> sysfs files that rules name
    archive: HostArchive | None = None  # a recorded host to read instead of the live one; None: the live one
    namespaces: bool = False  # list the namespaces of persistent memory; only pmem_namespaces needs them
    residency: bool = False  # ask the kernel where guests' memory is; only the layout numa needs it
    fleet: tuple[HostArchive, ...] = ()  # the made-up hosts of the fake driver
    told: OnOperation = untold  # called after each operation on a live host


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesOptions:
    """What a driver of bare-metal nodes needs to list its nodes."""

    sender: Sender  # of requests to Ironic
    where: str  # the Ironic's name in messages
    shard: str | None  # narrows the listing; None: every shard
    conductor_group: str | None  # narrows the listing; None: every group
    mine: Callable[[str], bool] | None = None  # whether a node, by uuid, is this agent's; None: every listed node is


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDriver:
    """A driver that reports one provider tree for each of its hosts: ``survey`` and ``shape`` of ``drivers.base``."""

    load: Callable[[DriverOptions], Driver]
    made_up: bool = False  # its hosts are made up: ``DriverOptions.fleet``


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesDriver:
    """A driver that reports many root providers from one listing: ``drivers.ironic.driver``."""

    load: Callable[[NodesOptions], IronicDriver]


def _load_libvirt(options: DriverOptions) -> Driver:
    if options.archive:
        return _load_recorded(options.archive, options)
    return LibvirtDriver(
        LiveConnection(options.uri, options.told),
        options.guests,
        DiskProbe(options.disk),
        files=KernelFiles(Path("/"), live=True) if is_local(options.uri) else None,
        attributes=options.attributes,
        residency=options.residency,
        namespaces=read_namespaces if options.namespaces else None,
    )


def _load_fake(options: DriverOptions) -> Driver:
    archives = (options.archive,) if options.archive else options.fleet
    drivers = [_load_recorded(archive, options) for archive in archives]
    hosts = {node: driver for driver in drivers for node in driver.nodes()}
    return SurveyedElsewhere(drivers[0], lambda: tuple(hosts), lambda node: hosts[node].survey(node))


def _load_recorded(archive: HostArchive, options: DriverOptions) -> Driver:
    archive.check()
    return LibvirtDriver(
        RecordedConnection(archive),
        options.guests,
        partial(recorded_disk, archive, options.disk) if options.archive else archive.disk,
        archive.compute_id,
        files=KernelFiles(archive.root),
        attributes=options.attributes,
        residency=options.residency,
        namespaces=(lambda: archive.read(NAMESPACES)) if options.namespaces else None,
    )


def _load_ironic(options: NodesOptions) -> IronicDriver:
    client = IronicClient(options.sender, options.where, shard=options.shard, conductor_group=options.conductor_group)
    return IronicDriver(client, options.mine)


DRIVERS: dict[str, HostDriver | NodesDriver] = {
    LIBVIRT: HostDriver(load=_load_libvirt),
    INSIDE: HostDriver(load=_load_libvirt),
    FAKE: HostDriver(load=_load_fake, made_up=True),
    IRONIC: NodesDriver(load=_load_ironic),
}
"""Drivers by the value of nova's ``[DEFAULT] compute_driver``; each row says what the driver reports."""
