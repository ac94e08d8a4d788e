"""Find CPUs and memory that a host offers twice: on its root, where nova puts them, and in its cells. Pure."""

from collections.abc import Iterable

from reportclient.names import CPUS
from reportclient.ownership import is_marked
from reportclient.tree import ObservedTree, Provider, ProviderTree

ALIKE = 0.7  # the smaller of two amounts that may stand for the same hardware, as a part of the larger one
MEMORY = frozenset({"MEMORY_MB"})


def doubled_kinds(observed: ObservedTree) -> tuple[frozenset[str], ...]:
    """
    Return the kinds that the root and providers of ours below it both offer; empty: none.

    Memory shows it: in a layout with cells the root has none, and nova puts all of the host's there, with all CPUs.
    CPUs alone do not: the root keeps those without a known cell, and these can be any part of the host's.
    """
    less, more = sorted(_sides(observed, MEMORY))
    if not less or less < ALIKE * more:
        return ()
    return tuple(kind for kind in (CPUS, MEMORY) if all(_sides(observed, kind)))


def excused(observed: ObservedTree, desired: ProviderTree, fraction: float) -> dict[str, frozenset[str]]:
    """
    Return the classes that may shrink by any amount, by name of the provider: of each doubled kind, one side goes.

    ``fraction`` is the part of the larger side that may go; where the wanted tree has less, nothing is excused.
    """
    found: dict[str, frozenset[str]] = {}
    for kind in doubled_kinds(observed):
        if _total(desired, kind) >= max(_sides(observed, kind)) * (1 - fraction):
            found = {seen.name: found.get(seen.name, frozenset()) | kind for seen in observed}
    return found


def _sides(observed: ObservedTree, kind: frozenset[str]) -> tuple[int, int]:
    """Return the total of a kind on the root, and on providers of ours below it."""
    on_root = [seen.provider for seen in observed if seen.provider.parent is None]
    below = [seen.provider for seen in observed if seen.provider.parent is not None and is_marked(seen)]
    return _total(on_root, kind), _total(below, kind)


def _total(providers: Iterable[Provider], kind: frozenset[str]) -> int:
    return sum(stock.total for one in providers for name, stock in one.inventories.items() if name in kind)
