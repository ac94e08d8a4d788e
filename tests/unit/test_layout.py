"""The layout of a tree is told by the tree, and by what the last pass knows as a device's."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from agent.audit.audit import witness
from agent.audit.decide.findings import Kind
from agent.state.memory import NodeState
from agent.sync.decide.layout import doubled_kinds, excused, layout_of
from agent.sync.decide.view import Wishes
from agent.sync.outcome import Status
from beds.one_host import Cut, OneHost
from drivers.facts import CpuMap
from drivers.libvirt.shape import EMITTED
from drivers.policy import OF_CELLS, CpuPolicy, DevicePolicy, Layout, Policy
from drivers.rules import parse_rule
from hardware import card, host
from reportclient.names import CPUS, HUGE, SMALL
from reportclient.ownership import MARKER, OWNER_NOVA, Names
from reportclient.reserve import HELD, LEFT
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

CELL = "HW_NUMA_ROOT"
FAST = Names(frozenset({"CUSTOM_FAST"}))
NOTHING = Names()
ONE, OTHER = "0000:01:00.0", "0000:81:00.0"
RULES = DevicePolicy(report=True, rules=(parse_rule({"product_id": "1515", "resource_class": "FAST"}, 1),))


def standing(providers: Iterable[Provider]) -> ObservedTree:
    return ObservedTree(tuple(ObservedProvider(uuid=one.name, generation=1, provider=one) for one in providers))


def tree(*children: tuple[str, ...], root: str = "VCPU", stock: bool = True, memory: str = "") -> ObservedTree:
    """
    A root with stock of one class, and children with these traits, with stock or without.

    Those with the trait ``memory`` have MEMORY_MB too. What is held is reserved.
    """
    below = {"CUSTOM_ANY": Inventory(total=1)} if stock else {}
    held = {name: replace(each, reserved=1) for name, each in below.items()}
    providers = [Provider(name="host", inventories={root: Inventory(total=1)}, traits=frozenset({MARKER}))]
    providers += [
        Provider(
            name=f"c{n}",
            parent="host",
            inventories={
                **(held if HELD in one else below),
                **({"MEMORY_MB": Inventory(total=1)} if memory in one else {}),
            },
            traits=frozenset(one),
        )
        for n, one in enumerate(children)
    ]
    return standing(providers)


def held(reserved: int, *traits: str) -> ObservedTree:
    root, card = tree(traits)
    part = {"CUSTOM_ANY": Inventory(total=2, reserved=reserved)}
    return ObservedTree((root, replace(card, provider=replace(card.provider, inventories=part))))


@pytest.mark.parametrize(
    ("stands", "configured", "layout"),
    [
        pytest.param(tree((MARKER, CELL)), "devices", "numa", id="a cell of ours"),
        pytest.param(tree((MARKER, CELL), memory=CELL), "devices", "cells", id="a cell of ours with memory"),
        pytest.param(tree((MARKER, CELL), memory=CELL), "numa", "cells", id="a cell with memory, whatever is wanted"),
        pytest.param(
            tree((MARKER, CELL), (MARKER, CELL, "M"), memory="M"), "numa", "cells", id="one of two has memory"
        ),
        pytest.param(tree((MARKER, CELL), memory=CELL, stock=False), "numa", "cells", id="a cell with memory alone"),
        pytest.param(
            tree((MARKER, CELL), (MARKER, SMALL), memory=SMALL), "cells", "numa", id="small pages of their own"
        ),
        pytest.param(
            tree((MARKER, CELL), (MARKER, HUGE), memory=HUGE), "cells", "cells", id="huge pages only, as configured"
        ),
        pytest.param(
            tree((MARKER, CELL), (MARKER, HUGE), memory=HUGE), "flat", "numa", id="huge pages only, not as configured"
        ),
        pytest.param(tree((MARKER, SMALL), memory=SMALL), "devices", "numa", id="no CPU of a cell is for guests"),
        pytest.param(tree((MARKER, HUGE), memory=HUGE), "cells", "cells", id="no such CPU, and huge pages only"),
        pytest.param(tree((SMALL,), memory=SMALL), "devices", "devices", id="somebody else's pages"),
        pytest.param(tree((CELL,)), "devices", "devices", id="somebody else's cell"),
        pytest.param(tree((CELL,), memory=CELL), "devices", "devices", id="somebody else's cell with memory"),
        pytest.param(tree((MARKER,)), "cells", "devices", id="a device of ours, and cells are wanted"),
        pytest.param(tree(), "cells", "devices", id="no cells, and cells are wanted"),
        pytest.param(tree((MARKER,)), "numa", "devices", id="a device of ours"),
        pytest.param(tree((OWNER_NOVA,)), "flat", "devices", id="a device of nova's"),
        pytest.param(tree((MARKER, OWNER_NOVA, "OWNER_CYBORG")), "flat", "flat", id="a device of another service"),
        pytest.param(tree(root="VGPU"), "devices", "flat", id="a total on the root"),
        pytest.param(tree((MARKER,), root="VGPU"), "flat", "flat", id="a total, and a child that is left over"),
        pytest.param(tree(), "flat", "flat", id="no devices: as configured"),
        pytest.param(tree(), "devices", "devices", id="no devices either"),
        pytest.param(tree(), "numa", "devices", id="no cells"),
        pytest.param(ObservedTree(), "numa", "numa", id="nothing at all"),
        pytest.param(tree((MARKER, CELL), stock=False), "devices", "devices", id="cells before their reshape"),
        pytest.param(tree((MARKER, CELL), stock=False), "numa", "devices", id="cells that are to be filled"),
        pytest.param(tree((MARKER, CELL), stock=False, root="VGPU"), "numa", "flat", id="cells below a total"),
        pytest.param(tree((MARKER,), stock=False), "flat", "flat", id="a device before its reshape"),
        pytest.param(tree((MARKER, HELD)), "flat", "flat", id="a lost device that is held"),
        pytest.param(tree((MARKER, HELD)), "devices", "devices", id="a lost device as configured"),
        pytest.param(held(2, MARKER), "flat", "devices", id="a device that an operator reserved"),
        pytest.param(held(1, MARKER, HELD), "flat", "devices", id="a device of which a part is lost"),
        pytest.param(tree((MARKER, HELD), (MARKER,)), "flat", "devices", id="a lost device and one on offer"),
    ],
)
def test_a_layout_is_told_by_what_stands(stands: ObservedTree, configured: Layout, layout: Layout) -> None:
    assert layout_of(stands, NodeState(), EMITTED, configured) == layout


LEFT_FAST = Provider(
    name="host",
    inventories={"CUSTOM_FAST": Inventory(total=1, reserved=1)},
    traits=frozenset({HELD, f"{LEFT}1_CUSTOM_FAST"}),
)


@pytest.mark.parametrize(
    ("stands", "reported", "added", "layout"),
    [
        pytest.param(standing([LEFT_FAST]), NOTHING, NOTHING, "flat", id="a class of which we left a mark"),
        pytest.param(tree(root="CUSTOM_FAST"), FAST, NOTHING, "flat", id="a total of a device"),
        pytest.param(tree((MARKER,), root="CUSTOM_FAST"), FAST, NOTHING, "flat", id="a total, and a child left over"),
        pytest.param(tree(root="CUSTOM_FAST"), NOTHING, NOTHING, "devices", id="somebody else's class"),
        pytest.param(tree(root="CUSTOM_FAST"), NOTHING, FAST, "devices", id="a class of the operator's files"),
        pytest.param(tree(root="VGPU"), NOTHING, Names(frozenset({"VGPU"})), "devices", id="the files' vGPUs"),
        pytest.param(tree(root="CUSTOM_FAST"), None, NOTHING, "numa", id="no pass is known: nobody can tell"),
        pytest.param(tree((MARKER,), root="CUSTOM_FAST"), None, NOTHING, "devices", id="no pass is known: a device"),
        pytest.param(tree((MARKER, CELL), root="CUSTOM_FAST"), None, NOTHING, "numa", id="no pass is known: a cell"),
    ],
)
def test_a_class_of_the_root_is_a_devices_where_a_pass_put_it_there(
    stands: ObservedTree, reported: Names | None, added: Names, layout: Layout
) -> None:
    left = NodeState() if reported is None else NodeState(reported={"host": reported}, configured={"host": added})

    assert layout_of(stands, left, EMITTED, "numa") == layout


@pytest.mark.parametrize(
    ("left", "layout"),
    [
        (NodeState(), "numa"),
        (NodeState(observed=ObservedTree(tree().providers)), "devices"),
        (NodeState(reported={"host_card": FAST}), "devices"),
        (NodeState(configured={"host_card": FAST}), "devices"),
    ],
    ids=["none", "its tree", "its devices", "its files"],
)
def test_anything_that_a_pass_left_shows_that_a_class_is_somebody_elses(left: NodeState, layout: Layout) -> None:
    assert layout_of(tree(root="CUSTOM_FAST"), left, EMITTED, "numa") == layout


MEMORY = frozenset({"MEMORY_MB"})


def sides(root: dict[str, int], *cells: dict[str, int]) -> ObservedTree:
    """Totals of a root with a disk and of its cells, beside a child that is not ours."""
    stocks = [{"DISK_GB": 9999, **root}, *cells, {"VCPU": 99, "MEMORY_MB": 9999}]
    return standing(
        Provider(
            name=f"p{number}",
            parent="p0" if number else None,
            inventories={name: Inventory(total=total) for name, total in stock.items()},
            traits=frozenset({MARKER} if number <= len(cells) else ()),
        )
        for number, stock in enumerate(stocks)
    )


BOTH = sides({"VCPU": 8, "MEMORY_MB": 1000}, {"VCPU": 4, "MEMORY_MB": 600}, {"PCPU": 3, "MEMORY_MB": 100})


@pytest.mark.parametrize(
    ("observed", "kinds"),
    [
        pytest.param(BOTH, (CPUS, MEMORY), id="nearly as much below as on the root"),
        pytest.param(sides({"VCPU": 8, "MEMORY_MB": 700}, {"VCPU": 8, "MEMORY_MB": 1000}), (CPUS, MEMORY), id="more"),
        pytest.param(sides({"VCPU": 8, "MEMORY_MB": 1000}, {"VCPU": 8, "MEMORY_MB": 699}), (), id="much less"),
        pytest.param(sides({"VCPU": 8}, {"VCPU": 8}), (), id="CPUs alone"),
        pytest.param(sides({"VCPU": 8, "MEMORY_MB": 1000}, {"MEMORY_MB": 1000}), (MEMORY,), id="memory alone"),
    ],
)
def test_memory_on_the_root_and_below_it_is_on_offer_twice(
    observed: ObservedTree, kinds: tuple[frozenset[str], ...]
) -> None:
    assert doubled_kinds(observed) == kinds


@pytest.mark.parametrize(
    ("cpus", "memory", "kinds"), [(6, 700, CPUS | MEMORY), (6, 699, CPUS), (5, 700, MEMORY), (5, 699, set())]
)
def test_a_side_of_what_is_on_offer_twice_may_go_where_the_other_one_stays(
    cpus: int, memory: int, kinds: set[str]
) -> None:
    stock = {"VCPU": Inventory(total=cpus), "MEMORY_MB": Inventory(total=memory), "DISK_GB": Inventory(total=9999)}

    found = excused(BOTH, ProviderTree((Provider(name="p0", inventories=stock),)), 0.3)

    assert found == ({f"p{number}": kinds for number in range(4)} if kinds else {})


def start(folder: Path, layout: Layout) -> OneHost:
    """A host with two cards of a class by rule, in this layout."""
    one = OneHost(folder, host(*card(ONE, 4), *card(OTHER, 4)), Policy(layout=layout, devices=RULES))
    one.sync()
    return one


def found(one: OneHost, *kinds: Kind) -> list[tuple[str, str]]:
    """What an audit finds of these kinds: provider and sentence."""
    findings = witness(one.node).findings
    return [(str(each.provider), each.seen) for each in findings if each.kind in kinds]


@pytest.mark.parametrize("configured", ["devices", "cells", "numa"])
def test_an_audit_knows_a_flat_root_by_its_custom_classes(configured: Layout, tmp_path: Path) -> None:
    one = start(tmp_path, "flat")
    one.policy = replace(one.policy, layout=configured)

    ((name, sentence),) = found(one, *Kind)

    assert name == "host"
    assert f"the tree stands in the layout flat, and [compute] layout is {configured}" in sentence


def test_an_audit_without_a_memory_says_nothing_of_a_layout_and_tells_no_ghosts(tmp_path: Path) -> None:
    one = start(tmp_path, "flat")
    one.policy = replace(one.policy, layout="numa")
    for path in tmp_path.glob("*.json"):
        path.unlink()

    assert found(one, *Kind) == []


@pytest.mark.parametrize("wanted", OF_CELLS)
def test_an_audit_takes_cells_without_stock_for_no_layout_and_no_ghosts(wanted: Layout, tmp_path: Path) -> None:
    seen = 0
    for writes in range(1, 40):
        one = start(tmp_path / str(writes), "devices")
        with suppress(Cut), one.ending_after(writes):
            one.reshape(wanted)
        one.policy = replace(one.policy, layout="devices")
        if "VCPU" not in one.stock():
            break
        seen += any(CELL in each.provider.traits for each in one.tree())
        assert found(one, Kind.OTHER_LAYOUT, Kind.GHOST) == [], writes
    assert seen


@pytest.mark.parametrize(("first", "second"), [("cells", "numa"), ("numa", "cells")])
def test_a_conversion_between_cells_and_numa_that_is_cut_off_stands_in_one_of_them(
    first: Layout, second: Layout, tmp_path: Path
) -> None:
    told = set()
    for writes in range(40):
        one = start(tmp_path / str(writes), first)
        one.claim({"NUMA1": {"VCPU": 1}, "NUMA1" if first == "cells" else "NUMA1_PAGES_4": {"MEMORY_MB": 64}})
        cut = False
        try:
            with one.ending_after(writes):
                one.reshape(second)
        except Cut:
            cut = True
        stands = "cells" if "MEMORY_MB" in one.stock("NUMA1") else "numa"
        told.add(stands)
        one.policy = replace(one.policy, layout=stands)  # type: ignore[arg-type]
        assert found(one, Kind.OTHER_LAYOUT, Kind.GHOST) == [], writes
        one.reshape(second)
        assert "MEMORY_MB" in one.stock("NUMA1" if second == "cells" else "NUMA1_PAGES_4")
        assert one.sync().status is Status.UNCHANGED
        if not cut:
            break
    assert told == {first, second}


def test_an_audit_takes_a_held_child_below_a_flat_root_for_no_layout(tmp_path: Path) -> None:
    one = start(tmp_path, "devices")
    one.set_by_hand(ONE, "CUSTOM_FAST", reserved=4)
    for _ in range(4):
        one.sync(facts=host(*card(OTHER, 4)))
    one.sync(Wishes(reshape=True), policy=replace(one.policy, layout="flat"))

    assert found(one, Kind.OTHER_LAYOUT) == []


@pytest.mark.parametrize("layout", OF_CELLS)
def test_an_audit_knows_the_layout_of_a_host_whose_guests_have_no_cpu_of_a_cell(layout: Layout, tmp_path: Path) -> None:
    facts = replace(host(), cpu_map=CpuMap(8, frozenset(range(8))))
    one = OneHost(tmp_path, facts, Policy(layout=layout, cpus=CpuPolicy(shared=frozenset({4, 5}))))
    one.sync()

    assert "VCPU" not in one.stock("NUMA0")
    assert one.node.standing_layout(one.tree(), NodeState()) == layout
    assert found(one, *Kind) == []
    one.reshape("devices")
    assert found(one, *Kind) == []
