"""What a plan changes, provider by provider, as text: for tables and for the picture. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from agent.command.wording import alike, counted, grouped
from drivers.base import Survey
from reportclient.allocations import Allocation, Observed, apply_moves, usages
from reportclient.forecast import forecast
from reportclient.plan import Plan
from reportclient.tree import Inventory, ObservedTree, Provider

Mark = Literal["+", "-", "~", ">", " "]
"""What becomes of a provider: made, removed, changed, put under another parent, or nothing."""

Used = Mapping[tuple[str, str], int]  # sums of allocations, by provider and class
_TERMS = ("reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")
_TRAITS_SHOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One provider, or several alike below the same parent, in a plan or as it stands."""

    names: tuple[str, ...]
    depth: int  # 0 for a root
    parent: str | None
    mark: Mark
    stock: tuple[str, ...]  # a text for each class that changes, or that a provider has
    traits: tuple[str, ...] = ()  # what a provider gets and loses, or has beside its stock

    @property
    def label(self) -> str:
        """The name, or those of several alike."""
        return alike(self.names)


@dataclass(frozen=True, slots=True)
class Forecast:
    """A plan with what stands before it and after it."""

    plan: Plan
    before: Observed
    after: Observed
    names: Mapping[str, str]  # of guests, by consumer

    @classmethod
    def of(
        cls, plan: Plan, observed: ObservedTree, allocations: tuple[Allocation, ...], survey: Survey | None
    ) -> "Forecast":
        """Return what becomes of a tree with these allocations; the survey has the names of guests."""
        after = Observed(forecast(plan, observed), apply_moves(allocations, plan.moves))
        names = names_of((each.consumer for each in allocations), survey)
        return cls(plan, Observed(observed, allocations), after, names)


_NAMED = 4  # guests that a summary names
_NOBODYS = "no guest's accounting changes"


def names_of(consumers: Iterable[str], survey: Survey | None) -> dict[str, str]:
    """Return the names of those consumers that are guests with a name on the host of a survey."""
    named = survey.names if survey else {}
    return {consumer: named[consumer] for consumer in sorted({*consumers}) if consumer in named}


def summary(data: Forecast) -> str:
    """Return in one sentence what a plan does to the tree, and to whose accounting."""
    plan, names = data.plan, data.names
    if not plan.operations:
        return "nothing to change"
    marks = [row.mark for row in rows(data.before, data.after)]
    made, gone, moved = marks.count("+"), marks.count("-"), marks.count(">")
    tree = [
        f"{counted(made, 'provider')} made" if made else "",
        f"{moved} put under another parent" if moved else "",
        f"{marks.count('~')} changed" if "~" in marks else "",
        f"{gone} removed" if gone else "",
    ]
    guests = {move.consumer for move in plan.moves}
    named = sorted(names.get(one, one) for one in guests)
    told = f" ({', '.join(named)})" if len(named) <= _NAMED else ""
    whose = f"the accounting of {counted(len(guests), 'guest')}{told} is rewritten" if guests else _NOBODYS
    return f"{', '.join(filter(None, tree)) or 'no provider changes'}; {whose}, and no guest is touched"


def rows(old: Observed, new: Observed, *, with_use: bool = True) -> list[Row]:
    """
    Return a row for each provider before or after a plan: parents before children, siblings by name.

    Without ``with_use`` it is not known what is used.
    """
    before, after = old.tree.by_uuid, new.tree.by_uuid
    uuids = {one.name: uuid for uuid, one in (before | after).items()}
    parents = {one.name: one.provider.parent for one in (before | after).values()}
    was_used, now_used = (usages(one.allocations) if with_use else None for one in (old, new))
    found = []
    for name, depth in in_order(parents):
        was, now = (side[uuids[name]].provider if uuids[name] in side else None for side in (before, after))
        stock = tuple(_stock_changes(was, now, was_used, now_used))
        row = Row(names=(name,), depth=depth, parent=parents[name], mark="-" if now is None else "+", stock=stock)
        found.append(_changed(row, was, now) if was and now else row)
    return found


