"""Find the layout in which a tree stands, whatever the configuration says."""

from collections.abc import Iterable

from agent.state.memory import NodeState
from drivers.policy import OF_CELLS, Layout
from reportclient.names import NO_DEVICES
from reportclient.ownership import Names, is_marked, is_novas, others_marks
from reportclient.reserve import HELD
from reportclient.settings import HUGE, SMALL
from reportclient.tree import ObservedProvider, ObservedTree

_CELL = "HW_NUMA_ROOT"
_OF_CELLS = frozenset({_CELL, SMALL, HUGE})
_MEMORY = "MEMORY_MB"


def layout_of(tree: ObservedTree, left: NodeState, emitted: Names, configured: Layout) -> Layout:
    """
    Return the layout of a tree by the stock on and below its root; ``configured`` where several layouts look alike.

    A host without devices has the same tree in ``devices`` and ``flat``. A child without stock tells nothing, as a
    conversion made or left it; nor does a held child of which nothing is on offer: it stands for a lost device in any
    layout.

    By what a pass ``left`` it is known which classes of the root are devices', beyond ``emitted``, and which the
    operator's files put there. Where no pass is known, a class may be another service's, and the layout cannot be told.
    """
    root = tree.root
    if root is None:
        return configured
    children = [seen for seen in tree if _tells(seen)]
    if of_cells := [seen for seen in children if is_marked(seen) and seen.provider.traits & _OF_CELLS]:
        return _with_cells(of_cells, configured)
    reported, added = (names.get(root.name, Names()).classes for names in (left.reported, left.configured))
    classes = root.provider.inventories.keys() - added - NO_DEVICES
    if classes & (emitted.classes | reported):
        return "flat"
    if any(is_marked(seen) or is_novas(seen) for seen in children):
        return "devices"
    is_known = left.observed or left.reported or left.configured
    return "devices" if configured in OF_CELLS and (is_known or not classes) else configured


def _with_cells(of_cells: Iterable[ObservedProvider], configured: Layout) -> Layout:
    """
    Return the layout of a tree with cells, by the place of the memory of small pages.

    ``of_cells`` are our cells and pools of pages with stock; a cell has none where no CPU of it is for guests. A host
    has the same tree in both such layouts if all of its memory is in huge pages.
    """
    if any(_CELL in seen.provider.traits and _MEMORY in seen.provider.inventories for seen in of_cells):
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
