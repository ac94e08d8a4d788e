"""
How many more consumers of one kind a tree has room for, by placement's rules for allocation candidates. Pure.

The rules are those of placement's API reference for ``GET /allocation_candidates``: one provider gives all of a group
with a suffix, and has its traits; several may give the group without one, and have its traits together.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from reportclient.request import (
    IN_TREE,
    MEMBER_OF,
    POLICY,
    REQUIRED,
    RESOURCES,
    ROOT_REQUIRED,
    SAME_SUBTREE,
    Wish,
    amount_of,
)
from reportclient.tree import ObservedProvider

MOST_STEPS = 20_000  # choices of a provider: about a tenth of a second
Slot = tuple[str, str]  # name of a provider, and a class


@dataclass(frozen=True, slots=True)
class _Ask:
    """What one provider has to give."""

    group: str  # suffix
    amounts: Mapping[str, int]  # by class; empty: it only has to be there, for a same_subtree
    givers: tuple[ObservedProvider, ...]  # that could give it


@dataclass(frozen=True, slots=True)
class _Terms:
    """What relates the providers that are chosen."""

    together: tuple[frozenset[str], ...]  # traits of which those of the group without a suffix have one of each
    isolate: bool  # groups with a suffix have a provider each
    subtrees: tuple[frozenset[str], ...]  # groups of which one provider is above the others, or the same

    def allow(self, chosen: Sequence[tuple[_Ask, ObservedProvider]], above: Mapping[str, frozenset[str]]) -> bool:
        """Return whether all choices together fulfil the terms; ``above`` has each provider and its ancestors."""
        traits = frozenset().union(*(one.provider.traits for ask, one in chosen if not ask.group))
        apart = [one.name for ask, one in chosen if ask.group]
        named = [{one.name for ask, one in chosen if ask.group in groups} for groups in self.subtrees]
        return (
            all(traits & some for some in self.together)
            and not (self.isolate and len({*apart}) < len(apart))
            and all(any(all(top in above[one] for one in names) for top in names) for names in named)
        )


def room_for(
    tree: Sequence[ObservedProvider], used: Mapping[Slot, int], wishes: Iterable[Wish], shared: Iterable[str] = ()
) -> int | None:
    """
    Return how many times one more consumer can get these wishes from a tree, root first, of which ``used`` is taken.

    They are counted one after the other, each from the providers with most left: where groups compete for providers,
    another order may find room for more. None: not known, as it asks for classes that other trees share with this one,
    or is too long to search.
    """
    wishes = [*wishes]
    if any(one.kind == RESOURCES and not one.names.isdisjoint(shared) for one in wishes):
        return None
    if not _is_of(tree, wishes):
        return 0
    free = {
        (one.name, name): stock.capacity - used.get((one.name, name), 0)
        for one in tree
        for name, stock in one.provider.inventories.items()
    }
    search = _Search(tree, wishes, free)
    count = 0
    while taken := search.candidate():
        most = min(free[slot] // amount for slot, amount in taken.items())
        times = max(1, most // 4) if search.may_choose else most
        count += times
        for slot, amount in taken.items():
            free[slot] -= times * amount
    return None if search.steps >= MOST_STEPS else count


def _is_of(tree: Sequence[ObservedProvider], wishes: Iterable[Wish]) -> bool:
    """Return whether a tree is one that a request names, by a provider or by its root's traits."""
    uuids, traits = {one.uuid for one in tree}, tree[0].provider.traits
    return all(
        wish.names & uuids if wish.kind == IN_TREE else wish.agrees_with(traits)
        for wish in wishes
        if wish.kind in (IN_TREE, ROOT_REQUIRED)
    )


