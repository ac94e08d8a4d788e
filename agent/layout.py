"""The layout in which a tree stands, whatever the configuration says."""

from drivers.policy import Layout
from reportclient.names import NO_DEVICES
from reportclient.ownership import Names, is_marked, is_novas, others_marks
from reportclient.tree import ObservedTree

CELL = "HW_NUMA_ROOT"


def standing_layout(tree: ObservedTree, emitted: Names, configured: Layout) -> Layout:
    """
    The layout of a tree by what stands on and below its root; as ``configured`` where several layouts look alike.

    A host without devices has the same tree in ``devices`` and ``flat``.
    """
    root = tree.root
    children = [seen for seen in tree if seen.provider.parent and not others_marks(seen)]
    if root is None or any(is_marked(seen) and CELL in seen.provider.traits for seen in children):
        return configured if root is None else "numa"
    if root.provider.inventories.keys() & (emitted.classes - NO_DEVICES):
        return "flat"
    if any(is_marked(seen) or is_novas(seen) for seen in children):
        return "devices"
    return "devices" if configured == "numa" else configured
