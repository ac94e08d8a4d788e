"""Who moves where: laws over generated hosts and their guests, and an example for each rule and each edge."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from drivers.base import Survey
from drivers.facts import HostFacts
from drivers.libvirt.shape import EMITTED, shape
from drivers.moves import displaced, plan_moves
from drivers.moves.places import IN_ITS_CELL
from drivers.moves.question import find_stand_ins
from drivers.policy import DevicePolicy, Layout, MdevRule, Policy
from hardware import Change, changes, occupied_hosts
from inside_nova.provider_tree import update_provider_tree
from reportclient.allocations import (
    Allocation,
    Consumer,
    Float,
    GuestState,
    Holding,
    Holdings,
    Move,
    Observed,
    apply_moves,
    instructions,
    usages,
)
from reportclient.diff import diff, rewrites
from reportclient.errors import Conflict, Unplaceable, UnsafePlan
from reportclient.forecast import check_use, forecast
from reportclient.names import BANDWIDTH, HUGE, NO_DEVICES
from reportclient.ownership import MARKER, Names, Ownership
from reportclient.plan import Plan, Reshape
from reportclient.reserve import HELD
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree
from strategies import ROOT_UUID

DEVICES = DevicePolicy(report=True, discover_all=True, mdevs=(MdevRule(type="a"),))
OURS = Ownership(emitted=EMITTED)
FEWER = settings(max_examples=max(25, settings.default.max_examples // 20) if settings.default else 25)  # they are slow
ABROAD = "5d0a2a5e-0000-4000-8000-000000000001"  # the uuid of a provider that is not of our tree


def wanted(facts: HostFacts, layout: Layout, observed: ObservedTree | None = None) -> tuple[ProviderTree, Holdings]:
    shaped = shape(facts, Policy(layout=layout, devices=DEVICES, reserved_memory_mib=0), observed)
    return shaped.tree, shaped.holdings


def begin(facts: HostFacts, layout: Layout) -> Observed:
    """A host in a layout in which nothing floats, whose guests have been given what they hold."""
    tree, holdings = wanted(facts, layout)
    observed = forecast(diff(ObservedTree(), tree, OURS, root_uuid=ROOT_UUID), ObservedTree())
    rows = [Allocation(one.consumer, one.provider, one.resource_class, one.amount) for one in holdings.units]
    return Observed(observed, tuple(sorted(rows)))


def whole(rows: Iterable[Allocation], tree: ObservedTree) -> tuple[Consumer, ...]:
    """The consumers of these allocations, each with something abroad too."""
    slots: dict[str, dict[str, dict[str, int]]] = {}
    for one in rows:
        mine = slots.setdefault(one.consumer, {ABROAD: {"DISK_GB": 5}})
        mine.setdefault(tree.by_name[one.provider].uuid, {})[one.resource_class] = one.amount
    return tuple(
        Consumer(uuid=uuid, generation=1, project="p", user="u", kind=None, slots=mine) for uuid, mine in slots.items()
    )


def convert(facts: HostFacts, observed: Observed, layout: Layout) -> tuple[Observed, Plan]:
    """The host in another layout, with all that its guests have; ``Unplaceable`` where that cannot be."""
    desired, holdings = wanted(facts, layout, observed.tree)
    ours = replace(OURS, configured={facts.hostname: Names(frozenset(observed_classes(observed)))})
    moves = plan_moves(observed, desired, holdings, ours)
    consumers = whole(observed.allocations, observed.tree)
    plan = diff(observed.tree, desired, ours, root_uuid=ROOT_UUID, moves=moves, consumers=consumers)
    after = apply_moves(observed.allocations, moves)
    check_use(plan, observed.tree, after, force=False)
    return Observed(forecast(plan, observed.tree), after), plan


def observed_classes(observed: Observed) -> set[str]:
    return {name for seen in observed.tree for name in seen.provider.inventories}


def sums(rows: Iterable[Allocation]) -> dict[tuple[str, str], int]:
    """By consumer and class."""
    found: dict[tuple[str, str], int] = {}
    for one in rows:
        found[one.consumer, one.resource_class] = found.get((one.consumer, one.resource_class), 0) + one.amount
    return found


def stock(tree: ObservedTree) -> dict[tuple[str, str], Inventory]:
    return {(seen.name, name): one for seen in tree for name, one in seen.provider.inventories.items()}


def layouts() -> st.SearchStrategy[tuple[Layout, Layout]]:
    pairs: list[tuple[Layout, Layout]] = [
        ("flat", "devices"), ("flat", "numa"), ("devices", "numa"), ("devices", "flat"),
        ("flat", "cells"), ("devices", "cells"), ("cells", "numa"), ("numa", "cells"),
    ]  # fmt: skip
    return st.sampled_from(pairs)


@FEWER
@given(occupied_hosts(), layouts())
def test_nothing_is_lost_or_invented_and_no_more_used_than_there_is(
    facts: HostFacts, way: tuple[Layout, Layout]
) -> None:
    before = begin(facts, way[0])
    try:
        after, plan = convert(facts, before, way[1])
    except UnsafePlan:
        event("refused")
        return
    event(f"{len(plan.moves)} moves" if plan.moves else "no moves")

    assert sums(after.allocations) == sums(before.allocations)
    there = stock(after.tree)
    was = usages(before.allocations)
    for slot, amount in usages(after.allocations).items():
        assert slot in there
        assert amount <= max(there[slot].capacity, was.get(slot, 0))


@FEWER
@given(occupied_hosts(), layouts())
def test_there_and_back_again_is_as_it_was(facts: HostFacts, way: tuple[Layout, Layout]) -> None:
    before = begin(facts, way[0])
    try:
        there, _ = convert(facts, before, way[1])
        back, _ = convert(facts, there, way[0])
    except UnsafePlan:
        assume(False)

    assert back.allocations == before.allocations
    assert {seen.name: seen.provider for seen in back.tree} == {seen.name: seen.provider for seen in before.tree}


@FEWER
@given(occupied_hosts(), layouts())
def test_what_was_converted_needs_nothing_more(facts: HostFacts, way: tuple[Layout, Layout]) -> None:
    try:
        there, _ = convert(facts, begin(facts, way[0]), way[1])
    except UnsafePlan:
        assume(False)

    again, plan = convert(facts, there, way[1])

    assert plan.moves == ()
    assert again == there


@FEWER
@given(occupied_hosts(), layouts())
def test_a_reshape_names_who_moves_and_repeats_what_they_have_abroad(
    facts: HostFacts, way: tuple[Layout, Layout]
) -> None:
    before = begin(facts, way[0])
    try:
        _, plan = convert(facts, before, way[1])
    except UnsafePlan:
        assume(False)

    steps: list[Reshape] = [step for step in plan.operations if isinstance(step, Reshape)]
    rewritten = [one for step in steps for one in step.rewrites]
    assert {one.consumer for one in rewritten} == {move.consumer for move in plan.moves}
    assert all(one.after[ABROAD] == {"DISK_GB": 5} for one in rewritten)
    assert ABROAD not in {one.uuid for step in steps for one in step.inventories}


def cell_of(provider: str) -> str:
    """The cell of a provider of a cell, or of pages."""
    return provider.partition("_PAGES_")[0]


@FEWER
@given(occupied_hosts(), st.sampled_from((("cells", "numa"), ("numa", "cells"))), st.data())
def test_between_cells_and_numa_no_memory_leaves_its_cell_wherever_it_is(
    facts: HostFacts, way: tuple[Layout, Layout], data: st.DataObject
) -> None:
    """Guests that are bound have theirs where they are bound; others, and a stranger, anywhere, or on several cells."""
    tree, _ = wanted(facts, way[0])
    before = forecast(diff(ObservedTree(), tree, OURS, root_uuid=ROOT_UUID), ObservedTree())
    room = {
        one.name: one.inventories["MEMORY_MB"].capacity
        for one in tree
        if "MEMORY_MB" in one.inventories and HUGE not in one.traits
    }
    rows: dict[tuple[str, str], int] = {}
    amounts = {guest.uuid: (guest.memory[0].mib, guest.memory[0].cells) for guest in facts.guests}
    for consumer, (amount, bound) in {**amounts, "stranger": (700, frozenset[int]())}.items():
        parts = [amount] if bound else sorted({amount - amount // 3, amount // 3} - {0})
        for part in parts:
            places = [one for one in room if not bound or cell_of(one) in {f"host_NUMA{cell}" for cell in bound}]
            pool = data.draw(st.sampled_from(places or [*room]))
            assume(room[pool] >= part)
            room[pool] -= part
            rows[consumer, pool] = rows.get((consumer, pool), 0) + part
    had = tuple(sorted(Allocation(consumer, pool, "MEMORY_MB", amount) for (consumer, pool), amount in rows.items()))

    after, plan = convert(facts, Observed(before, had), way[1])

    assert len(plan.moves) == len(rows)
    assert {(one.consumer, cell_of(one.provider), one.amount) for one in after.allocations} == {
        (one.consumer, cell_of(one.provider), one.amount) for one in had
    }
    back, _ = convert(facts, after, way[0])
    assert back.allocations == had


def with_rows(change: Change) -> Observed:
    """
    The host as it was, whose guests have been given what they hold; what floats is where it is likeliest.

    What a provider does not offer, nobody has of it: placement refuses such a row.
    """
    shaped = shape(change.before, change.earlier, None)
    observed = forecast(diff(ObservedTree(), shaped.tree, OURS, root_uuid=ROOT_UUID), ObservedTree())
    rows: dict[tuple[str, str, str], int] = {}
    for unit in shaped.holdings.units:
        rows[unit.consumer, unit.provider, unit.resource_class] = unit.amount
    for one in shaped.holdings.floats:
        key = one.consumer, one.providers[0], one.resource_class
        rows[key] = rows.get(key, 0) + one.amount
    for guest, amount in change.overridden.items():
        slots = [key for key in sorted(rows) if (key[0], key[2]) == (guest, "VCPU")]
        rows = {key: each for key, each in rows.items() if key not in slots}
        rows |= dict.fromkeys(slots[:1], amount)
    offered = stock(observed)
    had = (Allocation(*key, amount) for key, amount in rows.items() if key[1:] in offered)
    return Observed(observed, tuple(sorted(had)))


def told(holdings: Holdings, slot: tuple[str, str, str]) -> tuple[int, int, set[str]]:
    """Of a guest's class: its units on a provider, what may float there, and where else it may be."""
    consumer, provider, name = slot
    units = [one for one in holdings.units if (one.consumer, one.resource_class) == (consumer, name)]
    floats = [one for one in holdings.floats if (one.consumer, one.resource_class) == (consumer, name)]
    places = {one.provider for one in units} | {place for one in floats for place in one.providers}
    here = sum(one.amount for one in units if one.provider == provider)
    return here, sum(one.amount for one in floats if provider in one.providers), places


