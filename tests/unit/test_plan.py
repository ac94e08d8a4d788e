"""What makes a plan unsafe, and what its digest covers."""

from dataclasses import replace

import pytest

from reportclient.allocations import Allocation, Move, usages
from reportclient.errors import UnsafePlan
from reportclient.forecast import Limits, check_use, lessened, losses, shrinkage
from reportclient.plan import (
    Create,
    Delete,
    EnsureClasses,
    EnsureTraits,
    Plan,
    Reshape,
    Rewrite,
    SetInventories,
    SetTraits,
)
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

STOCK = {"VCPU": Inventory(total=10, allocation_ratio=2.0), "MEMORY_MB": Inventory(total=100)}
ROOT = ObservedProvider(uuid="r", generation=1, provider=Provider(name="host", inventories=STOCK))
GPUS = tuple(
    ObservedProvider(
        uuid=f"g{n}",
        generation=1,
        provider=Provider(name=f"gpu{n}", parent="host", inventories={"VGPU": Inventory(total=4)}),
    )
    for n in range(6)
)
CARD = ObservedProvider(
    uuid="c", generation=1, provider=Provider(name="card", parent="host", inventories={"FPGA": Inventory(total=1)})
)
EMPTY = ObservedProvider(uuid="e", generation=1, provider=Provider(name="empty", parent="host"))
TREE = ObservedTree((ROOT, *GPUS, CARD))


def set_root(**stock: Inventory) -> Plan:
    return Plan((SetInventories("r", "host", {**STOCK, **stock}),))


def hold(amount: int, name: str = "VCPU", provider: str = "host") -> tuple[Allocation, ...]:
    return (Allocation("guest", provider, name, amount),)


@pytest.mark.parametrize(
    ("stock", "asked"),
    [
        pytest.param({"CUSTOM_NEW": 4}, {"r"}, id="a class that is new there"),
        pytest.param({"PCPU": 6}, {"r"}, id="more dedicated CPUs, which a guest may have as VCPU"),
        pytest.param({"PCPU": 4}, set(), id="as many as before"),
        pytest.param({"MEMORY_MB": 200}, set(), id="more of another class"),
    ],
)
def test_who_holds_what_is_asked_where_guests_may_have_it_by_another_name(
    stock: dict[str, int], asked: set[str]
) -> None:
    before = {**STOCK, "PCPU": Inventory(total=4)}
    root = replace(ROOT, provider=replace(ROOT.provider, inventories=before))
    after = {**before, **{name: Inventory(total=total) for name, total in stock.items()}}
    plan = Plan((SetInventories("r", "host", after), SetInventories("e", "empty", after)))

    assert lessened(plan, ObservedTree((root, EMPTY))) == asked


@pytest.mark.parametrize(
    ("total", "sentences"),
    [
        pytest.param(7, (), id="thirty percent may go"),
        pytest.param(6, ("VCPU would shrink from 10 to 6, more than 30%",), id="forty may not"),
        pytest.param(20, (), id="growth is fine"),
    ],
)
def test_too_much_at_once_is_said_class_by_class(total: int, sentences: tuple[str, ...]) -> None:
    assert shrinkage(set_root(VCPU=Inventory(total=total)), TREE, Limits()) == sentences


def test_a_cpu_that_becomes_dedicated_is_not_lost() -> None:
    dedicated = set_root(VCPU=Inventory(total=4), PCPU=Inventory(total=6))

    assert shrinkage(dedicated, TREE, Limits(fraction=0)) == ()


def test_stock_that_moves_from_one_provider_to_another_is_not_gone() -> None:
    less = SetInventories("r", "host", {"MEMORY_MB": STOCK["MEMORY_MB"]})
    more = SetInventories("new", "cell0", {"VCPU": Inventory(total=10)})
    plan = Plan((Create("new", "cell0", "r"), Reshape((less, more))))

    assert shrinkage(plan, TREE, Limits(fraction=0)) == ()


def test_a_class_that_the_operator_took_back_may_go_whole() -> None:
    plan = Plan((SetInventories("r", "host", {"MEMORY_MB": STOCK["MEMORY_MB"]}),))

    assert shrinkage(plan, TREE, Limits(withdrawn={"host": frozenset({"VCPU"})})) == ()
    assert len(shrinkage(plan, TREE, Limits())) == 1


@pytest.mark.parametrize(("count", "allowed"), [(4, True), (5, False)])
def test_more_than_four_providers_do_not_go_in_one_pass(count: int, allowed: bool) -> None:
    """Also where another class that they had comes elsewhere."""
    both = {"VGPU": Inventory(total=4), "FPGA": Inventory(total=1)}
    gpus = tuple(replace(gpu, provider=replace(gpu.provider, inventories=both)) for gpu in GPUS)
    root = SetInventories("r", "host", {**STOCK, "FPGA": Inventory(total=6)})
    plan = Plan((root, *(Delete(gpu.uuid, gpu.name) for gpu in gpus[:count])))

    found = shrinkage(plan, ObservedTree((ROOT, *gpus)), Limits(fraction=1))

    assert (f"{count} providers would be deleted, more than 4" not in found) == allowed


