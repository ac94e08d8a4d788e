"""Print what the verbs found as trees and tables for people: in colour on a terminal, plain in a pipe."""

import sys
import time
from collections.abc import Iterable, Mapping
from typing import Literal, assert_never

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text
from rich.tree import Tree

from agent.command.forms import (
    AuditForm,
    ChangeForm,
    ChecksForm,
    EndingForm,
    ExplanationForm,
    FindingForm,
    RecordedForm,
    ShownConversionForm,
    StatusForm,
    UsagesForm,
)
from agent.sync.forms import (
    CapacityForm,
    Held,
    MoveForm,
    ObservedProviderForm,
    ObservedTreeForm,
    OperationForm,
    PlanForm,
    ProviderForm,
    SetInventoriesForm,
    TreeForm,
)
from reportclient.payload import InventoryForm

FAMILIES = (
    "COMPUTE_GRAPHICS_MODEL_", "COMPUTE_IMAGE_TYPE_", "COMPUTE_NET_VIF_MODEL_", "COMPUTE_SECURITY_",
    "COMPUTE_SOUND_MODEL_", "COMPUTE_STORAGE_BUS_", "COMPUTE_VIOMMU_MODEL_", "COMPUTE_",
    "HW_CPU_X86_", "HW_", "CUSTOM_",
)  # fmt: skip
PIPE_WIDTH = 150
SHOWN_EVENTS = 4  # of one batch: a card with its VFs makes dozens
_TERMS: tuple[Literal["total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio"], ...] = (
    "total",
    "reserved",
    "min_unit",
    "max_unit",
    "step_size",
    "allocation_ratio",
)
_SUMS: tuple[Literal["total", "capacity", "used"], ...] = ("total", "capacity", "used")


def console() -> Console:
    """Open standard output, as wide as the terminal or, in a pipe, wide enough for a line of a tree."""
    return Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def _whole(title: str) -> Column:
    """Make a column that folds long names instead of cutting them off, because people copy them."""
    return Column(title, overflow="fold")


def print_tree(out: Console, tree: TreeForm) -> None:
    """Print a desired tree."""
    _print_providers(out, tree["providers"], {})


def _print_providers(
    out: Console, providers: Mapping[str, ProviderForm], observed: Mapping[str, ObservedProviderForm]
) -> None:
    """Print providers below their parents; of those in ``observed`` also uuid, generation and use."""
    branches: dict[str | None, Tree] = {}
    for name, provider in providers.items():
        seen = observed.get(name)
        label = Text.assemble((name, "bold"), (_identity(seen), "dim"))
        above = branches.get(provider["parent"])
        branches[name] = Tree(label) if above is None else above.add(label)
        _add_stock(branches[name], provider["inventories"], None if seen is None else seen["usages"])
        _add_traits(branches[name], provider["traits"])
        for aggregate in provider["aggregates"]:
            branches[name].add(Text(f"aggregate {aggregate}", "dim"))
    for name, provider in providers.items():
        if provider["parent"] is None:
            out.print(branches[name])


def print_allocations(out: Console, allocations: Held) -> None:
    """Print which consumer holds what; a sentence where there are no allocations."""
    if not allocations:
        out.print("no allocations")
        return
    table = Table(*map(_whole, ("consumer", "provider", "holds")), box=None)
    for consumer, providers in allocations.items():
        for provider, resources in providers.items():
            table.add_row(consumer, provider, _amounts(resources))
    out.print(table)


def print_shown(out: Console, data: ObservedTreeForm) -> None:
    """Print a tree and its allocations; nothing where placement has no such tree."""
    if data["providers"]:
        _print_providers(out, data["providers"], data["providers"])
        print_allocations(out, data["allocations"])


def print_recorded(out: Console, data: RecordedForm) -> None:
    """Print where a host archive was written."""
    out.print(f"recorded this host in {data['directory']}: {data['files']} files")


def print_ending(out: Console, data: EndingForm) -> None:
    """Print how an operation on one consumer ended, and the allocations that the consumer has now."""
    out.print(f"{data['consumer']}: {data['outcome']}")
    for uuid, record in data["allocations"].items():
        out.print(f"  {_amounts(record['resources'])} on {uuid}")
    if not data["allocations"]:
        out.print("  holds nothing")


def print_findings(out: Console, data: AuditForm) -> None:
    """Print the findings of an audit, those of one kind about one consumer or provider together."""
    subjects: dict[tuple[str, str | None], list[FindingForm]] = {}
    for one in data["findings"]:
        subjects.setdefault((one["kind"], one["consumer"] or one["provider"]), []).append(one)
    for (kind, subject), several in subjects.items():
        out.print(Text.assemble((f"{kind} ", "bold"), subject or "", (f"  since {several[0]['since']}", "dim")))
        _print_subject(out, several)
    if not subjects:
        depth = " (only providers whose generation changed were read)" if data["light"] else ""
        out.print(f"nothing found: placement's allocations agree with the guests that the hypervisor runs{depth}")


