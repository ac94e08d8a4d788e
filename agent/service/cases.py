"""Saves a case, for bug reports, of each pass of the service that was refused or failed."""

import logging
import re
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from agent.errors import StateError
from agent.settings.read import Settings
from agent.state.files import remove, state_files
from agent.state.rights import owners_rights
from agent.sync.case import write_packed
from agent.sync.recorder import Recorder, begin_anew, keep_state, packed_case

LOG = logging.getLogger(__name__)
_FOLDER = "cases"
MOST_BYTES = 16 << 20  # size limit of a case; a larger one is not kept
_REASONS = 64  # reasons that are remembered
_NUMBER = re.compile(r"\d+(\.\d+)?")
_COUNTED = re.compile(r"(\d{6})-\d{8}T")  # begin of a case's name: its number, as the clock may be wrong; the time
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")  # not in a file's name


class KeptCases:
    """
    Keeps what a pass over one host reads, until the next pass begins; ``keep`` writes it to a file.

    Passes with the same reason leave one case until a pass goes well: a pass that is refused every minute does not
    fill the folder. Reasons that differ only in numbers, as ages are, are the same.
    """

    def __init__(self, settings: Settings, most: int) -> None:
        """Keep at most so many cases; 0: nothing is kept, and ``recorder`` is None."""
        self._settings, self._most = settings, most
        self._reasons: deque[str] = deque(maxlen=_REASONS)  # of the cases since the last pass that went well
        self._unkept: deque[str] = deque(maxlen=_REASONS)  # of passes whose case could not be kept, to log it once
        self.recorder = Recorder() if most else None

    def begin(self) -> None:
        """Begin a new pass."""
        if self.recorder:
            begin_anew(self.recorder)

    def keep_state(self) -> None:
        """Keep the state directory of now; an error in it is left for the pass itself to report."""
        with suppress(StateError):
            if self.recorder:
                keep_state(self.recorder, self._settings)

    def well(self) -> None:
        """Note that the pass went well: the next one that does not is a new case."""
        self._reasons.clear()
        self._unkept.clear()

    def keep(self, node: str, why: str, *, deep: bool) -> None:
        """
        Write the case of a pass that was refused or failed, and delete the oldest ones; an error is logged.

        ``deep``: the pass read everything.
        """
        reason = _NUMBER.sub("0", why)
        if not self.recorder or reason in self._reasons:
            return
        try:
            self._write(self.recorder, node, {"rename_from": None, "deep": deep})
            self._reasons.append(reason)
            for old in case_files(self._settings.folders.state)[: -self._most]:
                remove(old)
        except (StateError, OSError) as error:
            if reason not in self._unkept:
                LOG.warning(
                    "the case of this pass cannot be kept, or older ones not deleted node=%s reason=%s", node, error
                )
                self._unkept.append(reason)

    def _write(self, recorder: Recorder, node: str, options: Mapping[str, object]) -> None:
        """Write a case, with the highest number, if it is not too large; StateError, OSError: it cannot be written."""
        folder = self._settings.folders.state / _FOLDER
        with owners_rights(folder):
            for old in state_files(folder, ".new"):  # left by a process that was killed
                remove(old)
        packed = packed_case(recorder, self._settings, "plan", options)
        if len(packed) > MOST_BYTES:
            return
        names = (path.name for path in case_files(self._settings.folders.state))
        number = max((int(found[1]) for name in names if (found := _COUNTED.match(name))), default=0) + 1
        name = f"{number:06}-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{_UNSAFE.sub('_', node)[:100]}.tar.gz"
        write_packed(folder / name, packed, named=False)


def case_files(directory: Path) -> list[Path]:
    """
    Return the kept cases in a state directory, oldest first; empty if there are none.

    Raises:
        StateError: the folder cannot be read.
    """
    return state_files(directory / _FOLDER, ".tar.gz")
