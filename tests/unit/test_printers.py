"""What a person reads of what a verb found."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.bare_metal.node_pass import NodesOutcome
from agent.command.changes import Forecast
from agent.command.node_verbs import _pass_lines
from agent.command.shown import forecast_lines, outcome_lines
from agent.command.wording import columns
from agent.sync.outcome import Outcome, Status
from beds.nodes_world import World, uuid_of, world
from beds.one_host import RESHAPE, OneHost
from drivers.policy import DevicePolicy, MdevRule, Policy
from hardware import gpu, host, parent
from reportclient.plan import Delete, Plan
from reportclient.tree import ObservedProvider, ObservedTree, Provider

GONE = Plan((Delete("u", "host"),))
STOOD = ObservedTree((ObservedProvider(uuid="u", generation=1, provider=Provider(name="host")),))


def test_cells_of_a_column_begin_below_each_other_and_no_line_ends_with_blanks() -> None:
    assert columns([("MEMORY_MB", "64"), ("VCPU", "")], heads=("class", "used"), indent="  ") == [
        "  class      used",
        "  MEMORY_MB  64",
        "  VCPU",
    ]
    assert columns([], heads=("class", "used")) == []


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (Status.UNCHANGED, "this would be done"),
        (Status.CHANGED, "placement was brought up to date"),
        (Status.UNSAFE, "refused: nothing was written"),
    ],
)
def test_a_pass_shows_its_plan_then_how_it_ended_and_why(status: Status, words: str) -> None:
    first, *rest = outcome_lines(Outcome(node="host", status=status, plan=GONE, observed=STOOD, reasons=("a",)))

    assert "host: " not in first
    assert rest[-2:] == [f"host: {words}", "  a"]


def test_a_plan_that_nobody_agreed_to_is_not_shown_and_what_was_reserved_all_the_same_is_named() -> None:
    refused = Outcome(node="host", status=Status.OTHER_PLAN, plan=GONE, observed=STOOD)

    assert [*outcome_lines(refused)] == ["host: refused: nothing was written"]
    assert [*outcome_lines(replace(refused, reserving=GONE))] == ["host: refused: only reservations were written"]


def test_of_a_bare_metal_node_people_see_what_changes_and_why_without_our_marks() -> None:
    told: list[list[str]] = []

    def take(one: World) -> None:
        outcome = NodesOutcome(tuple(one.sync().outcomes), 0)
        found = dict.fromkeys((each.status for each in outcome.outcomes), 1)
        told.append([*_pass_lines(outcome, found, dry=False)])

    with world() as one:
        one.nodes.classes = {1: "gold", 2: "gold"}
        take(one)
        one.nodes.ill, one.nodes.traits = {1}, ["CUSTOM_A"]
        take(one)
        del one.nodes.classes[2]
        take(one)
        take(one)

    assert f"  {uuid_of(1)}  CUSTOM_GOLD 1 (reserved 0 → 1); +CUSTOM_A; reserved: in maintenance" in told[1]
    assert f"  {uuid_of(2)}  +CUSTOM_A" in told[1]
    assert told[3][-2:] == ["deleted:", f"  {uuid_of(2)}"]


def test_after_a_conversion_the_screen_shows_the_table_of_the_dry_run(tmp_path: Path) -> None:
    facts = host(gpu(), parents=(parent(gpu(), a=4),))
    one = OneHost(tmp_path, facts, Policy(layout="flat", devices=DevicePolicy(mdevs=(MdevRule(type="a"),))))
    one.sync()
    one.claim({"": {"VGPU": 1}})
    one.policy = replace(one.policy, layout="devices")
    draft = one.foresee(RESHAPE)
    shown = [*forecast_lines(Forecast.of(draft.plan, draft.observed, draft.way.allocations, None), whole=False)]

    lines = [*outcome_lines(one.reshape("devices"))]

    assert lines[: len(shown)] == shown
    assert "VGPU 1/4 → gone" in "".join(lines)