def test_only_providers_that_lose_stock_need_their_allocations_read() -> None:
    assert lessened(set_root(VCPU=Inventory(total=10, allocation_ratio=1.0)), TREE) == {"r"}
    assert lessened(set_root(VCPU=Inventory(total=5, allocation_ratio=4.0)), TREE) == {"r"}
    assert lessened(set_root(VCPU=Inventory(total=12, allocation_ratio=2.0)), TREE) == frozenset()
    assert lessened(Plan((Delete("g1", "gpu1"), Create("x", "x", None))), TREE) == {"g1"}


@pytest.mark.parametrize(
    ("stock", "used", "room"),
    [
        ({"VCPU": Inventory(total=10, allocation_ratio=1.0)}, {"VCPU": 11}, 10),
        ({"VCPU": Inventory(total=10, reserved=5, allocation_ratio=1.0)}, {"VCPU": 8}, 5),
        ({"PCPU": Inventory(total=1)}, {"PCPU": 2}, 1),
    ],
)
def test_less_room_than_guests_use_is_refused_unless_forced(
    stock: dict[str, Inventory], used: dict[str, int], room: int
) -> None:
    ((name, amount),) = used.items()

    check_use(set_root(**stock), TREE, hold(room, name), force=False)
    with pytest.raises(UnsafePlan, match=f"{amount} {name} on host are allocated.* would leave room for {room}:"):
        check_use(set_root(**stock), TREE, hold(amount, name), force=False)
    check_use(set_root(**stock), TREE, hold(amount, name), force=True)


@pytest.mark.parametrize(("count", "named"), [(4, "c0, c1, c2, c3,"), (6, "c0, c1, c2, c3 and 2 more,")])
def test_a_refusal_names_four_consumers(count: int, named: str) -> None:
    rows = [Allocation(f"c{number}", "host", "VCPU", 6) for number in range(count)] + [*hold(1, "VGPU", "gpu0")]

    with pytest.raises(UnsafePlan, match=f"allocated to {named} and the plan"):
        check_use(Plan((SetInventories("r", "host", {}),)), TREE, rows, force=False)


def test_what_was_over_full_before_may_stay_so() -> None:
    check_use(set_root(MEMORY_MB=Inventory(total=90)), TREE, hold(25), force=False)
    check_use(set_root(VCPU=Inventory(total=9, allocation_ratio=3.0)), TREE, hold(28), force=False)
    same = SetInventories("c", "card", {"FPGA": Inventory(total=1)})
    check_use(Plan((same,)), TREE, hold(2, "FPGA", "card"), force=False)


def test_stock_that_guests_hold_is_never_removed() -> None:
    plan = Plan((SetInventories("r", "host", {"MEMORY_MB": STOCK["MEMORY_MB"]}),))

    with pytest.raises(UnsafePlan, match="1 VCPU on host are allocated to guest, and the plan would remove that stock"):
        check_use(plan, TREE, hold(1), force=True)


def test_a_provider_that_guests_hold_is_never_deleted() -> None:
    with pytest.raises(UnsafePlan, match="VGPU on gpu1"):
        check_use(Plan((Delete("g1", "gpu1"),)), TREE, hold(1, "VGPU", "gpu1"), force=True)


def test_allocations_elsewhere_do_not_matter() -> None:
    for place in ("gpu0", "abroad"):
        check_use(set_root(VCPU=Inventory(total=1)), TREE, hold(4, "VGPU", place), force=False)


def test_use_adds_up_over_consumers() -> None:
    rows = (Allocation("a", "host", "VCPU", 1), Allocation("b", "host", "VCPU", 2), Allocation("b", "host", "PCPU", 4))

    assert usages(rows) == {("host", "VCPU"): 3, ("host", "PCPU"): 4}


MOVE = Move(consumer="g", from_provider="host", to_provider="gpu0", moved_resources={"VGPU": 1}, because="one")
REWRITE = Rewrite(consumer="g", generation=1, project="p", user="u", kind=None, before={}, after={})
WHOLE = SetTraits("r", "host", frozenset({"A", "B"}), frozenset({"A"}), frozenset())
STEPS = (EnsureClasses(("C",)), EnsureTraits(("T",)), WHOLE, Reshape((*set_root().operations,), (REWRITE,)))  # type: ignore[arg-type]
WRITES = Plan(STEPS, (MOVE,))


