"""What a picture shows, from what the verbs found: trees as boxes, links of guests, and the tables below. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.command.changes import rows, summary, terms_of
from agent.command.picture.boxes import Box, Chip
from agent.command.plan_results import Capacity, Forecast, ShownTree, Sums
from agent.command.results import AuditedFinding
from agent.command.wording import alike, counted, grouped, moved, written_amounts
from agent.sync.json_form import by_consumer
from reportclient.allocations import Allocation, Move, Observed, usages
from reportclient.tree import ObservedProvider

Links = tuple[tuple[str, str, str], ...]
"""(guest, provider before, provider after) of each amount that is counted elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table below the drawing."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One node's part of a picture."""

    node: str
    sentence: str
    trees: tuple[tuple[str, Box], ...]  # (title, root): one, or before and after
    links: Links = ()
    refusals: tuple[str, ...] = ()
    digest: str = ""
    tables: tuple[Table, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)  # of guests, by consumer


def of_conversion(data: Forecast, refusals: Iterable[str]) -> Subject:
    """Return the subject of a plan: both trees, whose accounting is rewritten, and the sums before and after."""
    plan, names = data.shown.plan, data.shown.names or {}
    marks = {name: row.mark for row in rows(data) for name in row.names}
    moving = {move.consumer for move in plan.moves}
    before, after = data.before, data.after
    root = _root(after) or _root(before)
    return Subject(
        node=root,
        sentence=summary(data),
        trees=(
            ("before", _tree(before, names, moving, {name: "-" for name, mark in marks.items() if mark == "-"})),
            ("after", _tree(after, names, moving, marks)),
        ),
        links=tuple((one.consumer, one.from_provider, one.to_provider) for one in plan.moves),
        refusals=tuple(refusals),
        digest=data.shown.digest,
        tables=(_guests(plan.moves, names), _capacity(data.capacity)),
        names=names,
    )


def of_shown(data: ShownTree) -> Subject:
    """Return the subject of a tree as placement holds it."""
    observed, names = data.observed, data.names
    held = len({one.consumer for one in observed.allocations})
    providers = counted(len(observed.tree.providers), "provider")
    return Subject(
        node=_root(observed),
        sentence=f"{providers}, and {counted(held, 'consumer')} with allocations",
        trees=(("in placement", _tree(observed, names, (), {})),),
        tables=(_holdings(observed.allocations, names),),
        names=names,
    )


def of_audit(found: Sequence[AuditedFinding], tree: Observed, names: Mapping[str, str]) -> Subject:
    """Return the subject of an audit: the tree, with the guests that have findings."""
    findings = [one.finding for one in found]
    wrong = {one.consumer for one in findings if one.consumer}
    ill = {one.provider: "!" for one in findings if one.provider and not one.consumer}
    columns = ("who", "finding", "class", "is", "should be", "seen", "repair")
    told = tuple(
        (
            _called(one.consumer or one.provider or "", names),
            one.kind.value,
            " on ".join(filter(None, (one.resource_class, one.provider if one.consumer else None))),
            "" if one.actual is None else str(one.actual),
            "" if one.expected is None else str(one.expected),
            one.seen,
            one.repair.text if one.repair else why,
        )
        for one, why in ((each.finding, each.why) for each in found)
    )
    return Subject(
        node=_root(tree),
        sentence=counted(len(found), "finding") + (f", {counted(len(wrong), 'consumer')}" if wrong else ""),
        trees=(("in placement", _tree(tree, names, (), ill, wrong=wrong)),),
        tables=(Table(title="Findings", columns=columns, rows=told),),
        names=names,
    )


def _root(observed: Observed) -> str:
    return observed.tree.root.name if observed.tree.root else ""


def _called(consumer: str, names: Mapping[str, str]) -> str:
    return f"{names[consumer]} ({consumer})" if consumer in names else consumer


