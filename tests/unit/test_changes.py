"""What a plan changes, as people read it: provider by provider, and in one sentence."""

from collections.abc import Iterable
from dataclasses import replace

from agent.audit.heal import UNASKED
from agent.command.audit_verb import _lines
from agent.command.changes import Forecast, Row, folded, in_order, rows, summary
from agent.command.shown import forecast_lines, standing_lines
from agent.command.wording import LONG, SHOWN_GUESTS
from agent.sync.outcome import Condition
from reportclient.allocations import Allocation, Move, Observed
from reportclient.plan import EnsureTraits, Operation, Plan
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

GUEST = "4a5f7e9c-0d27-4e43-8f6f-2a3b1c9d8e70"
STEP = EnsureTraits(("CUSTOM_A",))


def provider(
    name: str, uuid: str, parent: str | None = "host", traits: Iterable[str] = (), zone: str = "", **stocks: Inventory
) -> ObservedProvider:
    zones = frozenset({zone} - {""})
    one = Provider(name=name, parent=parent, inventories=stocks, traits=frozenset(traits), aggregates=zones)
    return ObservedProvider(uuid=uuid, generation=1, provider=one)


def tree(*providers: ObservedProvider, held: str = "") -> Observed:
    """Providers, with the two VCPU that the guest has on one of them."""
    return Observed(ObservedTree(providers), (Allocation(GUEST, held, "VCPU", 2),) if held else ())


def move(consumer: str = GUEST) -> Move:
    return Move(
        consumer=consumer,
        from_provider="host",
        to_provider="host_NUMA0",
        moved_resources={"VCPU": 2},
        because="pinned to CPUs 0-3 in cell 0",
    )


def plan(before: Observed, after: Observed, *moves: Move, steps: tuple[Operation, ...] = (STEP,)) -> Forecast:
    return Forecast(Plan(steps, moves), before, after, {GUEST: "web-1"})


CARD = Inventory(total=4)
BEFORE = tree(provider("host", "r", None, VCPU=Inventory(total=8)), provider("host_card", "c", VGPU=CARD), held="host")
AFTER = tree(
    provider("host", "r", None, ["CUSTOM_A"]),
    provider("host_NUMA0", "n", VCPU=Inventory(total=8, reserved=1, allocation_ratio=4.0)),
    provider("host_card", "c", "host_NUMA0", VGPU=CARD),
    held="host_NUMA0",
)


def told(data: Forecast, *, whole: bool = False) -> str:
    return "\n".join(forecast_lines(data, whole=whole))


def test_a_provider_that_goes_is_renamed_or_gets_other_terms_says_so() -> None:
    after = tree(
        provider("hall", "r", None, VCPU=Inventory(total=8, reserved=2)), provider("hall_card", "c", "hall", VGPU=CARD)
    )

    assert [(row.mark, row.label, row.stock) for row in rows(BEFORE, after)] == [
        ("~", "hall", ("was called host", "VCPU 2/8 → 0/8 (reserved 0 → 2)")),
        ("~", "hall_card", ("was called host_card",)),
    ]
    assert rows(BEFORE, after, with_use=False)[0].stock == ("was called host", "VCPU 8 (reserved 0 → 2)")


def test_each_row_says_what_becomes_of_one_provider() -> None:
    """Of many traits only the number."""
    traits = [f"CUSTOM_{letter}" for letter in "ABCDE"]
    before = tree(
        provider("host", "r", None, VCPU=Inventory(total=8), PCPU=CARD),
        provider("host_a", "a", traits=traits[:1]),
        provider("host_b", "b", zone="here"),
        provider("host_c", "c", VGPU=CARD),
        provider("host_d", "d", VGPU=CARD),
        provider("host_e", "e", traits=traits, VGPU=CARD),
        held="host",
    )
    after = tree(
        provider("host", "r", None, VCPU=Inventory(total=8, min_unit=2), DISK_GB=Inventory(total=9, reserved=1)),
        provider("host_a", "a", traits=traits[1:]),
        provider("host_b", "b", zone="there"),
        provider("host_c", "c", "host_n", traits, VGPU=Inventory(total=3)),
        provider("host_d", "d", VGPU=CARD),
        provider("host_n", "n", traits=traits, VCPU=Inventory(total=8, reserved=1, allocation_ratio=4.0), VGPU=CARD),
        held="host",
    )

    assert [(row.depth, row.mark, *row.names, row.stock, row.traits) for row in rows(before, after)] == [
        (0, "~", "host", ("DISK_GB none → 0/9 (1 reserved)", "PCPU 0/4 → gone", "VCPU 2/8 (min_unit 1 → 2)"), ()),
        (1, "~", "host_a", (), ("+CUSTOM_B", "+CUSTOM_C", "+CUSTOM_D", "+CUSTOM_E", "-CUSTOM_A")),
        (1, "~", "host_b", (), ("aggregates",)),
        (1, " ", "host_d", (), ()),
        (1, "-", "host_e", ("VGPU 0/4 → gone",), ()),
        (1, "+", "host_n", ("VCPU 0/8 (1 reserved, ratio 4)", "VGPU 0/4"), ()),
        (2, ">", "host_c", ("was under host", "VGPU 0/4 → 0/3"), ("+5 traits",)),
    ]


