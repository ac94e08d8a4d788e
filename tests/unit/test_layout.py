"""The layout of a tree is told by the tree."""

import pytest

from agent.layout import standing_layout
from drivers.libvirt.shape import EMITTED
from drivers.policy import Layout
from reportclient.ownership import MARKER, OWNER_NOVA
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider


def tree(*children: tuple[str, ...], root: str = "VCPU") -> ObservedTree:
    """A root with stock of one class, and children with these traits."""
    providers = [Provider(name="host", inventories={root: Inventory(total=1)}, traits=frozenset({MARKER}))]
    providers += [Provider(name=f"c{n}", parent="host", traits=frozenset(one)) for n, one in enumerate(children)]
    return ObservedTree(
        tuple(ObservedProvider(uuid=one.name, generation=1, provider=one) for one in providers),
    )


@pytest.mark.parametrize(
    ("stands", "configured", "layout"),
    [
        pytest.param(tree((MARKER, "HW_NUMA_ROOT")), "devices", "numa", id="a cell of ours"),
        pytest.param(tree(("HW_NUMA_ROOT",)), "devices", "devices", id="somebody else's cell"),
        pytest.param(tree((MARKER,)), "numa", "devices", id="a device of ours"),
        pytest.param(tree((OWNER_NOVA,)), "flat", "devices", id="a device of nova's"),
        pytest.param(tree((OWNER_NOVA, "OWNER_CYBORG")), "flat", "flat", id="a device of another service"),
        pytest.param(tree(root="VGPU"), "devices", "flat", id="a total on the root"),
        pytest.param(tree((MARKER,), root="VGPU"), "flat", "flat", id="a total, and a child that is left over"),
        pytest.param(tree(), "flat", "flat", id="no devices: as configured"),
        pytest.param(tree(), "devices", "devices", id="no devices either"),
        pytest.param(tree(), "numa", "devices", id="no cells"),
        pytest.param(ObservedTree(), "numa", "numa", id="nothing at all"),
    ],
)
def test_a_layout_is_told_by_what_stands(stands: ObservedTree, configured: Layout, layout: Layout) -> None:
    assert standing_layout(stands, EMITTED, configured) == layout
