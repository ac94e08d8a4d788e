"""Third step of a draft: the tree that is wanted, with what the operator's files add to the host's."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent.sync.decide.additions import Addition, add, add_to_others
from agent.sync.decide.shaped import Shaped, Standing
from agent.sync.decide.unmatched import unmatched
from agent.sync.decide.view import Shaper, View
from reportclient.ownership import Names, Ownership, joined
from reportclient.reserve import HELD, with_left
from reportclient.tree import ObservedProvider, Provider, ProviderTree


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
    strays = unmatched(view.additions, view.root_uuid, tree, (view.observed, standing.observed))
    before = standing.memory.configured
    reported = _without_kept(_beyond(shaped.tree, shaper.emitted), shaped.tree, standing)
    configured = joined(joined(shaped.ours.configured, reported), added)
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
    """
    Return the wanted traits that no provider here carries.

    Standard traits that placement lacked are left out as long as nothing in the tree changed.
    """
    names = frozenset[str]().union(*(provider.traits for provider in wanted.tree))
    carried = frozenset[str]().union(*(seen.provider.traits for seen in standing.observed))
    return names - carried - lacked_traits(standing)


def lacked_traits(standing: Standing) -> frozenset[str]:
    """Return the standard traits that placement lacked when the tree was last as it stands; empty if it changed."""
    memory = standing.memory
    return memory.lacked_traits if standing.observed == memory.observed else frozenset()