def _print_subject(out: Console, several: list[FindingForm]) -> None:
    """Print amounts, observations and the repair of the findings about one subject."""
    for one in several:
        resource_class = one["resource_class"] or ""
        where = f"{resource_class} on {one['provider']}" if one["consumer"] else resource_class
        if one["expected"] is not None:
            out.print(f"  {where.strip()}: {one['actual']}, should be {one['expected']}")
    for seen in dict.fromkeys(one["seen"] for one in several):
        out.print(f"  {seen}", style="dim")
    first = several[0]
    if first["repair"]:
        doing = {"healed": "done", "failed": f"failed: {first['why']}"}.get(first["outcome"], first["why"])
        out.print(f"  repair: {first['repair']} ({doing})")
    else:
        out.print(f"  {first['why']}")


def print_status(out: Console, status: StatusForm) -> None:
    """Print what the service last wrote about itself: a sentence, its sources with their age, outcomes and notes."""
    now = time.time()
    well = status["ready"] and status["running"] and not status["late"]
    sentence = (
        f"late: the service's loop hangs; its last status: {status['sentence']}"
        if status["late"]
        else status["sentence"]
    )
    sentence = sentence if status["running"] else f"not running; its last status: {status['sentence']}"
    out.print(sentence, style="bold" if well else "bold red", highlight=False)
    table = Table("source", "last answered", "now", box=None)
    for name, source in status["sources"].items():
        age = f"{now - source['ok_s']:.0f} s ago" if source["ok_s"] else "never"
        table.add_row(name, age, source["error"] or "ok")
    if status["sources"]:
        out.print(table)
    for node, outcome in status["outcomes"].items():
        out.print(f"{node}: {outcome}")
    for note in status["notes"]:
        out.print(f"  {note}")
    for case in status["cases"]:
        out.print(f"case: {case} (plan --replay repeats it)", markup=False, highlight=False, soft_wrap=True)
    for approval in status["approvals"]:
        out.print(approval, markup=False, highlight=False)
    if status["last_pass_s"]:
        out.print(f"last pass {now - status['last_pass_s']:.0f} s ago, in {status['took_s']:.2f} s", highlight=False)
    out.print(f"pid {status['pid']}, version {status['version']}", highlight=False)


def print_usages(out: Console, data: UsagesForm) -> None:
    """Print what a project, or one user of it, uses, by consumer type."""
    whose = f"project {data['project']}" + (f", user {data['user']}" if data["user"] else "")
    table = Table("type", "class", Column("used", justify="right"), box=None)
    for kind, sums in data["usages"].items():
        for name, amount in sums.items():
            table.add_row(kind or "-", name, str(amount))
    out.print(whose if data["usages"] else f"{whose}: uses nothing (give the id of a project or user, not its name)")
    if data["usages"]:
        out.print(table)


def print_plan(out: Console, plan: PlanForm) -> None:
    """Print the operations of a plan, its moves and its digest."""
    if not plan["operations"]:
        out.print("nothing to change")
        return
    lines = Table.grid(Column(no_wrap=True), Column(overflow="fold"), padding=(0, 1))
    for operation in plan["operations"]:
        for done, to_what in _describe(operation):
            lines.add_row(Text(done), Text(to_what))
    out.print(lines)
    if plan["moves"]:
        print_moves(out, plan["moves"])
    out.print(Text(f"digest {plan['digest']}", "dim"))


def print_moves(out: Console, moves: Iterable[MoveForm]) -> None:
    """Print a table of moves: consumer, resources, source, target and reason."""
    table = Table(*map(_whole, ("consumer", "moves", "from", "to", "because")), box=None)
    for move in moves:
        became = move.get("to_resources")
        what = _amounts(move["moved_resources"]) + (f" as {_amounts(became)}" if became else "")
        row = (move["consumer"], what, move["from_resource_provider"], move["to_resource_provider"], move["because"])
        table.add_row(*map(Text, row))
    out.print(table)


