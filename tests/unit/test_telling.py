"""What the service tells: alerts and dashboards speak of metrics that there are, and a status says how it is."""

import json
import os
import re
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.connect.senders import operation, served
from agent.errors import StateError
from agent.service.audits import Stock
from agent.service.metrics import Metrics
from agent.service.pass_result import RoundResult
from agent.service.reporting import Reporter
from agent.service.status import ServiceProcess, ServiceStatus, SourceStatus, read_status, write_status
from agent.service.systemd import Notifier
from agent.settings.read import keep_in
from agent.sync.outcome import Condition
from beds.one_host import default_settings
from configured import changed

ROOT = Path(__file__).parents[2]
STATUS = ServiceStatus(process=ServiceProcess("1", 1, 0.0))


def names() -> set[str]:
    """All that can be asked for of what is told."""
    metrics = list(Metrics().registry.collect())
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

        notifier.status("degraded: gone\nMAINPID=1")
        notifier.ready("up\nMAINPID=1")

        assert ear.recv(1000) == rb"STATUS=degraded: gone\nMAINPID=1"
        assert ear.recv(1000) == b"READY=1\nSTATUS=up" + rb"\nMAINPID=1"


def test_a_service_notes_when_it_wrote_and_how_long_it_waits(tmp_path: Path) -> None:
    reporter = Reporter(keep_in(default_settings(), tmp_path), Notifier())

    reporter.publish(30.0)

    told = read_status(tmp_path)
    assert (told.waits_s, told.age_s < 60) == (30.0, True)


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
    taken = RoundResult(
        outcomes={"host": "unchanged"}, notes=(), findings={}, desired={}, observed={}, storage="no answer"
    )
    reporter.done(taken, 1.0, again=False)
    assert not reporter.status.is_ready

    reporter.reloaded(settings, "")
    reporter.done(replace(taken, storage=None), 1.0, again=False)

    assert reporter.status.is_ready
    assert reporter.status.sources.keys() == {"host", "placement", "own files", "configuration"}


def test_metrics_go_into_the_file_that_a_reload_names(tmp_path: Path) -> None:
    settings = keep_in(default_settings(), tmp_path)
    reporter = Reporter(settings, Notifier())
    taken = RoundResult(outcomes={"host": "unchanged"})

    reporter.serve_metrics()
    for path in (None, tmp_path / "a.prom"):
        reporter.reloaded(changed(settings, metrics={"textfile": path}), "")
        reporter.operated("call", 0.1, True)
        reporter.done(taken, 1.0, again=False)
        reporter.failed(ValueError("no"))
        reporter.publish()
    reporter.reloaded(changed(settings, metrics={"textfile": tmp_path / "b.prom"}), "")
    reporter.publish()

    for name in ("a.prom", "b.prom"):
        assert 'compute_node_agent_passes_total{outcome="unchanged"} 2.0' in (tmp_path / name).read_text()


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
    Notifier({"NOTIFY_SOCKET": "/nonexistent/socket"}).ready("up")


def test_what_changes_is_told_and_what_is_gone_is_not() -> None:
    metrics = Metrics()

    def inventory(name: str, side: str) -> float | None:
        labels = {"resource_class": name, "side": side}
        return metrics.registry.get_sample_value("compute_node_agent_inventory", labels)

    def found(kind: str) -> float | None:
        return metrics.registry.get_sample_value("compute_node_agent_findings", {"kind": kind})

    for _ in range(2):
        metrics.stocked(desired={"VCPU": 4}, observed={})
        metrics.found({"orphaned": 2, "missing": 0})
        assert (inventory("VCPU", "desired"), inventory("VCPU", "observed")) == (4, 0)
        assert (found("orphaned"), found("missing")) == (2, 0)
    metrics.stocked(desired={"DISK_GB": 1}, observed={"DISK_GB": 1})
    metrics.found({"orphaned": 0, "missing": 0})
    assert (inventory("VCPU", "desired"), inventory("VCPU", "observed")) == (None, None)
    assert inventory("DISK_GB", "observed") == 1
    assert found("orphaned") == 0


