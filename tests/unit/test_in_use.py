"""Whether a guest that runs here uses what a consumer has."""

from dataclasses import replace

import pytest

from agent.allocations.decide.in_use import in_use, uncovered
from reportclient.allocations import Consumer, Float, GuestState, Holding, Holdings, Slots

NAMES = {"root": "host", "card": "host_card"}
HERE: Slots = {"root": {"VCPU": 2}, "card": {"VGPU": 1}, "storage": {"DISK_GB": 5}}
MORE: Slots = {"card": {"VGPU": 1}, "root": {"VCPU": 2, "DISK_GB": 5}}
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


USES = Holdings(
    guests=frozenset({"guest"}),
    units=(Holding("guest", "host_card", "VGPU", 1), Holding("another", "host_card", "VGPU", 2)),
    floats=(Float("guest", "VCPU", 2, ("host",), ""), Float("another", "VCPU", 3, ("host",), "")),
    known={"guest": GuestState(active=True)},
    told=frozenset({"VCPU", "PCPU", "VGPU"}),
)
ONLY_DEVICES, ONLY_CPUS = (replace(USES, told=frozenset(told)) for told in ({"VGPU"}, {"VCPU", "PCPU"}))


@pytest.mark.parametrize(
    ("before", "after", "holdings", "lost"),
    [
        pytest.param(HERE, {}, USES, "2 PCPU or VCPU, 1 VGPU on host_card", id="all goes"),
        pytest.param(MORE, {}, USES, "5 DISK_GB on host, 2 PCPU or VCPU, 1 VGPU on host_card", id="and its disk here"),
        pytest.param(HERE, {**HERE, "root": {"VCPU": 1}}, USES, "1 PCPU or VCPU", id="a float that shrinks"),
        pytest.param(HERE, {**HERE, "root": {"PCPU": 2}}, USES, "", id="the other class of CPUs"),
        pytest.param({"root": {"VCPU": 4}}, {"root": {"VCPU": 2}}, USES, "", id="more than it uses"),
        pytest.param(HERE, {"root": {"VCPU": 2, "VGPU": 1}}, USES, "1 VGPU on host_card", id="on another provider"),
        pytest.param({"root": {"VCPU": 1}}, {"root": {"VCPU": 1}}, USES, "", id="less than it uses, from before"),
        pytest.param({"card": {"VGPU": 2}}, {"card": {"VGPU": 1}}, ONLY_DEVICES, "", id="another guest's device"),
        pytest.param(HERE, {"card": {"VGPU": 1}}, ONLY_CPUS, "2 PCPU or VCPU", id="only CPUs are told"),
        pytest.param(HERE, {}, replace(USES, known={"guest": GuestState(active=False)}), "", id="it is shut off"),
        pytest.param(HERE, {}, replace(USES, known={}), "", id="it is not here"),
        pytest.param({"root": {"DISK_GB": 5}}, {}, USES, "5 DISK_GB on host", id="what the hypervisor does not tell"),
        pytest.param(
            {"card": {"VGPU": 2}},
            {"card": {"VGPU": 1}},
            replace(USES, known={"guest": GuestState(active=True, untold=frozenset({"VGPU"}))}),
            "1 VGPU on host_card",
            id="a device of which it is not known what it is",
        ),
    ],
)
def test_a_guest_that_runs_loses_what_it_uses_and_has(
    before: Slots, after: Slots, holdings: Holdings, lost: str
) -> None:
    told = uncovered("guest", before, after, NAMES, holdings)

    assert told == (
        lost and f"guest guest runs on this host: without these allocations, placement offers {lost} a second time"
    )
