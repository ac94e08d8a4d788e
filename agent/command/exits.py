"""The exit codes of the command."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit code of a verb."""

    DONE = 0  # or nothing to do
    ERROR = 1
    USAGE = 2
    DIFFERENCES = 3  # or findings
    # The plan is unsafe, cannot place all that a guest has, or is not the approved plan; or a second writer was found.
    REFUSED = 4
    INTERRUPTED = 130  # by Ctrl-C: 128 + SIGINT, as in a shell
