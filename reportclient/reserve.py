"""
What is reserved, and by whom, as placement itself remembers it.

``reserved`` comes from an operator, unless the provider carries one of our marks. While it does, traits that begin with
``KEEP`` remember what the operator reserved, so that exactly this amount stays once our reason is gone, and traits that
begin with ``LEFT`` what we left reserved. Another amount was set by an operator, and goes into the ``KEEP`` traits.
While an amount changes, the old and the new one stand there: the new trait comes before its inventory is written, and
the old one goes after that.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from reportclient.names import LONGEST, NO_DEVICES, is_name
from reportclient.tree import MAX_INT, Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

UNHEALTHY = "CUSTOM_DEVICE_UNHEALTHY"  # some of the provider's devices are unhealthy
HELD = "CUSTOM_DEVICE_HELD"  # fewer devices are left than guests hold or an operator reserved
RESERVED = "CUSTOM_OWNER_COMPUTE_NODE_AGENT_RESERVED"  # a feature of a pass keeps them from new guests
HOLD = "CUSTOM_OWNER_COMPUTE_NODE_AGENT_HOLD_"  # followed by what a person takes off offer
MARKS = frozenset({UNHEALTHY, HELD, RESERVED})
KEEP = f"{UNHEALTHY}_KEEP_"  # followed by the amount that an operator reserved, "_", and the class
LEFT = f"{UNHEALTHY}_LEFT_"  # followed by the amount that we left reserved, "_", and the class
LONGEST_CLASS = LONGEST - len(f"{KEEP}{MAX_INT}_")  # characters of a class of which any amount fits into a trait


def check_length(name: str) -> str:
    """
    Return the class if any reserved amount of it fits into a trait.

    Raises:
        ValueError: the name is too long.
    """
    if len(name) > LONGEST_CLASS:
        raise ValueError(
            f"names the class {name[:40]}... of {len(name)} characters, but a class may have at most "
            f"{LONGEST_CLASS}. The agent writes the class and the reserved amount into the name of a trait, and such a "
            f"name may have at most {LONGEST}: choose a shorter name for the class"
        )
    return name


def is_mark(trait: str) -> bool:
    """Return whether a trait is one of ours that say who reserved: of ``MARKS``, or one with KEEP, LEFT or HOLD."""
    return trait in MARKS or trait.startswith((KEEP, LEFT, HOLD))


def tells_left(trait: str) -> bool:
    """Return whether a trait says what we left reserved."""
    return trait.startswith(LEFT)


def class_kept(trait: str) -> str:
    """Return the class of which a trait says what an operator reserved; empty: it says that of none."""
    return trait.removeprefix(KEEP).partition("_")[2] if trait.startswith(KEEP) else ""


def classes_left(provider: Provider) -> frozenset[str]:
    """Return the classes that are ours by our marks: exactly the amount that a LEFT trait names is reserved."""
    if not is_reserved_by_us(provider.traits):
        return frozenset()
    stock = provider.inventories.items()
    return frozenset(name for name, one in stock if one.reserved and f"{LEFT}{one.reserved}_{name}" in provider.traits)


def is_reserved_by_us(traits: Collection[str]) -> bool:
    """Return whether we reserved something on a provider with these traits."""
    return not MARKS.isdisjoint(traits)


def reserved_by_operator(provider: Provider) -> dict[str, int]:
    """
    Return the amount of each class that an operator reserved on an observed or desired provider.

    Includes remembered amounts of classes that have no stock now.
    """
    if is_reserved_by_us(provider.traits):
        return _remembered(provider.traits)
    return {name: stock.reserved for name, stock in provider.inventories.items() if stock.reserved}


def with_reservations(observed: ObservedTree, besides: Mapping[str, Collection[str]]) -> ObservedTree:
    """
    Return the tree with KEEP traits for what operators reserved under a mark of ours since the last write.

    ``besides`` has, by provider name, classes that the operator's files add.
    """
    found = (_with_amounts(seen, besides.get(seen.name, ())) for seen in observed)
    return replace(observed, providers=tuple(found))


def with_marks_of(observed: ObservedTree, left: ObservedTree | None) -> ObservedTree:
    """
    Return the tree with our marks where a hand removed them, for instance by setting a whole list of traits.

    What we ``left`` counts only where the provider was written once since then: its traits.
    """
    before = observed.once_written(left)
    return replace(observed, providers=tuple(_with_marks_of(seen, before.get(seen.uuid)) for seen in observed))


def _with_marks_of(seen: ObservedProvider, left: ObservedProvider | None) -> ObservedProvider:
    if left is None or not is_reserved_by_us(left.provider.traits) or is_reserved_by_us(seen.provider.traits):
        return seen
    return seen.changed(traits=seen.provider.traits.union(filter(is_mark, left.provider.traits)))


def with_least(
    tree: ProviderTree, least: Mapping[tuple[str, str], int], besides: Mapping[str, Collection[str]]
) -> ProviderTree:
    """
    Return a desired tree with at least these amounts reserved, by provider and class, and with the marks for that.

    ``besides`` has, by provider name, the classes of the operator's files, which say themselves what is reserved.
    """
    return ProviderTree(tuple(_with_least(one, least, besides.get(one.name, ())) for one in tree))


def _with_least(provider: Provider, least: Mapping[tuple[str, str], int], besides: Collection[str]) -> Provider:
    stock = {
        name: replace(one, reserved=max(one.reserved, min(one.total, least.get((provider.name, name), 0))))
        for name, one in provider.inventories.items()
    }
    apart = NO_DEVICES.union(besides)
    if all(stock[name].reserved == one.reserved for name, one in provider.inventories.items() if name not in besides):
        return replace(provider, inventories=stock)
    theirs = {name: amount for name, amount in reserved_by_operator(provider).items() if name not in apart}
    return replace(provider, inventories=stock, traits=provider.traits | {RESERVED} | keeps(theirs))


def with_left(provider: Provider, besides: Collection[str] = ()) -> Provider:
    """
    Return a desired provider with the traits that say what of its devices we reserve; ``besides`` is another's.

    They name each class of which we reserve more than an operator, or each class where there is none: while we reserve
    something, there is always such a trait.
    """
    others = frozenset(name for name in provider.traits if not tells_left(name))
    if not is_reserved_by_us(provider.traits):
        return replace(provider, traits=others)
    theirs, apart = _remembered(provider.traits), NO_DEVICES.union(besides)
    left = {name: one.reserved for name, one in provider.inventories.items() if name not in apart}
    ours = {name: amount for name, amount in left.items() if amount != theirs.get(name, 0)} or left
    names = (f"{LEFT}{amount}_{name}" for name, amount in ours.items())
    return replace(provider, traits=others.union(filter(is_name, names)))


def without_classes(provider: Provider, classes: Collection[str]) -> Provider:
    """Return the provider without the stock of some classes, and without the KEEP and LEFT traits of these classes."""
    left = {name: stock for name, stock in provider.inventories.items() if name not in classes}
    gone = {
        trait
        for trait in provider.traits
        if trait.startswith((KEEP, LEFT)) and trait.removeprefix(KEEP).removeprefix(LEFT).partition("_")[2] in classes
    }
    return replace(provider, inventories=left, traits=provider.traits - gone)


def with_operators(provider: Provider, amounts: Mapping[str, int]) -> Provider:
    """Return a provider under our marks that remembers at least these amounts of devices as an operator's."""
    if not is_reserved_by_us(provider.traits):
        return provider
    theirs = _remembered(provider.traits)
    more = {name: max(amount, theirs.get(name, 0)) for name, amount in amounts.items() if name not in NO_DEVICES}
    return _remembering(provider, more)


