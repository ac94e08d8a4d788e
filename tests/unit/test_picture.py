"""What --picture draws: boxes that hold what they must, links to where guests go, and a page that needs nothing."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest

from agent.audit.decide.findings import Finding, Kind
from agent.audit.heal import Healed
from agent.command.picture.boxes import GAP, Box, Chip, place_boxes
from agent.command.picture.node_boxes import of_pass, of_sums
from agent.command.picture.page import page, write_picture
from agent.command.picture.subjects import Subject, of_audit, of_conversion, of_shown
from agent.command.plan_results import Ended, Forecast, NodesPass, ShownPlan, ShownTree, shown_plan
from agent.command.results import AuditedFinding, NodeSums, ShownNodes
from agent.errors import ConfigError
from agent.sync.outcome import Status
from reportclient.allocations import Allocation, Move, Observed
from reportclient.plan import EnsureTraits, Operation, Plan, SetInventories
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


def finding(**fields: Any) -> AuditedFinding:
    usual = {"kind": Kind.WRONG_AMOUNT, "consumer": GUEST, "provider": "host", "resource_class": "VCPU", "expected": 2}
    told = Finding(**{**usual, "actual": 4, "seen": "4 VCPU", **fields})
    return AuditedFinding(finding=told, since="", writes={}, outcome=Healed.REPORTED, why="a person must decide")


def ending(node: str, outcome: Status, *steps: Operation, why: str = "") -> Ended:
    plan = shown_plan(Plan(steps), ObservedTree())
    return Ended(node=node, outcome=outcome, notes=(why,) if why else (), plan=plan)


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
            if after.y > before.y:  # it had no room beside the other
                assert before.x + before.width + after.width > outer.x + outer.width - 24


def test_boxes_of_a_row_fill_it_with_one_gap_between_them() -> None:
    box = Box(name="host", label="host", mark=" ", below=tuple(Box(name=n, label=n, mark=" ") for n in "abc"))

    row = place_boxes(box, 0, 0, 2000).below

    assert {round(after.x - before.x - before.width, 3) for before, after in pairwise(row)} == {GAP}
    assert round(row[-1].x + row[-1].width + row[0].x, 3) == 2000


def test_as_many_boxes_stand_in_a_row_as_there_is_room_for_and_at_least_one() -> None:
    box = Box(name="host", label="host", mark=" ", below=tuple(Box(name=n, label=n, mark=" ") for n in "abc"))

    def rows(width: float) -> list[int]:
        ys = [one.y for one in place_boxes(box, 0, 0, width).below]
        return [ys.count(y) for y in sorted(set(ys))]

    assert (rows(2000), rows(400), rows(50)) == ([3], [2, 1], [1, 1, 1])


def test_a_text_without_room_is_cut_off_in_the_drawing_alone() -> None:
    chip = Chip(GUEST, "a-guest-with-a-name-of-forty-letters-xxxx: 1000 kbit/s out", moves=True)

    placed = place_boxes(
        Box(name="a_name_of_forty_letters_that_has_no_blanks", label="b" * 60, mark=" ", chips=(chip,)), 0, 0, 200
    )

    [drawn] = placed.chips
    assert drawn.text == chip.text
    assert drawn.shown.endswith("…")
    assert drawn.width <= 200


def test_providers_alike_are_one_box_unless_a_guest_is_there() -> None:
    cards = [seen(f"host_card{n}", f"u{n}", VCPU=VCPU) for n in range(5)]
    shown = Observed(ObservedTree((*AFTER.tree, *cards)), AFTER.allocations)

    [(_, root)] = of_shown(ShownTree(shown, {})).trees

    assert [one.label for one in root.below] == ["NUMA0", "card0, card1 … card4 (5 alike)"]


def test_an_audit_marks_the_guests_and_providers_with_findings() -> None:
    subject = of_audit([finding(), finding(consumer=None, provider="host_NUMA0")], AFTER, {GUEST: "db-primary"})

    [(_, root)] = subject.trees
    assert subject.sentence == "2 findings, 1 consumer"
    assert of_audit([finding(consumer=None)], AFTER, {}).sentence == "1 finding"
    assert [chip.wrong for chip in root.chips] == [True]
    assert [one.mark for one in (root, *root.below)] == [" ", "!"]
    assert subject.tables[0].rows[0][:5] == (f"db-primary ({GUEST})", "wrong-amount", "VCPU on host", "4", "2")


def test_a_pass_over_bare_metal_is_drawn_as_sums() -> None:
    made = ending("n1", Status.CREATED, SetInventories("u", "n1", {"CUSTOM_GOLD": Inventory(total=1)}))
    same, lost = ending("n2", Status.UNCHANGED), ending("n3", Status.FAILED, why="placement is gone")

    subject = of_pass(
        NodesPass((made, same, lost), {"created": 1, "unchanged": 1, "failed": 1}, True), "https://ironic"
    )

    [(_, root)] = subject.trees
    assert subject.sentence == "1 would be created, 1 unchanged, 1 failed"
    assert [(one.label, one.mark, one.lines) for one in root.below] == [
        ("would be created: 1 node", "+", ("CUSTOM_GOLD: 1 node",)),
        ("unchanged: 1 node", " ", ()),
        ("failed: 1 node", "!", ()),
    ]
    assert [row[0] for row in subject.tables[0].rows] == ["n1", "n3"]
    sums = of_sums(ShownNodes(NodeSums(3, 2, {"CUSTOM_GOLD": 2})), "https://ironic")
    assert [one.lines for one in sums.trees[0][1].below] == [("2 nodes",)]


@pytest.mark.parametrize(("count", "more"), [(500, ""), (503, ", and 3 more: --format json has all")])
def test_of_very_many_nodes_that_differ_the_first_are_in_the_table(count: int, more: str) -> None:
    nodes = tuple(ending(f"n{n}", Status.FAILED, why="gone") for n in range(count))

    [table] = of_pass(NodesPass(nodes, {"failed": count}, False), "https://ironic").tables

    assert (table.title, len(table.rows)) == (f"Nodes that do not stay as they are{more}", 500)


@pytest.mark.parametrize(("before", "after"), [(tree(), AFTER), (BEFORE, tree())])
def test_a_plan_that_makes_or_ends_a_tree_is_that_of_its_root(before: Observed, after: Observed) -> None:
    assert of_conversion(conversion(before=before, after=after), ()).node == "host"


def test_a_page_needs_nothing_from_elsewhere_and_escapes_what_guests_are_called() -> None:
    text = page("plan of host", [of_conversion(conversion("<script>x</script>\x07"), ("<b>no</b>",))])

    assert "default-src 'none'" in text
    assert not re.search(r"<script|<b>no|(?:src|href)=|url\(|@import|\x07", text)
    assert "&lt;script&gt;" in text
    assert text.index("Refused: nothing would be written") < text.index("<svg")
    assert "d1g357" in text


def test_a_picture_of_several_nodes_is_no_single_drawing(tmp_path: Path) -> None:
    one: Subject = of_conversion(conversion(), ())

    with pytest.raises(ConfigError, match=r"shows one node, and there are 2: name a file \.html"):
        write_picture(tmp_path / "two.svg", "plan", [one, one])
    write_picture(tmp_path / "two.html", "plan", [one, one])
    write_picture(tmp_path / "one.svg", "plan", [one])

    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.svg", "two.html"]
    drawing = fromstring((tmp_path / "one.svg").read_text())
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
    assert ":has(.g0:is(:hover,:focus))" in (drawing.findtext("{http://www.w3.org/2000/svg}style") or "")


def test_a_picture_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot write the picture .*: No such file or directory"):
        write_picture(tmp_path / "gone" / "a.html", "plan", [of_conversion(conversion(), ())])
