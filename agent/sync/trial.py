"""
A conversion on trial: it is taken back when its time is over, unless a person confirms it.

Its entry in the journal has its time and its end (``find_trial``, ``end_trial``); ``agent.command.trial`` has what a
person asks. Beside it no other conversion begins (``agent.sync.decide.checks: barred``).
"""

import logging
import time
from dataclasses import replace
from typing import cast

from agent.errors import USER_ERRORS, ConfigError
from agent.sync.decide.checks import judge
from agent.sync.decide.undoing import DONE, Conversion, what_comes
from agent.sync.decide.view import Wishes
from agent.sync.journal import find_trial
from agent.sync.node import ComputeNode
from agent.sync.outcome import Condition, Outcome, Status
from agent.sync.run import foresee, outcome_of, run_pass
from drivers.policy import Layout

LOG = logging.getLogger(__name__)


def heed_trial(node: ComputeNode) -> tuple[Condition, ...]:
    """
    Take back a conversion on trial whose time is over; return what a person should know of one that waits.

    The caller holds the lock (``locked``). An error stops no pass: it is told too.
    """
    try:
        trial = find_trial(node.settings.folders.state, node.where)
        back = _take_back(node, trial) if trial else None
    except USER_ERRORS as error:
        return (Condition(kind="trial", text=f"a conversion may be on trial, and is not taken back: {error}"),)
    if trial is None or (back and back.status in (Status.CHANGED, Status.UNCHANGED)):
        return ()
    text = what_comes(trial)
    if back:
        text = f"the conversion of {trial.began} is on trial, and cannot be taken back: {'; '.join(back.notes)}"
    return (Condition(kind="trial", text=text),)


def _take_back(node: ComputeNode, last: Conversion) -> Outcome | None:
    """
    Take the last conversion, which is on trial, back if its time is over; None: it is not to be taken back now.

    What cannot be taken back exactly stays, and is tried again.

    Raises:
        ConfigError: this agent would convert the host again. As ``run_pass``.
    """
    if last.confirm_by_s is None or time.time() < last.confirm_by_s:
        return None
    configured, changes = node.settings.policy.layout, node.settings.changes
    if changes.allow_reshape and configured != last.layout:
        raise ConfigError(f"[agent] allow_reshape is true, so the host would be converted to {configured} again")
    policy = replace(node.settings.policy, layout=cast(Layout, last.layout))
    hasty = replace(changes, reshape_timeout_s=0)  # the next pass tries again
    back = replace(node, settings=replace(node.settings, policy=policy, changes=hasty))
    # What was cut off is taken back whole, though a part of that moves nothing.
    wishes = Wishes(reshape=True, undone=last, configured=configured if last.outcome == DONE else last.layout)
    draft = foresee(back, wishes)
    if draft.root_uuid != last.root_uuid:
        raise ConfigError(f"it was of the root {last.root_uuid}, and this one is {draft.root_uuid}: reshape --confirm")
    if draft.view.terms.earliest_s < last.confirm_by_s:
        return None
    verdict = judge(draft)
    if verdict.refused:  # told, and not remembered: the pass that comes next has its own plan
        return outcome_of(back, draft, verdict.refused, verdict.notes)
    outcome = run_pass(back, wishes, is_locked=True)
    if outcome.status in (Status.CHANGED, Status.UNCHANGED):
        LOG.warning("a conversion that nobody confirmed is taken back node=%s began=%s", node.name, last.began)
    return outcome
