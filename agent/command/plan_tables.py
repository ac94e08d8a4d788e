"""Print plans for people: a sentence, what changes provider by provider, and whose accounting is rewritten."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, assert_never

from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from agent.command.changes import TERMS, Row, changed_terms, folded, rows, summary
from agent.command.plan_results import Capacity, Foreseen, ShownPlan
from agent.command.results import Withdrawn
from agent.command.screen import LONG, SHOWN_GUESTS, Screen
from agent.command.wording import alike, counted, families, grouped, guest, moved, written_amounts
from agent.sync.json_form import KINDS, Before, inventories_of
from reportclient.allocations import Move
from reportclient.plan import (
    Create,
    Delete,
    EnsureClasses,
    EnsureTraits,
    Operation,
    Rename,
    Reparent,
    Reshape,
    SetAggregates,
    SetInventories,
    SetTraits,
)

_SUMS = (("total", "total"), ("capacity", "can be allocated"), ("used", "used"))
_STYLES = {"+": "green", "-": "red", "~": "yellow", ">": "cyan", " ": "dim"}


def print_foreseen(out: Screen, data: Foreseen) -> None:
    """Print what a pass would do: a sentence, and the plan."""
    out.print(Text(summary(data.forecast), "bold"))
    if data.forecast.shown.plan.operations:
        print_plan(out, data.forecast.shown)


def print_plan(out: Screen, shown: ShownPlan) -> None:
    """Print the operations of a plan, whose accounting it rewrites, and its digest."""
    if not shown.plan.operations:
        out.print("nothing to change")
        return
    lines = Table.grid(Column(no_wrap=True), Column(overflow="fold"), padding=(0, 1))
    for done, to_what in _lines(shown, whole=out.whole):
        lines.add_row(Text(done), Text(to_what))
    out.print(lines)
    _print_guests(out, shown)
    out.print(Text(f"digest {shown.digest}", "dim"))


def print_conversion(out: Screen, data: Foreseen) -> None:
    """Print a plan that may rewrite guests' accounting: what changes, capacity, guests, requests, and the next step."""
    out.print(Text(summary(data.forecast), "bold"))
    if not data.forecast.shown.plan.operations:
        return
    _print_rows(out, rows(data.forecast))
    _print_capacity(out, data.forecast.capacity)
    _print_guests(out, data.forecast.shown)
    counts: dict[str, int] = {}
    for request in data.forecast.requests:
        method, _, path = request.partition(" ")
        kind = f"{method} {_kind_of(path)}"
        counts[kind] = counts.get(kind, 0) + 1
    out.print(Text.assemble(("requests ", "bold"), ", ".join(f"{count} {kind}" for kind, count in counts.items())))
    out.print(f"digest {data.forecast.shown.digest}: {_next_step(data)}")


def _print_rows(out: Screen, every: list[Row]) -> None:
    """Print a line for each provider, used/total of each class; in a long tree only those that change, folded."""
    is_long = len(every) > LONG and not out.whole
    shown = folded(row for row in every if row.mark != " ") if is_long else every
    table = Table.grid(Column(no_wrap=True), Column(overflow="fold"), Column(overflow="fold"), padding=(0, 2, 0, 0))
    for row in shown:
        name = Padding(Text(row.label, _STYLES[row.mark]), (0, 0, 0, 2 * row.depth))
        table.add_row(Text(row.mark, _STYLES[row.mark]), name, Text("; ".join((*row.stock, *row.traits)) or "as it is"))
    out.print(Text("used/total of each class; + made, - removed, ~ changed, > put under another parent", "dim"))
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


class _Block(NamedTuple):
    """What one operation does to one thing; blocks that differ by the thing alone can be printed as one."""

    done: str
    to_what: str
    besides: str = ""  # of the thing, left out where several are printed as one
    below: tuple[tuple[str, str], ...] = ()  # lines of (what is done, to what)


def _lines(shown: ShownPlan, *, whole: bool) -> Iterable[tuple[str, str]]:
    """Return the lines of all operations; those that do the same to several providers as one, unless ``whole``."""
    before = inventories_of(shown.observed)
    blocks = (block for operation in shown.plan.operations for block in _describe(operation, before))
    for several in grouped((None if whole else (block.done, block.below), block) for block in blocks):
        first, *others = several
        yield first.done, alike([one.to_what for one in several]) + ("" if others else first.besides)
        yield from first.below


def _describe(operation: Operation, before: Before) -> list[_Block]:
    """Describe one operation; a reshape is a heading and what it does to each provider."""
    kind = KINDS[type(operation)]
    match operation:
        case EnsureClasses(names):
            return [_Block("make resource class", name) for name in names]
        case EnsureTraits(names):
            return [_Block("make trait", name) for name in names]
        case SetTraits(_, name, _, added, removed):
            changes = (("  add", sorted(added)), ("  remove", sorted(removed)))
            below = tuple((verb, family + names) for verb, traits in changes for family, names in families(traits))
            return [_Block("traits of", name, below=below)]
        case SetInventories():
            return [_describe_stock(operation, before)]
        case Reshape(several, rewrites):
            whose = f", with all allocations of {counted(len(rewrites), 'consumer')}" if rewrites else ""
            heading = _Block("together", f"in one transaction{whose}:")
            return [heading, *(_describe_stock(one, before) for one in several)]
        case Rename(_, name, old):
            return [_Block(kind, f"{old} to {name}")]
        case Reparent(_, name, _, parent, old):
            return [_Block("put", name, below=(("  from", f"under {old}"), ("  to", f"under {parent}")))]
        case Create(uuid, name) | SetAggregates(uuid, name) | Delete(uuid, name):
            return [_Block(kind, name, f" ({uuid})")]
        case _:
            assert_never(operation)


def _describe_stock(operation: SetInventories, stood: Before) -> _Block:
    """Describe each class that changes: its terms before and after."""
    after, before = operation.inventories, stood.get(operation.uuid, {})
    lines: list[tuple[str, str]] = []
    for name in sorted(after.keys() | before.keys()):
        now, was = after.get(name), before.get(name)
        if now is None:
            lines += [("  remove", f"{name} (total was {was.total})")] if was else []
        elif was is None:
            lines.append(("  add", f"{name} total {now.total} reserved {now.reserved} ratio {now.allocation_ratio:g}"))
        elif changed := ", ".join(changed_terms(was, now, ("total", *TERMS), "->")):
            lines.append(("  change", f"{name} {changed}"))
    return _Block("inventory of", operation.name, below=tuple(lines))