class _Search:
    """Searches one candidate after the other in what is still ``free``, until it took ``MOST_STEPS``."""

    def __init__(self, tree: Sequence[ObservedProvider], wishes: Sequence[Wish], free: Mapping[Slot, int]) -> None:
        above: dict[str, frozenset[str]] = {}
        for one in tree:
            above[one.name] = above.get(one.provider.parent or "", frozenset()) | {one.name}
        self._above = above
        self._free = free
        self._asks = [*_asks(tree, wishes)]
        together = [one.names for one in wishes if one.kind == REQUIRED and not one.group and not one.unwanted]
        self._terms = _Terms(
            together=tuple(together),
            isolate=any(one.kind == POLICY and one.value == "isolate" for one in wishes),
            subtrees=tuple(one.names for one in wishes if one.kind == SAME_SUBTREE),
        )
        self.steps = 0

    @property
    def may_choose(self) -> bool:
        """Whether several providers could give the same."""
        return any(len(ask.givers) > 1 for ask in self._asks)

    def candidate(self) -> Counter[Slot] | None:
        """Return what one more consumer would take; None: there is nothing for it, or it was not found in time."""
        return self._choose([], Counter())

    def _choose(self, chosen: list[tuple[_Ask, ObservedProvider]], taken: Counter[Slot]) -> Counter[Slot] | None:
        if len(chosen) == len(self._asks):
            return taken if self._terms.allow(chosen, self._above) else None
        ask = self._asks[len(chosen)]
        for one in sorted(ask.givers, key=lambda one: -self._left(one, ask, taken)):
            self.steps += 1
            if self.steps >= MOST_STEPS:
                return None
            more = taken + Counter({(one.name, name): amount for name, amount in ask.amounts.items()})
            if self._has(one, more) and (found := self._choose([*chosen, (ask, one)], more)):
                return found
        return None

    def _left(self, one: ObservedProvider, ask: _Ask, taken: Mapping[Slot, int]) -> int:
        """Return how often a provider could give what is asked after what is ``taken``."""
        amounts = ask.amounts.items()
        return min(
            ((self._free[one.name, name] - taken.get((one.name, name), 0)) // amount for name, amount in amounts),
            default=0,
        )

    def _has(self, one: ObservedProvider, taken: Mapping[Slot, int]) -> bool:
        stocks = one.provider.inventories
        sums = ((name, taken[one.name, name]) for name in stocks if (one.name, name) in taken)
        return all(amount <= min(self._free[one.name, name], stocks[name].max_unit) for name, amount in sums)


def _asks(tree: Sequence[ObservedProvider], wishes: Sequence[Wish]) -> Iterator[_Ask]:
    """Yield what has to be given: each group with a suffix as a whole, of the other one each class."""
    related = frozenset().union(*(one.names for one in wishes if one.kind == SAME_SUBTREE))
    for group in dict.fromkeys(one.group for one in wishes):
        own = [one for one in wishes if one.group == group]
        amounts = {min(one.names): amount_of(one) for one in own if one.kind == RESOURCES}
        if group and (amounts or group in related):
            # placement searches a group that only forbids among no providers
            names_any = amounts or any(one.kind in (REQUIRED, MEMBER_OF) and not one.unwanted for one in own)
            yield _Ask(group, amounts, _givers(tree, own, amounts) if names_any else ())
        elif not group:
            parts = ({name: amount} for name, amount in amounts.items())
            yield from (_Ask(group, part, _givers(tree, own, part)) for part in parts)


def _givers(
    tree: Sequence[ObservedProvider], wishes: Sequence[Wish], amounts: Mapping[str, int]
) -> tuple[ObservedProvider, ...]:
    """Return the providers that could give some amounts of a group, whatever is taken of them."""
    root = tree[0].provider.aggregates if wishes and not wishes[0].group else frozenset[str]()
    near = [one for one in wishes if one.kind == MEMBER_OF and not one.unwanted]

    def may(one: ObservedProvider) -> bool:
        stocks, own = one.provider.inventories, one.provider.aggregates
        return (
            all(name in stocks and stocks[name].fits(amount) for name, amount in amounts.items())
            and (all(wish.names & own for wish in near) or all(wish.names & root for wish in near))
            and not any(wish.names & (own | root) for wish in wishes if wish.kind == MEMBER_OF and wish.unwanted)
            and all(
                wish.agrees_with(one.provider.traits)
                for wish in wishes
                if wish.kind == REQUIRED and (wish.group or wish.unwanted)
            )
        )

    return tuple(filter(may, tree))
