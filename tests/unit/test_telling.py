"""What the service tells: alerts and dashboards speak of metrics that there are, and a status says how it is."""

import argparse
import json
import logging
import os
import re
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.command.service_verbs import status
from agent.errors import StateError
from agent.service.metrics import Metrics
from agent.service.reporting import Notifier, Reporter
from agent.service.rounds import RoundResult
from agent.service.status import ServiceProcess, ServiceStatus, SourceStatus, read_status, write_status
from agent.settings.read import keep_in
from agent.state.clock import probe_clock
from agent.sync.outcome import Condition
from beds.one_host import default_settings
from reportclient.allocations import Allocation
from reportclient.tree import Inventory, ObservedProvider, Provider

ROOT = Path(__file__).parents[2]
STATUS = ServiceStatus(process=ServiceProcess("1", 1, 0.0))


def names() -> set[str]:
    """All that can be asked for of what is told."""
    metrics = list(Metrics(lambda: STATUS).registry.collect())
    return {f"{metric.name}{end}" for metric in metrics for end in ("", "_total", "_sum", "_count", "_info")}


@pytest.mark.parametrize(
    "path", ["etc/prometheus/compute-node-agent.rules.yaml", "etc/grafana/compute-node-agent.json"]
)
def test_alerts_and_dashboard_speak_of_metrics_that_there_are(path: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    told = json.loads(text) if path.endswith("json") else yaml.safe_load(text)
    spoken = set(re.findall(r"compute_node_agent_\w+", text))

    assert told
    assert spoken <= names()


def test_a_status_says_how_the_service_is() -> None:
    assert (STATUS.sentence(), STATUS.is_ready) == ("starting", False)
    good = replace(STATUS.seen("host", "", 5.0), passes=2, last_pass_s=5.0, outcomes={"host": "unchanged"})
    assert (good.sentence(), good.is_ready) == ("up to date, 2 passes", True)
    ill = good.seen("placement", "no connection", 9.0)
    assert (ill.sentence().split(";")[0], ill.is_ready) == ("degraded: no connection", False)
    assert ill.seen("placement", "", 10.0).is_ready
    found = replace(good, outcomes={"host": "unsafe"}, findings={"orphaned": 2})
    assert found.sentence() == "unsafe, 2 passes; findings: 2 orphaned"


def asked_of(config: Path, *, strict: bool = False) -> argparse.Namespace:
    return argparse.Namespace(config_file=[config], config_dir=[], strict=strict)


def test_findings_end_a_strict_status_with_3(tmp_path: Path, write_config: Callable[..., Path]) -> None:
    now_s, config = time.time(), write_config(agent={"state_directory": tmp_path})
    process = ServiceProcess("1", os.getpid(), 0.0)
    well = replace(STATUS, process=process, passes=1, last_pass_s=now_s, written_s=now_s, findings={"missing": 1})
    write_status(tmp_path, well)

    assert [status(asked_of(config, strict=strict)).exit for strict in (False, True)] == [0, 3]
    assert next(iter(status(asked_of(config)).lines)) == "up to date, 1 pass; findings: 1 missing"
    write_status(tmp_path, replace(well, findings={"missing": 0}))
    assert status(asked_of(config, strict=True)).exit == 0


def test_a_clock_that_was_set_back_is_named_and_no_time_is_negative(
    tmp_path: Path, write_config: Callable[..., Path]
) -> None:
    then_s = time.time() + 3_000
    found = replace(
        STATUS, process=ServiceProcess("1", os.getpid(), 0.0), passes=1, last_pass_s=then_s, written_s=then_s
    )
    write_status(tmp_path, replace(found, sources={"host": SourceStatus(then_s, "")}))
    asked = asked_of(write_config(agent={"state_directory": tmp_path}))

    first, *more = status(asked).lines

    assert first.startswith("the clock is wrong, or was: status.json was written 3000 s ahead of it")
    assert not any("-" in line or "hangs" in line for line in more)
    assert any("3000 s ahead of this clock" in line for line in more)


@pytest.mark.parametrize("set_by_s", [3_600, 200, -200, -3_600])
def test_a_clock_that_was_set_since_the_last_status_is_named_and_the_service_does_not_hang(
    tmp_path: Path, write_config: Callable[..., Path], set_by_s: int
) -> None:
    noted = probe_clock()
    process = ServiceProcess("1", os.getpid(), 0.0, replace(noted, offset_s=noted.offset_s - set_by_s))
    then_s = time.time() - set_by_s - 10
    found = replace(STATUS, process=process, passes=1, last_pass_s=then_s, written_s=then_s)
    write_status(tmp_path, replace(found, sources={"host": SourceStatus(then_s, "")}))

    told = status(asked_of(write_config(agent={"state_directory": tmp_path})))
    first, *more = told.lines

    assert first.startswith(f"the clock of this host was set by {set_by_s:+d} s since the last status")
    assert (told.exit, first.endswith("up to date, 1 pass")) == (0, True)
    assert [line for line in more if "10 s ago" in line or "11 s ago" in line] == more[1:3]


def test_a_pass_that_was_refused_is_no_good_one() -> None:
    away = {"placement": SourceStatus(1.0, "no answer")}
    told = [
        replace(STATUS, outcomes={"h": one}, last_pass_s=1.0, sources=away).sentence() for one in ("unsafe", "changed")
    ]

    assert ["last completed pass" in told[0], "last good pass" in told[1]] == [True, True]


@pytest.mark.parametrize(
    ("age_s", "more", "late"),
    [
        pytest.param(200, {}, False, id="within three periods"),
        pytest.param(400, {}, True, id="a ready service that hangs"),
        pytest.param(400, {"interval_s": 200}, False, id="a long period"),
        pytest.param(400, {"waits_s": 120.0}, False, id="a wait that a server asked for"),
        pytest.param(400, {"last_pass_s": None}, False, id="a first pass, or one with a slow service"),
        pytest.param(2400, {"last_pass_s": None}, True, id="a degraded service that hangs"),
        pytest.param(-400, {}, True, id="written before the clock was set back"),
    ],
)
def test_an_old_status_is_told_by_its_age(age_s: float, more: dict[str, Any], late: bool) -> None:
    assert replace(STATUS, **{"last_pass_s": 1.0, "written_s": time.time() - age_s, **more}).is_late == late


def test_a_status_cannot_tell_systemd_anything_else(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(tmp_path / "ear"))
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "ear")})

        notifier.tell(STATUS="degraded: gone\nMAINPID=1")
        notifier.tell(READY=1, STATUS="up\nMAINPID=1")

        assert ear.recv(1000) == rb"STATUS=degraded: gone\nMAINPID=1"
        assert ear.recv(1000) == b"READY=1\nSTATUS=up" + rb"\nMAINPID=1"


