"""How people see what became of a node."""

from rich.console import Console

from agent.command.forms import LeavingForm, OutcomeForm
from agent.command.host_tables import print_plan


def print_outcome(out: Console, data: OutcomeForm) -> None:
    """How one node's pass ended."""
    if data["outcome"] not in ("unchanged", "failed", "other-plan"):
        print_plan(out, data)
    print_start(out, data)


def print_start(out: Console, data: OutcomeForm) -> None:
    """The same without the plan, a line for each note: for the journal."""
    sentences = {
        "unchanged": "nothing needed to change",
        "changed": "placement was brought up to date",
        "unsafe": "refused: nothing was written",
        "reshape-needed": "a reshape is needed: nothing was written",
        "other-plan": "refused: nothing was written",
        "contested": "refused: another service writes here, nothing was written",
        "failed": "failed",
    }
    out.print(f"{data['node']}: {sentences[data['outcome']]}", markup=False)
    for note in data["notes"]:
        out.print(f"  {note}", markup=False, soft_wrap=True)


def print_left(out: Console, data: LeavingForm) -> None:
    """How the end of one node went; of one that is refused no plan, which nobody carries out."""
    if data["operations"] and data["outcome"] != "unsafe":
        print_plan(out, data)
    sentence = {
        "unchanged": "this would be done" if data["operations"] else "there is nothing to do",
        "changed": "done: leave the service off, which would begin anew when it starts",
        "unsafe": "refused: nothing was written",
    }
    out.print(f"{data['node']}: {sentence.get(data['outcome'], data['outcome'])}", markup=False)
    for note in data["notes"]:
        out.print(f"  {note}", markup=False)
