"""What the verbs over a hypervisor and over bare-metal nodes share: wishes, outcomes as they are shown, exit codes."""

import argparse
from collections.abc import Iterable

from agent.command.exits import Exit
from agent.command.plan_results import Ended, ShownPlan, shown_plan
from agent.command.plan_tables import print_plan
from agent.command.screen import Screen
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
        configured=getattr(options, "configured", None),
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


def print_outcome(out: Screen, data: Ended) -> None:
    """Print how the pass over one node ended, with its plan unless it is empty, unknown or not the agreed one."""
    if data.outcome.value not in ("unchanged", "failed", "other-plan"):
        print_plan(out, data.plan)
    print_start(out, data)


def print_start(out: Screen, data: Ended) -> None:
    """Print how the pass over one node ended, one line for each note and no plan, for the system journal."""
    sentences = {
        "unchanged": "nothing needed to change",
        "changed": "placement was brought up to date",
        "reshape-needed": "a reshape is needed: nothing was written",
        "contested": "refused: another service writes here, nothing was written",
        "failed": "failed",
    }
    sentence = sentences.get(data.outcome.value, "refused: nothing was written")
    if data.reserving:
        sentence = sentence.replace("nothing was", "only reservations were")
    out.print(f"{data.node}: {sentence}", markup=False)
    for note in data.notes:
        out.print(f"  {note}", markup=False, soft_wrap=True)


def print_left(out: Screen, data: Ended) -> None:
    """Print how ``retire`` or ``hand-over`` of one node ended; a refused one without its plan."""
    if data.plan.plan.operations and data.outcome.value != "unsafe":
        print_plan(out, data.plan)
    sentence = {
        "unchanged": "this would be done" if data.plan.plan.operations else "there is nothing to do",
        "changed": "done",
        "unsafe": "refused: nothing was written",
    }
    out.print(f"{data.node}: {sentence.get(data.outcome.value, data.outcome.value)}", markup=False)
    for note in data.notes:
        out.print(f"  {note}", markup=False)
