"""Looks again where something went away while a host was read."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from drivers.errors import Vanished

T = TypeVar("T")

LOG = logging.getLogger(__name__)
LOOKS = 3  # surveys of a host at most, when something goes away while it is read
PAUSE_S = 0.1  # between two surveys, so that libvirt notices too what went away


def look(survey: Callable[[], T]) -> T:
    """Return the result of a survey, made up to ``LOOKS`` times while something goes away; errors as ``survey``."""
    for _ in range(LOOKS - 1):
        try:
            return survey()
        except Vanished as error:
            LOG.info("surveying again reason=%s", error)
            time.sleep(PAUSE_S)
    return survey()
