"""Load the driver of a hypervisor: a live one, or one that was recorded or made up."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from drivers.base import OnOperation, Watchable, untold
from drivers.host.archive import HostArchive
from drivers.host.commands import NAMESPACES, read_namespaces
from drivers.host.disk import probe_disk
from drivers.host.sysfs import KernelFiles
from drivers.libvirt.connection import LiveConnection, is_local
from drivers.libvirt.driver import LibvirtDriver
from drivers.libvirt.recorded import RecordedConnection, recorded_disk
from drivers.policy import DiskPlace, GuestPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverOptions:
    """What a driver of a hypervisor needs to read its host."""

    uri: str  # of libvirt
    disk: DiskPlace
    guests: GuestPolicy
    attributes: Mapping[str, frozenset[str]] = field(default_factory=dict)  # vendor id -> sysfs files that rules name
    archive: HostArchive | None = None  # a recorded or made-up host to read instead of the live one; None: the live one
    namespaces: bool = False  # list the namespaces of persistent memory; only pmem_namespaces needs them
    residency: bool = False  # ask the kernel where guests' memory is; only the layout numa needs it
    told: OnOperation = untold  # called after each operation on a live host


def load_driver(options: DriverOptions) -> Watchable:
    """Return the driver of the live host, or of the archive; nothing is read before a method of it is called."""
    archive = options.archive
    if archive is None:
        return _load_live(options)
    archive.check()
    return LibvirtDriver(
        RecordedConnection(archive),
        options.guests,
        partial(recorded_disk, archive, options.disk),
        archive.compute_id,
        files=KernelFiles(archive.root),
        attributes=options.attributes,
        residency=options.residency,
        namespaces=(lambda: archive.read(NAMESPACES)) if options.namespaces else None,
    )


def _load_live(options: DriverOptions) -> Watchable:
    return LibvirtDriver(
        LiveConnection(options.uri, options.told),
        options.guests,
        partial(probe_disk, options.disk),
        files=KernelFiles(Path("/"), live=True) if is_local(options.uri) else None,
        attributes=options.attributes,
        residency=options.residency,
        namespaces=read_namespaces if options.namespaces else None,
    )
