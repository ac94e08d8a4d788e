"""What a person must put right on this host before a pass can begin, and all that a user can cause."""

from drivers.errors import DiscoveryError, PolicyError
from reportclient.errors import PlacementError


class ConfigError(Exception):
    """The configuration is missing or wrong: one line for each problem, none of them acted upon."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class StateError(Exception):
    """This host's own files (compute_id, state) cannot be trusted or written."""


USER_ERRORS = (ConfigError, StateError, DiscoveryError, PolicyError, PlacementError)  # each a message for the user
