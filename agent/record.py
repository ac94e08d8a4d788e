"""Writes a host archive: this host as a folder of small files."""

import json
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from agent.config import Settings
from agent.errors import StateError
from agent.identity import FILE, read_identity
from agent.planner import look
from drivers.host.archive import FORMAT
from drivers.host.disk import probe_disk
from drivers.libvirt.connection import LiveConnection
from drivers.libvirt.driver import LibvirtDriver
from drivers.rules import rule_attributes


def record_host(settings: Settings, folder: Path) -> int:
    """
    Record this host into ``folder``, which is new or empty; answers how many files were written.

    All is read before anything is written.

    Raises:
        DiscoveryError, PolicyError: the host cannot be read. StateError: the folder cannot be written.
    """
    _check_new(folder)
    connection = LiveConnection(settings.libvirt_uri)
    disk = probe_disk(settings.instances, may_be_missing=settings.instances_may_be_missing)
    attributes = rule_attributes(settings.policy.devices)
    driver = LibvirtDriver(connection, settings.policy.guests, lambda: disk, attributes=attributes)
    files = look(lambda: driver.record(connection))
    files["disk.json"] = _json({"total_bytes": disk.total_bytes, "free_bytes": disk.free_bytes})
    if identity := read_identity(settings.identity_folders):
        files[FILE] = identity + "\n"
    uname = platform.uname()
    files["host.json"] = _json(
        {
            "format": FORMAT,
            "hostname": connection.hostname(),
            "recorded_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "uname": {"sysname": uname.system, "release": uname.release, "machine": uname.machine},
            "files": sorted(files),
        }
    )
    _write(folder, files)
    return len(files)


def _check_new(folder: Path) -> None:
    """Before the host is read, which may take long."""
    try:
        if folder.exists() and any(folder.iterdir()):
            raise StateError(f"{folder} is not empty: record into a new folder")
    except OSError as error:
        raise StateError(f"cannot write the host archive: {error.strerror}: {error.filename or folder}") from error


def _write(folder: Path, files: Mapping[str, str]) -> None:
    try:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StateError(f"cannot write the host archive: {error.strerror}: {error.filename or folder}") from error


def _json(value: object) -> str:
    return json.dumps(value, indent=1) + "\n"
