"""What --picture draws: boxes that hold what they must, links to where guests go, and a page that needs nothing."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest

from agent.audit.decide.findings import Finding, Kind
from agent.command.picture.boxes import GAP, Box, Chip, place_boxes
from agent.command.picture.drawing import COLOURS, draw
from agent.command.picture.page import page, write_picture
from agent.command.picture.subjects import Subject, of_audit, of_conversion, of_shown
from agent.command.plan_results import Forecast, ShownPlan, ShownTree
from agent.errors import ConfigError
from reportclient.allocations import Allocation, Move, Observed
from reportclient.plan import EnsureTraits, Plan
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
    return Forecast(ShownPlan(PLAN, before.tree, "d1g357", {GUEST: name}), before, after)


def every(root: Box) -> Sequence[Box]:
    return tuple(root.every())


def test_what_is_in_a_box_lies_inside_it_and_apart_from_its_siblings() -> None:
    leaves = tuple(Box(name=f"l{n}", label=f"l{n}", mark=" ", lines=("VCPU 0/8",)) for n in range(7))
    chips = tuple(Chip(f"g{n}", f"guest-{n}: 2 VCPU", moves=False) for n in range(9))
    cells = tuple(Box(name=f"c{n}", label=f"c{n}", mark="+", below=leaves, chips=chips) for n in range(3))
    root = place_boxes(Box(name="host", label="host", mark=" ", below=cells), 0, 0, 700)

    for outer in every(root):
        for inner in outer.below:
            assert outer.x < inner.x
            assert inner.x + inner.width < outer.x + outer.width
            assert outer.y < inner.y
            assert inner.y + inner.height < outer.y + outer.height
        for one, other in zip(outer.below, outer.below[1:], strict=False):
            assert other.x >= one.x + one.width or other.y >= one.y + one.height
        for chip in outer.chips:
            assert chip.x + chip.width <= outer.x + outer.width
            assert chip.y + 19 <= outer.y + outer.height
        for before, after in zip(outer.chips, outer.chips[1:], strict=False):
            assert after.x > before.x + before.width or after.y > before.y + 19


@pytest.mark.parametrize(
    ("holding", "least"),
    [
        pytest.param({}, 176, id="stock"),
        pytest.param({"chips": (Chip(GUEST, "web-1: 2 VCPU", moves=False),)}, 280, id="guests"),
        pytest.param({"below": (Box(name="x", label="x", mark=" "),)}, 300, id="boxes"),
    ],
)
def test_as_many_boxes_stand_in_a_row_as_there_is_room_for_and_at_least_one(
    holding: dict[str, Any], least: float
) -> None:
    """The room that the one needs which holds most."""
    a, b, c = (Box(name=name, label=name, mark=" ") for name in "abc")
    box = Box(name="host", label="host", mark=" ", below=(a, replace(b, **holding), c))

    def rows(inner: float) -> list[int]:
        ys = [one.y for one in place_boxes(box, 0, 0, inner + 16).below]
        return [ys.count(y) for y in sorted(set(ys))]

    assert (rows(2000), rows(2 * least + GAP), rows(2 * least + GAP - 1)) == ([3], [2, 1], [1, 1, 1])
    assert rows(34) == [1, 1, 1]


def test_chips_that_just_fit_stand_side_by_side_and_a_longer_one_below() -> None:
    texts = ("a" * 20, "b" * 20, "c" * 21)
    chips = tuple(Chip(GUEST, text, moves=False) for text in texts)

    placed = place_boxes(Box(name="host", label="host", mark=" ", chips=chips), 0, 0, 16 + 157 + 4 + 157).chips

    assert [(one.x, one.y, one.width, one.shown) for one in placed] == [
        (8, 29, 157, ""),
        (169, 29, 157, ""),
        (8, 52, pytest.approx(163.95), ""),
    ]


def test_a_text_without_room_is_cut_off_in_the_drawing_and_a_name_is_broken() -> None:
    chips = tuple(Chip(GUEST, text, moves=True) for text in ("a" * 23, "a" * 24))

    placed = place_boxes(Box(name="b", label="b" * 60, mark=" ", lines=("VCPU 0/8",), chips=chips), 0, 0, 200)

    assert placed.head == ("b" * 26, "b" * 26, "b" * 8)
    assert [(one.text, one.shown) for one in placed.chips] == [("a" * 23, ""), ("a" * 24, "a" * 22 + "…")]
    assert placed.chips[0].y == 8 + 4 * 17 + 4


def test_a_text_is_broken_between_words_and_inside_a_long_one() -> None:
    placed = place_boxes(Box(name="b", label="abcdefghijklmnop to be or abcdefghijk lm", mark=" "), 0, 0, 10)

    assert placed.head == ("abcdefgh", "ijklmnop", "to be or", "abcdefgh", "ijk lm")


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [(74, "drawing"), (75, "drawing tall"), (153, "drawing tall"), (154, "drawing tall long")],
)
def test_a_drawing_that_is_tall_or_longer_than_a_sheet_says_so(lines: int, kinds: str) -> None:
    root = Box(name="host", label="host", mark=" ", lines=("VCPU 0/8",) * lines)

    drawing = fromstring(draw(Subject(node="host", trees=(("in placement", root),)), {}))

    assert (drawing.get("class"), [one.get("width") for one in drawing.iter("rect")]) == (kinds, ["1340"])


def test_providers_alike_are_one_box_unless_a_guest_or_another_one_is_there() -> None:
    cards = [seen(f"host_card{n}", f"u{n}", VCPU=VCPU) for n in range(5)]
    cells = [seen(f"host_cell{n}", f"c{n}", FPGA=DISK) for n in range(2)]
    used = [seen(f"host_used{n}", f"v{n}", VCPU=VCPU) for n in range(2)]
    inner = [seen(f"host_cell{n}_pf", f"p{n}", f"host_cell{n}", VGPU=DISK) for n in range(2)]
    shown = tree(seen("host", "r", None), *cards, *cells, *used, *inner, host_used0={"VCPU": 2}, host_used1={"VCPU": 2})

    [(_, root)] = of_shown(ShownTree(shown, {})).trees

    assert [one.label for one in root.below] == ["card0, card1 … card4 (5 alike)", "cell0", "cell1", "used0", "used1"]


def test_an_audit_marks_the_guests_and_providers_with_findings() -> None:
    of_guest = Finding(kind=Kind.WRONG_AMOUNT, consumer=GUEST, provider="host", seen="4 VCPU")
    of_cell = Finding(kind=Kind.WRONG_AMOUNT, consumer=None, provider="host_NUMA0", seen="nothing")

    subject = of_audit([of_guest, of_cell], AFTER, {GUEST: "db-primary"})

    [(title, root)] = subject.trees
    assert (title, subject.node, subject.names) == ("in placement", "host", {GUEST: "db-primary"})
    assert [(chip.wrong, chip.moves) for chip in root.chips] == [(True, False)]
    assert [one.mark for one in (root, *root.below)] == [" ", "!"]


def test_a_tree_in_placement_is_shown_with_what_consumers_have() -> None:
    rows = (Allocation(OTHER, "host_NUMA0", "VCPU", 1), *AFTER.allocations)

    subject = of_shown(ShownTree(replace(AFTER, allocations=rows), {GUEST: "db-primary"}))

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


def test_what_comes_from_another_tree_or_goes_to_one_has_no_link() -> None:
    (move,) = PLAN.moves
    data = conversion()
    coming, going = replace(move, from_provider="pool"), replace(move, to_provider="pool")
    plan = replace(PLAN, moves=(coming, going, replace(move, consumer="a"), move))

    subject = of_conversion(replace(data, shown=replace(data.shown, plan=plan, names=None)), ())

    assert subject.names == {}
    assert page("plan", [subject]).count('class="link ') == 1


def test_a_page_needs_nothing_from_elsewhere_and_escapes_what_guests_are_called() -> None:
    drawn = of_conversion(conversion("<script>x</script>\x07"), ("<b>no</b>",))
    text = page("plan of host", [drawn], "<script>y</script>\x07\ndigest d1g357")

    assert "default-src 'none'" in text
    assert not re.search(r"<script|<b>no|(?:src|href)=|url\(|@import|\x07", text)
    assert "&lt;script&gt;" in text
    assert text.index("Refused: nothing would be written") < text.index("<svg")
    assert "\ndigest d1g357" in text


def test_a_picture_of_several_nodes_is_no_single_drawing(tmp_path: Path) -> None:
    one: Subject = of_conversion(conversion(), ())

    with pytest.raises(ConfigError, match=r"shows one node, and there are 2: name a file \.html"):
        write_picture(tmp_path / "two.svg", "plan", [one, one])
    write_picture(tmp_path / "two.html", "plan", [one, one])
    write_picture(tmp_path / "one.svg", "plan", [one])

    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.svg", "two.html"]
    drawing = fromstring((tmp_path / "one.svg").read_text())
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
    style = drawing.findtext("{http://www.w3.org/2000/svg}style") or ""
    assert ":has(.g0:is(:hover,:focus))" in style
    assert {*re.findall(r"\.c(\d+)\{", style)} == {*map(str, range(COLOURS))}


def test_a_picture_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot write the picture .*: No such file or directory"):
        write_picture(tmp_path / "gone" / "a.html", "plan", [of_conversion(conversion(), ())])