def print_conversion(out: Console, data: ShownConversionForm) -> None:
    """Print a plan that may move guests: both trees side by side, capacity, moves, requests, and the next step."""
    if not data["operations"]:
        out.print("nothing to change")
        return
    _print_side_by_side(out, data["before"]["providers"], data["after"]["providers"])
    _print_capacity(out, data["capacity"])
    if data["moves"]:
        out.print(Text("moves", "bold"))
        print_moves(out, data["moves"])
    else:
        out.print("no allocation has to move")
    counts: dict[str, int] = {}
    for request in data["requests"]:
        method, _, path = request.partition(" ")
        kind = f"{method} {_kind_of(path)}"
        counts[kind] = counts.get(kind, 0) + 1
    out.print(Text.assemble(("requests ", "bold"), ", ".join(f"{count} {kind}" for kind, count in counts.items())))
    out.print(f"digest {data['digest']}: {_next_step(data)}")


def _next_step(data: ShownConversionForm) -> str:
    """Say what happens with a plan that is shown, or which option carries it out."""
    match data.get("approval"):
        case "approved":
            return (
                "approved: the service's unit carries it out before the service starts the next time; to do it now, "
                "use --apply instead of --approve"
            )
        case "refused":
            return "not approved, nothing will be carried out"
        case "not-needed":
            return "no allocation has to move: the next pass does this without an approval"
        case None if data.get("refused"):
            return "reshape --apply would refuse this"
        case None:
            return f"to carry out exactly this, add --apply --digest {data['digest']}"
        case other:
            assert_never(other)


def print_reasons(out: Console, data: ExplanationForm) -> None:
    """Print each class and trait of a provider with its fact and its rule."""
    under = f" under {data['parent']}" if data["parent"] else ""
    counted = (
        f"; its inventory is reported on {data['counted_in']} ([compute] layout = flat)" if data["counted_in"] else ""
    )
    left = f"; {data['left_to']} reports it" if data["left_to"] else ""
    out.print(Text.assemble((data["provider"], "bold"), f"{under}{counted}{left}"))
    for one in data["reasons"]:
        stock = one["inventory"]
        what = (
            f": total {stock['total']}, reserved {stock['reserved']}, ratio {stock['allocation_ratio']:g}"
            if stock
            else ""
        )
        out.print(Text.assemble("  ", (one["name"], "bold"), what))
        out.print(Text(f"    fact: {one['fact']}"))
        out.print(Text(f"    rule: {one['rule']}"))


def print_change(out: Console, data: ChangeForm) -> None:
    """Print one batch of events, and what it changes."""
    time = data["at"].partition("T")[2][:12]
    events = data["events"]
    for event in events[:SHOWN_EVENTS]:
        out.print(Text(f"{time} {event['source']}: {event['what']}", "dim"))
    if len(events) > SHOWN_EVENTS:
        out.print(Text(f"{time} and {len(events) - SHOWN_EVENTS} more events", "dim"))
    if not events:
        out.print(Text(f"{time} the host was read, no event came", "dim"))
    if data["operations"]:
        print_plan(out, data)
    else:
        out.print(f"{time} nothing changes")
    if data["outcome"]:
        since = " after the first event" if events else ""
        out.print(f"{time} placement: {data['outcome']}, {data['seconds']:.2f} s{since}")
    for note in data["notes"]:
        out.print(Text(f"  {note}"))


def print_checks(out: Console, data: ChecksForm) -> None:
    """Print a table of checks."""
    table = Table("check", "", "what was found", box=None)
    for check in data["checks"]:
        verdict = Text("ok", "green") if check["ok"] else Text("FINDING", "bold red")
        table.add_row(check["check"], verdict, Text(check["detail"]))
    out.print(table)


def _identity(seen: ObservedProviderForm | None) -> str:
    return f"  {seen['uuid']}  generation {seen['generation']}" if seen else ""


