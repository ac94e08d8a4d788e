"""A conversion on trial: ``reshape --confirm``, and whether ``--confirm-within`` may begin one."""

import argparse
import time

from agent.command.exits import Exit
from agent.command.result import Report, placement_of, settings_of
from agent.errors import ConfigError, StateError
from agent.state.locks import locked
from agent.sync.decide.undoing import DONE, what_comes
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
        end = f"run reshape --apply --to {trial.target} again, or undo --apply, to its end"
        return Report(data={"confirmed": None}, lines=[f"{why}: {end}"], exit=Exit.REFUSED)
    line = f"confirmed: the conversion of {trial.began} to the layout {trial.target} stands"
    configured = settings_of(options).policy.layout
    step = [f"set [compute] layout = {trial.target}: it is {configured}"] if configured != trial.target else []
    return Report(data={"confirmed": trial.began}, lines=[line], remarks=step)


def check_trial(options: argparse.Namespace, wishes: Wishes) -> None:
    """Check that a conversion that is to be on trial can be; ConfigError: its time is over, or the service converts."""
    if not wishes.confirm_by_s:
        return
    if settings_of(options).changes.allow_reshape:
        raise ConfigError(
            "[agent] allow_reshape is true, so the service would convert this host again: set it to false"
        )
    if wishes.confirm_by_s <= time.time():
        raise ConfigError("--confirm-within: that time is over: give one to come, as 90m")


def how_to_keep(node: ComputeNode) -> str:
    """Return what becomes of the last conversion if it is on trial, or why that is not known; empty: it is not."""
    try:
        trial = find_trial(node.settings.folders.state, node.where)
    except StateError as error:
        return f"it is not known whether a conversion is on trial: {error}"
    return what_comes(trial) if trial else ""
