"""
The file in which the agent keeps what it remembers of one node.

A missing, torn, foreign or older file is as good as none: the next pass reads placement whole. Only what would be
withdrawn from placement is then kept and reported instead.
"""

import logging
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from agent.errors import StateError
from agent.state.files import draft_of, replace_durably, write_durably
from agent.state.memory import NodeState, decode_state, encode_state
from agent.state.places import same_place

LOG = logging.getLogger(__name__)
RESERVE_BYTES = 64 * 1024  # room made sure of before anything is written to placement


class StateFile:
    """The memory of one node in one file."""

    def __init__(self, directory: Path, node_uuid: str) -> None:
        self._path = directory / f"{node_uuid}.json"
        self._draft = draft_of(self._path)

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
            state = decode_state(text)
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
            write_durably(self._draft, " " * max(RESERVE_BYTES, 2 * len(encode_state(state))))
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
        replace_durably(self._path, encode_state(state))
