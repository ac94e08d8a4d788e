"""What a person reads of what a verb found."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from agent.command.carry_out import _print_table
from agent.command.host_tables import print_adoption, print_usages
from agent.command.node_tables import print_pass
from agent.command.outcomes import ended, print_left
from agent.command.plan_results import Ended, Forecast, Foreseen, NodesPass, ShownPlan, shown_plan
from agent.command.plan_tables import print_conversion
from agent.command.result import Report
from agent.command.results import Adoption, FoundRoot, Usages
from agent.command.screen import Screen
from agent.sync.outcome import Status
from beds.nodes_world import World, uuid_of, world
from reportclient.allocations import Observed
from reportclient.plan import Delete, Plan
from reportclient.tree import ObservedProvider, ObservedTree, Provider

GONE = Plan((Delete("u", "host"),))
STOOD = ObservedTree((ObservedProvider(uuid="u", generation=1, provider=Provider(name="host")),))


def test_a_table_in_a_pipe_has_no_blanks_at_the_ends_of_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    data = Usages("p", None, {"INSTANCE": {"VCPU": 1, "MEMORY_MB": 64}})

    _print_table(Report(data=data, table=print_usages), whole=False)

    lines = capsys.readouterr().out.split("\n")
    assert any("MEMORY_MB" in line for line in lines)
    assert lines == [line.rstrip() for line in lines]


def test_a_value_of_another_service_acts_on_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    found = FoundRoot(uuid="u", name="\x1b[2Jevil\n", named_alike=False, guests=0, providers=1)
    data = Adoption(node="host", guests=0, found=(found,), chosen=None, why="", path=Path("/etc/compute_id"))

    _print_table(Report(data=data, table=print_adoption), whole=False)

    assert r"\x1b[2Jevil\n" in capsys.readouterr().out


def left(outcome: Status, *notes: str) -> str:
    out = StringIO()
    data = Ended(node="host", outcome=outcome, notes=notes, plan=shown_plan(GONE, STOOD), dry_run=False)
    print_left(Screen(file=out, width=200), data)
    return out.getvalue()


def test_a_retirement_that_is_refused_shows_no_plan() -> None:
    text = left(Status.UNSAFE, "2 VCPU on host are held")

    assert text.splitlines() == ["host: refused: nothing was written", "  2 VCPU on host are held"]


@pytest.mark.parametrize("outcome", [Status.UNCHANGED, Status.CHANGED])
def test_a_retirement_that_is_done_or_would_be_shows_its_plan_first(outcome: Status) -> None:
    first, *rest = left(outcome).splitlines()

    assert "host: " not in first
    assert rest[-1].startswith("host: ")


@pytest.mark.parametrize(
    ("approval", "words"),
    [
        pytest.param({}, "to carry out exactly this, add --apply --digest d1", id="a dry run"),
        pytest.param({"refused": True}, "reshape --apply would refuse this", id="a dry run that would be refused"),
        pytest.param({"approval": "approved"}, "approved: the service's unit carries it out before", id="approved"),
        pytest.param({"approval": "refused"}, "not approved, nothing will be carried out", id="another plan"),
        pytest.param(
            {"approval": "not-needed"}, "no allocation has to move: the next pass does this", id="nobody moves"
        ),
    ],
)
def test_the_last_line_of_a_conversion_says_what_comes_next(approval: dict[str, Any], words: str) -> None:
    out = StringIO()
    nothing = Observed(ObservedTree())
    shown = Forecast(ShownPlan(GONE, nothing.tree, "d1", {}), nothing, nothing)
    data = Foreseen(
        node="host", outcome=Status.CHANGED, layout="devices", target="numa", notes=(), forecast=shown, **approval
    )

    print_conversion(Screen(file=out, width=200), data)

    assert out.getvalue().splitlines()[-1].startswith(f"digest d1: {words}")


def test_of_a_bare_metal_node_people_see_what_changes_and_why_without_our_marks() -> None:
    told: list[str] = []

    def take(one: World) -> None:
        outcomes = tuple(map(ended, one.sync().outcomes))
        print_pass(Screen(file=(out := StringIO()), width=200), NodesPass(outcomes, {}, dry_run=False))
        told.append(out.getvalue())

    with world() as one:
        one.nodes.classes = {1: "gold", 2: "gold"}
        take(one)
        one.nodes.ill, one.nodes.traits = {1}, ["CUSTOM_A"]
        take(one)
        del one.nodes.classes[2]
        take(one)
        take(one)

    assert f"{uuid_of(1)}  CUSTOM_GOLD 1 (reserved 0 → 1); +CUSTOM_A; reserved: in maintenance\n" in told[1]
    assert f"{uuid_of(2)}  +CUSTOM_A\n" in told[1]
    assert told[3].endswith(f"deleted:\n  {uuid_of(2)}  \n")