def test_a_service_notes_when_it_wrote_and_how_long_it_waits(tmp_path: Path) -> None:
    reporter = Reporter(keep_in(default_settings(), tmp_path), Notifier())

    reporter.publish(30.0)

    told = read_status(tmp_path)
    assert (told.waits_s, told.age_s < 60) == (30.0, True)


def test_what_is_so_on_a_host_is_logged_once_while_it_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="agent.service.reporting")
    reporter = Reporter(keep_in(default_settings(), tmp_path), Notifier())
    held = Condition(kind="on-hold", text="0000:81:00.0 is held", provider="host_0000:81:00.0")
    refused = Condition(kind="unsafe", text="too much goes")

    for outcome, conditions in (
        ("unsafe", (held, refused)),
        ("unchanged", (held,)),
        ("unchanged", ()),
        ("changed", (held,)),
    ):
        reporter.done(RoundResult(outcomes={"host": outcome}, conditions={"host": conditions}), 0.0, again=False)

    assert [one.message for one in caplog.records if "condition" in one.message] == [
        f"condition{over} node=host kind=on-hold text=0000:81:00.0 is held" for over in ("", " is over", "")
    ]


def test_a_cluster_that_does_not_answer_is_logged_once_and_once_that_it_does_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reporter = Reporter(keep_in(default_settings(), tmp_path), Notifier())

    for storage in ("", "no answer", "no answer", "", ""):
        reporter.done(RoundResult(outcomes={"host": "unchanged"}, storage=storage), 1.0, again=False)

    assert [one.message for one in caplog.records if "DISK_GB" in one.message] == [
        "DISK_GB stays as it is in placement, and all else is reported reason=no answer",
        "the Ceph cluster answers again: DISK_GB is reported anew",
    ]


def test_a_storage_that_is_no_longer_configured_does_not_fail_the_service(tmp_path: Path) -> None:
    settings = keep_in(default_settings(), tmp_path)
    reporter = Reporter(settings, Notifier())
    taken = RoundResult(outcomes={"host": "unchanged"}, findings={}, storage="no answer")
    reporter.done(taken, 1.0, again=False)
    assert not reporter.status.is_ready

    reporter.reloaded(settings, "")
    reporter.done(replace(taken, storage=None), 1.0, again=False)

    assert reporter.status.is_ready
    assert reporter.status.sources.keys() == {"host", "placement", "own files", "configuration"}


def test_a_status_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_status(tmp_path, STATUS.seen("host", "gone", 5.0))

    assert read_status(tmp_path).sources == {"host": SourceStatus(None, "gone")}
    (tmp_path / "status.json").write_text("torn", encoding="utf-8")
    with pytest.raises(StateError, match="is not a status file of this version"):
        read_status(tmp_path)
    with pytest.raises(StateError, match="never ran with this state directory: start the service"):
        read_status(tmp_path / "elsewhere")


