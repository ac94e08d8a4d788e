"""The verb ``record``: write this host as a folder of small files, a host archive."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from agent.command.result import Report, settings_of
from agent.connect.choice import Choice, HypervisorNeeded, open_driver
from agent.errors import StateError
from agent.settings.read import Settings
from agent.state.identity import read_identity
from agent.state.rights import owners_rights
from agent.sync.recorder import archive_files
from drivers import FAKE
from drivers.errors import DiscoveryError
from drivers.facts import DiskUnread
from drivers.host.archive import write_files
from drivers.libvirt.connection import LiveConnection
from drivers.libvirt.recorded import DEVICES
from drivers.looks import look


def record(options: argparse.Namespace) -> Report:
    """
    Record this host into the folder ``options.directory``, which is new or empty.

    The host is read completely before the first file is written.

    Raises:
        DiscoveryError, PolicyError: the host cannot be read. StateError: the folder has files or cannot be written.
    """
    folder: Path = options.directory
    with _writing(folder):
        if folder.exists() and any(folder.iterdir()):  # before the host is read, which may take long
            raise StateError(f"{folder} is not empty: record into a new folder")
    files = host_files(settings_of(options))
    with _writing(folder), owners_rights(folder):
        write_files(folder, files)
    lines = [f"recorded this host in {folder}: {len(files)} files"]
    return Report(data={"directory": folder, "files": len(files)}, lines=lines)


def host_files(settings: Settings) -> dict[str, str]:
    """
    Return the files of a host archive of this host.

    Raises:
        DiscoveryError, PolicyError: the host cannot be read. HypervisorNeeded: the driver makes hosts up.
    """
    if settings.hypervisor.driver == FAKE:
        raise HypervisorNeeded(
            f"[DEFAULT] compute_driver = {settings.hypervisor.driver} makes hosts up: to record this one, use another "
            f"driver"
        )
    whole = replace(settings, policy=replace(settings.policy, layout="numa"))  # the layout for which most is read
    with open_driver(whole, Choice()) as driver:
        node = driver.name()
        survey = look(partial(driver.survey, node))
    if isinstance(survey.facts.disk, DiskUnread):
        raise DiscoveryError(survey.facts.disk.because)
    everything = look(LiveConnection(settings.hypervisor.libvirt_uri).all_devices)
    files = {**{f"{DEVICES}/{name}.xml": document.text for name, document in everything}, **survey.files}
    return archive_files(replace(survey, files=files, compute_id=read_identity(settings.folders.identity)), node)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateError(f"cannot write the host archive: {error.strerror}: {error.filename or folder}") from error
