"""A pass, or an audit, that sees what a quiet one saw decides nothing again; whatever differs is decided."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from agent.service.audits import Audits
from agent.sync.decide.view import Wishes
from agent.sync.outcome import Outcome, Status
from agent.sync.run import run_locked
from beds.one_host import GUEST, ROOT, OneHost, PresentDriver, Sender
from drivers.base import Survey
from drivers.policy import DevicePolicy, Policy
from hardware import card, host
from reportclient.allocations import Holdings
from reportclient.tree import ObservedTree, ProviderTree

LIGHT = Wishes(deep=False)
NIC = "0000:81:00.0"


@dataclass
class CountingDriver(PresentDriver):
    """Counts how often a tree is shaped."""

    shaped: int = 0

    def shape(self, survey: Survey, policy: Policy, observed: ObservedTree | None) -> tuple[ProviderTree, Holdings]:
        self.shaped += 1
        return super().shape(survey, policy, observed)


def pass_and_count(one: OneHost, wishes: Wishes = LIGHT) -> tuple[Outcome, int]:
    """Run a pass, and return its outcome and how often it shaped a tree."""
    driver = CountingDriver(one.facts, ROOT)
    return run_locked(replace(one.node, driver=driver), wishes, quiet=one.quiet), driver.shaped


@pytest.fixture
def one(tmp_path: Path) -> OneHost:
    """A host after two passes, the second of which found nothing to do."""
    found = OneHost(tmp_path, host(*card(NIC, 4)), Policy(devices=DevicePolicy(discover_all=True)))
    found.sync(LIGHT)
    assert pass_and_count(found)[0].status is Status.UNCHANGED
    return found


def test_a_pass_that_sees_what_a_quiet_one_saw_decides_nothing(one: OneHost) -> None:
    before = one.sync(LIGHT)

    outcome, shaped = pass_and_count(one)

    assert shaped == 0
    assert outcome == before


CHANGES: dict[str, Callable[[OneHost], object]] = {
    "the host": lambda one: setattr(one, "facts", host(*card(NIC, 5))),
    "the policy": lambda one: setattr(one, "policy", Policy(devices=DevicePolicy())),
    "stock in placement": lambda one: one.set_by_hand("", "VCPU", total=3),
    "a reservation": lambda one: one.set_by_hand("", "MEMORY_MB", reserved=600),
    "a trait in placement": lambda one: one.remove_traits("", "COMPUTE_NODE"),
    "the operator's files": lambda one: one.write_provider_config("", "CUSTOM_A", 1),
    "the memory": lambda one: one.forget(),
    "the role": lambda one: setattr(one, "role", "audit"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_pass_that_sees_something_else_decides_as_one_that_remembers_nothing(
    one: OneHost, tmp_path_factory: pytest.TempPathFactory, change: str
) -> None:
    other = OneHost(tmp_path_factory.mktemp("other"), one.facts, one.policy)
    for _ in range(2):
        other.sync(LIGHT)
    for each in (one, other):
        CHANGES[change](each)

    outcome, shaped = pass_and_count(one)
    expected = run_locked(other.node, LIGHT)

    assert shaped
    assert (outcome.status, outcome.plan.digest, outcome.notes) == (
        expected.status,
        expected.plan.digest,
        expected.notes,
    )
    assert one.stock() == other.stock()


def test_a_full_pass_decides(one: OneHost) -> None:
    assert pass_and_count(one, Wishes(deep=True))[1]


def test_a_pass_after_a_damaged_memory_decides(one: OneHost) -> None:
    (one.folder / f"{ROOT}.json").write_text("{}")

    assert pass_and_count(one)[1]


def test_a_pass_decides_while_strikes_of_another_writer_are_counted(one: OneHost) -> None:
    one.set_by_hand("", "VCPU", total=3)
    assert one.sync(LIGHT).status is Status.CHANGED

    assert [bool(pass_and_count(one)[1]) for _ in range(3)] == [True, True, True]


def test_a_pass_decides_while_devices_are_awaited_since_a_boot(tmp_path: Path) -> None:
    policy = Policy(devices=DevicePolicy(discover_all=True))
    one = OneHost(tmp_path, replace(host(*card(NIC, 4)), boot="first"), policy, uptime_s=100_000.0)
    one.sync(LIGHT)
    one.sync(LIGHT, facts=replace(host(*card(NIC, 2)), boot="second"), uptime_s=60.0)
    waits = [one.sync(LIGHT, uptime_s=moment).notes for moment in (61.0, 62.0)]

    outcome, shaped = pass_and_count(one)

    assert all(waits)
    assert shaped
    one.uptime_s = 100_000.0
    assert pass_and_count(one)[0].notes != outcome.notes


@dataclass
class CountingSender(Sender):
    """Keeps the paths of all requests."""

    paths: list[str] = field(default_factory=list)

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        self.paths.append(url)
        return super().request(url, method, **kwargs)


@dataclass
class Audited:
    """A host whose passes are audited as the service audits them."""

    one: OneHost
    audits: Audits = field(default_factory=lambda: Audits(None))

    def take(self, *, deep: bool = False) -> tuple[Any, int, int]:
        """Return what pass and audit found, how often a tree was shaped, and how many requests they sent."""
        driver, sender = CountingDriver(self.one.facts, ROOT), self.one.sender
        assert isinstance(sender, CountingSender)
        sender.paths.clear()
        node = replace(self.one.node, driver=driver)
        outcome = run_locked(node, replace(LIGHT, deep=deep), quiet=self.one.quiet)
        return self.audits.take(node, outcome, deep=deep), driver.shaped, len(sender.paths)


@pytest.fixture
def audited(tmp_path: Path) -> Audited:
    """A host after a full pass and two quiet ones, each with its audit."""
    policy = Policy(devices=DevicePolicy(discover_all=True))
    found = Audited(OneHost(tmp_path, host(*card(NIC, 4)), policy, CountingSender()))
    found.take(deep=True)
    found.take()
    found.take()
    return found


def test_an_audit_that_sees_what_a_quiet_one_saw_finds_the_same_with_the_one_request_of_its_pass(
    audited: Audited,
) -> None:
    whole, _, _ = audited.take(deep=True)
    first, _, _ = audited.take()

    again, shaped, requests = audited.take()

    assert again == first == whole
    assert (shaped, requests) == (0, 1)


def claim(one: OneHost, consumer: str) -> None:
    body = {
        "allocations": {ROOT: {"resources": {"VCPU": 1}}},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }
    one.send("PUT", f"/allocations/{consumer}", body)


def test_an_audit_after_a_claim_reads_it(audited: Audited) -> None:
    claim(audited.one, GUEST)

    found, _, requests = audited.take()

    assert found.stocks[audited.one.facts.hostname, "VCPU"].used == 1
    assert requests > 1


def test_an_audit_with_a_suspect_reads_it_at_each_pass(audited: Audited) -> None:
    claim(audited.one, GUEST)
    audited.take()

    assert all(audited.take()[2] > 1 for _ in range(3))


@pytest.mark.parametrize("name", ["{}.json", "audits/{}.json"])
def test_an_audit_after_a_lost_memory_reads_everything(audited: Audited, name: str) -> None:
    (audited.one.folder / name.format(ROOT)).unlink()

    assert audited.take()[1:] > (0, 1)