def test_one_sentence_says_what_happens_to_the_tree_and_to_whom() -> None:
    assert summary(plan(BEFORE, AFTER, move())) == (
        "1 provider made, 1 put under another parent, 1 changed; the accounting of 1 guest (web-1) is rewritten, "
        "and no guest is touched"
    )
    assert "no guest's accounting changes" in summary(plan(BEFORE, AFTER))
    assert summary(plan(AFTER, BEFORE)).startswith("1 put under another parent, 1 changed, 1 removed; ")
    assert summary(plan(tree(), BEFORE)).startswith("2 providers made; ")
    assert summary(plan(BEFORE, BEFORE, *map(move, "abcd"))).startswith(
        "no provider changes; the accounting of 4 guests (a, b, c, d) is"
    )
    assert "the accounting of 5 guests is" in summary(plan(BEFORE, AFTER, *map(move, "abcde")))
    unnamed = plan(BEFORE, AFTER, move("a"))
    assert "1 guest (a)" in summary(replace(unnamed, names={}))
    assert summary(plan(BEFORE, AFTER, steps=())) == "nothing to change"


def test_siblings_that_differ_by_name_alone_are_one_row_and_parents_are_not() -> None:
    def row(name: str, parent: str | None = "host") -> Row:
        return Row(names=(name,), depth=1, parent=parent, mark="+", stock=("VGPU 0/4",))

    several = [row("a"), row("b"), row("b_x", "b"), row("c"), row("d")]

    assert [one.names for one in folded(several)] == [("a", "c", "d"), ("b",), ("b_x",)]


def test_a_provider_whose_parent_is_not_there_counts_as_a_root() -> None:
    assert [*in_order({"b": "gone", "a": "b"})] == [("b", 0), ("a", 1)]


def test_of_many_guests_those_alike_are_told_once_and_all_shows_each() -> None:
    guests = [f"{number:08d}-0d27-4e43-8f6f-2a3b1c9d8e70" for number in range(SHOWN_GUESTS + 1)]
    data = plan(BEFORE, AFTER, *map(move, guests))

    assert f"({len(guests)} alike)\n  2 VCPU  host → host_NUMA0\n" in told(data)
    assert all(guest in told(data, whole=True) for guest in guests)


def test_a_long_tree_shows_what_changes_and_all_shows_the_rest() -> None:
    quiet = [provider(f"host_{number:02d}", f"q{number}", VGPU=CARD) for number in range(LONG)]
    before, after = (Observed(ObservedTree((*one.tree, *quiet)), one.allocations) for one in (BEFORE, AFTER))
    data = plan(before, after)

    assert "host_07" not in told(data)
    assert f"{LONG} providers unchanged" in told(data)
    assert "host_07" in told(data, whole=True)


def test_what_placement_holds_is_told_by_guest() -> None:
    lines = [*standing_lines(BEFORE, {GUEST: "web-1"}, (), whole=False)]

    assert lines[-3:] == ["1 consumer with allocations", f"web-1 {GUEST}", "  2 VCPU on host"]


def test_cards_alike_are_one_branch_unless_there_is_something_to_know_of_one() -> None:
    cards = [provider(f"host_{number:02d}", f"q{number}", VGPU=CARD) for number in range(LONG)]
    known = (Condition(kind="k", text="of the card", provider="host_card"), Condition(kind="k", text="of the host"))

    lines = standing_lines(tree(*BEFORE.tree, *cards), {}, known, whole=False)

    assert [*lines] == [
        "host  r  generation 1",
        "    VCPU 0/8",
        "    of the host",
        f"  host_00, host_01 … host_23 ({LONG} alike)",
        "      VGPU 0/4",
        "  host_card  c  generation 1",
        "      VGPU 0/4",
        "      of the card",
        "those alike are one branch: --all shows each",
        "no allocations",
    ]
    assert [*standing_lines(tree(), {}, (), whole=False)] == []


def test_findings_begin_with_their_sums_and_end_with_the_command_that_mends_them() -> None:
    finding = {
        "kind": "missing",
        "consumer": GUEST,
        "provider": "host",
        "resource_class": "VCPU",
        "expected": 2,
        "actual": 0,
        "seen": "the hypervisor runs it",
        "safe": True,
        "untyped": True,
        "since": "2026-11-23",
        "repair": "add what is missing",
        "writes": {
            GUEST: {"project": "p", "user": "u", "type": None, "allocations": {"host": {"VCPU": 2, "DISK_GB": 40}}}
        },
        "outcome": "reported",
        "why": UNASKED,
    }

    lines = [line.strip() for line in _lines({"missing": 1}, [finding], {GUEST: "web-1"})]

    assert lines[:2] == ["1 missing: about 1 consumer", f"web-1 {GUEST}"]
    assert "VCPU on host: 0, should be 2" in lines
    assert f"it writes: {GUEST} (project p, user u, no type) has 2 VCPU, 40 DISK_GB on host" in lines
    assert (
        lines[-1]
        == "to mend it: compute-node-agent audit --heal, which asks as soon as its waiting time is over, or without a "
        "question with --policy FILE "
        "and heal: [missing] and untyped: true in it"
    )