def moving(**changes: object) -> Plan:
    return Plan((WHOLE, replace(STEPS[3], rewrites=(replace(REWRITE, **changes),))), (MOVE,))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("other", "same", "rest"),
    [
        pytest.param(WRITES, True, True, id="all of it"),
        pytest.param(replace(WRITES, left_out=frozenset({"X"})), True, True, id="traits that are left out"),
        pytest.param(replace(WRITES, operations=STEPS[2:]), True, True, id="names that are there already"),
        pytest.param(replace(WRITES, moves=(replace(MOVE, because="two"),)), True, True, id="the reason of a move"),
        pytest.param(moving(generation=2), True, True, id="a consumer's generation"),
        pytest.param(moving(user="v"), False, False, id="a consumer's owner"),
        pytest.param(Plan(), False, True, id="nothing"),
        pytest.param(replace(WRITES, moves=()), False, True, id="no move"),
        pytest.param(replace(WRITES, moves=(replace(MOVE, consumer="h"),)), False, False, id="another move"),
        pytest.param(Plan((EnsureTraits(("X",)), EnsureClasses(("X",)))), False, True, id="other names"),
        pytest.param(Plan((replace(WHOLE, added=WHOLE.traits),)), False, True, id="the same traits instead of others"),
        pytest.param(Plan((replace(WHOLE, traits=frozenset({"A"})),)), False, False, id="other traits"),
        pytest.param(Plan((*STEPS, Delete("g0", "gpu0")), (MOVE,)), False, False, id="one operation more"),
    ],
)
def test_digest_and_outline_tell_a_plan_and_the_rest_of_it_from_another(other: Plan, same: bool, rest: bool) -> None:
    assert (WRITES.digest == other.digest, WRITES.outline.covers(other)) == (same, rest)
    assert len(WRITES.digest) == 12


def test_the_digest_does_not_depend_on_the_order_of_a_set_or_of_classes() -> None:
    traits = [f"T{n}" for n in range(50)]
    one, other = frozenset(traits), frozenset(reversed(traits))
    orders = ((one, STOCK), (other, dict(reversed(STOCK.items()))))

    digests = {
        Plan((SetTraits("r", "host", each, each, frozenset()), SetInventories("r", "host", stock))).digest
        for each, stock in orders
    }

    assert len(digests) == 1


def gone(*providers: ObservedProvider) -> Plan:
    return Plan(tuple(Delete(seen.uuid, seen.name) for seen in providers))


def test_what_the_hardware_itself_tells_to_be_less_is_no_loss_of_sight() -> None:
    assert shrinkage(gone(*GPUS[:3]), TREE, Limits()) == ("VGPU would shrink from 24 to 12, more than 30%",)
    assert shrinkage(gone(*GPUS), TREE, Limits(present=frozenset(seen.name for seen in GPUS))) == ()


def test_a_change_of_layout_does_not_hide_a_card_that_is_lost() -> None:
    """Five cards are here and counted on the root from now on; the sixth is gone."""
    root = SetInventories("r", "host", {**STOCK, "VGPU": Inventory(total=20)})
    emptied = (SetInventories(seen.uuid, seen.name, {}) for seen in GPUS)
    plan = Plan((Reshape((root, *emptied)), *gone(*GPUS).operations))
    present = frozenset(seen.name for seen in GPUS[:5])

    assert shrinkage(plan, TREE, Limits(fraction=0.1, present=present)) == (
        "VGPU would shrink from 24 to 20, more than 10%",
    )
    assert shrinkage(plan, TREE, Limits(fraction=0.1, present=present | {"gpu5"})) == ()
    for total, told in ((24, ()), (23, ("6 providers would be deleted, more than 4",))):
        root = SetInventories("r", "host", {**STOCK, "VGPU": Inventory(total=total)})
        assert shrinkage(Plan((root, *plan.operations[1:])), TREE, Limits()) == told


def test_reserving_a_device_that_guests_hold_takes_it_from_nobody() -> None:
    plan = Plan((SetInventories("g0", "gpu0", {"VGPU": Inventory(total=4, reserved=4)}),))

    check_use(plan, TREE, hold(3, "VGPU", "gpu0"), force=False)


def test_what_is_all_reserved_and_goes_is_looked_at_all_the_same() -> None:
    """It has nothing to give, and guests may hold it."""
    stock = {"VGPU": Inventory(total=2, reserved=2)}
    kept = replace(GPUS[0], provider=replace(GPUS[0].provider, inventories=stock))

    assert lessened(gone(kept), ObservedTree((ROOT, kept))) == {"g0"}


def test_fewer_devices_than_guests_hold_are_refused_where_all_were_reserved() -> None:
    """No capacity is lost, as there was none; a unit that a guest holds would be lost all the same."""
    stock = {"VGPU": Inventory(total=4, reserved=4)}
    kept = replace(GPUS[0], provider=replace(GPUS[0].provider, inventories=stock))
    plan = Plan((SetInventories("g0", "gpu0", {"VGPU": Inventory(total=2, reserved=2)}),))

    with pytest.raises(UnsafePlan, match="3 VGPU on gpu0 are allocated, and the plan would leave room for 0"):
        check_use(plan, ObservedTree((ROOT, kept)), hold(3, "VGPU", "gpu0"), force=False)
    check_use(plan, ObservedTree((ROOT, kept)), hold(2, "VGPU", "gpu0"), force=False)


def test_one_unit_that_goes_is_a_loss_too() -> None:
    after = {"VCPU": Inventory(total=9), "MEMORY_MB": Inventory(total=100)}

    assert losses(Plan((SetInventories("r", "host", after),)), TREE)["host VCPU"] == (1, 10)
