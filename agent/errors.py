"""Errors of this host's configuration and state files, and the list of all errors that a verb prints as a message."""

from drivers.errors import DiscoveryError, PolicyError
from reportclient.errors import PlacementError


class ConfigError(Exception):
    """The configuration is missing or wrong; the message has one line for each problem."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class StateError(Exception):
    """The agent's own files on this host (compute_id, state) cannot be trusted or written."""


USER_ERRORS = (ConfigError, StateError, DiscoveryError, PolicyError, PlacementError)
"""The text of each is a message for the user."""