def contradictions(
    observed: Observed, after: Iterable[Allocation], desired: ProviderTree, holdings: Holdings
) -> list[str]:
    """What came to a place, or went from one, against what the hypervisor says of a known guest."""
    was = {(one.consumer, one.provider, one.resource_class): one.amount for one in observed.allocations}
    now = {(one.consumer, one.provider, one.resource_class): one.amount for one in after}
    doubtful = holdings.undecided.keys()
    found = []
    for slot in sorted(was.keys() | now.keys()):
        consumer, provider, name = slot
        here, floating, places = told(holdings, slot)
        came = now.get(slot, 0) - was.get(slot, 0)
        offering = {one.name for one in desired if name in one.inventories}
        if name in holdings.known[consumer].overridden:
            bound = places | (told(holdings, (consumer, provider, "PCPU"))[2] if name == "VCPU" else set())
            good = came <= 0 or provider in bound or not bound & offering
        elif name not in NO_DEVICES and name not in holdings.told | {"VGPU", "SRIOV_NET_VF", "CUSTOM_A", "CUSTOM_VF"}:
            good = True  # the hypervisor never speaks of it
        elif came > 0:
            only = offering == {provider} and places <= {provider} | ({"host"} if floating else set())
            good = now[slot] <= here + floating or (only and (name in NO_DEVICES or consumer not in doubtful))
        else:
            good = now.get(slot, 0) >= min(was[slot], here)
        if not good:
            found.append(f"{slot}: {was.get(slot, 0)} -> {now.get(slot, 0)}, told {here}, {floating} floating")
    return found


