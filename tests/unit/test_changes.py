"""What a plan changes, as people read it: provider by provider, and in one sentence."""

from collections.abc import Mapping
from io import StringIO

from agent.command.changes import Row, folded, in_order, rows, summary
from agent.command.host_tables import print_findings, print_shown
from agent.command.plan_tables import print_conversion, print_foreseen
from agent.command.screen import LONG, SHOWN_GUESTS, Screen
from agent.command.wording import alike
from agent.sync.forms import ConversionForm, MoveForm, ObservedProviderForm
from reportclient.payload import InventoryForm

GUEST = "4a5f7e9c-0d27-4e43-8f6f-2a3b1c9d8e70"


def stock(total: int, *, reserved: int = 0, ratio: float = 1.0) -> InventoryForm:
    return {
        "total": total,
        "reserved": reserved,
        "min_unit": 1,
        "max_unit": total,
        "step_size": 1,
        "allocation_ratio": ratio,
    }


def provider(
    uuid: str, parent: str | None = "host", traits: tuple[str, ...] = (), used: int = 0, **stocks: InventoryForm
) -> ObservedProviderForm:
    return {
        "parent": parent,
        "inventories": stocks,
        "traits": list(traits),
        "aggregates": [],
        "uuid": uuid,
        "generation": 1,
        "usages": dict.fromkeys(stocks, used) if used else {},
    }


def moved(consumer: str = GUEST, to: str = "host_NUMA0") -> MoveForm:
    return {
        "consumer": consumer,
        "from_resource_provider": "host",
        "to_resource_provider": to,
        "moved_resources": {"VCPU": 2},
        "because": "pinned to CPUs 0-3 in cell 0",
    }


def plan(
    before: Mapping[str, ObservedProviderForm], after: Mapping[str, ObservedProviderForm], *moves: MoveForm
) -> ConversionForm:
    return {
        "digest": "d1",
        "operations": [{"operation": "ensure-traits", "names": ["CUSTOM_A"]}],
        "moves": list(moves),
        "instructions": [],
        "before": {"providers": dict(before), "allocations": {}},
        "after": {"providers": dict(after), "allocations": {}},
        "capacity": {},
        "requests": [],
        "names": {GUEST: "web-1"},
    }


BEFORE = {"host": provider("r", None, used=2, VCPU=stock(8)), "host_card": provider("c", VGPU=stock(4))}
AFTER = {
    "host": provider("r", None, ("CUSTOM_A",)),
    "host_NUMA0": provider("n", used=2, VCPU=stock(8, reserved=1, ratio=4.0)),
    "host_card": provider("c", "host_NUMA0", VGPU=stock(4)),
}


def told(data: ConversionForm, *, width: int = 120, whole: bool = False) -> str:
    out = StringIO()
    print_conversion(Screen(file=out, width=width, whole=whole), {**data})  # type: ignore[typeddict-item]
    return out.getvalue()


def test_each_provider_says_what_becomes_of_it() -> None:
    found = [(row.mark, row.depth, row.label, *row.stock, *row.traits) for row in rows(plan(BEFORE, AFTER))]

    assert found == [
        ("~", 0, "host", "VCPU 2/8 → gone", "+CUSTOM_A"),
        ("+", 1, "host_NUMA0", "VCPU 2/8 (1 reserved, ratio 4)"),
        (">", 2, "host_card", "was under host"),
    ]


def test_a_provider_that_goes_is_renamed_or_gets_other_terms_says_so() -> None:
    after = {"hall": provider("r", None, VCPU=stock(8, reserved=2))}

    found = [(row.mark, row.label, row.stock) for row in rows(plan(BEFORE | {"host": BEFORE["host"]}, after))]

    assert ("~", "hall", ("was called host", "VCPU 2/8 → 0/8 (reserved 0 → 2)")) in found
    assert ("-", "host_card", ("VGPU 0/4 → gone",)) in found


def test_of_many_traits_only_the_number_is_said() -> None:
    after = {"host": provider("r", None, tuple(f"CUSTOM_{n}" for n in range(9)))}

    (row,) = rows(plan({"host": provider("r", None, ("CUSTOM_OLD",))}, after))

    assert row.traits == ("+9 traits", "-CUSTOM_OLD")


def test_one_sentence_says_what_happens_to_the_tree_and_to_whom() -> None:
    assert summary(plan(BEFORE, AFTER, moved())) == (
        "1 provider made, 1 put under another parent, 1 changed; the accounting of 1 guest (web-1) is rewritten, "
        "and no guest is touched"
    )
    assert "no guest's accounting changes" in summary(plan(BEFORE, AFTER))
    assert summary(plan(AFTER, BEFORE)).startswith("1 put under another parent, 1 changed, 1 removed; ")
    assert summary({**plan(BEFORE, AFTER), "operations": []}) == "nothing to change"


