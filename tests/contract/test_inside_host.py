"""What our driver reads and keeps inside nova-compute: surveys, events, nova's connection, settings; and its wheel."""

import ast
import copy
import importlib
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import libvirt
import pytest

import fakes
from agent.errors import ConfigError
from agent.settings.read import load_settings
from beds.inside import ROOT, Inside, MemoryTree
from drivers import INSIDE
from drivers.base import Survey
from drivers.errors import DiscoveryError, Vanished
from drivers.libvirt.connection import LiveConnection
from drivers.policy import Layout
from inside_nova.decide import AllocationsNeeded
from inside_nova.device_events import DeviceEvents
from inside_nova.host import Host, open_host
from inside_nova.kept_survey import KeptSurvey
from inside_nova.trees import COMPUTE_NODE

TOP = Path(__file__).parents[2]


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def surveys(*outcomes: Survey | Exception) -> Callable[[], Survey]:
    left: Iterator[Survey | Exception] = iter(outcomes)

    def survey() -> Survey:
        outcome = next(left)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return survey


ONE, TWO = (Survey(fakes.FACTS, compute_id=name) for name in ("one", "two"))


def test_a_survey_is_kept_until_its_time_is_over() -> None:
    clock = Clock()
    kept = KeptSurvey(surveys(ONE, TWO), 60, clock)

    assert [kept.get(fresh=False).compute_id for _ in range(3)] == ["one"] * 3
    clock.now_s = 60
    assert kept.get(fresh=False) == TWO


def test_an_event_outdates_a_survey() -> None:
    kept = KeptSurvey(surveys(ONE, TWO), 60, Clock())
    kept.get(fresh=False)

    kept.outdate()

    assert kept.get(fresh=False) == TWO


def test_an_event_during_a_survey_outdates_it() -> None:
    outcomes = surveys(ONE, TWO)

    def survey() -> Survey:
        found = outcomes()
        if found is ONE:
            kept.outdate()
        return found

    kept = KeptSurvey(survey, 60, Clock())

    assert kept.get(fresh=False) == ONE
    assert kept.get(fresh=False) == TWO


def test_a_call_with_allocations_always_looks_again() -> None:
    kept = KeptSurvey(surveys(ONE, TWO), 60, Clock())
    kept.get(fresh=False)

    assert kept.get(fresh=True) == TWO


def test_a_host_that_cannot_be_read_keeps_its_last_survey_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    kept = KeptSurvey(surveys(ONE, DiscoveryError("away"), DiscoveryError("away"), TWO), 60, Clock())
    kept.get(fresh=False)
    for _ in range(2):
        kept.outdate()
        assert kept.get(fresh=False) == ONE

    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert kept.get(fresh=False) == TWO


def test_a_host_that_was_never_read_or_must_be_read_now_is_an_error() -> None:
    kept = KeptSurvey(surveys(DiscoveryError("away"), ONE, DiscoveryError("away")), 60, Clock())

    with pytest.raises(DiscoveryError):
        kept.get(fresh=False)
    kept.get(fresh=False)
    with pytest.raises(DiscoveryError):
        kept.get(fresh=True)


def test_what_vanishes_during_a_survey_is_looked_at_again() -> None:
    assert KeptSurvey(surveys(Vanished("gone"), ONE), 60, Clock()).get(fresh=False) == ONE


class FakeConnection:
    """The calls of a ``virConnect`` that registers callbacks."""

    def __init__(self, *, silent: bool = False, name: str = "one.example.org") -> None:
        self.callbacks: dict[int, Callable[..., None]] = {}
        self.silent, self.name = silent, name

    def nodeDeviceEventRegisterAny(self, _device: None, kind: int, callback: Callable[..., None], _: None) -> int:  # noqa: N802
        if self.silent:
            raise libvirt.libvirtError("no events here")
        self.callbacks[kind] = callback
        return kind

    def nodeDeviceEventDeregisterAny(self, number: int) -> None:  # noqa: N802
        del self.callbacks[number]

    def getHostname(self) -> str:  # noqa: N802
        return self.name

    def getInfo(self) -> list[int]:  # noqa: N802
        return [0, 9000]


