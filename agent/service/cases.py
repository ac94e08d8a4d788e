"""The cases of the service's last passes that were refused or failed: what a bug report takes along."""

import logging
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.errors import StateError
from agent.settings.read import Settings
from agent.sync.case import Recorder, begin_anew, new_recorder, save_case

LOG = logging.getLogger(__name__)
_FOLDER = "cases"
MOST_BYTES = 16 << 20  # of one case; a larger one is not kept


class KeptCases:
    """
    Keeps what each pass over one host reads, until the next begins; ``keep`` makes a file of it.

    Of one reason after another only the first is kept: a pass that is refused each minute leaves one case.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._why = ""
        self.recorder: Recorder = new_recorder()

    def begin(self) -> None:
        """A pass begins; errors of our own files are the pass's to tell."""
        with suppress(StateError):
            begin_anew(self.recorder, self._settings)

    def well(self) -> None:
        """The pass went well: the next one that does not is a new case."""
        self._why = ""

    def keep(self, node: str, why: str, options: dict[str, Any]) -> None:
        """Keep the case of a pass that was refused or failed, and let go of the oldest ones."""
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
            LOG.warning("the case of this pass is not kept node=%s reason=%s", node, error)


def case_files(directory: Path) -> list[Path]:
    """The kept cases in a state directory, the oldest first."""
    return sorted((directory / _FOLDER).glob("*.tar.gz"))
