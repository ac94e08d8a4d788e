"""
What is reserved, and whose word that is, as placement itself remembers it.

``reserved`` is an operator's word, unless the provider carries one of our marks. While it does, traits that begin with
``KEEP`` say what the operator reserved, so that exactly that is left once our reason is gone. What differs then from
what we left is an operator's word again, and goes into those traits.
"""

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import replace

from reportclient.names import LONGEST, NO_DEVICES, is_name
from reportclient.tree import MAX_INT, Inventory, ObservedProvider, ObservedTree, Provider

UNHEALTHY = "CUSTOM_DEVICE_UNHEALTHY"  # some of it is ill
HELD = "CUSTOM_DEVICE_HELD"  # there is less of it than guests hold or an operator reserved
KEEP = f"{UNHEALTHY}_KEEP_"  # followed by an amount, "_", and the class of which an operator reserved so much
LONGEST_CLASS = LONGEST - len(f"{KEEP}{MAX_INT}_")  # of which any amount can be remembered

Reservations = Mapping[str, Mapping[str, int]]
"""Provider's uuid -> resource class -> amount that an operator reserved and that no trait says yet; 0 is one too."""


def check_length(name: str) -> str:
    """
    A class of devices of which any reserved amount fits into a trait.

    Raises:
        ValueError: it is too long.
    """
    if len(name) > LONGEST_CLASS:
        raise ValueError(
            f"names the class {name[:40]}... of {len(name)} characters, and at most {LONGEST_CLASS} leave room for the "
            f"trait that remembers what is reserved of it: give it a shorter name"
        )
    return name


def is_mark(trait: str) -> bool:
    """Whether a trait says whose a reservation is."""
    return trait in (UNHEALTHY, HELD) or trait.startswith(KEEP)


def is_reserved_by_us(traits: Collection[str]) -> bool:
    """Whether what is reserved on a provider with these traits is more than an operator's word."""
    return UNHEALTHY in traits or HELD in traits


def reserved_by_operator_on(stands: ObservedProvider | None) -> dict[str, int]:
    """Amount of each class that an operator reserved on a provider, classes that are away for now included."""
    return reserved_by_operator(stands.provider) if stands else {}


def reserved_by_operator(provider: Provider) -> dict[str, int]:
    """The same of a provider that stands or is wanted."""
    if is_reserved_by_us(provider.traits):
        return _remembered(provider.traits)
    return {name: stock.reserved for name, stock in provider.inventories.items() if stock.reserved}


def set_by_operator(
    observed: ObservedTree,
    left: ObservedTree | None,
    before: Reservations,
    *,
    tried: Iterable[ObservedTree] = (),
    contested: Container[str] = (),
) -> Reservations:
    """
    What operators reserved while a mark of ours stood, since we ``left`` the tree (None: we do not know how).

    ``before`` is what was found so and is not written yet. ``tried`` is what we may have made of the tree meanwhile;
    ``contested`` are the uuids of providers that another service writes. A class whose KEEP trait changed is none of
    it: then that trait is the later word.
    """
    trees = [tree.by_uuid for tree in ((left, *tried) if left else ())]
    found: dict[str, Mapping[str, int]] = {}
    for seen in observed:
        if not is_reserved_by_us(seen.provider.traits):
            continue
        amounts = dict(before.get(seen.uuid, {}))
        ours = [tree[seen.uuid] for tree in trees if seen.uuid in tree]
        if seen.uuid not in contested and ours and ours[0].generation != seen.generation:
            amounts |= _reserved_otherwise(seen, ours)
            amounts = {name: amount for name, amount in amounts.items() if _is_kept_as_left(seen, ours, name)}
        if amounts:
            found[seen.uuid] = amounts
    return found


def with_reservations(observed: ObservedTree, reservations: Reservations) -> ObservedTree:
    """The tree with KEEP traits that say what operators reserved."""
    if not reservations:
        return observed
    return replace(observed, providers=tuple(_with_amounts(seen, reservations.get(seen.uuid)) for seen in observed))


def without_classes(provider: Provider, classes: Collection[str]) -> Provider:
    """A provider without the stock of some classes, and without the traits that say what of them was reserved."""
    left = {name: stock for name, stock in provider.inventories.items() if name not in classes}
    kept = {name: amount for name, amount in _remembered(provider.traits).items() if name not in classes}
    others = frozenset(name for name in provider.traits if not name.startswith(KEEP))
    return replace(provider, inventories=left, traits=others | keeps(kept)) if classes else provider


def keep_trait(provider: Provider, name: str) -> str:
    """The trait that says how much of a class an operator reserved; empty where none does."""
    return next(iter(keeps({name: _remembered(provider.traits).get(name, 0)})), "")


def given_back(stands: ObservedProvider, apart: Collection[str] = ()) -> dict[str, Inventory]:
    """A provider's stock without what we reserved of it; classes that are set ``apart`` stay as they are."""
    theirs = reserved_by_operator_on(stands)
    return {
        name: stock if name in apart else replace(stock, reserved=min(stock.total, theirs.get(name, 0)))
        for name, stock in stands.provider.inventories.items()
    }


def used_up(provider: Provider) -> Provider:
    """A provider all of which is reserved for good, and not only as long as we have a reason of our own."""
    stock = {name: replace(one, reserved=one.total) for name, one in provider.inventories.items()}
    marks = keeps({name: one.total for name, one in stock.items()})
    marked = marks if is_reserved_by_us(provider.traits) else frozenset()
    return replace(provider, inventories=stock, traits=provider.traits | marked)


def keeps(reserved: Mapping[str, int]) -> frozenset[str]:
    """The traits that remember what an operator reserved, by class."""
    names = (f"{KEEP}{amount}_{name}" for name, amount in reserved.items() if amount)
    return frozenset(filter(is_name, names))


def _reserved_otherwise(seen: ObservedProvider, ours: Collection[ObservedProvider]) -> dict[str, int]:
    """What is reserved of classes of devices in an amount in which we never left it."""
    found = {}
    for name, stock in seen.provider.inventories.items():
        left = [one.provider.inventories[name].reserved for one in ours if name in one.provider.inventories]
        if name not in NO_DEVICES and left and stock.reserved not in left:
            found[name] = stock.reserved
    return found


def _is_kept_as_left(seen: ObservedProvider, ours: Iterable[ObservedProvider], name: str) -> bool:
    kept = _remembered(seen.provider.traits).get(name)
    return any(_remembered(one.provider.traits).get(name) == kept for one in ours)


def _with_amounts(seen: ObservedProvider, amounts: Mapping[str, int] | None) -> ObservedProvider:
    if not amounts:
        return seen
    others = frozenset(name for name in seen.provider.traits if not name.startswith(KEEP))
    kept = keeps({**_remembered(seen.provider.traits), **amounts})
    return replace(seen, provider=replace(seen.provider, traits=others | kept))


def _remembered(traits: Collection[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for trait in traits:
        amount, _, resource_class = trait.removeprefix(KEEP).partition("_")
        if trait.startswith(KEEP) and amount.isdecimal():
            found[resource_class] = max(int(amount), found.get(resource_class, 0))
    return found
