"""Trees of providers, and what consumers hold there, as lines for people. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from agent.command.changes import Used, in_order, stock_of
from agent.command.wording import LONG, SHOWN_GUESTS, alike, counted, families, grouped, guest, written_amounts
from agent.sync.json_form import by_consumer
from agent.sync.outcome import Condition
from reportclient.allocations import Allocation, Observed, usages
from reportclient.tree import Provider


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