def test_each_user_of_the_host_may_read_the_status_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_status(tmp_path / "made", STATUS)
    finally:
        os.umask(before)

    assert (tmp_path / "made/status.json").stat().st_mode & 0o777 == 0o644
    assert [file.name for file in (tmp_path / "made").iterdir()] == ["status.json"]
    (tmp_path / "made/status.json.new").symlink_to("status.json")
    write_status(tmp_path / "made", replace(STATUS, passes=2))
    assert read_status(tmp_path / "made").passes == 2
    assert [file.name for file in (tmp_path / "made").iterdir()] == ["status.json"]


def test_a_status_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    write_status(tmp_path, STATUS)
    (tmp_path / "status.json.new").mkdir()

    with pytest.raises(StateError, match=r"cannot write .*status\.json"):
        write_status(tmp_path, STATUS.seen("host", "gone", 5.0))
    assert read_status(tmp_path).sources == {}


def test_without_systemd_nothing_is_told_and_the_watchdog_is_its_own_process_alone() -> None:
    assert Notifier({}).watchdog_s is None
    assert Notifier({"WATCHDOG_USEC": "3000000"}).watchdog_s == 3.0
    assert Notifier({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}).watchdog_s is None
    Notifier({"NOTIFY_SOCKET": "/nonexistent/socket"}).tell(READY=1, STATUS="up")


def test_metrics_tell_the_last_pass_in_which_no_node_failed() -> None:
    metrics = Metrics(lambda: STATUS)

    def told(metric: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(metric, labels)

    def of(name: str, provider: str) -> float | None:
        return told(f"openstack_placement_resource_{name}", hostname=provider, resourcetype="VCPU")

    vcpus = Inventory(total=8, reserved=1, allocation_ratio=4.0)
    assert told("compute_node_agent_findings", kind="orphaned") is None
    well = RoundResult(
        outcomes={"a": "changed"},
        findings={"orphaned": 2},
        providers=(
            ObservedProvider(uuid="u", generation=5, provider=Provider(name="host", inventories={"VCPU": vcpus})),
        ),
        allocations=(Allocation("guest", "host", "VCPU", 3),),
        slots={"small": 4},
    )
    metrics.passed(well, 1.0)
    metrics.passed(RoundResult(outcomes={"a": "unchanged", "b": "failed"}), 1.0)

    assert [of(name, "host") for name in ("total", "reserved", "allocation_ratio", "usage")] == [8, 1, 4.0, 3]
    assert of("generation", "host") == 5
    one = {"hostname": "host", "uuid": "guest", "resourcetype": "VCPU"}
    assert told("openstack_placement_resource_provider_allocations", **one) == 3
    assert told("compute_node_agent_slots", name="small") == 4
    assert told("compute_node_agent_findings", kind="orphaned") == 2
    assert told("compute_node_agent_findings", kind="missing") == 0

    metrics.passed(replace(well, findings={}, providers=(), slots={}), 1.0)

    assert told("compute_node_agent_findings", kind="orphaned") == 0
    assert of("total", "host") is told("compute_node_agent_slots", name="small") is None
    assert told("compute_node_agent_passes_total", outcome="changed") == 2


def test_a_service_manager_that_comes_back_is_told_again(tmp_path: Path) -> None:
    address = tmp_path / "notify"
    notifier = Notifier({"NOTIFY_SOCKET": str(address)})
    notifier.tell(STATUS="nobody listens")
    for text in ("one", "two"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(address))
            notifier.tell(STATUS=text)
            assert manager.recv(100) == f"STATUS={text}".encode()
        address.unlink()


@pytest.mark.parametrize(
    "wrong",
    [
        *({"sources": []}, {"outcomes": {"host": 1}}, {"pid": "1"}, {"format": 2}, {"notes": [{}]}, {"took_s": 1e300}),
        *({"sources": {"host": {}}}, {"last_pass_s": "x"}, {"findings": {"orphaned": None}}),
    ],
    ids=str,
)
def test_a_status_of_another_form_is_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    write_status(tmp_path, STATUS)
    whole = json.loads((tmp_path / "status.json").read_text())
    assert read_status(tmp_path) == STATUS
    (tmp_path / "status.json").write_text(json.dumps({**whole, **wrong}))

    with pytest.raises(StateError, match="is not a status file of this version"):
        read_status(tmp_path)


def test_a_condition_is_a_metric_until_a_pass_that_did_not_fail_ends_it(tmp_path: Path) -> None:
    reporter = Reporter(keep_in(default_settings(), tmp_path), Notifier())
    metrics = Metrics(lambda: reporter.status)
    lost = {"host": (Condition(kind="lost-root", text="placement had it"),)}

    for outcome, conditions, told in (("unsafe", lost, 1), ("failed", {}, 1), ("unchanged", {"host": ()}, None)):
        taken = RoundResult(outcomes={"host": outcome, "pool": "unchanged"}, conditions=conditions)
        reporter.done(taken, 1.0, again=False)

        found = metrics.registry.get_sample_value(
            "compute_node_agent_conditions", {"kind": "lost-root", "text": "placement had it"}
        )
        assert found == told
