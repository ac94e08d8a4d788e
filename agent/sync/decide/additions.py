"""Add what the operator's files name to providers of this host, and find what they no longer name. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agent.errors import ConfigError
from reportclient.ownership import Names
from reportclient.renaming import child_uuid
from reportclient.reserve import without_classes
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

COMPUTE_NODE = "$COMPUTE_NODE"  # stands for every root of this agent that no other entry names
_NOTHING = ObservedTree()


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """What one entry of a file adds to one provider."""

    provider: str  # a uuid, a name, or COMPUTE_NODE
    source: Path  # the file, as messages name it
    inventories: Mapping[str, Inventory]
    traits: frozenset[str]


def add(
    tree: ProviderTree, root_uuid: str, additions: Iterable[Addition], *, observed: ObservedTree = _NOTHING
) -> tuple[ProviderTree, dict[str, Names]]:
    """
    Return the tree with the additions, and what was added, by provider name.

    Entries for providers that this host does not have are for other hosts. ``observed`` is what stands in placement:
    an entry names a standing provider by the uuid that it has there, any other provider by the uuid that it is to get.

    Raises:
        ConfigError: an entry adds what the driver reports itself, or a provider is named both by name and by uuid.
    """
    by_provider = {addition.provider: addition for addition in additions}
    standing = {seen.name.removeprefix(observed.providers[0].name): seen.uuid for seen in observed}
    providers, added = [], {}
    for provider in tree:
        own = provider.name.removeprefix(tree.root.name)
        uuid = standing.get(own) or (child_uuid(root_uuid, tree.root.name, provider.name) if own else root_uuid)
        addition = _choose(provider, uuid, by_provider)
        providers.append(_extend(provider, addition) if addition else provider)
        if addition:
            added[provider.name] = Names(frozenset(addition.inventories), addition.traits)
    return ProviderTree(tuple(providers)), added


def add_to_others(
    observed: ObservedTree,
    others: Iterable[ObservedProvider],
    before: Mapping[str, Names],
    additions: Iterable[Addition],
) -> tuple[dict[str, Provider], dict[str, Names], tuple[str, ...]]:
    """
    Return what providers of other services below the root become by the files, and what of it is the files', by name.

    ``others`` are these providers of ``observed``; ``before`` is what the files gave at the last pass. What stands
    there and no file gave is never the files', also where they name the same. The last part is a sentence on each
    entry with classes that stand there with other numbers: the owner's stay.
    """
    entries, found, added = entries_on(observed, additions), {}, {}
    notes: list[str] = []
    for seen in others:
        entry, ours = entries.get(seen.name), before.get(seen.name, Names())
        stock = {name: one for name, one in seen.provider.inventories.items() if name not in ours.classes}
        traits = seen.provider.traits - ours.traits
        notes += _owners_numbers(entry, seen.name, stock) if entry else ()
        more = {name: one for name, one in entry.inventories.items() if name not in stock} if entry else {}
        names = entry.traits - traits if entry else frozenset()
        found[seen.name] = replace(seen.provider, inventories={**stock, **more}, traits=traits | names)
        if more or names:
            added[seen.name] = Names(frozenset(more), names)
    return found, added, tuple(notes)


def _owners_numbers(entry: Addition, provider: str, stock: Mapping[str, Inventory]) -> tuple[str, ...]:
    both = sorted(name for name, one in entry.inventories.items() if name in stock and not one.equals(stock[name]))
    text = (
        f"{entry.source}: {', '.join(both)} of {provider} has other numbers there, which this agent did not write, and "
        f"is left as it is: remove it from this file; or, if the file is right, remove it from the provider"
    )
    return (text,) if both else ()


def without_taken(
    before: Mapping[str, Names], others: Iterable[ObservedProvider], left: Iterable[ObservedTree]
) -> dict[str, Names]:
    """
    Return what the files gave at the last pass (``before``), without classes of providers that ``others`` wrote since.

    ``left`` are the trees that this agent left or was to make: a class with other numbers than in all of these is its
    owner's from now on. Without such a tree, after a pass that was cut off, this cannot be told, and all stays.
    """
    trees, found = [tree.by_uuid for tree in left], dict(before)
    for seen in others if trees else ():
        as_left = [tree[seen.uuid].provider.inventories for tree in trees if seen.uuid in tree]
        taken = {
            name
            for name, one in seen.provider.inventories.items()
            if not any(name in stock and one.equals(stock[name]) for stock in as_left)
        }
        if names := before.get(seen.name):
            found[seen.name] = replace(names, classes=names.classes - taken)
    return found


def still_named(before: Mapping[str, Names], observed: ObservedTree, additions: Iterable[Addition]) -> dict[str, Names]:
    """
    Return what the files named before and still name on the standing providers, wanted or not, by provider name.

    The operator withdrew what is missing here. What is here and goes, goes together with its provider.
    """
    return {
        name: Names(before[name].classes & now.classes, before[name].traits & now.traits)
        for name, now in now_named(observed, additions).items()
        if name in before
    }


def now_named(observed: ObservedTree, additions: Iterable[Addition]) -> dict[str, Names]:
    """Return what the files name now on the standing providers, wanted or not, by provider name."""
    entries = entries_on(observed, additions)
    return {name: Names(frozenset(entry.inventories), entry.traits) for name, entry in entries.items()}


def entries_on(observed: ObservedTree, additions: Iterable[Addition]) -> dict[str, Addition]:
    """
    Return the entry for each standing provider that has one, by the provider's name.

    Raises:
        ConfigError: a provider is named both by name and by uuid.
    """
    by_provider = {addition.provider: addition for addition in additions}
    found = ((seen.name, _choose(seen.provider, seen.uuid, by_provider)) for seen in observed)
    return {name: addition for name, addition in found if addition}


def without(observed: ObservedTree, named: Mapping[str, Names]) -> ObservedTree:
    """
    Return the tree without what the files name, and without our reservation marks for that.

    A driver looks up in this tree what devices had, and must not take over what the files added to them.
    """
    return replace(observed, providers=tuple(_without(seen, named.get(seen.name)) for seen in observed))


def _without(seen: ObservedProvider, named: Names | None) -> ObservedProvider:
    if named is None:
        return seen
    left = without_classes(seen.provider, named.classes)
    return replace(seen, provider=replace(left, traits=left.traits - named.traits))


def _choose(provider: Provider, uuid: str, by_provider: Mapping[str, Addition]) -> Addition | None:
    by_name, by_uuid = by_provider.get(provider.name), by_provider.get(uuid)
    if by_name and by_uuid:
        raise ConfigError(f"{by_uuid.source}: provider {uuid} is named {provider.name} in {by_name.source} already")
    return by_name or by_uuid or (by_provider.get(COMPUTE_NODE) if provider.parent is None else None)


def _extend(provider: Provider, addition: Addition) -> Provider:
    if both := addition.inventories.keys() & provider.inventories.keys() or addition.traits & provider.traits:
        raise ConfigError(
            f"{addition.source}: {', '.join(sorted(both))} of {provider.name} is reported by the driver: remove it "
            f"from this file"
        )
    return replace(
        provider,
        inventories={**provider.inventories, **addition.inventories},
        traits=provider.traits | addition.traits,
    )
