"""What a plan changes, provider by provider, as text: for tables and for the picture. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from agent.command.wording import alike, counted
from agent.sync.forms import ConversionForm, ObservedProviderForm
from reportclient.payload import InventoryForm

Mark = Literal["+", "-", "~", ">", " "]
"""What becomes of a provider: made, removed, changed, put under another parent, or nothing."""

TERMS: tuple[Literal["reserved", "min_unit", "max_unit", "step_size", "allocation_ratio"], ...] = (
    "reserved",
    "min_unit",
    "max_unit",
    "step_size",
    "allocation_ratio",
)
_TRAITS_SHOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One provider, or several alike below the same parent, in a plan."""

    names: tuple[str, ...]
    depth: int  # 0 for a root
    parent: str | None
    mark: Mark
    stock: tuple[str, ...]  # a text for each class that changes, or that a new provider has
    traits: tuple[str, ...] = ()  # what a provider that stays gets and loses

    @property
    def label(self) -> str:
        """The name, or those of several alike."""
        return alike(self.names)


_NAMED = 4  # guests that a summary names
_NOBODYS = "no guest's accounting changes"


def summary(data: ConversionForm) -> str:
    """Return in one sentence what a plan does to the tree, and to whose accounting."""
    if not data["operations"]:
        return "nothing to change"
    marks = [row.mark for row in rows(data)]
    made, gone, moved = marks.count("+"), marks.count("-"), marks.count(">")
    tree = [
        f"{counted(made, 'provider')} made" if made else "",
        f"{moved} put under another parent" if moved else "",
        f"{marks.count('~')} changed" if "~" in marks else "",
        f"{gone} removed" if gone else "",
    ]
    guests = {move["consumer"] for move in data["moves"]}
    named = sorted(data.get("names", {}).get(one, one) for one in guests)
    told = f" ({', '.join(named)})" if len(named) <= _NAMED else ""
    whose = f"the accounting of {counted(len(guests), 'guest')}{told} is rewritten" if guests else _NOBODYS
    return f"{', '.join(filter(None, tree)) or 'no provider changes'}; {whose}, and no guest is touched"


def rows(data: ConversionForm) -> list[Row]:
    """Return a row for each provider before or after a plan: parents before children, siblings by name."""
    before = {one["uuid"]: (name, one) for name, one in data["before"]["providers"].items()}
    after = {one["uuid"]: (name, one) for name, one in data["after"]["providers"].items()}
    called = {uuid: name for uuid, (name, _) in (before | after).items()}
    parents = {name: one["parent"] for name, one in data["before"]["providers"].items() if one["uuid"] not in after}
    parents |= {name: one["parent"] for name, one in data["after"]["providers"].items()}
    uuids = {name: uuid for uuid, name in called.items()}
    found = []
    for name, depth in in_order(parents):
        old, new = before.get(uuids[name], (name, None)), after.get(uuids[name], (name, None))
        found.append(_row(name, depth, parents[name], old, new))
    return found


def _row(
    name: str,
    depth: int,
    parent: str | None,
    before: tuple[str, ObservedProviderForm | None],
    after: tuple[str, ObservedProviderForm | None],
) -> Row:
    (old_name, old), (_, new) = before, after
    stock = tuple(_stock_changes(old, new))
    traits = tuple(_trait_changes(old, new))
    if old is None:
        return Row(names=(name,), depth=depth, parent=parent, mark="+", stock=stock)
    if new is None:
        return Row(names=(name,), depth=depth, parent=parent, mark="-", stock=stock)
    named = (f"was called {old_name}",) if old_name != name else ()
    above = (f"was under {old['parent']}",) if old["parent"] != new["parent"] and not named else ()
    groups = ("aggregates",) if old["aggregates"] != new["aggregates"] else ()
    mark: Mark = ">" if above else "~" if named or stock or traits or groups else " "
    return Row(
        names=(name,), depth=depth, parent=parent, mark=mark, stock=(*named, *above, *stock), traits=(*traits, *groups)
    )


def _stock_changes(old: ObservedProviderForm | None, new: ObservedProviderForm | None) -> Iterator[str]:
    """Yield a text for each class that changes in total, use or terms."""
    was = old["inventories"] if old else {}
    now = new["inventories"] if new else {}
    for name in sorted(was.keys() | now.keys()):
        before, after = _amount(old, name), _amount(new, name)
        if before is None:
            yield f"{name} {after}{_terms(now[name])}"
        elif after is None:
            yield f"{name} {before} → gone"
        else:
            one, other = was[name], now[name]
            terms = ", ".join(f"{term} {one[term]} → {other[term]}" for term in TERMS if one[term] != other[term])
            if before != after or terms:
                amount = after if before == after else f"{before} → {after}"
                yield f"{name} {amount}{f' ({terms})' if terms else ''}"


def _terms(stock: InventoryForm) -> str:
    """Return the terms of new stock that are not the usual ones."""
    told = [f"{stock['reserved']} reserved"] if stock["reserved"] else []
    told += [f"ratio {stock['allocation_ratio']:g}"] if stock["allocation_ratio"] != 1.0 else []
    return f" ({', '.join(told)})" if told else ""


def _amount(provider: ObservedProviderForm | None, name: str) -> str | None:
    """Return used and total of a class; None where the provider has none of it."""
    if provider is None or name not in provider["inventories"]:
        return None
    return f"{provider['usages'].get(name, 0)}/{provider['inventories'][name]['total']}"


def _trait_changes(old: ObservedProviderForm | None, new: ObservedProviderForm | None) -> Iterator[str]:
    was, now = set(old["traits"] if old else ()), set(new["traits"] if new else ())
    for sign, names in (("+", sorted(now - was)), ("-", sorted(was - now) if new else [])):
        if len(names) > _TRAITS_SHOWN:
            yield f"{sign}{len(names)} traits"
        else:
            yield from (f"{sign}{name}" for name in names)


def folded(several: Iterable[Row]) -> list[Row]:
    """Return the rows, with siblings that differ by their name alone as one."""
    several = list(several)
    above = {one.parent for one in several}
    found: list[Row] = []
    alike: dict[Row, int] = {}
    for row in several:
        key = replace(row, names=())
        if key in alike and row.names[0] not in above:
            found[alike[key]] = replace(row, names=(*found[alike[key]].names, *row.names))
            continue
        if row.names[0] not in above:
            alike[key] = len(found)
        found.append(row)
    return found


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
