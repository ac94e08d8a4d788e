"""Hardware vocabulary and discovery: the virt drivers, and the facts that they read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from drivers.events import OnOperation, untold

if TYPE_CHECKING:
    from drivers.base import Driver
    from drivers.host.archive import HostArchive
    from drivers.policy import GuestPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverOptions:
    """What a driver needs to know to look at its nodes."""

    uri: str  # of libvirt
    instances: Path
    instances_may_be_missing: bool = False  # nobody named the folder, and nova may not have made it yet
    guests: "GuestPolicy"
    attributes: "Mapping[str, frozenset[str]]" = field(default_factory=dict)  # vendor id -> files that rules name
    archive: "HostArchive | None" = None  # look at this recorded host instead of the live one
    residency: bool = False  # ask the kernel where guests' memory is, which only the layout numa needs
    fleet: tuple["HostArchive", ...] = ()  # of the fake driver
    told: OnOperation = untold  # of each operation on a live host


def load(name: str, options: DriverOptions) -> "Driver":
    """
    The driver of this name, as nova's ``[DEFAULT] compute_driver`` spells it.

    Raises:
        KeyError: there is no such driver; ``DRIVERS`` has their names.
    """
    return DRIVERS[name](options)


def _load_libvirt(options: DriverOptions) -> "Driver":
    from drivers.host.disk import probe_disk
    from drivers.host.sysfs import KernelFiles
    from drivers.libvirt.connection import LiveConnection, is_local
    from drivers.libvirt.driver import LibvirtDriver

    if options.archive:
        return _load_recorded(options.archive, options)
    return LibvirtDriver(
        LiveConnection(options.uri, options.told),
        options.guests,
        partial(probe_disk, options.instances, may_be_missing=options.instances_may_be_missing),
        files=KernelFiles(Path("/"), live=True) if is_local(options.uri) else None,
        attributes=options.attributes,
        residency=options.residency,
    )


def _load_fake(options: DriverOptions) -> "Driver":
    from drivers.fake.driver import FakeDriver

    archives = (options.archive,) if options.archive else options.fleet
    return FakeDriver([_load_recorded(archive, options) for archive in archives])


def _load_recorded(archive: "HostArchive", options: DriverOptions) -> "Driver":
    from drivers.host.sysfs import KernelFiles
    from drivers.libvirt.driver import LibvirtDriver
    from drivers.libvirt.recorded import RecordedConnection

    archive.check()
    return LibvirtDriver(
        RecordedConnection(archive),
        options.guests,
        archive.disk,
        archive.compute_id,
        files=KernelFiles(archive.root),
        attributes=options.attributes,
        residency=options.residency,
    )


IRONIC = "ironic.IronicDriver"  # which reports many roots: ``drivers.ironic.driver``
DRIVERS: dict[str, Callable[[DriverOptions], "Driver"]] = {
    "libvirt.LibvirtDriver": _load_libvirt,
    "fake.FakeDriver": _load_fake,
}
