"""Waits outlast a process: a clock that was set makes nothing older, and after another boot all waits begin anew."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from agent.state.audit_memory import AuditMemory, Sighting, read_memory, write_memory
from agent.state.clock import Clock, probe_clock
from agent.state.node_records import KnownNode, NodesMemory, read_nodes, write_nodes
from reportclient.tree import ObservedProvider, Provider

UUID = "3f0c6d1e-8f0b-4a52-9c57-0d9e8a7b6c51"
NOW = Clock("this boot", 1000.0)


@pytest.mark.parametrize(
    ("noted", "since_s"),
    [
        pytest.param(NOW, 50.0, id="nobody set it"),
        pytest.param(replace(NOW, offset_s=999.0), 50.0, id="kept right by a second"),
        pytest.param(replace(NOW, offset_s=400.0), 650.0, id="set ahead by ten minutes"),
        pytest.param(replace(NOW, offset_s=1600.0), -550.0, id="set back by ten minutes"),
        pytest.param(replace(NOW, boot="another"), None, id="another boot"),
    ],
)
def test_a_moment_is_put_right_when_the_clock_was_set(noted: Clock, since_s: float | None) -> None:
    assert NOW.since(50.0, noted) == since_s


def test_two_looks_at_this_host_s_clock_agree() -> None:
    one, other = probe_clock(), probe_clock()

    assert one.boot == other.boot
    assert one.offset_s == pytest.approx(other.offset_s, abs=1)


def test_a_clock_goes_on_whatever_is_done_to_the_wall_clock() -> None:
    clock = replace(probe_clock(), offset_s=1000.0)

    assert clock.now_s() == pytest.approx(1000.0 + time.clock_gettime(time.CLOCK_BOOTTIME), abs=1)


@pytest.fixture
def clock() -> Clock:
    """This host's clock as it was before somebody set it a day ahead."""
    return replace(probe_clock(), offset_s=probe_clock().offset_s - 86400)


def test_a_clock_set_ahead_by_a_day_does_not_end_the_wait_of_a_finding(clock: Clock, tmp_path: Path) -> None:
    memory = AuditMemory(where="there", clock=clock, sightings={"orphaned": Sighting(1000.0, 2)})
    write_memory(tmp_path, UUID, memory)

    assert read_memory(tmp_path, UUID, "there", clock=probe_clock()).sightings["orphaned"].first_s == pytest.approx(
        87400, abs=2
    )
    assert read_memory(tmp_path, UUID, "there", clock=clock) == memory


def test_after_another_boot_findings_are_seen_for_the_first_time(tmp_path: Path) -> None:
    seen = {"orphaned": Sighting(1000.0, 2)}
    write_memory(tmp_path, UUID, AuditMemory(where="there", clock=NOW, sightings=seen))

    assert read_memory(tmp_path, UUID, "there", clock=replace(NOW, boot="later")).sightings == {}


def test_a_clock_set_ahead_does_not_end_the_wait_for_a_node_that_is_gone(clock: Clock, tmp_path: Path) -> None:
    known = KnownNode(ObservedProvider(uuid=UUID, generation=1, provider=Provider(name=UUID)), 1000.0)
    write_nodes(tmp_path, NodesMemory(where="there", ironic="here", nodes={UUID: known}), clock=clock)

    assert read_nodes(tmp_path, "there", "here").nodes[UUID].gone_s == pytest.approx(87400, abs=2)
    later = read_nodes(tmp_path, "there", "here", clock=replace(NOW, boot="later"))
    assert later.nodes[UUID].gone_s is None