@given(changes())
def test_no_row_of_a_known_guest_is_moved_or_relabelled_against_the_hypervisors_word(change: Change) -> None:
    observed = with_rows(change)
    shaped = shape(change.after, change.later, observed.tree)
    everything = Names(frozenset(observed_classes(observed)))
    ours = replace(OURS, configured={seen.name: everything for seen in observed.tree})
    try:
        found = plan_moves(observed, shaped.tree, shaped.holdings, ours)
    except Unplaceable:
        event("refused")
        return
    event("moved" if found else "nothing to move")
    after = apply_moves(observed.allocations, found)

    assert contradictions(observed, after, shaped.tree, shaped.holdings) == []
    assert not uncovered(observed, after, shaped.tree, shaped.holdings)


def uncovered(
    observed: Observed, after: Iterable[Allocation], desired: ProviderTree, holdings: Holdings
) -> list[Holding]:
    """The dedicated CPUs of guests that come on offer without being allocated for them."""
    before, offered = stock(observed.tree), {one.name: one.inventories for one in desired}
    has = sums(after)
    total = sum(one.total for (_, name), one in before.items() if name == "PCPU")
    grows = sum(stocks["PCPU"].total for stocks in offered.values() if "PCPU" in stocks) > total
    return [
        unit
        for unit in holdings.units
        if grows and unit.resource_class == "PCPU"
        if (unit.consumer, "VCPU") in has or (unit.consumer, "PCPU") in has
        if has.get((unit.consumer, "PCPU"), 0) < unit.amount
    ]


CARD, OTHER = "host_card", "host_other"
BOTH = (CARD, OTHER)