def test_each_provider_has_its_stock_under_the_names_of_openstack_exporter() -> None:
    metrics = Metrics()

    def told(name: str, provider: str) -> float | None:
        labels = {"hostname": provider, "resourcetype": "VCPU"}
        return metrics.registry.get_sample_value(f"openstack_placement_resource_{name}", labels)

    names = ("total", "reserved", "allocation_ratio", "usage")
    for used in (3, 5):
        metrics.held({("host", "VCPU"): Stock(8, 1, 4.0, used), ("other", "VCPU"): Stock(2, 0, 1.0, 0)})
        assert [told(name, "host") for name in names] == [8, 1, 4.0, used]
    metrics.held({("host", "VCPU"): Stock(8, 1, 4.0, 5)})
    assert [told(name, "other") for name in names] == [None, None, None, None]
    assert told("total", "host") == 8


def test_a_service_manager_that_comes_back_is_told_again(tmp_path: Path) -> None:
    address = tmp_path / "notify"
    notifier = Notifier({"NOTIFY_SOCKET": str(address)})
    notifier.status("nobody listens")
    for text in ("one", "two"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(address))
            notifier.status(text)
            assert manager.recv(100) == f"STATUS={text}".encode()
        address.unlink()


def test_each_operation_of_a_source_has_its_time_its_failures_and_its_last_success() -> None:
    metrics = Metrics()
    source, operation = "host", "virConnectGetCapabilities"

    def told(name: str) -> float | None:
        labels = {"source": source, "operation": operation}
        return metrics.registry.get_sample_value(f"compute_node_agent_operation_{name}", labels)

    metrics.operated(source, operation, 0.5, False)
    assert (told("seconds_sum"), told("failures_total"), told("last_success_timestamp_seconds")) == (0.5, 1, 0)
    metrics.operated(source, operation, 0.25, True)
    assert (told("seconds_sum"), told("seconds_count"), told("failures_total")) == (0.75, 2, 1)
    assert (told("last_success_timestamp_seconds") or 0) > 1e9


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/resource_providers?in_tree=5f0c6a5e-2f55-4d0a-9d0a-3b1c2a9a7e01", "/resource_providers"),
        ("/resource_providers/5f0c6a5e-2f55-4d0a-9d0a-3b1c2a9a7e01/traits", "/resource_providers/{uuid}/traits"),
        ("/allocations/5F0C6A5E-2F55-4D0A-9D0A-3B1C2A9A7E01", "/allocations/{uuid}"),
        ("/traits/CUSTOM_FAST", "/traits/{name}"),
        ("/resource_classes/CUSTOM_GOLD", "/resource_classes/{name}"),
        ("/reshaper", "/reshaper"),
    ],
)
def test_requests_are_told_apart_by_what_they_ask_for_and_not_of_whom(path: str, expected: str) -> None:
    assert operation("GET", path) == f"GET {expected}"


@pytest.mark.parametrize(
    ("code", "expected"), [(200, True), (204, True), (404, True), (409, True), (0, False), (401, False), (503, False)]
)
def test_a_refusal_that_tells_what_was_asked_is_an_answer(code: int, expected: bool) -> None:
    assert served(code) is expected


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
    textfile = tmp_path / "agent.prom"
    reporter = Reporter(changed(keep_in(default_settings(), tmp_path), metrics={"textfile": textfile}), Notifier())
    lost = {"host": (Condition(kind="lost-root", text="placement had it"),)}

    for outcome, conditions, told in (("unsafe", lost, 1), ("failed", {}, 1), ("unchanged", {"host": ()}, 0)):
        taken = RoundResult(outcomes={"host": outcome, "pool": "unchanged"}, conditions=conditions)
        reporter.done(taken, 1.0, again=False)
        reporter.publish()

        assert f'compute_node_agent_conditions{{kind="lost-root"}} {told}.0' in textfile.read_text(encoding="utf-8")
