"""Saves a case, for bug reports, of each pass of the service that was refused or failed."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from agent.errors import StateError
from agent.settings.read import Settings
from agent.sync.case import Recorder, begin_anew, new_recorder, save_case

LOG = logging.getLogger(__name__)
_FOLDER = "cases"
MOST_BYTES = 16 << 20  # size limit of a case; a larger one is not kept


class KeptCases:
    """
    Keeps what a pass over one host reads, until the next pass begins; ``keep`` writes it to a file.

    Passes in a row with the same reason leave one case: a pass that is refused every minute does not fill the folder.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._why = ""  # reason of the last kept case; empty: the last pass went well
        self.recorder: Recorder = new_recorder()

    def begin(self) -> None:
        """Begin a new pass; an error in the state directory is left for the pass itself to report."""
        with suppress(StateError):
            begin_anew(self.recorder, self._settings)

    def well(self) -> None:
        """Note that the pass went well: the next one that does not is a new case."""
        self._why = ""

    def keep(self, node: str, why: str, options: Mapping[str, object]) -> None:
        """Write the case of a pass that was refused or failed, and delete the oldest ones; an error is logged."""
        if why == self._why:
            return
        self._why = why
        folder = self._settings.state_directory / _FOLDER
        path = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{node}.tar.gz"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            save_case(path, self.recorder, self._settings, "plan", options)
            if path.stat().st_size > MOST_BYTES:
                path.unlink()
            for old in case_files(self._settings.state_directory)[: -self._settings.keep_cases]:
                old.unlink()
        except (StateError, OSError) as error:
            LOG.warning("the case of this pass cannot be kept node=%s reason=%s", node, error)


def case_files(directory: Path) -> list[Path]:
    """Return the kept cases in a state directory, oldest first; empty if there are none."""
    return sorted((directory / _FOLDER).glob("*.tar.gz"))