def tree(root: Mapping[str, int] = {}, kept: str = "", **children: Mapping[str, int]) -> ProviderTree:
    """A root and its children, whose names end in ``card`` and ``other``: totals, of ``kept`` half is reserved."""
    below = (
        Provider(name=f"host_{name}", parent="host", inventories=_stock(totals), traits=frozenset({MARKER}))
        for name, totals in children.items()
    )
    stock, marks = _stock(root), {MARKER, HELD} if kept else {MARKER}
    if kept:
        stock[kept] = replace(stock[kept], reserved=stock[kept].total // 2)
    return ProviderTree((Provider(name="host", inventories=stock, traits=frozenset(marks)), *below))


def _stock(totals: Mapping[str, int]) -> dict[str, Inventory]:
    return {name: Inventory(total=total) for name, total in totals.items()}


def holding(*rows: Allocation, of: ProviderTree) -> Observed:
    seen = tuple(ObservedProvider(uuid=provider.name, generation=1, provider=provider) for provider in of)
    return Observed(ObservedTree(seen), rows)


def known(*units: Holding, floats: tuple[Float, ...] = (), others: tuple[str, ...] = ()) -> Holdings:
    guests = {one.consumer for one in units} | {one.consumer for one in floats}
    return Holdings(frozenset({*guests, *others}), units, floats)


OFFERS = Ownership(
    emitted=Names(
        frozenset({"VGPU", "VCPU", "PCPU", "MEMORY_MB", "SRIOV_NET_VF", "CUSTOM_A", "CUSTOM_B", "BW"}) | BANDWIDTH
    )
)


def moves(observed: Observed, desired: ProviderTree, holdings: Holdings = Holdings()) -> tuple[Move, ...]:
    return plan_moves(observed, desired, holdings, OFFERS)


@pytest.mark.parametrize("ports", [(OTHER,), BOTH])
def test_bandwidth_goes_to_no_other_link_while_a_link_of_the_guests_ports_shows_none(ports: tuple[str, ...]) -> None:
    name, vfs = min(BANDWIDTH), tuple(Holding("a", one, "SRIOV_NET_VF", 1) for one in ports)
    rows = Allocation("a", "host", "SRIOV_NET_VF", len(ports)), Allocation("a", "host", name, 1000)
    desired = tree(card={"SRIOV_NET_VF": 4, name: 8000}, other={"SRIOV_NET_VF": 4})
    never, lost = (holding(*rows, of=tree({"SRIOV_NET_VF": 8, name: total})) for total in (8000, 8001))

    with pytest.raises(Unplaceable, match="a link of its guest's ports shows none now"):
        moves(lost, desired, replace(known(*vfs), ports=vfs))
    found = moves(never, desired, replace(known(*vfs), ports=vfs))  # the silent link was no part of the total
    assert [one.to_provider for one in found if name in one.moved_resources] == [CARD]


def test_bandwidth_goes_where_the_vfs_of_its_guest_went_in_one_instruction() -> None:
    before = holding(
        Allocation("a", "host", "SRIOV_NET_VF", 2), Allocation("a", "host", "BW", 1000),
        of=tree({"SRIOV_NET_VF": 8, "BW": 8000}),
    )  # fmt: skip
    desired = tree(card={"SRIOV_NET_VF": 4, "BW": 4000}, other={"SRIOV_NET_VF": 4, "BW": 4000})

    (one,) = instructions(moves(before, desired, known(Holding("a", OTHER, "SRIOV_NET_VF", 2))))

    assert (one.from_resource_provider, one.to_resource_provider) == ("host", OTHER)
    assert dict(one.moved_resources) == {"SRIOV_NET_VF": 2, "BW": 1000}


def test_a_device_that_is_gone_is_no_move_even_if_another_has_room() -> None:
    before = holding(
        Allocation("a", CARD, "VGPU", 1), Allocation("b", CARD, "VGPU", 1), of=tree(card={"VGPU": 4}, other={"VGPU": 4})
    )

    assert moves(before, tree(other={"VGPU": 4}), known(others=("a",))) == ()


def test_what_floats_stays_in_its_cell_only_if_it_may_be_there() -> None:
    before = holding(Allocation("a", CARD, "MEMORY_MB", 2), of=tree(card={"MEMORY_MB": 4}, other={"MEMORY_MB": 4}))
    pools = (
        Provider(name=f"{cell}_pool", parent=cell, inventories=_stock({"MEMORY_MB": 4}), traits=frozenset({MARKER}))
        for cell in BOTH
    )
    desired = ProviderTree((*tree(card={"VCPU": 1}, other={"VCPU": 1}), *pools))

    def place(*places: str) -> tuple[str, str]:
        floats = (Float("a", "MEMORY_MB", 2, places, "its memory"),)
        (move,) = moves(before, desired, known(floats=floats))
        return move.to_provider, move.because

    assert place(f"{OTHER}_pool", f"{CARD}_pool") == (f"{CARD}_pool", IN_ITS_CELL)
    assert place(f"{OTHER}_pool") == (f"{OTHER}_pool", "its memory")


def test_the_root_is_no_part_of_a_cell_that_goes() -> None:
    before = holding(Allocation("a", CARD, "VCPU", 2), of=tree(card={"VCPU": 4}, other={"VCPU": 4}))
    floats = (Float("a", "VCPU", 2, (OTHER, "host"), "its memory"),)

    (move,) = moves(before, tree({"VCPU": 4}, other={"VCPU": 4}), known(floats=floats))

    assert (move.to_provider, move.because) == (OTHER, "its memory")


def test_what_comes_must_fit_with_what_a_consumer_has_there() -> None:
    rows = (Allocation("a", "host", "VCPU", 3), Allocation("a", CARD, "VCPU", 3))
    before = holding(*rows, of=tree({"VCPU": 8}, card={"VCPU": 8}))
    small = Provider(name=CARD, parent="host", inventories={"VCPU": Inventory(total=8, max_unit=4)})
    desired = ProviderTree((*tree().providers, small, *tree(other={"VCPU": 8}).providers[1:]))

    (move,) = moves(before, desired)

    assert (move.to_provider, dict(move.moved_resources)) == (OTHER, {"VCPU": 3})


@pytest.mark.parametrize(
    ("name", "now"),
    [
        pytest.param("CUSTOM_A", {"CUSTOM_B": 1}, id="a PF that is whole now, and its VFs"),
        pytest.param("CUSTOM_A", {"VCPU": 8}, id="CPUs for devices"),
        pytest.param("VCPU", {"CUSTOM_B": 8}, id="devices for CPUs"),
        pytest.param("CUSTOM_A", {"CUSTOM_B": 8, "CUSTOM_C": 8}, id="two names for one"),
    ],
)
def test_a_class_that_may_stand_for_something_else_is_no_other_name(name: str, now: Mapping[str, int]) -> None:
    before = holding(Allocation("stranger", CARD, name, 2), of=tree(card={name: 8}))

    assert moves(before, tree(card=now)) == ()


@pytest.mark.parametrize("others", [0, 4096], ids=["room", "no room either"])
def test_what_is_no_multiple_of_the_step_size_is_refused_with_the_step_size(others: int) -> None:
    rows = [Allocation("a", "host", "MEMORY_MB", 512)]
    rows += [Allocation("b", "host", "MEMORY_MB", others)] if others else []
    before = holding(*rows, of=tree({"MEMORY_MB": 8192}))
    pages = {"MEMORY_MB": Inventory(total=2048, step_size=1024)}
    desired = ProviderTree((*tree().providers, *(Provider(name=one, parent="host", inventories=pages) for one in BOTH)))
    floats = tuple(Float(one.consumer, "MEMORY_MB", one.amount, BOTH, "its pages") for one in rows)

    with pytest.raises(Unplaceable, match="they give it in steps of 1024: resize or move a guest"):
        moves(before, desired, known(floats=floats))


def test_what_is_divided_is_divided_in_steps_up_to_the_largest_amount() -> None:
    before = holding(Allocation("a", "host", "MEMORY_MB", 3072), of=tree({"MEMORY_MB": 8192}))
    pages = {"MEMORY_MB": Inventory(total=4096, max_unit=2560, step_size=1024)}
    desired = ProviderTree((*tree().providers, *(Provider(name=one, parent="host", inventories=pages) for one in BOTH)))

    found = moves(before, desired, known(floats=(Float("a", "MEMORY_MB", 3072, BOTH, "its pages"),)))

    assert [move.moved_resources["MEMORY_MB"] for move in found] == [2048, 1024]


def test_a_floating_guest_goes_where_its_memory_is_whole_if_it_fits_and_else_in_parts() -> None:
    rows = tuple(Allocation(consumer, "host", "VCPU", amount) for consumer, amount in (("a", 3), ("b", 3), ("c", 2)))
    before = holding(*rows, of=tree({"VCPU": 8}))
    floats = tuple(Float(one.consumer, "VCPU", one.amount, (OTHER, CARD), "its memory") for one in rows)

    found = moves(before, tree(card={"VCPU": 4}, other={"VCPU": 4}), known(floats=floats))

    assert [(move.consumer, move.to_provider, dict(move.moved_resources)) for move in found] == [
        ("a", OTHER, {"VCPU": 3}),
        ("b", CARD, {"VCPU": 3}),
        ("c", CARD, {"VCPU": 1}),
        ("c", OTHER, {"VCPU": 1}),
    ]


def test_what_need_not_go_stays_though_the_rest_floats_elsewhere() -> None:
    rows = (Allocation("a", CARD, "VCPU", 1), Allocation("a", "host", "VCPU", 2))
    before = holding(*rows, of=tree({"VCPU": 8}, card={"VCPU": 4}))

    found = moves(
        before, tree(card={"VCPU": 4}, other={"VCPU": 4}), known(floats=(Float("a", "VCPU", 3, (OTHER,), ""),))
    )

    assert [(move.from_provider, move.to_provider) for move in found] == [("host", OTHER)]


def guest_of(*units: Holding) -> Holdings:
    """What is known of the guest ``a``: its units."""
    return known(*units, others=("a",))


def test_the_vcpus_that_become_pcpu_are_those_of_the_cell_where_the_guest_is_pinned() -> None:
    rows = (Allocation("a", CARD, "VCPU", 2), Allocation("a", OTHER, "VCPU", 2))
    observed = holding(*rows, of=tree(card={"VCPU": 8}, other={"VCPU": 8}))
    desired = tree(card={"VCPU": 8}, other={"VCPU": 4, "PCPU": 4})

    (move,) = moves(observed, desired, guest_of(Holding("a", CARD, "VCPU", 2), Holding("a", OTHER, "PCPU", 2)))

    assert (move.from_provider, move.to_provider, dict(move.to_resources)) == (OTHER, OTHER, {"PCPU": 2})


ISOLATED = Holding("a", "host", "PCPU", 5)  # four pinned vCPUs, and a CPU of its own for the emulator's threads


@pytest.mark.parametrize("allocated", [4, 6])
def test_cpus_come_not_on_offer_while_their_guest_has_another_amount_allocated(allocated: int) -> None:
    observed = holding(Allocation("a", "host", "VCPU", allocated), of=tree({"VCPU": 16}))

    with pytest.raises(
        Unplaceable, match=rf"consumer a has {allocated} VCPU and 0 PCPU .* really has 5 PCPU .* allocate 5 VCPU"
    ):
        moves(observed, tree({"VCPU": 8, "PCPU": 8}), guest_of(ISOLATED))


def test_cpus_that_were_on_offer_before_are_the_audits_business() -> None:
    observed = holding(Allocation("a", "host", "VCPU", 4), of=tree({"VCPU": 8, "PCPU": 8}))
    cells = holding(Allocation("a", CARD, "VCPU", 4), of=tree(card={"VCPU": 8, "PCPU": 8}))

    assert moves(observed, tree({"VCPU": 6, "PCPU": 8}), guest_of(ISOLATED)) == ()
    assert [move.to_provider for move in moves(cells, tree({"VCPU": 8, "PCPU": 8}), guest_of(ISOLATED))] == ["host"]


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param((), id="nobody has anything"),
        pytest.param((Allocation("a", "host", "MEMORY_MB", 4),), id="it has only memory"),
        pytest.param(
            (Allocation("stranger", "host", "VCPU", 5),), id="a consumer of which it is not known whose it is"
        ),
    ],
)
def test_cpus_come_not_on_offer_while_a_guest_without_cpus_allocated_is_pinned_to_them(
    rows: tuple[Allocation, ...],
) -> None:
    observed = holding(*rows, of=tree({"VCPU": 16, "MEMORY_MB": 16}))
    desired = tree({"VCPU": 8, "PCPU": 8, "MEMORY_MB": 16})

    with pytest.raises(Unplaceable, match="guest a is pinned to 5 CPUs that host would offer as PCPU"):
        moves(observed, desired, guest_of(ISOLATED))


