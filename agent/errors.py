"""What a person must put right on this host before a pass can begin."""


class ConfigError(Exception):
    """The configuration is missing or wrong: one line for each problem, none of them acted upon."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class StateError(Exception):
    """This host's own files (compute_id, state) cannot be trusted or written."""
