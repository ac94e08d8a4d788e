"""The verb ``watch``: print events and what they change, until it is interrupted."""

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from agent.command.data import about, print_data
from agent.command.plan_results import ShownChange
from agent.command.plan_tables import print_change
from agent.command.result import choice_of
from agent.command.screen import screen
from agent.command.watch import open_watch
from agent.connect.choice import settings_for
from agent.sync.json_form import encode


def watch(options: argparse.Namespace) -> None:
    """
    Print each change; with --sync after it was written to placement.

    Raises:
        ConfigError: the host is not a live one. HypervisorNeeded: the driver reports bare-metal nodes.
            DiscoveryError, PolicyError: libvirt or udev cannot be watched.
            StateError, PlacementError: only with --sync.
    """
    choice = choice_of(options)
    with _ending_by_signal(), open_watch(settings_for(choice), choice, sync=options.sync) as changes:
        for change in changes:
            _print(options, change)


@contextmanager
def _ending_by_signal() -> Iterator[None]:
    """End the block without an error on Ctrl-C or SIGTERM."""

    def end(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        with suppress(KeyboardInterrupt):
            yield
    except SystemError as error:  # Python raises it where the interrupt arrives inside a callback of libvirt
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _print(options: argparse.Namespace, change: ShownChange) -> None:
    if options.format == "table":
        screen().show(print_change, change)
        sys.stdout.flush()
        return

    print_data(options.format, {**encode(change), "about": about(options)}, lines=True)