def given_back(stands: ObservedProvider, apart: Collection[str] = ()) -> dict[str, Inventory]:
    """Return a provider's stock without what we reserved of devices; classes in ``apart`` stay as they are."""
    theirs, left = reserved_by_operator(stands.provider), _amounts(stands.provider.traits, LEFT)
    stock = stands.provider.inventories
    apart = {*apart, *NO_DEVICES, *(stock.keys() - left.keys() if left else ())}
    return {
        name: one if name in apart else replace(one, reserved=min(one.total, theirs.get(name, 0)))
        for name, one in stock.items()
    }


def used_up(provider: Provider) -> Provider:
    """Return the provider with all of its stock reserved for good, not only while we have a reason."""
    stock = {name: replace(one, reserved=one.total) for name, one in provider.inventories.items()}
    marks = keeps({name: one.total for name, one in stock.items()})
    marked = marks if is_reserved_by_us(provider.traits) else frozenset()
    return replace(provider, inventories=stock, traits=provider.traits | marked)


def reserved_again(provider: Provider, before: Provider) -> Provider:
    """Return a provider that is made anew with what operators reserved of the devices of the one ``before`` it."""
    said = {name: amount for name, amount in reserved_by_operator(before).items() if name not in NO_DEVICES}
    stock = {
        name: replace(one, reserved=min(one.total, one.reserved + said.get(name, 0)))
        for name, one in provider.inventories.items()
    }
    marked = keeps(said) if is_reserved_by_us(provider.traits) else frozenset()
    return replace(provider, inventories=stock, traits=provider.traits | marked)


def keeps(reserved: Mapping[str, int]) -> frozenset[str]:
    """Return the traits that remember these amounts by class; none for 0, and none that would be too long."""
    names = (f"{KEEP}{amount}_{name}" for name, amount in reserved.items() if amount)
    return frozenset(filter(is_name, names))


def _with_amounts(seen: ObservedProvider, besides: Collection[str]) -> ObservedProvider:
    """Return the provider with traits for reserved amounts that neither we left so nor an operator's trait explains."""
    traits = seen.provider.traits
    if not (is_reserved_by_us(traits) and any(map(tells_left, traits))):
        return seen
    left, theirs, apart = _amounts(traits, LEFT), _remembered(traits), NO_DEVICES.union(besides)
    amounts = {
        name: stock.reserved
        for name, stock in seen.provider.inventories.items()
        if name not in apart and stock.reserved not in {theirs.get(name, 0), *left.get(name, ())}
    }
    return replace(seen, provider=_remembering(seen.provider, amounts)) if amounts else seen


def _remembering(provider: Provider, amounts: Mapping[str, int]) -> Provider:
    """Return a provider with KEEP traits for these amounts too; another amount of a class is forgotten."""
    others = frozenset(name for name in provider.traits if not name.startswith(KEEP))
    return replace(provider, traits=others | keeps({**_remembered(provider.traits), **amounts}))


def _remembered(traits: Collection[str]) -> dict[str, int]:
    return {name: max(amounts) for name, amounts in _amounts(traits, KEEP).items()}


def _amounts(traits: Collection[str], prefix: str) -> dict[str, set[int]]:
    """Return the amounts that traits with this prefix name, by class."""
    found: dict[str, set[int]] = {}
    for trait in traits:  # no trait of another kind begins with a number
        amount, _, resource_class = trait.removeprefix(prefix).partition("_")
        if amount.isdecimal():
            found.setdefault(resource_class, set()).add(int(amount))
    return found
