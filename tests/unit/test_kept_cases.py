"""The service's cases: one for each reason, the newest ones, whatever the clock and the disk do."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent.connect import choice
from agent.connect.choice import Choice
from agent.service import cases, rounds
from agent.service.cases import KeptCases, case_files
from agent.service.rounds import Rounds
from agent.settings.read import Settings, load_settings
from agent.state.locks import locked
from agent.sync.case import open_case
from agent.sync.outcome import Outcome, Status
from configured import changed
from drivers.base import Survey
from drivers.facts import PoolSpace
from drivers.policy import DiskPolicy, Policy
from fakes import FACTS
from reportclient.errors import Forbidden
from reportclient.plan import Plan
from reportclient.tree import ObservedTree


def configured(tmp_path: Path) -> Settings:
    return changed(load_settings([]), folders={"state": tmp_path, "identity": ()}, service={"keep_cases": 3})


def kept(tmp_path: Path) -> KeptCases:
    made = KeptCases(configured(tmp_path), 3)
    made.begin()
    return made


def numbers(tmp_path: Path) -> list[int]:
    return [int(path.name[:6]) for path in case_files(tmp_path) if path.is_file()]


def test_the_newest_cases_are_kept(tmp_path: Path) -> None:
    one = kept(tmp_path)
    for letter in "abcde":
        one.keep("host", letter, deep=False)

    assert numbers(tmp_path) == [3, 4, 5]


@pytest.mark.parametrize(
    ("reasons", "count"),
    [
        pytest.param(["a copy 37 s old", "a copy 97.5 s old"], 1, id="other numbers"),
        pytest.param(["a", "b", "a", "b"], 2, id="in turn"),
        pytest.param(["a", "", "a"], 2, id="well in between"),
    ],
)
def test_the_same_reason_is_one_case_until_a_pass_goes_well(tmp_path: Path, reasons: list[str], count: int) -> None:
    one = kept(tmp_path)
    for reason in reasons:
        if reason:
            one.keep("host", reason, deep=False)
        else:
            one.well()

    assert len(case_files(tmp_path)) == count


def test_a_clock_that_was_ahead_does_not_keep_its_cases_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, ahead = kept(tmp_path), timedelta(days=3650)

    class Ahead(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + ahead

    monkeypatch.setattr(cases, "datetime", Ahead)
    for letter in "abc":
        one.keep("host", letter, deep=False)
    monkeypatch.undo()
    for letter in "de":
        one.keep("host", letter, deep=False)

    assert numbers(tmp_path) == [3, 4, 5]
    assert f"{datetime.now(UTC):-%Y}" in case_files(tmp_path)[-1].name


def test_a_case_that_could_not_be_written_is_tried_again_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = kept(tmp_path)
    (tmp_path / "cases").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        one.keep("host", "a", deep=False)
        one.keep("host", "a", deep=False)
    assert len(caplog.records) == 1

    (tmp_path / "cases").unlink()
    one.keep("host", "a", deep=False)

    assert numbers(tmp_path) == [1]


def test_what_an_interrupted_write_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "cases").mkdir()
    for name in (".case-x.new", "20261122T171821.3Z-host.tar.gz.new"):
        (tmp_path / "cases" / name).write_text("")

    kept(tmp_path).keep("host", "a", deep=False)

    assert len(list((tmp_path / "cases").iterdir())) == 1


def test_a_case_that_cannot_be_deleted_does_not_make_another_one_at_each_pass(tmp_path: Path) -> None:
    (tmp_path / "cases/000000-20260101T000000.000000Z-host.tar.gz").mkdir(parents=True)
    one = kept(tmp_path)
    for letter in "abccc":
        one.keep("host", letter, deep=False)

    assert numbers(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize("node", ["a/../../x", "ä" * 200, ".."])
def test_a_case_of_a_node_of_any_name_stays_in_its_folder(tmp_path: Path, node: str) -> None:
    kept(tmp_path).keep(node, "a", deep=False)

    assert len(case_files(tmp_path)) == 1


def test_a_case_that_is_too_large_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "MOST_BYTES", 10)
    kept(tmp_path).keep("host", "a", deep=False)

    assert not case_files(tmp_path)


def test_nothing_is_kept_where_no_cases_are_wanted(tmp_path: Path) -> None:
    one = KeptCases(configured(tmp_path), 0)
    one.begin()
    one.keep_state()
    one.keep("host", "a", deep=False)

    assert one.recorder is None
    assert not (tmp_path / "cases").exists()


class Failing:
    def take(self, node: Any, *_arguments: object, **_more: object) -> None:
        raise Forbidden(f"no role to audit {node.name}")


def passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: Any, **options: Any) -> Rounds:
    """Passes over one host with this driver, which find it up to date; their audits fail."""

    @contextmanager
    def opened(*_arguments: object) -> Iterator[Any]:
        if isinstance(driver, Exception):
            raise driver
        yield driver

    def unchanged(node: Any, _wishes: object, **_more: object) -> Outcome:
        return Outcome(node=node.name, status=Status.UNCHANGED, plan=Plan(()), observed=ObservedTree())

    monkeypatch.setattr(rounds, "open_driver", opened)
    monkeypatch.setattr(choice, "_open_sender", lambda *_arguments: (None, "P", "P"))
    monkeypatch.setattr(rounds, "run_pass", unchanged)
    nothing: Any = lambda *_arguments: None  # noqa: E731
    made = Rounds(
        Choice(),
        replace(configured(tmp_path), **options),
        wake=nothing,
        requested=lambda *_: None,
        told=nothing,
    )
    monkeypatch.setattr(made, "_audits", Failing())
    return made


@dataclass
class Named:
    asked: int = 0
    watching = nullcontext

    def name(self) -> str:
        self.asked += 1
        return "host"


def test_an_audit_that_fails_at_each_pass_is_one_case_and_each_pass_asks_for_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Named()
    one = passes(tmp_path, monkeypatch, driver)
    for _ in range(4):
        with pytest.raises(Forbidden):
            one.take(deep=False, counts=True)

    assert numbers(tmp_path) == [1]
    assert driver.asked == 4


class Reporting(Named):
    """A host of Ceph."""

    def survey(self, _node: str) -> Survey:
        disk = PoolSpace("vms", cluster_bytes=1 << 40, pool_gib=900, fsid="9f4e7c1a-6c0e-4f6f-8a55-2d9b3c1f7e10")
        return Survey(replace(FACTS, disk=disk), compute_id="a4f1c3f0-5d7f-4a3c-9d26-0c1f6b1de201")


def test_a_pool_that_the_agent_reports_has_no_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its consumers are guests of all hosts, so each would be an orphan."""
    one = passes(tmp_path, monkeypatch, Reporting(), recorded=True, policy=Policy(disk=DiskPolicy(reports_pool=True)))

    with pytest.raises(Forbidden, match="audit host"):  # the pool's pass comes first
        one.take(deep=True, counts=True)


def test_the_state_of_a_case_is_read_under_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def watched(directory: Path) -> Iterator[None]:
        with locked(directory):
            (tmp_path / "nodes.json").write_text("another process wrote this before it gave the lock back")
            yield

    monkeypatch.setattr(rounds, "locked", watched)
    with pytest.raises(Forbidden):
        passes(tmp_path, monkeypatch, Named()).take(deep=False, counts=True)

    with open_case(case_files(tmp_path)[0]) as case:
        assert (case.folder / "state/nodes.json").read_text().startswith("another process")
