"""Find inventory of devices that stands in placement and that the host does not show now; keep it, reserved. Pure."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from agent.sync.decide.shaped import Shaped
from agent.sync.decide.standing import Standing
from reportclient.hold import device_classes, is_of_the_host, is_reshaped, keep_whole
from reportclient.names import BANDWIDTH, ONE_TIME
from reportclient.ownership import Ownership
from reportclient.tree import ObservedProvider, ObservedTree, Provider, ProviderTree

Slot = tuple[str, str]
"""A provider's name and a resource class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """What stands and what is wanted, and what tells whether a device may come back."""

    observed: ObservedTree
    wanted: ProviderTree
    ours: Ownership
    lost: Callable[[str], bool]  # whether the hardware of a provider is away, or shows none of its parts
    kinds: Mapping[str, Collection[str]]  # classes in the root's totals, by device's name
    elsewhere: Collection[str]  # names of providers whose hardware is on offer in another form
    besides: Mapping[str, Collection[str]]  # classes of the operator's files, by provider
    shown: Mapping[str, int]  # VFs that a card shows, offered or not, by its provider
    undecided: Collection[Slot] = ()  # of odd devices: ours, whatever the memory says
    once: bool = False  # True: one-time devices count too
    forced: bool = False  # True: a person takes away what a card that shows others does not show


def sides_of(standing: Standing, shaped: Shaped) -> Sides:
    """Return the sides of a host as it stands and as it is shaped."""
    backing = shaped.holdings.backing
    return Sides(
        observed=shaped.stands,
        wanted=shaped.tree,
        ours=shaped.ours,
        lost=lambda name: shaped.is_lost(name) or name in backing.untyped,
        kinds={f"{shaped.tree.root.name}_{suffix}": classes for suffix, classes in standing.memory.kinds.items()},
        elsewhere=backing.elsewhere,
        besides=standing.files,
        shown=backing.shown,
    )


def with_stock(shaped: Shaped, standing: Standing, stock: Mapping[Slot, int]) -> Shaped:
    """Return the shape with at least this stock, as ``keep_whole``, without traits that the operator's files add."""
    tree, there = keep_whole(shaped.tree, shaped.stands, stock, standing.files), {one.name for one in shaped.tree}
    added = {name: each.traits for name, each in standing.named.items() if name not in there}
    kept = (replace(one, traits=one.traits - added.get(one.name, frozenset())) for one in tree)
    return replace(shaped, tree=ProviderTree(tuple(kept)))


def missing_of(sides: Sides) -> Iterator[tuple[Slot, int]]:
    """Yield the stock of devices, and of their links, of which less is wanted than stands, with the standing total."""
    wanted = {one.name: one for one in sides.wanted}
    for seen in sides.observed:
        if seen.name in sides.elsewhere or not sides.ours.writes(seen):
            continue
        if ONE_TIME in seen.provider.traits and not sides.once:
            continue
        if seen.provider.parent and is_of_the_host(seen.provider):
            continue
        besides = sides.besides.get(seen.name, ())
        ours = sides.ours.classes(seen) | {name for provider, name in sides.undecided if provider == seen.name}
        less = _less(seen, wanted.get(seen.name))
        devices = [
            name
            for name in device_classes(less, besides) & ours
            if (not _is_withdrawn(seen, name, sides) if less[name] else _may_come_back(seen, name, sides))
        ]
        links = less.keys() & (BANDWIDTH - frozenset(besides)) & ours if devices else ()
        for name in (*devices, *links):
            yield (seen.name, name), seen.provider.inventories[name].total


def _less(seen: ObservedProvider, wanted: Provider | None) -> dict[str, int]:
    """Return the classes of which less is wanted than stands, with the total that is wanted."""
    totals = {name: one.total for name, one in wanted.inventories.items()} if wanted else {}
    return {
        name: totals.get(name, 0) for name, one in seen.provider.inventories.items() if totals.get(name, 0) < one.total
    }


def _is_withdrawn(seen: ObservedProvider, resource_class: str, sides: Sides) -> bool:
    """Return whether a person took a part of a class out: its cards show as much as stood, or the person says so."""
    if sides.forced:
        return True
    cards = [seen.name]
    if seen.provider.parent is None:
        cards = [name for name, classes in sides.kinds.items() if resource_class in classes]
    shown = [sides.shown[name] for name in cards if name in sides.shown]
    return len(shown) == len(cards) and sum(shown) >= seen.provider.inventories[resource_class].total


def _may_come_back(seen: ObservedProvider, resource_class: str, sides: Sides) -> bool:
    """Return whether a class that is gone may come back: no person withdrew it, and it is not on offer elsewhere."""
    if seen.provider.parent is None:
        offered = any(resource_class in one.inventories for one in sides.wanted if one.parent)
        gave = [name for name, classes in sides.kinds.items() if resource_class in classes]
        return not offered and any(map(sides.lost, gave if sides.kinds else (one.name for one in sides.observed)))
    if not sides.lost(seen.name):
        return False
    wanted = next((one for one in sides.wanted if one.name == seen.name), None)
    besides = sides.besides.get(seen.name, ())
    return not is_reshaped(seen, wanted, resource_class, sides.wanted, sides.observed, besides)
