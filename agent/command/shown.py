"""Trees, plans and the ends of passes, as JSON and as lines for people. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from agent.command.changes import Forecast, Row, Used, folded, in_order, names_of, rows, stock_of, summary
from agent.command.wording import (
    LONG,
    SHOWN_GUESTS,
    alike,
    columns,
    counted,
    families,
    grouped,
    guest,
    moved,
    written_amounts,
)
from agent.sync.json_form import Form, by_consumer, encode, encode_plan
from agent.sync.outcome import Condition, Outcome, Status
from reportclient.allocations import Allocation, Instruction, Move, Observed, instructions, usages
from reportclient.payload import requests_of
from reportclient.plan import Plan
from reportclient.tree import ObservedTree, Provider

_SUMS = {"total": "total", "capacity": "can be allocated", "used": "used"}
_NOTHING = "refused: nothing was written"
_ENDS = {
    Status.UNCHANGED: "nothing needed to change",
    Status.CHANGED: "placement was brought up to date",
    Status.RESHAPE_NEEDED: "a reshape is needed: nothing was written",
    Status.CONTESTED: "refused: another service writes here, nothing was written",
    Status.FAILED: "failed",
}


def encode_forecast(one: Forecast) -> Form:
    """Encode a plan with all that a person needs in order to agree to it; ``requests`` are METHOD PATH, in order."""
    return {
        **encode_plan(one.plan, one.before.tree),
        "names": one.names,
        "instructions": [_encode_instruction(each) for each in instructions(one.plan.moves)],
        "before": encode(one.before),
        "after": encode(one.after),
        "capacity": sums(one),
        "requests": [f"{method} {path}" for step in one.plan.operations for method, path in requests_of(step)],
    }


def _encode_instruction(one: Instruction) -> Form:
    """Encode the moves of all consumers from one provider to another, each with its share."""
    renamed = {"to_resources": dict(one.to_resources)} if one.to_resources != one.moved_resources else {}
    return {
        "from_resource_provider": one.from_resource_provider,
        "to_resource_provider": one.to_resource_provider,
        "moved_resources": dict(one.moved_resources),
        **renamed,
        "consumers": {part.consumer: dict(part.moved_resources) for part in one.parts},
    }


def encode_outcome(one: Outcome) -> Form:
    """Encode how a pass over one node ended, with its plan, and the names of the guests that it moves."""
    return {
        **encode_plan(one.plan, one.observed),
        "names": names_of((move.consumer for move in one.plan.moves), one.survey),
        "node": one.node,
        "outcome": one.status,
        "notes": one.notes,
        **encode_reserving(one.reserving, one.observed),
    }


def encode_reserving(plan: Plan, observed: ObservedTree) -> Form:
    """Encode what a refused pass carries out all the same; no key where that is nothing."""
    return {"reserving": encode_plan(plan, observed)} if plan.operations else {}


def sums(one: Forecast) -> dict[str, dict[str, dict[str, int]]]:
    """
    Return sums over the whole tree, by class, "before" and "after".

    They are ``total``, ``capacity`` (what placement can allocate: without reserved stock, times the allocation ratio)
    and ``used``; zeros where the tree lacks the class.
    """
    found: dict[str, dict[str, dict[str, int]]] = {}
    for side, observed in (("before", one.before), ("after", one.after)):
        used = usages(observed.allocations)
        for seen in observed.tree:
            for name, stock in seen.provider.inventories.items():
                both = found.setdefault(name, {each: dict.fromkeys(_SUMS, 0) for each in ("before", "after")})
                more = (stock.total, stock.capacity, used.get((seen.name, name), 0))
                both[side] = {key: both[side][key] + amount for key, amount in zip(_SUMS, more, strict=True)}
    return dict(sorted(found.items()))


def forecast_lines(data: Forecast, *, whole: bool, next_step: str = "") -> Iterator[str]:
    """Yield what a pass would do, and after the digest of the plan what comes next."""
    yield summary(data)
    if data.plan.operations:
        yield from _row_lines(rows(data.before, data.after), "used/total", whole=whole)
        yield from _sum_lines(sums(data), whole=whole)
        yield from _guest_lines(data.plan.moves, data.names, whole=whole)
        yield f"digest {data.plan.digest}{next_step and f': {next_step}'}"


def outcome_lines(one: Outcome, *, whole: bool = False, with_plan: bool = True) -> Iterator[str]:
    """Yield how the pass over one node ended, after its plan, unless that is empty, unknown or not the agreed one."""
    if with_plan and one.plan.operations and one.status not in (Status.FAILED, Status.OTHER_PLAN):
        data = Forecast.of(Plan(one.plan.operations), one.observed, (), None)
        yield from _row_lines(rows(data.before, data.after, with_use=False), "total", whole=whole)
        names = names_of((move.consumer for move in one.plan.moves), one.survey)
        yield from _guest_lines(one.plan.moves, names, whole=whole)
        yield f"digest {one.plan.digest}"
    sentence = _ENDS.get(one.status, _NOTHING)
    if one.status is Status.UNCHANGED and one.plan.operations:
        sentence = "this would be done"
    if one.reserving.operations:
        sentence = sentence.replace("nothing was", "only reservations were")
    yield f"{one.node}: {sentence}"
    yield from (f"  {note}" for note in one.notes)


def steps_of(plan: Plan, observed: ObservedTree) -> list[str]:
    """Return what a plan changes on the only provider of a tree: a text for each class and trait."""
    after = Forecast.of(plan, observed, (), None).after
    return [text for row in rows(Observed(observed), after, with_use=False) for text in (*row.stock, *row.traits)]


def _row_lines(every: list[Row], what: str, *, whole: bool) -> Iterator[str]:
    """Yield a line for each provider, ``what`` of each class; in a long tree only those that change, folded."""
    is_long = len(every) > LONG and not whole
    shown = folded(row for row in every if row.mark != " ") if is_long else every
    yield f"{what} of each class; + made, - removed, ~ changed, > put under another parent"
    yield from columns(
        (row.mark, f"{'  ' * row.depth}{row.label}", "; ".join((*row.stock, *row.traits)) or "as it is")
        for row in shown
    )
    if len(shown) < len(every):
        left = sum(row.mark == " " for row in every)
        unchanged = f"{counted(left, 'provider')} unchanged, and " if left else ""
        yield f"{unchanged}those alike in one line: --all shows each"


def _sum_lines(capacity: Mapping[str, Mapping[str, Mapping[str, int]]], *, whole: bool) -> list[str]:
    """Return the sums of the classes that change over the whole tree."""
    changed = {name: one for name, one in capacity.items() if one["before"] != one["after"] or whole}
    if not changed:
        return ["sums over the whole tree: all classes stay as they are"]
    rows = ((name, *(_change(one["before"][key], one["after"][key]) for key in _SUMS)) for name, one in changed.items())
    return columns(rows, heads=("sums of the tree", *_SUMS.values()))


def _change(before: int, after: int) -> str:
    return str(before) if before == after else f"{before} → {after}"


def _guest_lines(moves: Iterable[Move], names: Mapping[str, str], *, whole: bool) -> Iterator[str]:
    """Yield whose accounting is rewritten: of few guests each, of many the sums by source and target."""
    by_guest: dict[str, list[Move]] = {}
    for move in moves:
        by_guest.setdefault(move.consumer, []).append(move)
    if not by_guest:
        yield "no guest's accounting changes"
        return
    yield f"{counted(len(by_guest), 'guest')} counted elsewhere; each runs on where it is"
    if len(by_guest) > SHOWN_GUESTS and not whole:
        yield from _route_lines(moves)
        return
    for consumer, several in sorted(by_guest.items(), key=lambda one: (names.get(one[0], ""), one[0])):
        yield guest(consumer, names)
        yield from columns(
            [(moved(move), f"{move.from_provider} → {move.to_provider}", move.because) for move in several], indent="  "
        )


def _route_lines(moves: Iterable[Move]) -> list[str]:
    """Return how much is counted elsewhere from each source to each target, of how many guests."""
    rows = [
        (
            written_amounts(one.moved_resources),
            f"{one.from_resource_provider} → {one.to_resource_provider}",
            counted(len({part.consumer for part in one.parts}), "guest"),
        )
        for one in instructions(moves)
    ]
    return [*columns(rows, indent="  "), "--all shows each guest with its reason"]


def standing_lines(
    standing: Observed, names: Mapping[str, str], conditions: Iterable[Condition], *, whole: bool
) -> Iterator[str]:
    """Yield a tree and its allocations; nothing where placement has no such tree."""
    if standing.tree.root:
        providers = {seen.name: seen.provider for seen in standing.tree}
        yield from tree_lines(providers, standing=standing, conditions=conditions, whole=whole)
        yield from _allocation_lines(standing.allocations, names, whole=whole)


def tree_lines(
    providers: Mapping[str, Provider],
    *,
    whole: bool,
    standing: Observed | None = None,
    conditions: Iterable[Condition] = (),
) -> Iterator[str]:
    """Yield providers below their parents; of a tree in placement (``standing``) also uuid, generation and use."""
    seen, used = (standing.tree.by_name, usages(standing.allocations)) if standing else ({}, None)
    texts: dict[str, list[str]] = {}
    for one in conditions:
        texts.setdefault(one.provider if one.provider in providers else "", []).append(one.text)
    groups = _alike(providers, used, texts) if len(providers) > LONG and not whole else {}
    for name, depth in in_order({name: one.parent for name, one in providers.items()}):
        provider, group = providers[name], groups.get(name, [name])
        if name != group[0]:
            continue
        placed = len(group) == 1 and name in seen
        identity = f"  {seen[name].uuid}  generation {seen[name].generation}" if placed else ""
        yield f"{'  ' * depth}{alike(group)}{identity}"
        told = [*texts.get(name, ()), *(texts.get("", ()) if provider.parent is None else ())]
        below = (
            *stock_of(provider, used),
            *(family + names for family, names in families(sorted(provider.traits))),
            *(f"aggregate {aggregate}" for aggregate in sorted(provider.aggregates)),
            *dict.fromkeys(told),
        )
        yield from (f"{'  ' * depth}    {line}" for line in below)
    if any(len(group) > 1 for group in groups.values()):
        yield "those alike are one branch: --all shows each"


def _alike(providers: Mapping[str, Provider], used: Used | None, apart: Iterable[str]) -> dict[str, list[str]]:
    """Return by each name the siblings without children that differ by their name alone; those ``apart`` stay so."""
    above = {*apart, *(one.parent for one in providers.values())}
    keyed = (
        (None if name in above else (one.parent, (*stock_of(one, used),), one.traits, one.aggregates), name)
        for name, one in sorted(providers.items())
    )
    return {name: group for group in grouped(keyed) for name in group}


def _allocation_lines(held: Iterable[Allocation], names: Mapping[str, str], *, whole: bool) -> Iterator[str]:
    """Yield what each consumer holds where; many consumers that hold the same in one line, with their names."""
    allocations = by_consumer(held)
    if not allocations:
        yield "no allocations"
        return
    lines = {
        consumer: tuple(f"  {written_amounts(resources)} on {provider}" for provider, resources in providers.items())
        for consumer, providers in allocations.items()
    }
    each = whole or len(allocations) <= SHOWN_GUESTS
    yield f"{counted(len(allocations), 'consumer')} with allocations"
    for several in grouped((None if each else what, consumer) for consumer, what in lines.items()):
        yield alike([names.get(one, one) for one in several]) if len(several) > 1 else guest(several[0], names)
        yield from lines[several[0]]
