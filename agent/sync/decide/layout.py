"""Find the layout in which a tree stands, whatever the configuration says, and what stands in two at once. Pure."""

from collections.abc import Iterable

from agent.state.memory import NodeState
from drivers.policy import OF_CELLS, Layout
from reportclient.names import CELL, CPUS, HUGE, NO_DEVICES, SMALL
from reportclient.ownership import Names, is_marked, is_novas, others_marks
from reportclient.reserve import HELD, classes_left
from reportclient.tree import ObservedProvider, ObservedTree, Provider, ProviderTree

ALIKE = 0.7  # the smaller of two amounts that may stand for the same hardware, as a part of the larger one
_OF_CELLS = frozenset({CELL, SMALL, HUGE})
_MEMORY = frozenset({"MEMORY_MB"})


def layout_of(tree: ObservedTree, left: NodeState, emitted: Names, configured: Layout) -> Layout:
    """
    Return the layout of a tree by the stock on and below its root; ``configured`` where several layouts look alike.

    A host without devices has the same tree in ``devices`` and ``flat``. A child without stock tells nothing, as a
    conversion made or left it; nor does a held child of which nothing is on offer: it stands for a lost device in any
    layout.

    By what a pass ``left``, and by our marks, it is known which classes of the root are devices', beyond ``emitted``,
    and by the former which the operator's files put there. Where no pass is known, a class without a mark may be
    another service's, and the layout cannot be told.
    """
    root = tree.root
    if root is None:
        return configured
    children = [seen for seen in tree if _tells(seen)]
    if of_cells := [seen for seen in children if is_marked(seen) and seen.provider.traits & _OF_CELLS]:
        return _with_cells(of_cells, configured)
    reported, added = (names.get(root.name, Names()).classes for names in (left.reported, left.configured))
    classes = root.provider.inventories.keys() - added - NO_DEVICES
    if classes & (emitted.classes | reported | classes_left(root.provider)):
        return "flat"
    if any(is_marked(seen) or is_novas(seen) for seen in children):
        return "devices"
    is_known = left.observed or left.reported or left.configured
    return "devices" if configured in OF_CELLS and (is_known or not classes) else configured


def doubled_kinds(observed: ObservedTree) -> tuple[frozenset[str], ...]:
    """
    Return the kinds that the root and providers of ours below it both offer; empty: none.

    Memory shows it: in a layout with cells the root has none, and nova puts all of the host's there, with all CPUs.
    CPUs alone do not: the root keeps those without a known cell, and these can be any part of the host's.
    """
    less, more = sorted(_sides(observed, _MEMORY))
    if not less or less < ALIKE * more:
        return ()
    return tuple(kind for kind in (CPUS, _MEMORY) if all(_sides(observed, kind)))


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


def _with_cells(of_cells: Iterable[ObservedProvider], configured: Layout) -> Layout:
    """
    Return the layout of a tree with cells, by the place of the memory of small pages.

    ``of_cells`` are our cells and pools of pages with stock; a cell has none where no CPU of it is for guests. A host
    has the same tree in both such layouts if all of its memory is in huge pages.
    """
    if any(CELL in seen.provider.traits and seen.provider.inventories.keys() >= _MEMORY for seen in of_cells):
        return "cells"
    if any(SMALL in seen.provider.traits for seen in of_cells):
        return "numa"
    return configured if configured in OF_CELLS else "numa"


def _tells(seen: ObservedProvider) -> bool:
    """Return whether a provider is a child that can tell a layout."""
    provider = seen.provider
    is_offered = any(one.reserved < one.total for one in provider.inventories.values())
    tells = is_offered or (provider.inventories and HELD not in provider.traits)
    return bool(provider.parent and tells) and not others_marks(seen)


def _sides(observed: ObservedTree, kind: frozenset[str]) -> tuple[int, int]:
    """Return the total of a kind on the root, and on providers of ours below it."""
    on_root = [seen.provider for seen in observed if seen.provider.parent is None]
    below = [seen.provider for seen in observed if seen.provider.parent is not None and is_marked(seen)]
    return _total(on_root, kind), _total(below, kind)


def _total(providers: Iterable[Provider], kind: frozenset[str]) -> int:
    return sum(stock.total for one in providers for name, stock in one.inventories.items() if name in kind)