def test_a_host_that_is_reported_for_the_first_time_offers_all_that_it_has() -> None:
    observed = holding(of=tree({"MEMORY_MB": 16}))

    assert moves(observed, tree({"VCPU": 8, "PCPU": 8, "MEMORY_MB": 16}), guest_of(ISOLATED)) == ()


def test_cpus_of_another_cell_come_on_offer_though_no_cell_has_more_than_the_root_had() -> None:
    rows = (Allocation("a", "host", "VCPU", 4),)
    pinned = replace(ISOLATED, provider=OTHER)
    desired = tree(card={"VCPU": 2, "PCPU": 5}, other={"VCPU": 2, "PCPU": 5})

    with pytest.raises(Unplaceable, match="has 4 VCPU and 0 PCPU allocated"):
        moves(holding(*rows, of=tree({"VCPU": 9, "PCPU": 5})), desired, guest_of(pinned))


def overriding(*names: str, of: Holdings) -> Holdings:
    """The same, where the flavor of the guest ``a`` says how much of these classes it is to have."""
    return replace(of, known={"a": GuestState(active=True, untold=frozenset(names), overridden=frozenset(names))})


@pytest.mark.parametrize("bound_by", ["VCPU", "PCPU"])
def test_what_a_flavor_overrides_goes_where_its_guest_is_bound(bound_by: str) -> None:
    rows = (Allocation("a", "host", "VCPU", 1), Allocation("a", "host", "MEMORY_MB", 3))
    observed = holding(*rows, of=tree({"VCPU": 16, "MEMORY_MB": 16}))
    desired = tree(card={"VCPU": 8, "MEMORY_MB": 8}, other={"VCPU": 8, "MEMORY_MB": 8})
    units = (Holding("a", OTHER, bound_by, 4), Holding("a", OTHER, "MEMORY_MB", 3))

    (move,) = moves(observed, desired, overriding("VCPU", of=guest_of(*units)))

    assert (move.to_provider, dict(move.moved_resources)) == (OTHER, {"VCPU": 1, "MEMORY_MB": 3})


