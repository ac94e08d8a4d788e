"""
Which providers of one tree placement would offer for a request. Pure.

It follows placement's own search (placement/objects/allocation_candidate.py, 2025.2): groups with a suffix are given by
one provider each, the group without one by several, which have its traits together; an aggregate of the root holds for
the group without a suffix on all its providers; providers that share with a member of the tree give too.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from reportclient.request import Criterion, Wish, groups_of
from reportclient.tree import Inventory

OF_ALL = frozenset(
    {Criterion.ROOT_REQUIRED, Criterion.ROOT_FORBIDDEN, Criterion.SAME_SUBTREE, Criterion.ISOLATE}
)  # not of one group
_STEPS = 20_000  # tries after which a search is given up, about a second


class Unsearched(Exception):
    """The search took too many steps: whether there is a candidate is not known."""


@dataclass(frozen=True, slots=True)
class Offered:
    """What a provider has of one class, and how much of it all consumers have."""

    inventory: Inventory
    used: int

    @property
    def free(self) -> int:
        """Amount that can be allocated still; negative where more is used than is there."""
        return self.inventory.capacity - self.used

    def fits(self, amount: int) -> bool:
        """Return whether placement gives this amount to one group."""
        unit = self.inventory
        return amount <= self.free and unit.min_unit <= amount <= unit.max_unit and amount % unit.step_size == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Giver:
    """A provider of the tree, or one that shares with it."""

    uuid: str
    name: str
    parent: str | None  # uuid; None: the root, or a provider that shares
    shares: bool = False  # of another tree, with a provider of this one
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()
    stock: Mapping[str, Offered] = field(default_factory=dict)  # by class; at least of all classes that are asked for


@dataclass(frozen=True, slots=True)
class Part:
    """What one provider has to give: all of a group with a suffix, or one class of the group without one."""

    group: str
    amounts: tuple[tuple[str, int], ...]  # (class, amount); empty: the group asks for a place in the tree alone
    givers: tuple[Giver, ...]  # that can give it, for themselves


def find_candidate(givers: Sequence[Giver], wishes: Iterable[Wish]) -> tuple[tuple[Part, Giver], ...] | None:
    """
    Return an allocation candidate: who gives each part; None: there is none.

    ``givers`` are the tree, root first, and those that share with it. A group none of whose classes is asked for is
    left out, unless a ``same_subtree`` names it.

    Raises:
        Unsearched: it is not known.
    """
    return _Search([*givers], [*wishes]).run()


def can_give(giver: Giver, root: Giver, wishes: Sequence[Wish], tree: frozenset[str]) -> bool:
    """
    Return whether a provider has what one group asks of each of its givers; amounts are not looked at.

    ``tree`` has the uuids of all providers of the tree.
    """
    suffixed = any(one.group for one in wishes)
    members = [one for one in wishes if one.kind is Criterion.MEMBER_OF]
    spanned = not suffixed and not giver.shares  # an aggregate of the root holds for all its providers then
    return (
        all(_keeps(giver, root, one, tree, suffixed=suffixed) for one in wishes)
        and (_in_all(giver, members) or (spanned and _in_all(root, members)))
    )  # fmt: skip


def _in_all(giver: Giver, members: Iterable[Wish]) -> bool:
    return not any(giver.aggregates.isdisjoint(one.names) for one in members)


def _keeps(giver: Giver, root: Giver, wish: Wish, tree: frozenset[str], *, suffixed: bool) -> bool:
    match wish.kind:
        case Criterion.REQUIRED:  # the group without a suffix has its traits together
            return not suffixed or not giver.traits.isdisjoint(wish.names)
        case Criterion.FORBIDDEN:
            return giver.traits.isdisjoint(wish.names)
        case Criterion.NOT_MEMBER_OF:
            barred = giver.aggregates if suffixed else giver.aggregates | root.aggregates
            return barred.isdisjoint(wish.names)
        case Criterion.IN_TREE:
            named = wish.names[0]
            return (suffixed and named == giver.uuid) if giver.shares else named in tree
        case _:
            return True


class _Search:
    """A depth-first search over the parts of a request, which tries alike providers once."""

    def __init__(self, givers: list[Giver], wishes: list[Wish]) -> None:
        self._givers, self._wishes = givers, wishes
        self._root = givers[0]
        self._tree = frozenset(one.uuid for one in givers if not one.shares)
        self._isolate = any(one.kind is Criterion.ISOLATE for one in wishes)
        self._subtrees = [one.names for one in wishes if one.kind is Criterion.SAME_SUBTREE]
        self._together = [one.names for one in wishes if one.kind is Criterion.REQUIRED and not one.group]
        self._failed: set[object] = set()
        self._steps = 0

    def run(self) -> tuple[tuple[Part, Giver], ...] | None:
        if not self._root_is_right():
            return None
        parts = [*self._parts()]
        if any(not part.givers for part in parts):
            return None
        parts.sort(key=lambda part: (bool(part.group), len(part.givers), part.group, part.amounts))
        chosen = self._choose(parts, ())
        return tuple(zip(parts, chosen, strict=True)) if chosen is not None else None

    def _root_is_right(self) -> bool:
        return all(
            (one.names[0] in self._root.traits) is (one.kind is Criterion.ROOT_REQUIRED)
            for one in self._wishes
            if one.kind in (Criterion.ROOT_REQUIRED, Criterion.ROOT_FORBIDDEN)
        )

    def _parts(self) -> Iterator[Part]:
        named = {suffix for names in self._subtrees for suffix in names}
        for group in sorted(groups_of(self._wishes)):
            own = [one for one in self._wishes if one.group == group and one.kind not in OF_ALL]
            amounts = tuple((one.names[0], one.amount) for one in own if one.kind is Criterion.RESOURCES)
            if not amounts and group not in named:
                continue
            for each in (amounts,) if group else [(one,) for one in amounts]:
                yield Part(group, each, tuple(one for one in self._givers if self._gives(one, each, own)))

    def _gives(self, giver: Giver, amounts: Sequence[tuple[str, int]], own: list[Wish]) -> bool:
        stock = giver.stock
        if any(name not in stock or not stock[name].fits(amount) for name, amount in amounts):
            return False
        if not amounts:  # placement looks at in_tree with the classes alone, and needs another filter to find a place
            own = [one for one in own if one.kind is not Criterion.IN_TREE]
            if not any(one.kind in (Criterion.REQUIRED, Criterion.MEMBER_OF) for one in own):
                return False
        return can_give(giver, self._root, own, self._tree)

    def _choose(self, parts: list[Part], chosen: tuple[Giver, ...]) -> tuple[Giver, ...] | None:
        if len(chosen) == len(parts):
            return chosen if self._related(parts, chosen) else None
        self._steps += 1
        if self._steps > _STEPS:
            raise Unsearched(f"no candidate was found in {_STEPS} steps")
        state = (len(chosen), frozenset(Counter(self._state(parts, chosen)).items()))
        if state in self._failed:
            return None
        part, tried = parts[len(chosen)], set()
        for giver in part.givers:
            kind = (self._alike[giver.uuid], tuple(self._given(parts, chosen, giver)))
            if kind in tried or not self._has_room(parts, chosen, giver):
                continue
            tried.add(kind)
            if (found := self._choose(parts, (*chosen, giver))) is not None:
                return found
        self._failed.add(state)
        return None

    def _state(self, parts: list[Part], chosen: tuple[Giver, ...]) -> Iterator[object]:
        """Yield what was given so far, by kinds of providers."""
        for giver in {one.uuid: one for one in chosen}.values():
            yield self._alike[giver.uuid], tuple(self._given(parts, chosen, giver))

    def _given(self, parts: list[Part], chosen: tuple[Giver, ...], giver: Giver) -> Iterator[object]:
        """Yield what a provider gives so far; of groups that same_subtree names, with their suffix."""
        named = {suffix for names in self._subtrees for suffix in names}
        yield from sorted(
            (part.group if part.group in named else "*" * bool(part.group), part.amounts)
            for part, one in zip(parts, chosen, strict=False)
            if one.uuid == giver.uuid
        )

    def _has_room(self, parts: list[Part], chosen: tuple[Giver, ...], giver: Giver) -> bool:
        """Return whether a provider can give the next part too, beside what it gives so far."""
        part = parts[len(chosen)]
        before = [one for one, each in zip(parts, chosen, strict=False) if each.uuid == giver.uuid]
        if self._isolate and part.group and any(one.group for one in before):
            return False
        asked: Counter[str] = Counter()
        for one in (*before, part):
            asked.update(dict(one.amounts))
        return all(
            amount <= min(giver.stock[name].free, giver.stock[name].inventory.max_unit)
            for name, amount in asked.items()
        )

    def _related(self, parts: list[Part], chosen: tuple[Giver, ...]) -> bool:
        """Return whether the providers have what is asked of several together."""
        pairs = [*zip(parts, chosen, strict=True)]
        traits = frozenset(trait for part, one in pairs if not part.group for trait in one.traits)
        together = self._together if any(not part.group for part in parts) else ()
        return all(not traits.isdisjoint(names) for names in together) and all(
            self._below_one({one.uuid for part, one in pairs if part.group in names}) for names in self._subtrees
        )

    def _below_one(self, uuids: set[str]) -> bool:
        """Return whether one of these providers is above all others, or the only one."""
        return not uuids or bool(uuids & frozenset.intersection(*(self._above[one] for one in uuids)))

    @cached_property
    def _above(self) -> Mapping[str, frozenset[str]]:
        """The uuids of each provider and of all above it, by its uuid."""
        parents = {one.uuid: one.parent for one in self._givers}
        above: dict[str, frozenset[str]] = {}
        for uuid in parents:
            line, at = [uuid], parents[uuid]
            while at:
                line.append(at)
                at = parents[at]
            above[uuid] = frozenset(line)
        return above

    @cached_property
    def _alike(self) -> Mapping[str, int]:
        """The number of each provider's kind, by its uuid: those without children are alike that have the same."""
        parents = {one.parent for one in self._givers}
        kinds: dict[object, int] = {}
        alike = {}
        for one in self._givers:
            has = (one.parent, one.shares, one.traits, one.aggregates, tuple(sorted(one.stock.items(), key=_by_name)))
            alike[one.uuid] = kinds.setdefault(one.uuid if one.uuid in parents else has, len(kinds))
        return alike


def _by_name(item: tuple[str, Offered]) -> str:
    return item[0]
