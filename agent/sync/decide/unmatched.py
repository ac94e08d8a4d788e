"""
Find entries of provider.yaml that match no provider of this host: they are another host's, or have a typing error.

Several hosts may share a folder, so such an entry alone is no fault. It is a fault where what it adds stands on a
provider of this host that no entry names any more, and placement has no provider that the entry matches either.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from agent.form_errors import most_alike
from agent.sync.decide.additions import COMPUTE_NODE, Addition, now_named
from reportclient.errors import few
from reportclient.ownership import Names
from reportclient.renaming import child_uuid
from reportclient.tree import ObservedTree, ProviderTree

ALIKE = 0.7  # similarity of difflib (0 to 1): a letter or two of a short host name; placement is asked after that


def unmatched(
    additions: Iterable[Addition], root_uuid: str, desired: ProviderTree, standing: Iterable[ObservedTree]
) -> tuple[Addition, ...]:
    """Return the entries that match neither a wanted nor a standing provider of this host, by any of its names."""
    known = {COMPUTE_NODE, root_uuid}
    for provider in desired:
        known |= {provider.name, child_uuid(root_uuid, desired.root.name, provider.name)}
    for tree in standing:
        known |= {key for seen in tree for key in (seen.name, seen.uuid)}
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
    lost, found = _withdrawn(before, observed, additions), {}
    for entry in unmatched:
        both = {name: names & (entry.inventories.keys() | entry.traits) for name, names in lost.items()}
        if name := next((name for name, names in both.items() if names), None):
            found[entry.provider] = (
                f"{entry.source}: placement has no provider {entry.provider}. Provider {name} has no "
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


def resembling(unmatched: Iterable[Addition], desired: ProviderTree, exists: Callable[[str], bool]) -> tuple[str, ...]:
    """Return a sentence on each unmatched entry that is nearly a name of this host and not in placement either."""
    names = [provider.name for provider in desired]
    near = [entry for entry in unmatched if _begins_alike(entry, desired) or most_alike(entry.provider, names, ALIKE)]
    return tuple(_sentence(entry, desired) for entry in near if not exists(entry.provider))


def _withdrawn(
    before: Mapping[str, Names], observed: ObservedTree, additions: Iterable[Addition]
) -> dict[str, frozenset[str]]:
    """Return what still stands of what the files named before and no longer name, by provider name."""
    now = now_named(observed, additions)
    return {
        seen.name: _all(before[seen.name])
        & (seen.provider.inventories.keys() | seen.provider.traits) - _all(now.get(seen.name, Names()))
        for seen in observed
        if seen.name in before
    }


def _all(names: Names) -> frozenset[str]:
    return names.classes | names.traits


def _begins_alike(entry: Addition, desired: ProviderTree) -> bool:
    return entry.provider.startswith(f"{desired.root.name}_")


def _sentence(entry: Addition, desired: ProviderTree) -> str:
    near = most_alike(entry.provider, (provider.name for provider in desired), 0)
    return f"{entry.source}: no provider of this host is called {entry.provider}: is {near} meant?"
