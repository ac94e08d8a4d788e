"""
Third step of a draft: the tree that is wanted, with what the operator's files add to the host's.

Their entries that match no provider of this host are another host's, as several may share a folder, or have a typing
error. It is one where what such an entry adds stands on a provider of this host that no entry names any more, and
placement has no provider that the entry matches either.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from agent.misspelt import most_alike
from agent.sync.decide.additions import COMPUTE_NODE, Addition, add, add_to_others, now_named
from agent.sync.decide.shaped import Shaped, Standing
from agent.sync.decide.view import Shaper, View
from reportclient.errors import few
from reportclient.ownership import Names, Ownership, joined
from reportclient.renaming import child_uuid
from reportclient.reserve import HELD, with_left
from reportclient.tree import ObservedProvider, ObservedTree, Provider, ProviderTree

ALIKE = 0.7  # similarity of difflib (0 to 1): a letter or two of a short host name; placement is asked after that


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The wanted tree, and the source of each part of it."""

    tree: ProviderTree
    others: Mapping[str, Provider]  # what providers of other services become by the operator's files, by name
    added: Mapping[str, Names]  # what the operator's files add, by provider name
    reported: Mapping[str, Names]  # what devices and rules add beyond the driver's fixed names, by provider name
    strays: tuple[Addition, ...]  # entries of the operator's files that match no provider of this host
    ours: Ownership
    notes: tuple[str, ...] = ()  # a sentence on each entry that has no effect on a provider of another service


def want(view: View, shaper: Shaper, shaped: Shaped) -> Wanted:
    """Return the host's tree with what the operator's files add."""
    standing, host = shaped.standing, ProviderTree(tuple(map(with_left, shaped.tree)))
    tree, added = add(host, view.root_uuid, view.additions, observed=standing.observed)
    strays = unmatched(view.additions, view.root_uuid, tree, standing.observed)
    before = standing.memory.configured
    reported = _without_kept(_beyond(shaped.tree, shaper.emitted), shaped.tree, standing)
    configured = joined(shaped.ours.configured, reported, added)
    ours = replace(shaped.ours, configured=configured)
    theirs = _others(view, standing, tree, ours)
    others, lent, notes = add_to_others(standing.observed, theirs, before, view.additions)
    added |= lent
    return Wanted(tree=tree, others=others, added=added, reported=reported, strays=strays, ours=ours, notes=notes)


def _others(view: View, standing: Standing, tree: ProviderTree, ours: Ownership) -> list[ObservedProvider]:
    """Return the standing children of other services; none beside nova, which reads the same files and adds to them."""
    wanted = {one.name for one in tree}
    return [seen for seen in standing.observed if seen.name not in wanted and not ours.writes(seen) and not view.beside]


def _beyond(shaped: ProviderTree, emitted: Names) -> dict[str, Names]:
    """Return what a shape puts on each provider beyond the driver's fixed names: it stays ours once unwanted."""
    below = emitted.traits | (emitted.below or Names()).traits
    found = {
        provider.name: Names(
            frozenset(provider.inventories) - emitted.classes,
            provider.traits - (below if provider.parent else emitted.traits),
        )
        for provider in shaped
    }
    return {name: names for name, names in found.items() if names.classes or names.traits}


def _without_kept(reported: Mapping[str, Names], tree: ProviderTree, standing: Standing) -> dict[str, Names]:
    """Return what a shape reports, without traits that stay on held providers and that this agent did not put there."""
    found, seen, before = dict(reported), standing.observed.by_name, standing.memory.reported
    for provider in tree:
        if HELD in provider.traits and provider.name in found and provider.name in seen:
            foreign = seen[provider.name].provider.traits - before.get(provider.name, Names()).traits
            names = found[provider.name]
            found[provider.name] = replace(names, traits=names.traits - foreign)
    return found


