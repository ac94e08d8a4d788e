"""
The file in which the agent remembers one node between passes.

If the file is missing, damaged, of another placement or of an older format, the agent begins with an empty memory: the
next pass reads the whole tree, and what it would then remove from placement it keeps and reports instead.
"""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from agent.errors import StateError
from agent.state.files import read_trusted, remove, remove_state, replace_file, temporary_path, write_file, write_state
from agent.state.memory import NodeState, decode_state, encode_state, same_place

RESERVE_BYTES = 64 * 1024  # least disk space that is reserved before anything is written to placement


class StateFile:
    """The file with the memory of one node."""

    def __init__(self, directory: Path, node_uuid: str) -> None:
        self._path = directory / f"{node_uuid}.json"

    def read(self, where: str) -> NodeState:
        """
        Return what is remembered about this placement; an empty memory if no file can be trusted.

        A memory of another placement becomes part of an empty one (``NodeState.elsewhere``): it only adds doubt.

        Raises:
            StateError: the file exists and cannot be read.
        """
        fresh = NodeState(where=where)
        state = read_trusted(
            self._path, decode_state, fresh, "the saved state is not valid, the whole tree is read from placement"
        )
        if same_place(state.where, where):
            return state if state.where == where else replace(state, where=where)
        if not state.stood:
            return fresh
        return replace(fresh, elsewhere=state, smaller=state.smaller, smaller_seen=state.smaller_seen)

    def begin(self, state: NodeState) -> None:
        """
        Before a write to placement: save what must not be lost if this pass is cut off, and reserve disk space.

        The saved memory has no tree until ``write``. So the next pass after a cut-off one does not take our own
        half-done work for changes of another writer.

        Raises:
            StateError: no space on the disk, or no permission.
        """
        temporary = temporary_path(self._path)
        try:
            replace_file(self._path, encode_state(replace(state, observed=None)))
            write_file(temporary, " " * max(RESERVE_BYTES, 2 * len(encode_state(state))))
        except OSError as error:
            with suppress(OSError):
                remove(temporary)
            raise StateError(
                f"cannot write state below {self._path.parent}: {error.strerror}: nothing was sent to placement; "
                f"free disk space or set [agent] state_directory"
            ) from error

    def write(self, state: NodeState) -> None:
        """
        Replace the file, whole or not at all.

        Raises:
            StateError: the file cannot be written; the old one stays.
        """
        write_state(self._path, encode_state(state))

    def forget(self) -> None:
        """
        Delete the memory of this node, and that of its audits.

        Raises:
            StateError: a file cannot be removed.
        """
        for path in (self._path, self._path.parent / "audits" / self._path.name):
            remove_state(path)
