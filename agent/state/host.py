"""
What the agent must remember between passes, one checksummed JSON file per node, and the lock that goes with it.

A missing, torn, foreign or older file is as good as none: the next pass reads placement whole. Only what would be
withdrawn from placement is then kept and reported instead.
"""

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from oslo_concurrency import lockutils

from agent.errors import StateError
from agent.state.files import sync_folder, write_durably
from agent.state.places import same_place
from reportclient.ownership import Names
from reportclient.payload import decode_observed, encode_observed
from reportclient.reserve import Reservations
from reportclient.tree import ObservedTree

LOG = logging.getLogger(__name__)
FORMAT = 2
PATIENCE_S = 10  # with another process that writes
RESERVE_BYTES = 64 * 1024  # room made sure of before anything is written to placement


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One node's memory; the default is that of a node never seen."""

    where: str = ""  # the placement that this memory is about
    microversion: tuple[int, int] | None = None
    observed: ObservedTree | None = None  # as the last pass left it
    configured: Mapping[str, Names] = field(default_factory=dict)  # by provider: what the operator's files named
    lacked_traits: frozenset[str] = frozenset()  # standard ones that this placement is too old to know
    reported: Mapping[str, Names] = field(default_factory=dict)  # by provider: what devices and rules put there
    strikes: int = 0  # passes that found our own stock changed by somebody else
    struck_s: float = 0.0  # when the last of them was, in seconds since the epoch
    quiet: int = 0  # passes since the last strike that found nothing of the kind
    contested: tuple[str, ...] = ()  # what the second writer did; not empty: we do not write
    smaller: str = ""  # the digest of a plan that was refused because it takes much away
    smaller_seen: int = 0  # and how many passes in a row wanted it
    used: frozenset[str] = frozenset()  # one-time devices that were used and are not yet reserved, by uuid
    reserved: Reservations = field(default_factory=dict)  # by operators, and not written as traits yet
    kinds: Mapping[str, frozenset[str]] = field(default_factory=dict)  # classes of each device that a total counts
    whole_s: float = 0.0  # when the tree was last read whole, in seconds since the epoch


class StateFile:
    """The memory of one node in one file."""

    def __init__(self, directory: Path, node_uuid: str) -> None:
        self._path = directory / f"{node_uuid}.json"
        self._draft = self._path.with_suffix(".json.new")

    def read(self, where: str) -> NodeState:
        """
        What is remembered about this placement; a fresh memory when there is none that can be trusted.

        Raises:
            StateError: the file is there and cannot be read.
        """
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")  # and the checksum is wrong
        except FileNotFoundError:
            return NodeState(where=where)
        except OSError as error:
            raise StateError(f"cannot read {self._path}: {error}") from error
        try:
            state = _decode(text)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            LOG.warning("state is not trusted and read anew from placement file=%s reason=%s", self._path, error)
            return NodeState(where=where)
        return replace(state, where=where) if same_place(state.where, where) else NodeState(where=where)

    def begin(self, state: NodeState) -> None:
        """
        Before placement is written: keep what must not be lost if this pass is cut off, and make sure of room.

        What placement holds is forgotten until ``write``, so that our own half-done work is not taken for another's.

        Raises:
            StateError: no room, or no permission.
        """
        try:
            self._replace(replace(state, observed=None))
            write_durably(self._draft, " " * max(RESERVE_BYTES, 2 * len(_encode(state))))
        except OSError as error:
            with suppress(OSError):
                self._draft.unlink(missing_ok=True)
            raise StateError(
                f"cannot write state below {self._path.parent}: {error.strerror}: nothing was sent to "
                f"placement; make room or set [agent] state_directory"
            ) from error

    def write(self, state: NodeState) -> None:
        """
        Replace the file, whole or not at all.

        Raises:
            StateError: it cannot be written; the old one stays.
        """
        try:
            self._replace(state)
        except OSError as error:
            raise StateError(
                f"cannot write {self._path}: {error.strerror}: placement is up to date, the next pass reads it whole"
            ) from error

    def forget(self) -> None:
        """
        Nothing is remembered any more.

        Raises:
            StateError: the file cannot be removed.
        """
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise StateError(f"cannot remove {self._path}: {error.strerror}") from error

    def _replace(self, state: NodeState) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(self._draft, _encode(state))
        self._draft.rename(self._path)
        sync_folder(self._path.parent)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """
    Inside, no other process of this agent writes.

    Raises:
        StateError: the folder cannot be written, or another process has had the lock for ten seconds.
    """
    another = f"another compute-node-agent has been writing for {PATIENCE_S} s (lock in {directory}): let it finish"
    with _holding("agent", directory, another, patience_s=PATIENCE_S):
        yield


