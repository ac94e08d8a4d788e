"""Exit codes of the command; ``docs/commands.md`` has them for each verb."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit code of a verb."""

    DONE = 0  # or nothing to do
    ERROR = 1
    USAGE = 2
    DIFFERENCES = 3  # or findings, also where audit --heal does nothing because a pass would be refused
    # The plan is unsafe, has no place for what a guest has or is not the agreed one; a second writer was found; too
    # many bare-metal nodes are gone at once; or a tree may not be retired or handed over.
    REFUSED = 4
    INTERRUPTED = 130  # by Ctrl-C: 128 + SIGINT, as in a shell
