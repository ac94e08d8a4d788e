"""What --picture draws: boxes that hold what they must, links to where guests go, and a page that needs nothing."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agent.audit.decide.findings import Finding, Kind
from agent.command.changes import Forecast
from agent.command.picture.page import COLOURS, page, write_picture
from agent.command.picture.subjects import Box, of_conversion, of_standing
from agent.errors import ConfigError
from reportclient.allocations import Allocation, Move, Observed
from reportclient.plan import EnsureTraits, Plan
from reportclient.reserve import HOLD
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

GUEST = "4a5f7e9c-0d27-4e43-8f6f-2a3b1c9d8e70"
OTHER = "5b607fad-1e38-4f54-9070-3b4c2dae9f81"


VCPU = Inventory(total=8, allocation_ratio=4.0)
DISK = Inventory(total=90, reserved=2)


def seen(name: str, uuid: str, parent: str | None = "host", **stocks: Inventory) -> ObservedProvider:
    return ObservedProvider(uuid=uuid, generation=1, provider=Provider(name=name, parent=parent, inventories=stocks))


def tree(*providers: ObservedProvider, **held: dict[str, int]) -> Observed:
    """Providers, and what the guest has of each of them."""
    rows = tuple(Allocation(GUEST, name, kind, amount) for name, one in held.items() for kind, amount in one.items())
    return Observed(ObservedTree(providers), rows)


BEFORE = tree(seen("host", "r", None, VCPU=VCPU, DISK_GB=DISK), host={"VCPU": 2, "DISK_GB": 5})
AFTER = tree(
    seen("host", "r", None, DISK_GB=DISK),
    seen("host_NUMA0", "c", VCPU=replace(VCPU, reserved=1)),
    host={"DISK_GB": 5},
    host_NUMA0={"VCPU": 2},
)
PLAN = Plan(
    (EnsureTraits(("CUSTOM_A",)),),
    (
        Move(
            consumer=GUEST,
            from_provider="host",
            to_provider="host_NUMA0",
            moved_resources={"VCPU": 2},
            because="pinned to CPUs 0-3 in cell 0",
        ),
    ),
)


def conversion(name: str = "db-primary", before: Observed = BEFORE, after: Observed = AFTER) -> Forecast:
    """Of a root with one guest, whose VCPU goes to a new cell."""
    return Forecast(PLAN, before, after, {GUEST: name})


def every(root: Box) -> Sequence[Box]:
    return tuple(root.every())


def test_providers_alike_are_one_box_unless_a_guest_or_another_one_is_there() -> None:
    cards = [seen(f"host_card{n}", f"u{n}", VCPU=VCPU) for n in range(5)]
    cells = [seen(f"host_cell{n}", f"c{n}", FPGA=DISK) for n in range(2)]
    used = [seen(f"host_used{n}", f"v{n}", VCPU=VCPU) for n in range(2)]
    inner = [seen(f"host_cell{n}_pf", f"p{n}", f"host_cell{n}", VGPU=DISK) for n in range(2)]
    shown = tree(seen("host", "r", None), *cards, *cells, *used, *inner, host_used0={"VCPU": 2}, host_used1={"VCPU": 2})

    [(_, root)] = of_standing(shown, {}).trees

    assert [one.label for one in root.below] == ["card0, card1 … card4 (5 alike)", "cell0", "cell1", "used0", "used1"]


def test_what_a_person_holds_is_a_box_of_its_own_that_says_so() -> None:
    cards = [seen(f"host_card{n}", f"u{n}", VCPU=VCPU) for n in range(3)]
    traits = frozenset({f"{HOLD}CARD0"})
    cards[0] = replace(cards[0], provider=replace(cards[0].provider, traits=traits))

    [(_, root)] = of_standing(tree(seen("host", "r", None), *cards), {}).trees

    assert [(one.label, one.lines[0]) for one in root.below] == [
        ("card0", "on hold"),
        ("card1, card2", "VCPU 0/8 (ratio 4)"),
    ]


def test_an_audit_marks_the_guests_and_providers_with_findings() -> None:
    of_guest = Finding(kind=Kind.WRONG_AMOUNT, consumer=GUEST, provider="host", seen="4 VCPU")
    of_cell = Finding(kind=Kind.WRONG_AMOUNT, consumer=None, provider="host_NUMA0", seen="nothing")

    subject = of_standing(AFTER, {GUEST: "db-primary"}, [of_guest, of_cell])

    [(title, root)] = subject.trees
    assert (title, subject.node, subject.names) == ("in placement", "host", {GUEST: "db-primary"})
    assert [(chip.wrong, chip.moves) for chip in root.chips] == [(True, False)]
    assert [one.mark for one in (root, *root.below)] == [" ", "!"]


def test_a_tree_in_placement_is_shown_with_what_consumers_have() -> None:
    rows = (Allocation(OTHER, "host_NUMA0", "VCPU", 1), *AFTER.allocations)

    subject = of_standing(replace(AFTER, allocations=rows), {GUEST: "db-primary"})

    assert (subject.node, subject.names) == ("host", {GUEST: "db-primary"})
    [(_, root)] = subject.trees
    assert [[chip.text for chip in one.chips] for one in every(root)] == [
        ["db-primary: 5 GiB"],
        ["db-primary: 2 VCPU", "5b607fad: 1 VCPU"],
    ]
    assert [one.lines for one in every(root)] == [
        ("DISK_GB 5/90 (2 reserved)",),
        ("VCPU 3/8 (1 reserved, ratio 4)",),
    ]


@pytest.mark.parametrize(("before", "after"), [(tree(), AFTER), (BEFORE, tree())])
def test_a_plan_that_makes_or_ends_a_tree_is_that_of_its_root(before: Observed, after: Observed) -> None:
    assert of_conversion(conversion(before=before, after=after), ()).node == "host"


def test_what_a_guest_has_in_the_same_place_before_and_after_does_not_move() -> None:
    before, after = (
        replace(one, allocations=(*one.allocations, Allocation(GUEST, "card", "VF", 1))) for one in (BEFORE, AFTER)
    )
    card = seen("card", "d", VF=Inventory(total=4))
    trees = (replace(one, tree=ObservedTree((*one.tree.providers, card))) for one in (before, after))

    subject = of_conversion(conversion("db-primary", *trees), ())

    moves = [{one.name: [chip.moves for chip in one.chips] for one in every(root)} for _, root in subject.trees]
    assert moves == [{"host": [True], "card": [False]}, {"host": [True], "card": [False], "host_NUMA0": [True]}]


def test_a_page_needs_nothing_from_elsewhere_and_escapes_what_guests_are_called() -> None:
    drawn = of_conversion(conversion("<script>x</script>\x07"), ("<b>no</b>",))
    text = page("plan of host", [drawn], ["<script>y</script>\x07", "digest d1g357"])

    assert "default-src 'none'" in text
    assert not re.search(r"<script|<b>no|(?:src|href)=|url\(|@import|\x07", text)
    assert "&lt;script&gt;" in text
    assert text.index("Refused: nothing would be written") < text.index('<div class="box')
    assert "\ndigest d1g357" in text


def test_a_guest_has_one_number_and_colour_on_all_its_chips() -> None:
    text = page("plan", [of_conversion(conversion(), ())])

    chips = re.findall(r'class="chip g(\d+) c(\d+)( moves)?', text)
    assert chips == [("0", "0", " moves")] * 3
    assert ".g0:is(:hover,:focus)) .g0{" in text
    assert {*re.findall(r"\.c(\d+)\{", text)} == {*map(str, range(COLOURS))}


def test_a_picture_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot write the picture .*: No such file or directory"):
        write_picture(tmp_path / "gone" / "a.html", "plan", [of_conversion(conversion(), ())])
