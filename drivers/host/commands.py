"""Asks commands of the host, each for so long at most: LVM, ndctl for persistent memory, and ceph, as nova does."""

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from drivers.errors import DiscoveryError
from drivers.facts import DiskSpace, DiskUnread, Namespace, PoolSpace
from drivers.host.archive import Document, fields, whole
from drivers.policy import CephPool, VolumeGroup

POOL_OPTION = "[libvirt] images_rbd_pool"
GIB = 1024**3


class CommandFailed(Exception):
    """A command is not there, did not end in time, or failed; the message says which, in one line."""


class CommandMissing(CommandFailed):
    """A command is not there, or this user may not run it: waiting does not help."""


def output_of(command: Sequence[str], patience_s: float) -> str:
    """
    Return what a command prints; its messages are not translated.

    Raises:
        CommandMissing: it is not there, or this user may not run it.
        CommandFailed: it could not be started now, did not end in time, or failed.
    """
    name = command[0]
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=patience_s, check=False, env=environment
        )
    except FileNotFoundError as error:
        raise CommandMissing(f"this host has no command {name}") from error
    except PermissionError as error:
        raise CommandMissing(f"{name} cannot be run: {error.strerror or error}") from error
    except OSError as error:  # this host has too many processes or open files, or too little memory, for the moment
        raise CommandFailed(f"{name} could not be started: {error.strerror or error}") from error
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(f"{name} did not answer within {patience_s:.0f} s") from error
    if done.returncode:
        said = "; ".join(line.strip() for line in done.stderr.splitlines() if line.strip())
        raise CommandFailed(f"{name} failed: {said[-300:] or f'it ended with status {done.returncode}'}")
    return done.stdout


PATIENCE_S = 30
GROUP_OPTION = "[libvirt] images_volume_group"
# --readonly: without LVM's locks, as nothing is changed.
VGS = ("vgs", "--readonly", "--noheadings", "--nosuffix", "--separator", "|", "--units", "b", "-o", "vg_size,vg_free")


def probe_group(group: VolumeGroup) -> DiskSpace:
    """
    Return size and free space of a volume group.

    Raises:
        DiscoveryError: there is none of this name, or LVM cannot be asked.
    """
    try:
        answer = output_of([*VGS, group.name], PATIENCE_S)
    except CommandFailed as error:
        raise DiscoveryError(
            f"cannot read the size of the volume group {group.name} ({GROUP_OPTION}): {error}: check the name with "
            f"vgs, and that this user may read the disks of the group"
        ) from error
    size, _, free = answer.strip().partition("|")
    if not (size.isdecimal() and free.isdecimal()):
        raise DiscoveryError(
            f"vgs answers {answer.strip()[:60]!r} for the volume group {group.name} ({GROUP_OPTION}), and not its size "
            f"and its free space: run vgs {group.name} as this user"
        )
    return DiskSpace(total_bytes=int(size), free_bytes=int(free), volume_group=group.name)


PMEM_OPTION = "[libvirt] pmem_namespaces"
NAMESPACES = "ndctl.json"  # the file of a host archive
COMMAND = ("ndctl", "list", "--device-dax")


def read_namespaces() -> Document:
    """
    Return what the command answers: a JSON list; empty text where the host has no namespace.

    Raises:
        DiscoveryError: it cannot be asked.
    """
    try:
        return Document(output_of(COMMAND, PATIENCE_S), " ".join(COMMAND))
    except CommandFailed as error:
        raise DiscoveryError(
            f"cannot list the namespaces of persistent memory ({PMEM_OPTION}): {error}: install ndctl, or remove the "
            f"option"
        ) from error


def parse_namespaces(document: Document) -> tuple[Namespace, ...]:
    """
    Return the namespaces that have a name, by name; nova knows no others.

    Raises:
        MalformedFact: not in the form of ndctl.
    """
    if not document.text.strip():
        return ()
    with fields(document.source):
        records = json.loads(document.text)
        found = [Namespace(str(one["name"]), _path(one)) for one in records if one.get("name")]
    return tuple(sorted(found, key=lambda one: one.name))


def _path(record: dict[str, Any]) -> str | None:
    """
    Return the character device of a namespace in the mode devdax; None where there is none.

    The device of such a namespace may be memory of the system, or disabled (``daxctl reconfigure-device``); older
    releases of ndctl do not show that (util_daxctl_dev_to_json in ndctl's daxctl/json.c).
    """
    device, *_ = record.get("daxregion", {}).get("devices") or [{}]
    is_usable = device.get("mode", "devdax") == "devdax" and device.get("state") != "disabled"
    return f"/dev/{device['chardev']}" if is_usable and "chardev" in device else None


def probe_pool(place: CephPool) -> PoolSpace | DiskUnread:
    """
    Return the raw size of the cluster, as nova reports it, and what the pool can hold.

    The pool can hold what is stored in it and what Ceph calls its max_avail: both count each byte once, however often
    the pool keeps it. Its quota counts them alike, and Ceph's max_avail does not know it: at its quota a pool takes no
    more writes (docs.ceph.com, "Setting Pool Quotas"). A quota of 0 is none.

    ``DiskUnread``: the cluster did not answer in time, or refused, or does not know yet.

    Raises:
        DiscoveryError: it has no such pool, or answers in an unknown form; or there is no command to ask it.
    """
    source = f"ceph df for the pool {place.name} ({POOL_OPTION})"
    try:
        with fields(source):
            answer: dict[str, Any] = json.loads(_ask(place, "df", "detail", "--format=json"))  # quotas are details
            pools = {pool["name"]: pool["stats"] for pool in answer["pools"]}
            if place.name not in pools:
                raise DiscoveryError(
                    f"the Ceph cluster has no pool {place.name} ({POOL_OPTION}): it has {', '.join(pools) or 'none'}"
                )
            pool = pools[place.name]
            in_all, holds = whole(answer["stats"]["total_bytes"]), whole(pool["stored"]) + whole(pool["max_avail"])
            if not (in_all and holds):  # its manager has just begun
                return DiskUnread(f"the Ceph cluster has not counted yet what its pool {place.name} can hold")
            holds = min(holds, whole(pool.get("quota_bytes", 0)) or holds)
            fsid = str(UUID(_ask(place, "fsid").strip()))
            return PoolSpace(pool=place.name, cluster_bytes=in_all, pool_gib=holds // GIB, fsid=fsid)
    except CommandFailed as error:
        return DiskUnread(f"the Ceph cluster did not answer: {error}")


def _ask(place: CephPool, *asked: str) -> str:
    command = ["ceph", *asked, "--connect-timeout", str(place.timeout_s)]
    command += [*(["--id", place.user] if place.user else []), *(["--conf", place.config] if place.config else [])]
    try:
        return output_of(command, 2 * place.timeout_s)  # the command itself needs a moment to start
    except CommandMissing as error:
        raise DiscoveryError(
            f"the Ceph cluster cannot be asked ({POOL_OPTION}): {error}: install ceph-common"
        ) from error
