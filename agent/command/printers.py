"""How people see what a verb found; the tables, and rich with them, are loaded when something is printed."""

from typing import Any


def print_tree(out: Any, data: dict[str, Any]) -> None:
    from agent.command import host_tables as tables

    tables.print_tree(out, data)


def print_status(out: Any, data: dict[str, Any]) -> None:
    from agent.command import host_tables as tables

    tables.print_status(out, data)


def print_shown(out: Any, data: dict[str, Any]) -> None:
    from agent.command import host_tables as tables

    if data["providers"]:
        tables.print_tree(out, data)
        tables.print_allocations(out, data["allocations"])


def print_usages(out: Any, data: dict[str, Any]) -> None:
    from agent.command import host_tables as tables

    tables.print_usages(out, data)


def print_plan(out: Any, data: dict[str, Any]) -> None:
    from agent.command import host_tables as tables

    tables.print_plan(out, data)


def print_conversion(out: Any, data: dict[str, Any]) -> None:
    from agent.command import host_tables as tables

    tables.print_conversion(out, data)


def print_reasons(out: Any, data: dict[str, Any]) -> None:
    from agent.command import host_tables as tables

    tables.print_reasons(out, data)


def print_checks(out: Any, data: dict[str, Any]) -> None:
    from agent.command import host_tables as tables

    tables.print_checks(out, data["checks"])


def print_outcome(out: Any, data: dict[str, Any]) -> None:
    """How one node's pass ended."""
    if data["outcome"] not in ("unchanged", "failed", "other-plan"):
        print_plan(out, data)
    print_start(out, data)


def print_start(out: Any, data: dict[str, Any]) -> None:
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


def print_left(out: Any, data: dict[str, Any]) -> None:
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