def _tree(
    observed: Observed,
    names: Mapping[str, str],
    moving: Collection[str],
    marks: Mapping[str, str],
    *,
    wrong: Collection[str] = (),
) -> Box:
    """Return a tree as boxes; siblings that are alike and hold nothing are one box."""
    providers, used = observed.tree.by_name, usages(observed.allocations)
    root = _root(observed)
    chips: dict[str, list[Chip]] = {}
    for consumer, held in sorted(
        by_consumer(observed.allocations).items(), key=lambda one: (names.get(one[0], "~"), one[0])
    ):
        called = names.get(consumer, consumer[:8])
        for provider, resources in held.items():
            chip = Chip(consumer, f"{called}: {_short(resources)}", consumer in moving, consumer in wrong)
            chips.setdefault(provider, []).append(chip)
    below: dict[str | None, list[str]] = {}
    for name in sorted(providers):
        below.setdefault(providers[name].provider.parent, []).append(name)

    def box(name: str) -> Box:
        return Box(
            name=name,
            label=name.removeprefix(f"{root}_"),
            mark=marks.get(name, " "),
            lines=tuple(_stock(providers[name], used)),
            chips=tuple(chips.get(name, ())),
            below=_folded(map(box, below.get(name, ()))),
        )

    return box(root) if root else Box(name="", label="nothing", mark=" ")


def _stock(seen: ObservedProvider, used: Mapping[tuple[str, str], int]) -> Iterable[str]:
    for name, one in sorted(seen.provider.inventories.items()):
        yield f"{name} {used.get((seen.name, name), 0)}/{one.total}{terms_of(one)}"


_UNITS = {
    "MEMORY_MB": "MiB",
    "DISK_GB": "GiB",
    "SRIOV_NET_VF": "VF",
    "NET_BW_EGR_KILOBIT_PER_SEC": "kbit/s out",
    "NET_BW_IGR_KILOBIT_PER_SEC": "kbit/s in",
}


def _short(resources: Mapping[str, int]) -> str:
    return ", ".join(f"{amount} {_UNITS.get(name, name)}" for name, amount in resources.items())


def _folded(boxes: Iterable[Box]) -> tuple[Box, ...]:
    groups = grouped((None if box.chips or box.below else (box.mark, box.lines), box) for box in boxes)
    return tuple(replace(group[0], label=alike([one.label for one in group])) for group in groups)


def _guests(moves: Iterable[Move], names: Mapping[str, str]) -> Table:
    columns = ("guest", "amount", "counted on", "will be counted on", "evidence")
    several = sorted(moves, key=lambda one: (names.get(one.consumer, "~"), one.consumer))
    return Table(
        title="Guests whose accounting is rewritten",
        columns=columns,
        rows=tuple(
            (_called(one.consumer, names), moved(one), one.from_provider, one.to_provider, one.because)
            for one in several
        ),
    )


def _capacity(capacity: Mapping[str, Capacity]) -> Table:
    columns = ("class", "total before", "total after", "can be allocated before", "after", "used", "why it differs")
    return Table(
        title="Sums over the whole tree",
        columns=columns,
        rows=tuple((name, *_sums(one.before, one.after)) for name, one in sorted(capacity.items())),
    )


def _sums(before: Sums, after: Sums) -> tuple[str, ...]:
    numbers = (before.total, after.total, before.capacity, after.capacity)
    used = str(after.used) if before.used == after.used else f"{before.used} → {after.used}"
    return (*map(str, numbers), used, _why(before, after))


def _why(before: Sums, after: Sums) -> str:
    """Return why what can be allocated of a class differs; empty where it does not."""
    if before == after:
        return ""
    if not before.total or not after.total:
        return "the class is new in this tree" if after.total else "the class is gone from this tree"
    if before.total != after.total:
        return f"the host offers {after.total - before.total:+d}"
    lost = before.capacity - after.capacity
    if lost:
        return f"{abs(lost)} {'less' if lost > 0 else 'more'} by what is reserved on its providers, and by their ratios"
    return "the same amount, used otherwise"


def _holdings(allocations: Iterable[Allocation], names: Mapping[str, str]) -> Table:
    return Table(
        title="What consumers have",
        columns=("consumer", "amount", "of"),
        rows=tuple(
            (_called(consumer, names), written_amounts(resources), provider)
            for consumer, several in by_consumer(allocations).items()
            for provider, resources in several.items()
        ),
    )
