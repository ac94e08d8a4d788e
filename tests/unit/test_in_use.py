"""Whether a guest that runs here uses what a consumer has."""

import pytest

from agent.allocations.decide.in_use import in_use
from reportclient.allocations import Consumer, Slots

NAMES = {"root": "host", "card": "host_card"}
HERE: Slots = {"root": {"VCPU": 2}, "card": {"VGPU": 1}, "storage": {"DISK_GB": 5}}
ELSEWHERE: Slots = {"other": {"VCPU": 2}}


def consumer(uuid: str, slots: Slots, *, kind: str | None = None, user: str = "u") -> Consumer:
    return Consumer(uuid=uuid, generation=1, project="p", user=user, kind=kind, slots=slots)


GUEST = consumer("guest", HERE, kind="INSTANCE")


def test_what_a_running_guest_has_here_would_be_on_offer_a_second_time() -> None:
    assert in_use(GUEST, NAMES, {"guest": GUEST}) == (
        "guest guest runs on this host: without these allocations, placement offers 2 VCPU on host, 1 VGPU on "
        "host_card a second time"
    )


@pytest.mark.parametrize("kind", ["MIGRATION", None])
def test_a_migration_may_keep_what_a_guest_without_allocations_here_uses(kind: str | None) -> None:
    migration, away = consumer("migration", HERE, kind=kind), consumer("guest", ELSEWHERE)

    assert "guest guest, whose allocations here migration may keep, runs on this host" in in_use(
        migration, NAMES, {"guest": away}
    )


@pytest.mark.parametrize(
    ("mine", "guest"),
    [
        pytest.param(consumer("gone", HERE), None, id="no guest runs here"),
        pytest.param(consumer("migration", ELSEWHERE), consumer("guest", ELSEWHERE), id="nothing is of this host"),
        pytest.param(consumer("migration", HERE), consumer("guest", HERE), id="the guest has its new size here"),
        pytest.param(consumer("migration", HERE), consumer("guest", ELSEWHERE, user="v"), id="another user's guest"),
        pytest.param(consumer("gone", HERE, kind="INSTANCE"), consumer("guest", ELSEWHERE), id="no migration"),
    ],
)
def test_what_no_running_guest_uses_may_go(mine: Consumer, guest: Consumer | None) -> None:
    assert in_use(mine, NAMES, {"guest": guest} if guest else {}) == ""


def test_a_guest_that_placement_does_not_know_has_no_migration() -> None:
    assert in_use(consumer("migration", HERE), NAMES, {"guest": None}) == ""
