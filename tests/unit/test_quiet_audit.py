"""What a quiet pass and its audit ask placement: one request, while nothing changed."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from agent.service.rounds import Audits, result_of
from agent.sync.decide.view import Wishes
from agent.sync.run import run_pass
from beds.one_host import GUEST, ROOT, OneHost, Sender
from drivers.policy import DevicePolicy, Policy
from hardware import card, host

LIGHT = Wishes(deep=False)
NIC = "0000:81:00.0"


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

    def take(self, *, deep: bool = False) -> tuple[Any, int]:
        """Return what pass and audit found, and how many requests they sent."""
        sender = self.one.sender
        assert isinstance(sender, CountingSender)
        sender.paths.clear()
        outcome = run_pass(self.one.node, replace(LIGHT, deep=deep))
        return result_of([(outcome, self.audits.take(self.one.node, outcome, deep=deep))], {}), len(sender.paths)


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
    whole, _ = audited.take(deep=True)
    first, _ = audited.take()

    again, requests = audited.take()

    assert again == first == whole
    assert requests == 1


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

    found, requests = audited.take()

    assert [(one.resource_class, one.amount) for one in found.allocations] == [("VCPU", 1)]
    assert requests > 1


def test_an_audit_with_a_suspect_reads_it_at_each_pass(audited: Audited) -> None:
    claim(audited.one, GUEST)
    audited.take()

    assert all(audited.take()[1] > 1 for _ in range(3))


@pytest.mark.parametrize("name", ["{}.json", "audits/{}.json"])
def test_an_audit_after_a_lost_memory_reads_everything(audited: Audited, name: str) -> None:
    (audited.one.folder / name.format(ROOT)).unlink()

    assert audited.take()[1] > 1