def unseen_traits(standing: Standing, wanted: Wanted) -> frozenset[str]:
    """Return the wanted traits that no provider here carries, without those of ``lacked_traits``."""
    names = frozenset[str]().union(*(provider.traits for provider in wanted.tree))
    carried = frozenset[str]().union(*(seen.provider.traits for seen in standing.observed))
    return names - carried - lacked_traits(standing)


def lacked_traits(standing: Standing) -> frozenset[str]:
    """Return the standard traits that placement lacked; empty if the tree changed, or was read whole, since then."""
    memory = standing.memory
    return memory.lacked_traits if standing.observed == memory.observed else frozenset()


def unmatched(
    additions: Iterable[Addition], root_uuid: str, desired: ProviderTree, standing: ObservedTree
) -> tuple[Addition, ...]:
    """Return the entries that match neither a wanted nor a standing provider of this host, by the wanted names."""
    known = {COMPUTE_NODE, root_uuid}
    for provider in desired:
        known |= {provider.name, child_uuid(root_uuid, desired.root.name, provider.name)}
    known |= {key for seen in standing for key in (seen.name, seen.uuid)}
    return tuple(entry for entry in additions if entry.provider not in known)


def lost_entries(
    unmatched: Iterable[Addition],
    before: Mapping[str, Names],
    observed: ObservedTree,
    additions: Iterable[Addition],
) -> dict[str, str]:
    """
    Return unmatched entries that add what would be withdrawn from a provider of this host, with the error for each.

    ``before`` is what the files named at the last pass, by provider name. The result is by the name or uuid that an
    entry gives; where placement has that provider, the entry is another host's and no fault.
    """
    now, found = now_named(observed, additions), {}
    lost = {
        seen.name: _all(before[seen.name])
        & (seen.provider.inventories.keys() | seen.provider.traits) - _all(now.get(seen.name, Names()))
        for seen in observed
        if seen.name in before
    }
    for entry in unmatched:
        both = {name: names & (entry.inventories.keys() | entry.traits) for name, names in lost.items()}
        if name := next((name for name, names in both.items() if names), None):
            found[entry.provider] = (
                f"{entry.source}: there will be no provider {entry.provider}. Provider {name} has no "
                f"entry any more, so {', '.join(sorted(both[name]))} would be removed from {name}. To prevent this, "
                f"write name {name} in this entry. To allow this, remove this entry. Nothing was changed"
            )
    return found


def ignored(unmatched: Collection[Addition], desired: ProviderTree) -> tuple[str, ...]:
    """Return a sentence on each unmatched entry that begins with this host's name, and one on all others."""
    others = sorted(f"{one.provider} ({one.source})" for one in unmatched if not _begins_alike(one, desired))
    told = (
        f"entries of provider.yaml match no provider of this host, and are ignored: {few(others, 3)}: correct "
        f"their names, unless they are other hosts'"
    )
    slips = (_sentence(entry, desired) for entry in unmatched if _begins_alike(entry, desired))
    return (*slips, *((told,) if others else ()))


def resembling(unmatched: Iterable[Addition], desired: ProviderTree, find: Callable[[str], object]) -> tuple[str, ...]:
    """Return a sentence on each unmatched entry that is nearly a name of this host and not in placement either."""
    names = [provider.name for provider in desired]
    near = [entry for entry in unmatched if _begins_alike(entry, desired) or most_alike(entry.provider, names, ALIKE)]
    return tuple(_sentence(entry, desired) for entry in near if not find(entry.provider))


def _all(names: Names) -> frozenset[str]:
    return names.classes | names.traits


def _begins_alike(entry: Addition, desired: ProviderTree) -> bool:
    return entry.provider.startswith(f"{desired.root.name}_")


def _sentence(entry: Addition, desired: ProviderTree) -> str:
    near = most_alike(entry.provider, (provider.name for provider in desired), 0)
    return f"{entry.source}: no provider of this host is called {entry.provider}: is {near} meant?"
