"""Hypothesis strategies for trees, observed and desired."""

import uuid

from hypothesis import strategies as st

from reportclient.ownership import MARKER
from reportclient.renaming import child_uuid
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

ROOT = "host"
ROOT_UUID = str(uuid.UUID(int=1))
OUR_CLASSES = ("VCPU", "MEMORY_MB", "DISK_GB")
FOREIGN_CLASSES = ("CUSTOM_FOREIGN", "NET_BW_EGR_KILOBIT_PER_SEC")
OUR_TRAITS = ("HW_CPU_X86_AVX", "HW_CPU_X86_AVX2", "COMPUTE_NODE")
FOREIGN_TRAITS = ("COMPUTE_STATUS_DISABLED", "CUSTOM_FOREIGN_TRAIT")

inventories = st.builds(
    Inventory,
    total=st.integers(1, 10_000),
    max_unit=st.integers(1, 10_000),
    allocation_ratio=st.sampled_from((1.0, 1.5, 4.0)),
)


def stocks(classes: tuple[str, ...]) -> st.SearchStrategy[dict[str, Inventory]]:
    return st.dictionaries(st.sampled_from(classes), inventories)


def names(traits: tuple[str, ...]) -> st.SearchStrategy[frozenset[str]]:
    return st.frozensets(st.sampled_from(traits))


@st.composite
def desired_trees(draw: st.DrawFn) -> ProviderTree:
    """A root of ours with up to four providers below it, each under any other; a name does not say where it is."""
    root = Provider(name=ROOT, inventories=draw(stocks(OUR_CLASSES)), traits=draw(names(OUR_TRAITS)) | {MARKER})
    providers = [root]
    for number in draw(st.sets(st.integers(0, 5), max_size=4)):
        parent = draw(st.sampled_from(providers)).name
        providers.append(
            Provider(
                name=f"{ROOT}_{number}",
                parent=parent,
                inventories=draw(stocks(("VGPU", "PCPU"))),
                traits=draw(names(OUR_TRAITS)) | {MARKER},
            )
        )
    return ProviderTree(tuple(providers))


@st.composite
def observed_trees(draw: st.DrawFn) -> ObservedTree:
    """What placement may hold before a pass: nothing, or an older tree of ours with foreign parts in and below it."""
    if draw(st.booleans()):
        return ObservedTree()
    tree = draw(desired_trees())
    seen = [_observe(draw, provider) for provider in tree]
    if draw(st.booleans()):
        foreign = Provider(name=f"{ROOT}:agent:br0", parent=ROOT, inventories=draw(stocks(FOREIGN_CLASSES)))
        seen.append(ObservedProvider(uuid=str(uuid.UUID(int=99)), generation=3, provider=foreign))
    return ObservedTree(tuple(seen))


def _observe(draw: st.DrawFn, provider: Provider) -> ObservedProvider:
    is_root = provider.parent is None
    mixed = Provider(
        name=provider.name,
        parent=provider.parent,
        inventories={**provider.inventories, **(draw(stocks(FOREIGN_CLASSES)) if is_root else {})},
        traits=provider.traits | draw(names(FOREIGN_TRAITS)),
        aggregates=draw(st.frozensets(st.sampled_from(("a1", "a2")))),
    )
    identity = ROOT_UUID if is_root else child_uuid(ROOT_UUID, ROOT, provider.name)
    return ObservedProvider(uuid=identity, generation=draw(st.integers(0, 50)), provider=mixed)
