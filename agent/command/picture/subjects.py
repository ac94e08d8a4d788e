"""What a picture shows, from what the verbs found: trees as boxes with what guests have. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from agent.audit.decide.findings import Finding
from agent.command.changes import Forecast, rows, stock_of
from agent.command.wording import alike, grouped
from agent.sync.json_form import by_consumer
from reportclient.allocations import Observed, usages
from reportclient.reserve import HOLD


@dataclass(frozen=True, slots=True)
class Chip:
    """What one guest has on a provider."""

    guest: str  # uuid of the consumer
    text: str
    moves: bool  # whether it is counted elsewhere before or after
    wrong: bool = False  # whether an audit found something about it


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A provider, or several alike, with its lines of text, the chips of its guests and what is below it."""

    name: str
    label: str  # the name as it is written: without that of the root, or those of several alike
    mark: str  # as ``agent.command.changes.Mark``, or ! for one with a finding
    lines: tuple[str, ...] = ()
    chips: tuple[Chip, ...] = ()
    below: tuple["Box", ...] = ()

    def every(self) -> Iterator["Box"]:
        """Iterate over this box and all below it, outer ones first."""
        yield self
        for box in self.below:
            yield from box.every()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One node's part of a picture."""

    node: str
    trees: tuple[tuple[str, Box], ...]  # (title, root): one, or before and after
    refusals: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)  # of guests, by consumer


def of_conversion(data: Forecast, refusals: Iterable[str]) -> Subject:
    """Return the subject of a plan: both trees, and whose accounting is rewritten."""
    names = data.names
    marks = {name: row.mark for row in rows(data.before, data.after) for name in row.names}
    before, after = by_consumer(data.before.allocations), by_consumer(data.after.allocations)
    moving = {
        (guest, provider)
        for guest in before.keys() | after.keys()
        for provider in before.get(guest, {}).keys() | after.get(guest, {}).keys()
        if before.get(guest, {}).get(provider) != after.get(guest, {}).get(provider)
    }
    return Subject(
        node=_root(data.after) or _root(data.before),
        trees=(
            ("before", _tree(data.before, names, moving, {name: "-" for name, mark in marks.items() if mark == "-"})),
            ("after", _tree(data.after, names, moving, marks)),
        ),
        refusals=tuple(refusals),
        names=names,
    )


def of_standing(tree: Observed, names: Mapping[str, str], findings: Collection[Finding] = ()) -> Subject:
    """Return the subject of a tree as placement holds it, with the guests that have findings."""
    wrong = {one.consumer for one in findings if one.consumer}
    ill = {one.provider: "!" for one in findings if one.provider and not one.consumer}
    return Subject(node=_root(tree), trees=(("in placement", _tree(tree, names, (), ill, wrong=wrong)),), names=names)


def _root(observed: Observed) -> str:
    return observed.tree.root.name if observed.tree.root else ""


def _tree(
    observed: Observed,
    names: Mapping[str, str],
    moving: Collection[tuple[str, str]],
    marks: Mapping[str, str],
    *,
    wrong: Collection[str] = (),
) -> Box:
    """Return a tree as boxes; siblings that are alike and hold nothing are one box; ``moving``: consumer, provider."""
    providers, used = observed.tree.by_name, usages(observed.allocations)
    root = _root(observed)
    chips: dict[str, list[Chip]] = {}
    for consumer, held in sorted(
        by_consumer(observed.allocations).items(), key=lambda one: (names.get(one[0], "~"), one[0])
    ):
        called = names.get(consumer, consumer[:8])
        for provider, resources in held.items():
            short = ", ".join(f"{amount} {_UNITS.get(name, name)}" for name, amount in resources.items())
            chip = Chip(consumer, f"{called}: {short}", (consumer, provider) in moving, consumer in wrong)
            chips.setdefault(provider, []).append(chip)
    below: dict[str | None, list[str]] = {}
    for name in sorted(providers):
        below.setdefault(providers[name].provider.parent, []).append(name)

    def box(name: str) -> Box:
        provider = providers[name].provider
        on_hold = ("on hold",) if any(trait.startswith(HOLD) for trait in provider.traits) else ()
        return Box(
            name=name,
            label=name.removeprefix(f"{root}_"),
            mark=marks.get(name, " "),
            lines=(*on_hold, *stock_of(provider, used)),
            chips=tuple(chips.get(name, ())),
            below=_folded(map(box, below.get(name, ()))),
        )

    return box(root) if root else Box(name="", label="nothing", mark=" ")


_UNITS = {
    "MEMORY_MB": "MiB",
    "DISK_GB": "GiB",
    "SRIOV_NET_VF": "VF",
    "NET_BW_EGR_KILOBIT_PER_SEC": "kbit/s out",
    "NET_BW_IGR_KILOBIT_PER_SEC": "kbit/s in",
}


def _folded(boxes: Iterable[Box]) -> tuple[Box, ...]:
    groups = grouped((None if box.chips or box.below else (box.mark, box.lines), box) for box in boxes)
    return tuple(replace(group[0], label=alike([one.label for one in group])) for group in groups)
