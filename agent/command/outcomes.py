"""What the verbs over a hypervisor and over bare-metal nodes share: wishes, records of outcomes, exit codes."""

import argparse
from collections.abc import Iterable

from agent.command.exits import Exit
from agent.command.verb_forms import OutcomeForm, ReservingForm
from agent.sync.decide.view import Wishes
from agent.sync.json_form import encode_plan
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


def encode_outcome(outcome: Outcome) -> OutcomeForm:
    """Return one outcome with its plan as JSON has it."""
    return {
        "node": outcome.node,
        "outcome": outcome.status.value,
        "notes": list(outcome.notes),
        "names": names_of({move.consumer for move in outcome.plan.moves}, outcome.survey),
        **encode_plan(outcome.plan, outcome.observed),
        **encode_reserving(outcome.reserving, outcome.observed),
    }


def encode_reserving(plan: Plan, observed: ObservedTree) -> ReservingForm:
    """Return what a refused pass carries out all the same, if anything."""
    return {"reserving": encode_plan(plan, observed)} if plan.operations else {}