def test_memory_that_a_flavor_overrides_goes_not_where_only_cpus_of_its_guest_are_bound() -> None:
    observed = holding(Allocation("a", "host", "MEMORY_MB", 9), of=tree({"MEMORY_MB": 16}))
    units = (Holding("a", CARD, "VCPU", 1), Holding("a", OTHER, "MEMORY_MB", 1))

    with pytest.raises(Unplaceable, match="1 of them find no room on host_other:"):
        moves(
            observed, tree(card={"MEMORY_MB": 8}, other={"MEMORY_MB": 8}), overriding("MEMORY_MB", of=guest_of(*units))
        )


def test_a_cpu_that_is_dedicated_no_longer_leaves_a_cell_that_its_overridden_guest_is_not_bound_to() -> None:
    rows = (Allocation("a", CARD, "VCPU", 1), Allocation("a", CARD, "PCPU", 1), Allocation("a", OTHER, "PCPU", 1))
    observed = holding(*rows, of=tree(card={"VCPU": 6, "PCPU": 2}, other={"VCPU": 6, "PCPU": 2}))
    bound = overriding("VCPU", of=guest_of(Holding("a", CARD, "VCPU", 3)))

    found = moves(observed, tree(card={"VCPU": 8}, other={"VCPU": 8}), bound)

    assert apply_moves(observed.allocations, found) == (Allocation("a", CARD, "VCPU", 3),)


