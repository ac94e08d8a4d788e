"""Print plans for people: a sentence, what changes provider by provider, and whose accounting is rewritten."""

from collections.abc import Iterable, Mapping
from typing import assert_never

from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from agent.command.changes import Row, folded, rows, summary
from agent.command.plan_results import Capacity, Forecast, Foreseen, ShownPlan
from agent.command.results import Withdrawn
from agent.command.screen import LONG, SHOWN_GUESTS, Screen
from agent.command.wording import counted, guest, moved, written_amounts
from reportclient.allocations import Move, Observed
from reportclient.forecast import forecast

_SUMS = (("total", "total"), ("capacity", "can be allocated"), ("used", "used"))
_STYLES = {"+": "green", "-": "red", "~": "yellow", ">": "cyan", " ": "dim"}


def print_foreseen(out: Screen, data: Foreseen) -> None:
    """Print what a pass would do."""
    out.print(Text(summary(data.forecast), "bold"))
    if data.forecast.shown.plan.operations:
        _print_forecast(out, data.forecast)
        out.print(Text(f"digest {data.forecast.shown.digest}", "dim"))


def print_conversion(out: Screen, data: Foreseen) -> None:
    """Print a plan that may rewrite guests' accounting, with its requests and the next step."""
    out.print(Text(summary(data.forecast), "bold"))
    if not data.forecast.shown.plan.operations:
        return
    _print_forecast(out, data.forecast)
    counts: dict[str, int] = {}
    for request in data.forecast.requests:
        method, _, path = request.partition(" ")
        kind = f"{method} {_kind_of(path)}"
        counts[kind] = counts.get(kind, 0) + 1
    out.print(Text.assemble(("requests ", "bold"), ", ".join(f"{count} {kind}" for kind, count in counts.items())))
    out.print(f"digest {data.forecast.shown.digest}: {_next_step(data)}")


def print_plan(out: Screen, shown: ShownPlan) -> None:
    """Print a plan that was carried out or refused: what changes, without use, which its pass need not have read."""
    if not shown.plan.operations:
        out.print("nothing to change")
        return
    before, after = Observed(shown.observed), Observed(forecast(shown.plan, shown.observed))
    _print_rows(out, rows(before, after, with_use=False), "total")
    _print_guests(out, shown)
    out.print(Text(f"digest {shown.digest}", "dim"))


def _print_forecast(out: Screen, data: Forecast) -> None:
    """Print what changes provider by provider and in sum, and whose accounting is rewritten."""
    _print_rows(out, rows(data.before, data.after), "used/total")
    _print_capacity(out, data.capacity)
    _print_guests(out, data.shown)


def _print_rows(out: Screen, every: list[Row], what: str) -> None:
    """Print a line for each provider, ``what`` of each class; in a long tree only those that change, folded."""
    is_long = len(every) > LONG and not out.whole
    shown = folded(row for row in every if row.mark != " ") if is_long else every
    table = Table.grid(Column(no_wrap=True), Column(overflow="fold"), Column(overflow="fold"), padding=(0, 2, 0, 0))
    for row in shown:
        name = Padding(Text(row.label, _STYLES[row.mark]), (0, 0, 0, 2 * row.depth))
        table.add_row(Text(row.mark, _STYLES[row.mark]), name, Text("; ".join((*row.stock, *row.traits)) or "as it is"))
    out.print(Text(f"{what} of each class; + made, - removed, ~ changed, > put under another parent", "dim"))
    out.print(table)
    if len(shown) < len(every):
        left = sum(row.mark == " " for row in every)
        unchanged = f"{counted(left, 'provider')} unchanged, and " if left else ""
        out.print(Text(f"{unchanged}those alike in one line: --all shows each", "dim"))


def _print_capacity(out: Screen, capacity: Mapping[str, Capacity]) -> None:
    """Print the sums of the classes that change over the whole tree."""
    changed = {name: one for name, one in capacity.items() if one.before != one.after or out.whole}
    if not changed:
        out.print("sums over the whole tree: all classes stay as they are")
        return
    table = Table(Column("sums of the tree", overflow="fold"), box=None, header_style="bold")
    for _, title in _SUMS:
        table.add_column(title, justify="right", overflow="fold")
    for name, one in changed.items():
        table.add_row(name, *(_change(getattr(one.before, key), getattr(one.after, key)) for key, _ in _SUMS))
    out.print(table)


def _change(before: int, after: int) -> Text:
    return Text(str(before)) if before == after else Text(f"{before} → {after}", "bold")


def _print_guests(out: Screen, shown: ShownPlan) -> None:
    """Print whose accounting is rewritten: of few guests each, of many the sums by source and target."""
    moves, names = shown.plan.moves, shown.names or {}
    by_guest: dict[str, list[Move]] = {}
    for move in moves:
        by_guest.setdefault(move.consumer, []).append(move)
    if not by_guest:
        out.print("no guest's accounting changes")
        return
    out.print(Text(f"{counted(len(by_guest), 'guest')} counted elsewhere; each runs on where it is", "bold"))
    if len(by_guest) > SHOWN_GUESTS and not out.whole:
        _print_routes(out, moves)
        return
    for consumer, several in sorted(by_guest.items(), key=lambda one: (names.get(one[0], ""), one[0])):
        out.print(Text(guest(consumer, names), "bold"), soft_wrap=True)
        table = _grid()
        for move in several:
            way = f"{move.from_provider} → {move.to_provider}"
            table.add_row(Text(f"  {moved(move)}"), Text(way), Text(move.because))
        out.print(table)


def _print_routes(out: Screen, moves: Iterable[Move]) -> None:
    """Print how much is counted elsewhere from each source to each target, of how many guests."""
    routes: dict[tuple[str, str], tuple[dict[str, int], set[str]]] = {}
    for move in moves:
        way = move.from_provider, move.to_provider
        sums, guests = routes.setdefault(way, ({}, set()))
        guests.add(move.consumer)
        for name, amount in move.moved_resources.items():
            sums[name] = sums.get(name, 0) + amount
    table = _grid()
    for (source, target), (sums, guests) in sorted(routes.items()):
        table.add_row(
            Text(f"  {written_amounts(sums)}"), Text(f"{source} → {target}"), Text(counted(len(guests), "guest"))
        )
    out.print(table)
    out.print(Text("--all shows each guest with its reason", "dim"))


def print_withdrawn(out: Screen, data: Withdrawn) -> None:
    """Print which approvals were withdrawn."""
    for path in data.withdrawn:
        out.print(Text(f"withdrawn: {path}"), soft_wrap=True)
    if not data.withdrawn and not data.begun:
        out.print(Text("no approval to withdraw"))


def _grid() -> Table:
    return Table.grid(*(Column(overflow="fold") for _ in range(3)), padding=(0, 2, 0, 0))


def _next_step(data: Foreseen) -> str:
    """Say what happens with a plan that is shown, or which option carries it out."""
    match data.approval:
        case "approved":
            return (
                "approved: the service's unit carries it out before the service starts the next time; to do it now, "
                "use --apply instead of --approve"
            )
        case "refused":
            return "not approved, nothing will be carried out"
        case "not-needed":
            return "no allocation has to move: the next pass does this without an approval"
        case None if data.refused:
            return "reshape --apply would refuse this"
        case None:
            return f"to carry out exactly this, add --apply --digest {data.forecast.shown.digest}"
        case other:
            assert_never(other)


def _kind_of(path: str) -> str:
    """Replace the name or uuid in a path: ``/resource_providers/*/traits``."""
    parts = path.split("/")
    return "/".join(part if index != 2 else "*" for index, part in enumerate(parts))