@contextmanager
def serving(directory: Path) -> Iterator[None]:
    """
    Inside, this process is the service of this folder; its single passes take ``locked`` besides.

    Raises:
        StateError: the folder cannot be written, or the service of this folder runs already.
    """
    with _holding("service", directory, f"the service runs already with {directory}: stop it first", patience_s=0):
        yield


@contextmanager
def _holding(name: str, directory: Path, otherwise: str, *, patience_s: int) -> Iterator[None]:
    """Inside, no other process has the lock of this name."""
    try:
        lock = lockutils.external_lock(name, lock_path=str(directory))
        if not lock.acquire(blocking=patience_s > 0, timeout=patience_s):
            raise StateError(otherwise)
    except OSError as error:
        raise StateError(
            f"cannot write below {directory}: {error.strerror}: run as the agent's own user, or set "
            f"[agent] state_directory"
        ) from error
    try:
        yield
    finally:
        lock.release()
        _give_back(directory)


def _give_back(directory: Path) -> None:
    """What root made in the folder of the service's user becomes that user's, who else could not write it again."""
    owner = directory.stat() if os.geteuid() == 0 and directory.exists() else None
    if owner is None or owner.st_uid == 0:
        return
    for folder, folders, files in os.walk(directory):
        for name in (*folders, *files):
            path = Path(folder, name)
            with suppress(OSError):  # it may be gone by now
                made = path.lstat()
                if made.st_uid == 0 and (made.st_nlink == 1 or path.is_dir()):
                    os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _encode(state: NodeState) -> str:
    body: dict[str, Any] = {
        "where": state.where,
        "microversion": state.microversion,
        "observed": state.observed
        and {
            "last_modified": state.observed.last_modified,
            "providers": [encode_observed(observed) for observed in state.observed],
        },
        "configured": _encode_names(state.configured),
        "reported": _encode_names(state.reported),
        "lacked_traits": sorted(state.lacked_traits),
        "strikes": state.strikes,
        "struck_s": state.struck_s,
        "quiet": state.quiet,
        "contested": state.contested,
        "smaller": state.smaller,
        "smaller_seen": state.smaller_seen,
        "used": sorted(state.used),
        "reserved": {uuid: dict(amounts) for uuid, amounts in state.reserved.items()},
        "kinds": {device: sorted(names) for device, names in sorted(state.kinds.items())},
        "whole_s": state.whole_s,
    }
    return json.dumps({"format": FORMAT, "checksum": _checksum(body), "body": body}, indent=1) + "\n"


@lru_cache(4)  # it hardly ever changes, and is read several times at each pass
def _decode(text: str) -> NodeState:
    record = json.loads(text)
    body = record["body"]
    if record["format"] != FORMAT:
        raise ValueError(f"format {record['format']}")
    if record["checksum"] != _checksum(body):
        raise ValueError("checksum")
    seen = body["observed"]
    return NodeState(
        where=body["where"],
        microversion=tuple(body["microversion"]) if body["microversion"] else None,
        observed=ObservedTree(tuple(map(decode_observed, seen["providers"])), seen["last_modified"]) if seen else None,
        configured=_decode_names(body["configured"]),
        reported=_decode_names(body["reported"]),
        lacked_traits=frozenset(body["lacked_traits"]),
        strikes=body["strikes"],
        struck_s=float(body.get("struck_s", 0.0)),  # files of 0.1.0 have none
        quiet=body["quiet"],
        contested=tuple(body["contested"]),
        smaller=body["smaller"],
        smaller_seen=body["smaller_seen"],
        used=frozenset(body.get("used", ())),  # files of 0.1.0 have none of these
        reserved=body.get("reserved", {}),
        kinds={device: frozenset(names) for device, names in body.get("kinds", {}).items()},
        whole_s=float(body.get("whole_s", 0.0)),
    )


def _encode_names(by_provider: Mapping[str, Names]) -> dict[str, Any]:
    return {
        provider: {"classes": sorted(names.classes), "traits": sorted(names.traits)}
        for provider, names in sorted(by_provider.items())
    }


def _decode_names(body: dict[str, Any]) -> dict[str, Names]:
    return {
        provider: Names(frozenset(names["classes"]), frozenset(names["traits"])) for provider, names in body.items()
    }


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