@pytest.mark.parametrize(
    ("before", "row", "after", "unit"),
    [
        pytest.param(
            tree({"VGPU": 8}),
            "host",
            tree({"VGPU": 8, "CUSTOM_A": 4}, kept="VGPU"),
            "host",
            id="one of two types, in flat, of which the units of before are kept, reserved",
        ),
        pytest.param(
            tree(card={"VGPU": 4}, other={"VGPU": 4}), CARD, tree({"VGPU": 4, "CUSTOM_A": 4}), "host", id="to flat"
        ),
        pytest.param(tree({"VGPU": 8}), "host", tree(card={"CUSTOM_A": 4}, other={"VGPU": 4}), CARD, id="from flat"),
    ],
)
def test_a_new_name_comes_with_another_layout_where_the_guests_card_is_known(
    before: ProviderTree, row: str, after: ProviderTree, unit: str
) -> None:
    observed = holding(Allocation("a", row, "VGPU", 2), of=before)

    (move,) = moves(observed, after, guest_of(Holding("a", unit, "CUSTOM_A", 2)))

    assert (move.to_provider, dict(move.to_resources)) == (unit, {"CUSTOM_A": 2})


def test_what_an_operator_reserves_of_a_class_is_no_sign_of_another_name() -> None:
    stock = {"CUSTOM_A": Inventory(total=8, reserved=2), "CUSTOM_B": Inventory(total=8)}
    after = ProviderTree((Provider(name="host", inventories=stock, traits=frozenset({MARKER})),))
    observed = holding(Allocation("a", "host", "CUSTOM_A", 1), of=tree({"CUSTOM_A": 8, "CUSTOM_B": 4}))

    assert moves(observed, after, guest_of(Holding("a", "host", "CUSTOM_B", 1))) == ()


@pytest.mark.parametrize(
    ("stood", "offered", "renamed"), [(0, 4, True), (2, 4, True), (4, 4, False), (5, 4, False), (0, 0, False)]
)
def test_a_class_that_its_card_offers_no_more_of_than_before_is_no_other_name(
    stood: int, offered: int, renamed: bool
) -> None:
    row = Allocation("a", CARD, "CUSTOM_A", 1)
    observed = holding(row, of=tree(card={"CUSTOM_A": 4, **({"CUSTOM_B": stood} if stood else {})}))

    desired = tree(card={"CUSTOM_B": offered} if offered else {"CUSTOM_C": 4})
    found = moves(observed, desired, known(Holding("a", CARD, "CUSTOM_B", 1)))

    after = apply_moves(observed.allocations, found)
    assert after == ((replace(row, resource_class="CUSTOM_B"),) if renamed else (row,))


def test_foreign_stock_on_a_root_is_nobodys_to_move() -> None:
    before = holding(Allocation("a", "host", "CUSTOM_THEIRS", 2), of=tree({"CUSTOM_THEIRS": 4}))
    desired = tree(card={"CUSTOM_THEIRS": 4})

    assert displaced(before, desired, Ownership(emitted=Names())) == frozenset()
    assert plan_moves(before, desired, Holdings(), Ownership(emitted=Names())) == ()


def person(uuid: str, /, project: str = "p", **amounts: int) -> Consumer:
    return Consumer(uuid=uuid, generation=1, project=project, user="u", kind=None, slots={ABROAD: amounts})


def test_a_migration_is_the_one_guest_that_fits_it() -> None:
    here = (Allocation("migration", "host", "VCPU", 1),)
    holdings = known(Holding("guest", CARD, "VCPU", 1), others=("alike", "unlike"))
    stranger = person("migration", VCPU=1)

    assert find_stand_ins([stranger], [person("guest", VCPU=1)], holdings, here) == {"migration": "guest"}
    assert find_stand_ins([stranger], [person("guest", VCPU=1), person("alike", VCPU=1)], holdings, here) == {}
    assert find_stand_ins([stranger], [person("unlike", project="q", VCPU=1)], holdings, here) == {}
    assert find_stand_ins([stranger], [person("elsewhere", VCPU=1)], holdings, here) == {}


@pytest.mark.parametrize(
    ("amounts", "fits"),
    [
        pytest.param({"VCPU": 2, "MEMORY_MB": 64, "DISK_GB": 9}, True, id="its disk on shared storage"),
        pytest.param({"PCPU": 2, "MEMORY_MB": 64}, True, id="another class of CPUs at the destination"),
        pytest.param({"VCPU": 2, "MEMORY_MB": 64, "CUSTOM_A": 1}, True, id="a device of another class there"),
        pytest.param({"VCPU": 3, "MEMORY_MB": 64}, False, id="another size: a resize"),
    ],
)
def test_only_cpus_and_memory_tell_whose_a_migration_is(amounts: dict[str, int], fits: bool) -> None:
    here = (Allocation("migration", "host", "VCPU", 2), Allocation("guest", "host", "DISK_GB", 9))
    stranger = person("migration", VCPU=2, MEMORY_MB=64)

    found = find_stand_ins([stranger], [person("guest", "p", **amounts)], known(others=("guest",)), here)

    assert found == ({"migration": "guest"} if fits else {})