def test_events_of_devices_are_heard_on_the_owner_s_present_connection() -> None:
    changes: list[int] = []
    first, second = FakeConnection(), FakeConnection()
    lent = [first]
    events = DeviceEvents(lambda: lent[-1], lambda: changes.append(1))
    events.listen()
    events.listen()
    before = len(changes)
    assert set(first.callbacks) == {
        libvirt.VIR_NODE_DEVICE_EVENT_ID_LIFECYCLE, libvirt.VIR_NODE_DEVICE_EVENT_ID_UPDATE,
    }  # fmt: skip

    for callback in list(first.callbacks.values()):
        callback(first, None, 0, 0, None)
    assert len(changes) == before + 2

    lent.append(second)
    events.listen()
    assert (len(first.callbacks), len(second.callbacks), len(changes)) == (0, 2, before + 3)

    events.close()
    assert not second.callbacks


def test_a_connection_without_events_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    connection = FakeConnection(silent=True)
    events = DeviceEvents(lambda: connection, lambda: None)

    events.listen()
    events.listen()

    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_borrowed_connection_is_asked_and_no_other_is_opened() -> None:
    lent = [FakeConnection()]
    connection = LiveConnection("nowhere:///", borrow=lambda: lent[-1])

    assert connection.hostname() == "one.example.org"
    lent.append(FakeConnection(name="two.example.org"))
    assert connection.hostname() == "one.example.org"
    connection.memory_mib()  # the next question notices the new connection
    assert connection.hostname() == "two.example.org"


def host(inside: Inside, connection: FakeConnection, clock: Callable[[], float] = time.monotonic) -> Host:
    return Host(inside.driver("devices"), inside.policy("devices"), 60, lambda: connection, clock=clock)


def test_a_host_changes_nova_s_tree_and_asks_for_allocations_only_at_its_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inside = Inside("full-guest", MemoryTree("full-guest", ROOT))
    inside.call("flat")
    inside.allocate("446773c1-567b-485b-9bc7-596961fe33b5", {"full-guest": {"SRIOV_NET_VF": 1}})
    caplog.set_level(logging.INFO)
    inside_nova = host(inside, FakeConnection())

    with pytest.raises(AllocationsNeeded):
        inside_nova.update(inside.tree, "full-guest", None)
    inside_nova.update(inside.tree, "full-guest", inside.allocations)
    inside_nova.update(inside.tree, "full-guest", None)

    assert inside.tree.exists("full-guest_0000:81:00.0")
    assert sum("an allocation is to move" in record.message for record in caplog.records) == 1


def test_after_a_conflict_at_its_start_nova_is_asked_for_allocations_again() -> None:
    """nova begins again with the tree as placement has it, and without allocations."""
    inside = Inside("full-guest", MemoryTree("full-guest", ROOT))
    inside.call("flat")
    inside.allocate("446773c1-567b-485b-9bc7-596961fe33b5", {"full-guest": {"SRIOV_NET_VF": 1}})
    before, clock = copy.deepcopy(inside.tree), Clock()
    inside_nova = host(inside, FakeConnection(), clock)
    with pytest.raises(AllocationsNeeded):
        inside_nova.update(inside.tree, "full-guest", None)
    inside_nova.update(inside.tree, "full-guest", copy.deepcopy(inside.allocations))

    inside.tree = copy.deepcopy(before)  # nothing of it came to placement
    clock.now_s = 5
    with pytest.raises(AllocationsNeeded):
        inside_nova.update(inside.tree, "full-guest", None)
    inside_nova.update(inside.tree, "full-guest", inside.allocations)
    assert inside.tree.exists("full-guest_0000:81:00.0")


