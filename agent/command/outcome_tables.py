"""Print how a verb ended for one node."""

from agent.command.plan_tables import print_plan
from agent.command.screen import Screen
from agent.command.verb_forms import LeavingForm, OutcomeForm


def print_outcome(out: Screen, data: OutcomeForm) -> None:
    """Print how the pass over one node ended, with its plan unless it is empty, unknown or not the agreed one."""
    if data["outcome"] not in ("unchanged", "failed", "other-plan"):
        print_plan(out, data)
    print_start(out, data)


def print_start(out: Screen, data: OutcomeForm) -> None:
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
    out.print(f"{data['node']}: {sentences[data['outcome']]}", markup=False)
    for note in data["notes"]:
        out.print(f"  {note}", markup=False, soft_wrap=True)


def print_left(out: Screen, data: LeavingForm) -> None:
    """Print how ``retire`` or ``hand-over`` of one node ended; a refused one without its plan."""
    if data["operations"] and data["outcome"] != "unsafe":
        print_plan(out, data)
    sentence = {
        "unchanged": "this would be done" if data["operations"] else "there is nothing to do",
        "changed": "done",
        "unsafe": "refused: nothing was written",
    }
    out.print(f"{data['node']}: {sentence.get(data['outcome'], data['outcome'])}", markup=False)
    for note in data["notes"]:
        out.print(f"  {note}", markup=False)