def test_as_many_alike_migrations_as_alike_guests_are_no_doubt_where_the_hypervisor_gives_the_guests_the_same() -> None:
    strangers, guests = ([person(one + number, VCPU=2) for number in "12"] for one in ("m", "g"))
    alike = known(Holding("g1", "host", "PCPU", 2), Holding("g2", "host", "PCPU", 2))
    apart = known(Holding("g1", CARD, "PCPU", 2), Holding("g2", OTHER, "PCPU", 2))

    assert find_stand_ins(strangers, guests, alike, ()) == {"m1": "g1", "m2": "g2"}
    assert find_stand_ins(strangers[:1], guests, alike, ()) == {}
    assert find_stand_ins(strangers, guests[:1], alike, ()) == {}
    assert find_stand_ins(strangers, guests, apart, ()) == {}


def test_a_consumer_that_changed_since_it_was_listed_makes_the_plan_begin_again() -> None:
    move = Move(consumer="a", from_provider="host", to_provider=CARD, moved_resources={"VGPU": 2}, because="")
    less = Consumer(uuid="a", generation=2, project="p", user="u", kind=None, slots={"host": {"VGPU": 1}})

    for consumers, message in (
        ((), "consumer a released all its allocations"),
        ((less,), "consumer a changed while this plan"),
    ):
        with pytest.raises(Conflict, match=message):
            rewrites((move,), consumers, {"host": "host", CARD: CARD})


def test_moves_never_take_more_than_is_held() -> None:
    move = Move(consumer="a", from_provider="host", to_provider=CARD, moved_resources={"VGPU": 2}, because="")

    with pytest.raises(ValueError, match="moves take more than is held"):
        apply_moves((Allocation("a", "host", "VGPU", 1),), (move,))
    assert apply_moves((Allocation("a", "host", "VGPU", 2),), (move,)) == (Allocation("a", CARD, "VGPU", 2),)


@pytest.mark.parametrize(("moved", "arriving"), [({}, {}), ({"VGPU": 0}, {}), ({"VGPU": 2}, {"CUSTOM_A": 1})])
def test_a_move_of_nothing_or_that_loses_something_cannot_be_built(
    moved: dict[str, int], arriving: dict[str, int]
) -> None:
    with pytest.raises(ValueError, match="a move"):
        Move(consumer="a", from_provider="x", to_provider="y", moved_resources=moved, to_resources=arriving, because="")


def test_the_digest_covers_the_allocations_that_a_plan_rests_on_and_not_their_generation() -> None:
    before = holding(Allocation("a", "host", "VGPU", 1), of=tree({"VGPU": 4}))
    desired = tree(card={"VGPU": 4})
    found = moves(before, desired)

    def digest(generation: int, **more: int) -> str:
        slots = {"host": {"VGPU": 1, **more}}
        consumer = Consumer(uuid="a", generation=generation, project="p", user="u", kind=None, slots=slots)
        emitted = Names(frozenset({"VGPU"}), frozenset({MARKER}))
        ours = Ownership(emitted=emitted)
        tree_ = ObservedTree((replace(before.tree.providers[0], uuid=ROOT_UUID),))
        moved = replace(consumer, slots={ROOT_UUID: slots["host"]})
        return diff(tree_, desired, ours, root_uuid=ROOT_UUID, moves=found, consumers=(moved,)).digest

    assert digest(1) == digest(2)
    assert digest(1) != digest(1, MEMORY_MB=5)


class Recorded:
    """A driver of one host whose facts are given."""

    emitted = EMITTED

    def __init__(self, facts: HostFacts) -> None:
        self._facts = facts

    def name(self) -> str:
        return self._facts.hostname

    def survey(self, node: str) -> Survey:
        return Survey(self._facts)

    def shape(self, survey: Survey, policy: Policy, observed: ObservedTree | None) -> tuple[ProviderTree, Holdings]:
        shaped = shape(survey.facts, policy, observed)
        return shaped.tree, shaped.holdings


@FEWER
@given(occupied_hosts(), layouts())
def test_the_seeds_function_gives_the_tree_and_the_moves_of_a_pass(
    facts: HostFacts, way: tuple[Layout, Layout]
) -> None:
    before = begin(facts, way[0])
    policy = Policy(layout=way[1], devices=DEVICES, reserved_memory_mib=0)
    reported = Names(frozenset(observed_classes(before)))
    try:
        after, plan = convert(facts, before, way[1])
    except Unplaceable as error:
        event("refused")
        with pytest.raises(Unplaceable, match=re.escape(str(error))):
            update_provider_tree(Recorded(facts), policy, before, facts.hostname, reported)
        return
    except UnsafePlan:  # judged on a pass's plan alone
        return

    tree, moves = update_provider_tree(Recorded(facts), policy, before, facts.hostname, reported)

    assert moves == instructions(plan.moves)
    assert {one.name for one in tree} == {seen.name for seen in after.tree}