def test_stock_that_stays_without_its_card_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    inside = Inside("full-guest", MemoryTree("full-guest", ROOT))
    inside_nova = host(inside, FakeConnection())
    inside_nova.update(inside.tree, "full-guest", None)
    extra = inside.tree.new_child("full-guest_0000:99:00.0", "full-guest", uuid="22222222-2222-2222-2222-222222222222")
    inside.tree.update_inventory(extra, inside.tree.data("full-guest_0000:81:00.0").inventory)
    inside.tree.update_traits(extra, inside.tree.data("full-guest_0000:81:00.0").traits)

    for _ in range(2):
        inside_nova.update(inside.tree, "full-guest", None)

    (told,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "SRIOV_NET_VF of full-guest_0000:99:00.0" in told


def test_an_odd_device_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    inside = Inside("missing-vf", MemoryTree("missing-vf", ROOT))
    inside_nova = host(inside, FakeConnection())

    for _ in range(2):
        inside_nova.update(inside.tree, "missing-vf", None)

    (told,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "0000:81:10.2 is undecided, as libvirt's PF 0000:81:00.0 has this VF" in told


@pytest.mark.parametrize(
    ("provider", "named"),
    [
        pytest.param("full-guest", COMPUTE_NODE, id="the root"),
        pytest.param("full-guest_0000:81:00.0", "full-guest_0000:81:00.0", id="a child of ours"),
    ],
)
def test_stock_of_nova_s_provider_configuration_is_left_to_nova(provider: str, named: str) -> None:
    inside = Inside("full-guest", MemoryTree("full-guest", ROOT))
    connection = FakeConnection()
    inside_nova = Host(
        inside.driver("devices"),
        inside.policy("devices"),
        60,
        lambda: connection,
        {named: frozenset({"CUSTOM_LICENSE"}), "another": frozenset({"VCPU"})},
    )
    inside_nova.update(inside.tree, "full-guest", None)
    before = inside.tree.data(provider)
    inside.tree.update_inventory(provider, {**before.inventory, "CUSTOM_LICENSE": {"total": 4}})

    inside_nova.update(inside.tree, "full-guest", None)

    assert inside.tree.data(provider) == before


def test_a_call_that_nova_did_not_answer_is_not_the_start(caplog: pytest.LogCaptureFixture) -> None:
    inside = Inside("full-guest", MemoryTree("full-guest", ROOT))
    inside.call("devices")
    card = inside.tree.data("full-guest_0000:81:00.0")
    inside.tree.update_inventory(card.uuid, {name: {**one, "total": 9} for name, one in card.inventory.items()})
    inside_nova = host(inside, FakeConnection())

    with pytest.raises(AllocationsNeeded):
        inside_nova.update(inside.tree, "full-guest", None)
    inside_nova.update(inside.tree, "full-guest", None)

    assert inside.tree.data(card.uuid).inventory == card.inventory


def nova_conf(folder: Path, text: str) -> Path:
    path = folder / "nova.conf"
    path.write_text(f"[DEFAULT]\ncompute_driver = compute_node_agent.LibvirtDriver\n{text}")
    return path


def test_the_driver_and_the_agent_read_the_same_nova_conf_and_the_agent_only_audits(tmp_path: Path) -> None:
    path = nova_conf(tmp_path, "reserved_host_cpus = 1\n[libvirt]\nvirt_type = qemu\n")

    inside, beside = load_settings([path], driver="libvirt.LibvirtDriver"), load_settings([path])

    assert inside.policy == beside.policy
    assert (inside.hypervisor.driver, inside.role) == ("libvirt.LibvirtDriver", None)
    assert (beside.hypervisor.driver, beside.role) == (INSIDE, "audit")
    assert inside.policy.cpus.reserved == 1


@pytest.mark.parametrize("role", ["sole", "beside"])
def test_beside_the_driver_inside_nova_compute_no_other_role_than_audit_is_accepted(tmp_path: Path, role: str) -> None:
    with pytest.raises(ConfigError, match="role must be audit"):
        load_settings([nova_conf(tmp_path, f"[agent]\nrole = {role}\n")])


def test_each_layout_goes_with_nova_s_pci_tracker(tmp_path: Path) -> None:
    text = "[compute]\nlayout = {}\n[pci]\nreport_in_placement = true\n"

    for layout in get_args(Layout):
        open_host([str(nova_conf(tmp_path, text.format(layout)))], [], FakeConnection)


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(TOP / "tools"))
    return importlib.import_module("nova_driver")


def test_the_wheel_has_all_that_the_driver_imports_and_no_import_of_a_general_name(
    builder: Any, tmp_path: Path
) -> None:
    builder.stage(tmp_path / "staged")

    staged = tmp_path / "staged"
    files = list(staged.rglob("*.py"))
    assert staged / "nova/virt/compute_node_agent.py" in files
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                module = (node.module or "").split(".")
                assert module[0] not in builder.OURS, path
                if module[0] == builder.PREFIX:
                    there = staged.joinpath(*module)
                    assert there.is_dir() or there.with_suffix(".py").is_file(), (path, node.module)
    assert not (staged / builder.PREFIX / "agent/command").exists()


@pytest.mark.parametrize("text", ["import agent.errors\n", 'files("agent.sync")\n'])
def test_a_name_that_cannot_be_rewritten_stops_the_build(builder: Any, text: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        builder.rewritten(text)
