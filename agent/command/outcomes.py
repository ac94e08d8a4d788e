"""What the verbs over a hypervisor and over bare-metal nodes share: wishes, outcomes as they are shown, exit codes."""

import argparse
from collections.abc import Iterable

from agent.command.exits import Exit
from agent.command.plan_results import Ended, ShownPlan, shown_plan
from agent.sync.decide.view import Wishes
from agent.sync.outcome import Outcome, Status
from drivers.base import Survey
from reportclient.plan import Plan
from reportclient.tree import ObservedTree

ENDINGS = {
    Status.UNCHANGED: Exit.DONE,
    Status.CREATED: Exit.DONE,
    Status.CHANGED: Exit.DONE,
    Status.DELETED: Exit.DONE,
    Status.RESHAPE_NEEDED: Exit.DIFFERENCES,
    Status.UNSAFE: Exit.REFUSED,
    Status.OTHER_PLAN: Exit.REFUSED,
    Status.MISFIT: Exit.DIFFERENCES,
    Status.FAILED: Exit.ERROR,
    Status.AUDIT_ONLY: Exit.REFUSED,
    Status.CONTESTED: Exit.REFUSED,
    Status.UNFINISHED: Exit.ERROR,
    Status.HELD: Exit.DIFFERENCES,
    Status.REFUSED: Exit.REFUSED,
    Status.GOING: Exit.DONE,
    Status.LEFT: Exit.DONE,
    Status.STRAY: Exit.DIFFERENCES,
}
"""The exit code for one root that ended with this status."""


def wishes_of(options: argparse.Namespace) -> Wishes:
    """Return what the command line asks of a pass; options that the verb does not have count as not given."""
    return Wishes(
        force=getattr(options, "force", False),
        take_over=getattr(options, "take_over", False),
        rename_from=getattr(options, "rename_from", None),
        deep=getattr(options, "deep", None),
        undone=getattr(options, "undone", None),
    )


def names_of(consumers: Iterable[str], survey: Survey | None) -> dict[str, str]:
    """Return the names of those consumers that are guests with a name on the host of a survey."""
    named = survey.names if survey else {}
    return {consumer: named[consumer] for consumer in sorted(consumers) if consumer in named}


def ended(outcome: Outcome, *, dry_run: bool | None = None) -> Ended:
    """Return one outcome as it is shown."""
    names = names_of({move.consumer for move in outcome.plan.moves}, outcome.survey)
    return Ended(
        node=outcome.node,
        outcome=outcome.status,
        notes=outcome.notes,
        plan=shown_plan(outcome.plan, outcome.observed, names),
        reserving=reserving_of(outcome.reserving, outcome.observed),
        dry_run=dry_run,
    )


def reserving_of(plan: Plan, observed: ObservedTree) -> ShownPlan | None:
    """Return what a refused pass carries out all the same; None: nothing."""
    return shown_plan(plan, observed) if plan.operations else None