def _add_stock(branch: Tree, inventories: Mapping[str, InventoryForm], usages: Mapping[str, int] | None) -> None:
    """Add a table of inventories; ``usages`` None: without the column of use."""
    if not inventories:
        return
    table = Table(
        *map(_whole, ("class", "total", "reserved", "ratio", "can be allocated")),
        *map(_whole, () if usages is None else ("used",)),
        box=None,
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for name, stock in inventories.items():
        capacity = int((stock["total"] - stock["reserved"]) * stock["allocation_ratio"])
        row = [name, str(stock["total"]), str(stock["reserved"]), f"{stock['allocation_ratio']:g}", str(capacity)]
        table.add_row(*row, *(() if usages is None else (str(usages.get(name, 0)),)))
    branch.add(table)


def _add_traits(branch: Tree, traits: Iterable[str]) -> None:
    for family, names in _families(traits):
        branch.add(Text.assemble((family, "cyan"), names))


def _print_side_by_side(
    out: Console, before: Mapping[str, ObservedProviderForm], after: Mapping[str, ObservedProviderForm]
) -> None:
    """Print each provider's inventories as used/total, before and after; new and deleted providers have one side."""
    table = Table(*map(_whole, ("provider", "before, used of total", "after, used of total")), box=None)
    parents = {name: one["parent"] for tree in (before, after) for name, one in tree.items()}
    for name in _in_order(parents):
        depth, above = 0, parents[name]
        while above is not None:
            depth, above = depth + 1, parents.get(above)
        table.add_row(Text("  " * depth + name), _stock_text(before.get(name)), _stock_text(after.get(name)))
    out.print(table)


def _in_order(parents: Mapping[str, str | None], above: str | None = None) -> list[str]:
    """Sort provider names: parents before children, siblings by name."""
    found = []
    for name in sorted(name for name, parent in parents.items() if parent == above):
        found += [name, *_in_order(parents, name)]
    return found


def _stock_text(provider: ObservedProviderForm | None) -> Text:
    if provider is None:
        return Text("-", "dim")
    stock = provider["inventories"]
    return Text(
        ", ".join(f"{name} {provider['usages'].get(name, 0)}/{one['total']}" for name, one in stock.items()) or "empty"
    )


def _print_capacity(out: Console, capacity: Mapping[str, CapacityForm]) -> None:
    table = Table(*map(_whole, ("class", "total", "can be allocated", "used")), box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, one in capacity.items():
        cells = [_change(one["before"][key], one["after"][key]) for key in _SUMS]
        table.add_row(name, *cells)
    out.print(table)


def _change(before: int, after: int) -> Text:
    return Text(str(before)) if before == after else Text(f"{before} -> {after}", "bold")


def _amounts(resources: Mapping[str, int]) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in resources.items())


def _kind_of(path: str) -> str:
    """Replace the name or uuid in a path: ``/resource_providers/*/traits``."""
    parts = path.split("/")
    return "/".join(part if index != 2 else "*" for index, part in enumerate(parts))


def _families(traits: Iterable[str]) -> list[tuple[str, str]]:
    """Group traits by their prefix, for one line each: (prefix, the rest of each name)."""
    families: dict[str, list[str]] = {}
    for trait in traits:
        family = next((prefix for prefix in FAMILIES if trait.startswith(prefix)), "")
        families.setdefault(family, []).append(trait.removeprefix(family))
    return [(f"{family}… " if len(ends) > 1 else family, " ".join(ends)) for family, ends in sorted(families.items())]


def _describe(operation: OperationForm) -> list[tuple[str, str]]:
    """Describe one operation as lines of (what is done, to what)."""
    if operation["operation"] == "ensure-resource-classes" or operation["operation"] == "ensure-traits":
        noun = "resource class" if operation["operation"] == "ensure-resource-classes" else "trait"
        return [(f"make {noun}", name) for name in operation["names"]]
    if operation["operation"] == "set-traits":
        changes = (("  add", operation["added"]), ("  remove", operation["removed"]))
        return [("traits of", operation["provider"])] + [
            (verb, family + names) for verb, traits in changes for family, names in _families(traits)
        ]
    if operation["operation"] == "set-inventories":
        return _describe_stock(operation)
    if operation["operation"] == "reshape":
        moving = len(operation["allocations"])
        whose = f", with all allocations of {moving} consumer{'s' * (moving > 1)}" if moving else ""
        heading = ("together", f"in one transaction{whose}:")
        return [heading] + [line for one in operation["inventories"] for line in _describe_stock(one)]
    if operation["operation"] == "rename":
        return [("rename", f"{operation['old_name']} to {operation['provider']}")]
    if operation["operation"] == "reparent":
        return [("move", f"{operation['provider']} from under {operation['old_parent']} to {operation['parent']}")]
    if operation["operation"] == "replace-allocations":
        return [(operation["operation"], ", ".join(operation["allocations"]))]
    if operation["operation"] == "claim" or operation["operation"] == "drop-allocations":
        return [(operation["operation"], operation["consumer"])]
    return [(operation["operation"], f"{operation['provider']} ({operation['uuid']})")]


def _describe_stock(operation: SetInventoriesForm) -> list[tuple[str, str]]:
    """Describe each class that changes: its terms before and after."""
    after, before = operation["inventories"], operation["before"]
    lines = [("inventory of", operation["provider"])]
    for name in sorted(after.keys() | before.keys()):
        now, was = after.get(name), before.get(name)
        if now is None:
            lines += [("  remove", f"{name} (total was {was['total']})")] if was else []
        elif was is None:
            lines.append(
                ("  add", f"{name} total {now['total']} reserved {now['reserved']} ratio {now['allocation_ratio']:g}")
            )
        elif changed := [f"{term} {was[term]} -> {now[term]}" for term in _TERMS if now[term] != was[term]]:
            lines.append(("  change", f"{name} {', '.join(changed)}"))
    return lines
