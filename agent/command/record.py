"""Write a host archive: this host as a folder of small files."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from agent.connect.choice import HypervisorNeeded, host_driver
from agent.errors import StateError
from agent.settings.read import Settings
from agent.state.identity import read_identity
from agent.state.rights import owners_rights
from agent.sync.recorder import archive_files
from drivers.host.commands import read_namespaces
from drivers.host.disk import probe_disk
from drivers.host.sysfs import KernelFiles
from drivers.libvirt.connection import LiveConnection, is_local
from drivers.libvirt.driver import LibvirtDriver
from drivers.libvirt.recorded import DEVICES
from drivers.looks import look
from drivers.rules import rule_attributes


def record_host(settings: Settings, folder: Path) -> int:
    """
    Record this host into ``folder``, which is new or empty; return the number of files.

    The host is read completely before the first file is written.

    Raises:
        DiscoveryError, PolicyError: the host cannot be read. StateError: the folder has files or cannot be written.
    """
    _check_new(folder)
    files = host_files(settings)
    _write(folder, files)
    return len(files)


def host_files(settings: Settings) -> dict[str, str]:
    """
    Return the files of a host archive of this host.

    Raises:
        DiscoveryError, PolicyError: the host cannot be read. HypervisorNeeded: the driver makes hosts up.
    """
    if host_driver(settings).made_up:
        raise HypervisorNeeded(
            f"[DEFAULT] compute_driver = {settings.driver} makes hosts up: to record this one, use another driver"
        )
    connection = LiveConnection(settings.libvirt_uri)
    driver = LibvirtDriver(
        connection,
        settings.policy.guests,
        partial(probe_disk, settings.disk),
        files=KernelFiles(Path("/"), live=True) if is_local(settings.libvirt_uri) else None,
        attributes=rule_attributes(settings.policy.devices),
        residency=True,
        namespaces=read_namespaces if settings.policy.devices.pmem else None,
    )
    (node,) = driver.nodes()
    survey = look(partial(driver.survey, node))
    everything = {f"{DEVICES}/{name}.xml": document.text for name, document in look(connection.all_devices)}
    survey = replace(survey, files={**everything, **survey.files})
    return archive_files(survey, node, read_identity(settings.identity_folders))


def _check_new(folder: Path) -> None:
    """Refuse a folder with files before the host is read, which may take long."""
    try:
        if folder.exists() and any(folder.iterdir()):
            raise StateError(f"{folder} is not empty: record into a new folder")
    except OSError as error:
        raise StateError(f"cannot write the host archive: {error.strerror}: {error.filename or folder}") from error


def _write(folder: Path, files: Mapping[str, str]) -> None:
    try:
        with owners_rights(folder):
            for name, text in files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StateError(f"cannot write the host archive: {error.strerror}: {error.filename or folder}") from error
