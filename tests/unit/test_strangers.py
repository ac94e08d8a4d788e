"""Consumers without a guest here: when one may go, and when it may be the migration of a guest that is here."""

from dataclasses import replace

import pytest

from agent.audit.decide.findings import Kind
from agent.audit.decide.guests import find_all
from agent.audit.decide.snapshot import Providers, Snapshot, kin
from reportclient.allocations import Allocation, Consumer, GuestState, Holdings
from reportclient.ownership import MARKER
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

STOCK = {"VCPU": Inventory(total=8)}
ROOT = Provider(name="host", inventories=STOCK, traits=frozenset({MARKER}))
TREE = ObservedTree((ObservedProvider(uuid="r", generation=1, provider=ROOT),))
GUEST = Consumer(uuid="guest", generation=3, project="p", user="u", kind=None, slots={"r": {"VCPU": 2}}, age_s=9000)
STRANGER = replace(GUEST, uuid="stranger", generation=1, slots={"r": {"VCPU": 1}}, age_s=5000)
ALONE = "its guest is neither defined nor running on this host"


def snapshot(stranger: Consumer, guest: Consumer = GUEST, sharing: frozenset[str] = frozenset()) -> Snapshot:
    """A guest that runs with what is allocated for it, and a stranger."""
    known = GuestState(active=True, project=guest.project, user=guest.user)
    return Snapshot(
        tree=TREE,
        allocations=(Allocation("guest", "host", "VCPU", 2), Allocation("stranger", "host", "VCPU", 1)),
        holdings=Holdings(guests=frozenset({"guest"}), known={"guest": known}),
        providers=Providers(classes={"host": frozenset({"VCPU"})}, present=frozenset({"host"})),
        consumers={one.uuid: one for one in (guest, stranger)},
        sharing=sharing,
    )


@pytest.mark.parametrize(
    ("stranger", "guest", "safe"),
    [
        pytest.param(STRANGER, GUEST, False, id="the same project and user"),
        pytest.param(STRANGER, replace(GUEST, project="q"), True, id="another project"),
        pytest.param(replace(STRANGER, kind="INSTANCE"), GUEST, True, id="no migration, by its type"),
    ],
)
def test_an_orphan_may_go_where_it_cannot_be_the_migration_of_a_guest_here(
    stranger: Consumer, guest: Consumer, safe: bool
) -> None:
    (finding,) = find_all(snapshot(stranger, guest))

    assert (finding.kind, finding.safe) == (Kind.ORPHANED, safe)
    assert (finding.seen == ALONE) == safe
    assert ("compute-node-agent release stranger" in finding.seen) != safe


@pytest.mark.parametrize("elsewhere", [{"VCPU": 1}, {"CUSTOM_ADDRESS": 1}])
def test_a_consumer_of_two_hosts_may_be_a_migration(elsewhere: dict[str, int]) -> None:
    stranger = replace(STRANGER, slots={"r": {"VCPU": 1}, "other": elsewhere})

    (finding,) = find_all(snapshot(stranger))

    assert (finding.kind, finding.safe) == (Kind.DOUBLED, False)
    assert "release" not in finding.seen


def test_only_guests_of_a_strangers_owner_are_read_for_it() -> None:
    assert kin(snapshot(STRANGER)) == {"guest"}
    assert kin(snapshot(replace(STRANGER, user="v"))) == frozenset()
    assert kin(replace(snapshot(STRANGER), consumers={"guest": GUEST})) == frozenset()
