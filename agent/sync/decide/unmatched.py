"""
Entries of provider.yaml that match no provider of this host: another host's, or a slip of the pen.

A folder may be shared by several hosts, so such an entry alone is no fault. It is one where what it adds stands on a
provider of this host that no entry names any more, and where placement has no provider that it matches either.
"""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches

from agent.sync.decide.additions import COMPUTE_NODE, Addition, now_named
from reportclient.ownership import Names
from reportclient.renaming import child_uuid
from reportclient.tree import ObservedTree, ProviderTree

ALIKE = 0.7  # of difflib: a letter or two of a short host name; placement has the last word


def unmatched(
    additions: Iterable[Addition], root_uuid: str, desired: ProviderTree, standing: Iterable[ObservedTree]
) -> tuple[Addition, ...]:
    """The entries that match neither what is wanted of this host nor what stands of it, by any of its names."""
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
    Entries that match nothing here and have what would be withdrawn from a provider of this host, each with why not.

    ``before`` is what the files named at the last pass, by provider. An entry is by the name or uuid that it gives; it
    is another host's, and no fault, where placement has that provider.
    """
    lost, found = _withdrawn(before, observed, additions), {}
    for entry in unmatched:
        both = {name: names & (entry.inventories.keys() | entry.traits) for name, names in lost.items()}
        if name := next((name for name, names in both.items() if names), None):
            found[entry.provider] = (
                f"{entry.source}: placement has no provider {entry.provider}, and {', '.join(sorted(both[name]))} "
                f"would be withdrawn from {name}, which no entry names any more: put name {name} in this entry, or "
                f"remove the entry to withdraw it; nothing was changed"
            )
    return found


def misspelt(unmatched: Iterable[Addition], desired: ProviderTree) -> tuple[str, ...]:
    """Entries that begin with this host's name and match no provider of it: a sentence each."""
    return tuple(_sentence(entry, desired) for entry in unmatched if _begins_alike(entry, desired))


def resembling(unmatched: Iterable[Addition], desired: ProviderTree, exists: Callable[[str], bool]) -> tuple[str, ...]:
    """Entries that match nothing in placement either, and are nearly a name of this host: a sentence each."""
    names = [provider.name for provider in desired]
    near = [
        entry
        for entry in unmatched
        if _begins_alike(entry, desired) or get_close_matches(entry.provider, names, 1, ALIKE)
    ]
    return tuple(_sentence(entry, desired) for entry in near if not exists(entry.provider))


def _withdrawn(
    before: Mapping[str, Names], observed: ObservedTree, additions: Iterable[Addition]
) -> dict[str, frozenset[str]]:
    """What the files named before, name no more, and still stands, by provider."""
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
    names = [provider.name for provider in desired]
    near = get_close_matches(entry.provider, names, 1, 0) or names
    return f"{entry.source}: no provider of this host is called {entry.provider}: is {near[0]} meant?"
