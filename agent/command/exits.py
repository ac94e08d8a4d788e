"""The exit codes of the command."""

from enum import IntEnum


class Exit(IntEnum):
    """How a verb ended."""

    DONE = 0  # or nothing to do
    ERROR = 1
    USAGE = 2
    DIFFERENCES = 3  # or findings
    REFUSED = 4  # as unsafe, unplaceable, or not the plan that was agreed to
    INTERRUPTED = 130  # by Ctrl-C, as a shell counts it