def _changed(row: Row, was: Provider, now: Provider) -> Row:
    """Return the row of a provider that stays, with what becomes of it beside its stock."""
    traits = tuple(_trait_changes(was.traits, now.traits))
    named = (f"was called {was.name}",) if was.name != now.name else ()
    above = (f"was under {was.parent}",) if was.parent != now.parent and not named else ()
    groups = ("aggregates",) if was.aggregates != now.aggregates else ()
    mark: Mark = ">" if above else "~" if named or row.stock or traits or groups else " "
    return replace(row, mark=mark, stock=(*named, *above, *row.stock), traits=(*traits, *groups))


def stock_of(provider: Provider, used: Used | None) -> Iterator[str]:
    """Yield a text for each class that a provider has, with its use; ``used`` None: nobody asked for that."""
    return _stock_changes(None, provider, None, used)


def _stock_changes(
    was: Provider | None, now: Provider | None, was_used: Used | None, now_used: Used | None
) -> Iterator[str]:
    """Yield a text for each class that changes in total, use or terms."""
    old, new = was.inventories if was else {}, now.inventories if now else {}
    before, after = _amounts(was, was_used), _amounts(now, now_used)
    for name in sorted(old.keys() | new.keys()):
        if name not in old:
            yield f"{name} {'none → ' if was else ''}{after[name]}{_terms_of(new[name])}"
        elif name not in new:
            yield f"{name} {before[name]} → gone"
        else:
            terms = ", ".join(_changed_terms(old[name], new[name]))
            if before[name] != after[name] or terms:
                amount = after[name] if before[name] == after[name] else f"{before[name]} → {after[name]}"
                yield f"{name} {amount}{f' ({terms})' if terms else ''}"


def _amounts(one: Provider | None, used: Used | None) -> dict[str, str]:
    """Return used and total of each class, or where it is not known what is used, the total alone."""
    stocks = one.inventories.items() if one else ()
    if one is None or used is None:
        return {name: str(stock.total) for name, stock in stocks}
    return {name: f"{used.get((one.name, name), 0)}/{stock.total}" for name, stock in stocks}


def _changed_terms(was: Inventory, now: Inventory) -> Iterator[str]:
    """Return each term of an inventory that changes, with both values."""
    pairs = ((term, getattr(was, term), getattr(now, term)) for term in _TERMS)
    return (f"{term} {one} → {other}" for term, one, other in pairs if one != other)


def _terms_of(stock: Inventory) -> str:
    """Return the terms of stock that are not the usual ones."""
    told = [f"{stock.reserved} reserved"] if stock.reserved else []
    told += [f"ratio {stock.allocation_ratio:g}"] if stock.allocation_ratio != 1.0 else []
    told += [f"at most {stock.max_unit} each"] if stock.max_unit < stock.total else []
    return f" ({', '.join(told)})" if told else ""


def _trait_changes(was: frozenset[str], now: frozenset[str]) -> Iterator[str]:
    for sign, names in (("+", sorted(now - was)), ("-", sorted(was - now))):
        if len(names) > _TRAITS_SHOWN:
            yield f"{sign}{len(names)} traits"
        else:
            yield from (f"{sign}{name}" for name in names)


def folded(several: Iterable[Row]) -> list[Row]:
    """Return the rows, with siblings that differ by their name alone as one."""
    several = list(several)
    above = {one.parent for one in several}
    groups = grouped((None if row.names[0] in above else replace(row, names=()), row) for row in several)
    return [replace(group[0], names=tuple(name for row in group for name in row.names)) for group in groups]


def in_order(parents: Mapping[str, str | None]) -> Iterator[tuple[str, int]]:
    """Yield each name with its depth: parents before children, siblings by name."""
    children: dict[str | None, list[str]] = {}
    for name in sorted(parents):
        above = parents[name]
        children.setdefault(above if above in parents else None, []).append(name)
    waiting = [(name, 0) for name in reversed(children.get(None, []))]
    while waiting:
        name, depth = waiting.pop()
        yield name, depth
        waiting += [(child, depth + 1) for child in reversed(children.get(name, []))]
