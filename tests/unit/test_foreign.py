"""The law of what is not ours: marks, classes, traits, reservations and ratios of others outlive every verb."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from agent.sync.leave import against_foreign, against_hand_over, plan_hand_over
from drivers.libvirt.shape import EMITTED
from reportclient.diff import diff
from reportclient.errors import TreeMismatch
from reportclient.forecast import forecast
from reportclient.ownership import MANAGED, MARKER, OWNER_NOVA, Ownership, is_novas, others_marks
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree
from strategies import ROOT, ROOT_UUID, inventories

OWNERS = ("OWNER_CYBORG", "CUSTOM_OWNER_SOMEBODY")
ROOTS_ONLY = ("CUSTOM_PHYSNET_PUBLIC", "HW_NIC_SRIOV", MANAGED, "HW_PCI_LIVE_MIGRATABLE", "COMPUTE_STATUS_DISABLED")
TRAITS = (*ROOTS_ONLY, OWNER_NOVA, "CUSTOM_RACK")
CLASSES = ("VGPU", "PCPU", "CUSTOM_LICENCE", "NET_BW_EGR_KILOBIT_PER_SEC")
NAMES = tuple(f"{ROOT}_{number}" for number in range(4))
FOREIGN_CLASSES = ("CUSTOM_LICENCE", "CUSTOM_SLOT", "IPV4_ADDRESS")


def stock(classes: tuple[str, ...]) -> st.SearchStrategy[dict[str, Inventory]]:
    reserved = st.builds(lambda one, part: replace(one, reserved=one.total * part // 4), inventories, st.integers(0, 4))
    return st.dictionaries(st.sampled_from(classes), reserved, max_size=3)


@st.composite
def trees(draw: st.DrawFn) -> ObservedTree:
    """Our root with classes and traits of others, and children of ours, nova's, others', and of two owners at once."""
    traits = draw(st.frozensets(st.sampled_from(TRAITS))) | {MARKER}
    root = Provider(name=ROOT, inventories=draw(stock(("VCPU", *FOREIGN_CLASSES))), traits=traits)
    providers = [root]
    for name in draw(st.lists(st.sampled_from((*NAMES, f"{ROOT}:agent:br0")), unique=True, max_size=4)):
        marks = draw(st.frozensets(st.sampled_from((MARKER, OWNER_NOVA, *OWNERS)), max_size=3))
        providers.append(
            Provider(
                name=name,
                parent=ROOT,
                inventories=draw(stock(CLASSES)),
                traits=draw(st.frozensets(st.sampled_from(TRAITS))) | marks,
            )
        )
    uuids = [ROOT_UUID, *(f"{number:032}" for number in range(1, len(providers)))]
    return ObservedTree(
        tuple(
            ObservedProvider(uuid=uuid, generation=1, provider=one) for uuid, one in zip(uuids, providers, strict=True)
        )
    )


@st.composite
def wishes(draw: st.DrawFn) -> ProviderTree:
    """What this host is to have: a root, and devices under any of the names."""
    root = Provider(name=ROOT, inventories={"VCPU": draw(inventories)}, traits=frozenset({MARKER}))
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
    traits = frozenset({MARKER, "HW_NIC_SRIOV"})
    return ProviderTree(
        (root, *(Provider(name=name, parent=ROOT, inventories=draw(stock(("VGPU",))), traits=traits) for name in names))
    )


def ownership(observed: ObservedTree, desired: ProviderTree) -> Ownership:
    """As a pass has it: what nova made for devices of this host is taken over."""
    names = {one.name for one in desired} | set(NAMES[:2])
    adopted = frozenset(seen.name for seen in observed if seen.name in names and is_novas(seen))
    return Ownership(emitted=EMITTED, adopted=adopted)


def foreign(observed: ObservedTree) -> list[ObservedProvider]:
    """The children with another owner's mark, and those that nobody marked and nova did not make."""
    return [
        seen
        for seen in observed
        if seen.provider.parent and (others_marks(seen) or not (MARKER in seen.provider.traits or is_novas(seen)))
    ]


@given(trees(), wishes())
def test_a_pass_leaves_alone_what_is_foreign(observed: ObservedTree, desired: ProviderTree) -> None:
    try:
        plan = diff(observed, desired, ownership(observed, desired), root_uuid=ROOT_UUID)
    except TreeMismatch:
        return  # a foreign provider stands for a device of ours: nothing is written
    after = forecast(plan, observed).by_uuid

    begun = {one.name for one in desired}  # an empty one without any mark may be a pass of ours that was cut off
    for seen in foreign(observed):
        if others_marks(seen) or seen.provider.inventories or seen.name not in begun:
            assert after[seen.uuid] == seen
        assert seen.provider.traits <= after[seen.uuid].provider.traits
    assert observed.root is not None
    before, now = observed.root.provider, after[ROOT_UUID].provider
    assert {*TRAITS} & before.traits <= now.traits
    assert {name: now.inventories.get(name) for name in {*FOREIGN_CLASSES} & before.inventories.keys()} == {
        name: one for name, one in before.inventories.items() if name in FOREIGN_CLASSES
    }


@given(trees(), st.booleans())
def test_a_hand_over_takes_our_marks_off_and_nothing_else(observed: ObservedTree, force: bool) -> None:
    if against_hand_over(observed, "devices", force=force):
        return
    after = forecast(plan_hand_over(observed, {}), observed).by_uuid

    for seen in observed:
        stands = after[seen.uuid].provider
        if seen in foreign(observed):
            assert stands == seen.provider
        assert stands.inventories == seen.provider.inventories
        assert stands.traits | {MARKER} == seen.provider.traits | {MARKER}


@given(trees())
def test_a_retirement_is_refused_where_anything_is_foreign(observed: ObservedTree) -> None:
    ours = ownership(observed, ProviderTree((Provider(name=ROOT),)))
    strange = [seen for seen in observed if seen.provider.inventories.keys() - ours.classes(seen)]

    refused = against_foreign(observed, ours)

    assert bool(refused) == (bool(strange) or not all(map(ours.writes, observed)))
    assert all(any(seen.name in sentence for sentence in refused) for seen in foreign(observed)[:1])
