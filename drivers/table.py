"""The table of drivers of hypervisors: how each is opened."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from drivers import FAKE, INSIDE, LIBVIRT
from drivers.base import OnOperation, Watchable, untold
from drivers.host.archive import HostArchive
from drivers.host.commands import NAMESPACES, read_namespaces
from drivers.host.disk import probe_disk
from drivers.host.sysfs import KernelFiles
from drivers.libvirt.connection import LiveConnection, is_local
from drivers.libvirt.driver import LibvirtDriver, SurveyedElsewhere, unwatched
from drivers.libvirt.recorded import RecordedConnection, recorded_disk
from drivers.policy import DiskPlace, GuestPolicy


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


def _load_libvirt(options: DriverOptions) -> Watchable:
    if options.archive:
        return _load_recorded(options.archive, options)
    return LibvirtDriver(
        LiveConnection(options.uri, options.told),
        options.guests,
        partial(probe_disk, options.disk),
        files=KernelFiles(Path("/"), live=True) if is_local(options.uri) else None,
        attributes=options.attributes,
        residency=options.residency,
        namespaces=read_namespaces if options.namespaces else None,
    )


def _load_fake(options: DriverOptions) -> Watchable:
    archives = (options.archive,) if options.archive else options.fleet
    drivers = [_load_recorded(archive, options) for archive in archives]
    hosts = {node: driver for driver in drivers for node in driver.nodes()}
    return SurveyedElsewhere(lambda: tuple(hosts), lambda node: hosts[node].survey(node), unwatched)


def _load_recorded(archive: HostArchive, options: DriverOptions) -> Watchable:
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


DRIVERS: dict[str, Callable[[DriverOptions], Watchable]] = {
    LIBVIRT: _load_libvirt,
    INSIDE: _load_libvirt,
    FAKE: _load_fake,
}
"""What opens a driver of hypervisors, by nova's ``[DEFAULT] compute_driver``; IRONIC has nodes of bare metal."""
