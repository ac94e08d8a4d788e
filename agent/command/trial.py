"""A conversion on trial: ``reshape --confirm``, and whether ``--confirm-within`` may begin one."""

import argparse
import time

from agent.command.exits import Exit
from agent.command.result import Report, placement_of, settings_of
from agent.errors import ConfigError, StateError
from agent.state.locks import locked
from agent.sync.decide.undoing import DONE
from agent.sync.decide.view import Wishes
from agent.sync.journal import end_trial, find_trial, kept_conversions, read_journal
from agent.sync.node import ComputeNode

UNTRIED = "was not made on trial"


def confirm_trial(options: argparse.Namespace) -> Report:
    """Let the conversion on trial stand; neither host nor placement need answer for that."""
    directory, (_, where) = settings_of(options).folders.state, placement_of(options)
    with locked(directory):
        trial = find_trial(directory, where)
        if trial and trial.outcome == DONE:
            end_trial(trial, "confirmed")
    if trial is None:
        last = kept_conversions(read_journal(directory, where))[-1:]
        ended = [f": that of {one.began} {f'is {one.trial_ended}' if one.trial_ended else UNTRIED}" for one in last]
        why = f"no conversion is on trial{''.join(ended)}"
        return Report(data={"confirmed": None}, lines=[why], exit=Exit.REFUSED)
    if trial.outcome != DONE:
        why = f"the conversion of {trial.began} is not whole, and not confirmed: {trial.outcome}"
        end = "run its reshape --apply again, or undo --apply, to its end"
        return Report(data={"confirmed": None}, lines=[f"{why}: {end}"], exit=Exit.REFUSED)
    line = f"confirmed: the conversion of {trial.began} to the layout {trial.target} stands"
    configured = settings_of(options).policy.layout
    step = [f"set [compute] layout = {trial.target}: it is {configured}"] if configured != trial.target else []
    return Report(data={"confirmed": trial.began}, lines=[line], remarks=step)


def check_trial(options: argparse.Namespace, wishes: Wishes) -> None:
    """
    Check that a conversion may be on trial if it is to be, or if it goes on with one that was cut off.

    Raises:
        ConfigError: its time is over, or the service would not keep to it. StateError: the journal is damaged.
    """
    directory, (_, where) = settings_of(options).folders.state, placement_of(options)
    other = find_trial(directory, where)
    if other and other.outcome != DONE and not wishes.confirm_by_s and (other.confirm_by_s or 0) <= time.time():
        raise ConfigError(
            f"the conversion of {other.began} on trial was cut off, and its time is over: run undo --apply, or go on "
            "with it with --confirm-within"
        )
    if not wishes.confirm_by_s:
        return
    if settings_of(options).changes.allow_reshape:
        raise ConfigError(
            "[agent] allow_reshape is true, so the service would convert this host again: set it to false"
        )
    if wishes.confirm_by_s <= time.time():
        raise ConfigError("--confirm-within: that time is over: give one to come, as 90m")


def how_to_keep(node: ComputeNode) -> str:
    """Return until when the last conversion is on trial, and how it is kept; empty: it is not, as the journal tells."""
    try:
        trial = find_trial(node.settings.folders.state, node.where)
    except StateError:
        return ""
    if trial is None:
        return ""
    return (
        f"the conversion is on trial: the service, if it runs, takes it back at {trial.confirm_by}, and "
        "compute-node-agent reshape --confirm keeps it"
    )