def test_siblings_that_differ_by_name_alone_are_one_row_and_parents_are_not() -> None:
    def row(name: str, parent: str | None = "host") -> Row:
        return Row(names=(name,), depth=1, parent=parent, mark="+", stock=("VGPU 0/4",))

    several = [row("a"), row("b"), row("b_x", "b"), row("c"), row("d")]

    assert [one.names for one in folded(several)] == [("a", "c", "d"), ("b",), ("b_x",)]


def test_things_that_are_alike_are_named_as_far_as_there_are_few() -> None:
    assert alike(["a", "b", "c"]) == "a, b, c"
    assert alike(["a", "b", "c", "d"]) == "a, b … d (4 alike)"


def test_a_provider_whose_parent_is_not_there_counts_as_a_root() -> None:
    assert [*in_order({"b": "gone", "a": "b"})] == [("b", 0), ("a", 1)]


def test_a_guest_has_its_name_its_uuid_what_goes_where_and_the_evidence() -> None:
    text = told(plan(BEFORE, AFTER, moved()))

    assert f"web-1 {GUEST}" in text
    assert "2 VCPU" in text
    assert "host → host_NUMA0  pinned to CPUs 0-3 in cell 0" in text
    assert text.rstrip().endswith("to carry out exactly this, add --apply --digest d1")


def test_of_many_guests_the_sums_are_told_and_all_shows_each() -> None:
    guests = [f"{number:08d}-0d27-4e43-8f6f-2a3b1c9d8e70" for number in range(SHOWN_GUESTS + 1)]
    data = plan(BEFORE, AFTER, *map(moved, guests))

    assert guests[0] not in told(data)
    assert f"{2 * len(guests)} VCPU" in told(data)
    assert f"{len(guests)} guests" in told(data)
    assert all(guest in told(data, whole=True) for guest in guests)


def test_a_long_tree_shows_what_changes_and_all_shows_the_rest() -> None:
    quiet = {f"host_{number:02d}": provider(f"q{number}", VGPU=stock(4)) for number in range(LONG)}
    data = plan(BEFORE | quiet, AFTER | quiet)

    assert "host_07" not in told(data)
    assert f"{LONG} providers unchanged" in told(data)
    assert "host_07" in told(data, whole=True)


def test_a_plan_begins_with_its_sentence() -> None:
    out = StringIO()

    print_foreseen(Screen(file=out, width=120), plan(BEFORE, AFTER, moved()))  # type: ignore[arg-type]

    assert out.getvalue().startswith("1 provider made")
    assert "make trait CUSTOM_A" in out.getvalue()


def test_what_placement_holds_is_told_by_guest() -> None:
    out = StringIO()
    held = {GUEST: {"host": {"VCPU": 2}}}

    print_shown(Screen(file=out, width=120), {"providers": BEFORE, "allocations": held, "names": {GUEST: "web-1"}})

    assert f"1 consumer with allocations\nweb-1 {GUEST}\n  2 VCPU on host" in out.getvalue()


def test_findings_begin_with_their_sums_and_end_with_the_command_that_mends_them() -> None:
    out = StringIO()

    print_findings(
        Screen(file=out, width=160),
        {
            "findings": [
                {
                    "kind": "missing",
                    "consumer": GUEST,
                    "provider": "host",
                    "resource_class": "VCPU",
                    "expected": 2,
                    "actual": 0,
                    "seen": "the hypervisor runs it",
                    "since": "2026-11-23T20:00:00+00:00",
                    "repair": "add what is missing",
                    "writes": {
                        GUEST: {
                            "project": "p",
                            "user": "u",
                            "type": None,
                            "allocations": {"host": {"VCPU": 2, "DISK_GB": 40}},
                        }
                    },
                    "safe": True,
                    "outcome": "reported",
                    "why": "not done: no --policy allows it",
                }
            ],
            "young": [],
            "light": False,
            "nova": "",
            "names": {GUEST: "web-1"},
        },
    )

    lines = [line.strip() for line in out.getvalue().splitlines()]
    assert lines[:2] == ["1 missing: about 1 consumer", f"web-1 {GUEST}"]
    assert "VCPU on host: 0, should be 2" in lines
    assert f"it writes: {GUEST} (project p, user u, no type) has 2 VCPU, 40 DISK_GB on host" in lines
    assert lines[-1] == "to mend it: compute-node-agent audit --heal --policy FILE, with heal: [missing]"
