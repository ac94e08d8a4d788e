"""Runs a command of the host that only answers, for so long at most."""

import os
import subprocess
from collections.abc import Sequence


class CommandFailed(Exception):
    """A command is not there, did not end in time, or failed; the message says which, in one line."""


class CommandMissing(CommandFailed):
    """A command is not there, or this user may not run it: waiting does not help."""


def output_of(command: Sequence[str], patience_s: float) -> str:
    """
    Return what a command prints; its messages are not translated.

    Raises:
        CommandMissing: it is not there, or this user may not run it.
        CommandFailed: it could not be started now, did not end in time, or failed.
    """
    name = command[0]
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=patience_s, check=False, env=environment
        )
    except FileNotFoundError as error:
        raise CommandMissing(f"this host has no command {name}") from error
    except PermissionError as error:
        raise CommandMissing(f"{name} cannot be run: {error.strerror or error}") from error
    except OSError as error:  # this host has too many processes or open files, or too little memory, for the moment
        raise CommandFailed(f"{name} could not be started: {error.strerror or error}") from error
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(f"{name} did not answer within {patience_s:.0f} s") from error
    if done.returncode:
        said = "; ".join(line.strip() for line in done.stderr.splitlines() if line.strip())
        raise CommandFailed(f"{name} failed: {said[-300:] or f'it ended with status {done.returncode}'}")
    return done.stdout
