"""Print how a verb ended for one node."""

from agent.command.plan_results import Ended
from agent.command.plan_tables import print_plan
from agent.command.screen import Screen


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
        "unsafe": "refused: nothing was written",
        "reshape-needed": "a reshape is needed: nothing was written",
        "other-plan": "refused: nothing was written",
        "audit-only": "refused: nothing was written",
        "contested": "refused: another service writes here, nothing was written",
        "failed": "failed",
    }
    out.print(f"{data.node}: {sentences[data.outcome.value]}", markup=False)
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
