"""Trees, plans and the ends of passes, as JSON and as lines for people. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from agent.command.changes import Forecast, Row, folded, in_order, names_of, rows, stock_of, summary
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
        if one.status is Status.CHANGED and one.allocations is not None:  # as it was planned
            yield from forecast_lines(Forecast.of(one.plan, one.observed, one.allocations, one.survey), whole=whole)
        else:
            data = Forecast.of(Plan(one.plan.operations), one.observed, (), None)
            what = "total" if one.status in (Status.CHANGED, Status.UNCHANGED) else "not written: total"
            yield from _row_lines(rows(data.before, data.after, with_use=False), what, whole=whole)
            if one.plan.moves:
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
    """Yield whose accounting is rewritten, with what moves where, and unless they are many why."""
    by_guest: dict[str, list[Move]] = {}
    for move in moves:
        by_guest.setdefault(move.consumer, []).append(move)
    if not by_guest:
        yield "no guest's accounting changes"
        return
    yield f"{counted(len(by_guest), 'guest')} counted elsewhere; each runs on where it is"
    each = whole or len(by_guest) <= SHOWN_GUESTS
    lines = {}
    for consumer, several in sorted(by_guest.items(), key=lambda one: (names.get(one[0], ""), one[0])):
        rows = [
            (moved(one), f"{one.from_provider} → {one.to_provider}", one.because if each else "") for one in several
        ]
        lines[consumer] = columns(rows, indent="  ")
    yield from _by_consumer(lines, names, each=each)


def _by_consumer(lines: Mapping[str, Sequence[str]], names: Mapping[str, str], *, each: bool) -> Iterator[str]:
    """Yield the lines about each consumer below its name; unless ``each``, those with the same lines together."""
    for several in grouped((None if each else tuple(told), consumer) for consumer, told in lines.items()):
        yield alike([names.get(one, one) for one in several]) if len(several) > 1 else guest(several[0], names)
        yield from lines[several[0]]
    if not each:
        yield "those alike are told once: --all shows each"


def standing_lines(
    standing: Observed, names: Mapping[str, str], conditions: Collection[Condition], *, whole: bool
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
    conditions: Collection[Condition] = (),
) -> Iterator[str]:
    """Yield providers below their parents; of a tree in placement (``standing``) also uuid, generation and use."""
    seen, used = (standing.tree.by_name, usages(standing.allocations)) if standing else ({}, None)
    every: list[Row] = []
    told: set[str] = set()  # what is said of several providers is told at the first one
    for name, depth in in_order({name: one.parent for name, one in providers.items()}):
        provider = providers[name]
        about = [
            one.text for one in conditions if one.provider == name or (one.provider not in providers and not depth)
        ]
        lines = (
            *(family + ends for family, ends in families(sorted(provider.traits))),
            *(f"aggregate {aggregate}" for aggregate in sorted(provider.aggregates)),
            *(text for text in dict.fromkeys(about) if text not in told),
        )
        told.update(about)
        stock = tuple(stock_of(provider, used))
        every.append(Row(names=(name,), depth=depth, parent=provider.parent, mark=" ", stock=stock, traits=lines))
    shown = folded(every) if len(every) > LONG and not whole else every
    for row in shown:
        placed = seen.get(row.names[0]) if len(row.names) == 1 else None
        identity = f"  {placed.uuid}  generation {placed.generation}" if placed else ""
        yield f"{'  ' * row.depth}{row.label}{identity}"
        yield from (f"{'  ' * row.depth}    {line}" for line in (*row.stock, *row.traits))
    if len(shown) < len(every):
        yield "those alike are one branch: --all shows each"


def _allocation_lines(held: Iterable[Allocation], names: Mapping[str, str], *, whole: bool) -> Iterator[str]:
    """Yield what each consumer holds where; many consumers that hold the same in one line, with their names."""
    allocations = by_consumer(held)
    if not allocations:
        yield "no allocations"
        return
    yield f"{counted(len(allocations), 'consumer')} with allocations"
    lines = {
        consumer: [f"  {written_amounts(resources)} on {provider}" for provider, resources in providers.items()]
        for consumer, providers in allocations.items()
    }
    yield from _by_consumer(lines, names, each=whole or len(lines) <= SHOWN_GUESTS)
