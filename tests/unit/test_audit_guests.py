"""What an audit says of guests and of consumers that are none here, by what a host runs and what is allocated."""

import re
from dataclasses import replace

import pytest

from agent.audit.audit import AuditResult
from agent.audit.decide.findings import Finding, Kind, counts
from agent.audit.decide.guests import find_all
from agent.audit.decide.snapshot import Providers, Snapshot, kin, suspects
from agent.audit.heal import Healed, HealPolicy, heal
from agent.service.rounds import result_of
from agent.state.audit_memory import AuditMemory, Sighting
from agent.state.clock import StoppedClock
from agent.sync.outcome import Outcome, Status
from reportclient.allocations import Allocation, AllocationRequest, Consumer, Float, GuestState, Holdings, Slots
from reportclient.ownership import MARKER
from reportclient.payload import decode_request
from reportclient.plan import Rewrite
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

ROOT, CARD, AWAY, SHARED = "root-uuid", "card-uuid", "another-host", "storage"
ROOTS_STOCK = {"VCPU": Inventory(total=8), "MEMORY_MB": Inventory(total=4096), "DISK_GB": Inventory(total=100)}
CARDS_STOCK = {"VGPU": Inventory(total=4)}
MARKS = frozenset({MARKER})
TREE = ObservedTree(
    (
        ObservedProvider(
            uuid=ROOT, generation=1, provider=Provider(name="host", inventories=ROOTS_STOCK, traits=MARKS)
        ),
        ObservedProvider(
            uuid=CARD,
            generation=1,
            provider=Provider(name="host_card", parent="host", inventories=CARDS_STOCK, traits=MARKS),
        ),
    )
)
FLAVOR = {"VCPU": 2, "MEMORY_MB": 512}
SET = {**FLAVOR, "DISK_GB": 10}
RUNS = GuestState(active=True, project="p", user="u", disk_gb=10)


def has(uuid: str = "guest") -> Holdings:
    """A running guest with two CPUs and some memory."""
    floats = tuple(Float(uuid, name, amount, ("host",), "") for name, amount in FLAVOR.items())
    told = frozenset({"VCPU", "MEMORY_MB", "VGPU"})
    return Holdings(guests=frozenset({uuid}), floats=floats, known={uuid: RUNS}, told=told)


def consumer(
    uuid: str = "guest", slots: Slots | None = None, kind: str | None = "INSTANCE", user: str = "u"
) -> Consumer:
    slots = {ROOT: SET} if slots is None else slots
    return Consumer(uuid=uuid, generation=1, project="p", user=user, kind=kind, slots=slots)


def snapshot(*consumers: Consumer, holdings: Holdings | None = None, known: GuestState = RUNS) -> Snapshot:
    """The host with these consumers, and what they have of it; ``known`` is what is told of its guest."""
    holdings = holdings or replace(has(), known={"guest": known})
    names = {ROOT: "host", CARD: "host_card"}
    rows = tuple(
        Allocation(one.uuid, names[place], name, amount)
        for one in consumers
        for place, resources in one.slots.items()
        if place in names
        for name, amount in resources.items()
    )
    return Snapshot(
        tree=TREE,
        allocations=rows,
        holdings=holdings,
        providers=Providers(
            classes={"host": frozenset(ROOTS_STOCK), "host_card": frozenset(CARDS_STOCK)},
            present=frozenset(names.values()),
        ),
        consumers={one.uuid: one for one in consumers},
        sharing=frozenset({SHARED}),
    )


MISSING_ONES = HealPolicy(kinds=frozenset({Kind.MISSING}), move_s=600)


def audit(*found: Finding, consumers: tuple[Consumer, ...] = ()) -> AuditResult:
    """An audit that saw all this before, long ago."""
    return AuditResult(
        root_uuid=ROOT,
        tree=TREE,
        findings=found,
        young=(),
        memory=AuditMemory(
            clock=StoppedClock("", 0.0, 10_000.0),
            sightings={one.key: Sighting(first_s=0.0, looks=2) for one in found},
        ),
        before=AuditMemory(),
        consumers={one.uuid: one for one in consumers},
    )


def rewrites(finding: Finding) -> dict[str, Rewrite]:
    """What its repair would write, by consumer."""
    assert finding.repair is not None
    return {one.consumer: one for one in finding.repair.rewrites}


def shown(found: tuple[Finding, ...]) -> set[tuple[str | None, str | None, int | None, int | None]]:
    """What the findings show: provider, class, what should be, and what is."""
    return {(one.provider, one.resource_class, one.expected, one.actual) for one in found}


def test_a_guest_with_allocations_of_what_it_has_is_no_finding_and_no_suspect() -> None:
    sound = snapshot(consumer())

    assert suspects(sound) == frozenset()
    assert find_all(sound) == ()


def test_a_guest_with_too_few_cpus_allocated_gets_what_it_has_and_keeps_the_rest() -> None:
    (found,) = find_all(snapshot(consumer(slots={ROOT: {**SET, "VCPU": 1}, SHARED: {"DISK_GB": 5}})))

    assert (found.kind, found.provider, found.expected, found.actual) == (Kind.WRONG_AMOUNT, "host", 2, 1)
    assert found.safe
    assert rewrites(found)["guest"].after == {ROOT: SET, SHARED: {"DISK_GB": 5}}


def test_what_a_guest_has_on_a_provider_that_the_tree_does_not_have_yet_is_not_judged() -> None:
    """The configuration is ahead of the tree: a cell's memory is the root's still."""
    ahead = replace(has(), floats=(Float("guest", "MEMORY_MB", 512, ("host_NUMA0",), ""), *has().floats[:1]))

    found = find_all(snapshot(consumer(slots={ROOT: {**SET, "MEMORY_MB": 64, "VCPU": 1}}), holdings=ahead))

    assert [(one.resource_class, one.expected, one.actual) for one in found] == [("VCPU", 2, 1)]


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(replace(RUNS, active=False), id="is shut off"),
        pytest.param(replace(RUNS, migrating=True), id="moves"),
    ],
)
def test_a_guest_that_is_not_settled_is_no_finding(known: GuestState) -> None:
    assert find_all(snapshot(consumer(slots={ROOT: {"VCPU": 1}}), known=known)) == ()
    assert find_all(snapshot(known=known)) == ()


def test_a_guest_is_left_alone_while_its_owner_has_a_migration_here() -> None:
    """It may be between its old size and its new one."""
    resized = consumer(slots={ROOT: {**SET, "VCPU": 4}})

    found = find_all(snapshot(resized, consumer("migration", {ROOT: FLAVOR}, "MIGRATION")))

    assert {one.consumer for one in found} == {"migration"}


# -- guests without allocations here -----------------------------------------------------------------------------------


def test_a_guest_without_allocations_gets_what_it_has_and_its_disk() -> None:
    found = find_all(snapshot())

    assert {(one.kind, one.resource_class, one.expected, one.actual) for one in found} == {
        (Kind.MISSING, "VCPU", 2, 0),
        (Kind.MISSING, "MEMORY_MB", 512, 0),
        (Kind.MISSING, "DISK_GB", 10, 0),
    }
    assert all(one.safe for one in found)
    claim = rewrites(found[0])["guest"]
    assert (claim.generation, claim.project, claim.user, claim.kind) == (None, "p", "u", "INSTANCE")
    assert claim.after == {ROOT: SET}


def test_a_guest_without_allocations_is_one_finding_for_the_service_too() -> None:
    result = audit(*find_all(snapshot()))
    taken = result_of([(Outcome(node="host", status=Status.UNCHANGED), result)], {})

    assert len(result.findings) == 3
    assert counts(result.findings) == taken.findings == {"missing": 1}


@pytest.mark.parametrize("kept", [{}, {"VCPU": 2}], ids=["all that it has", "a class"])
@pytest.mark.parametrize(
    ("known", "why"),
    [
        pytest.param(replace(RUNS, project=None), "its project and user are not known", id="whose it is"),
        pytest.param(replace(RUNS, disk_gb=None), "this host does not show how much DISK_GB", id="its disk"),
        pytest.param(replace(RUNS, named={"CUSTOM_X": 1}), "how much CUSTOM_X the guest should have", id="its class"),
        pytest.param(replace(RUNS, untold=frozenset({"VGPU"})), "how much VGPU the guest", id="a device out of sight"),
    ],
)
def test_a_guest_that_lost_what_is_not_all_known_is_allocated_by_a_person(
    known: GuestState, why: str, kept: dict[str, int]
) -> None:
    """Its consumer tells whose it is, as long as it has one."""
    stands = (consumer(slots={ROOT: kept}),) if kept else ()

    found = find_all(snapshot(*stands, known=known))

    if kept and known.project is None:
        assert all(one.safe for one in found)
        return
    kind, how = (Kind.WRONG_AMOUNT, "--replace") if kept else (Kind.MISSING, "--project P --user U --type T")
    assert {(one.kind, one.repair, one.safe) for one in found} == {(kind, None, False)}
    assert all(why in one.seen and f"compute-node-agent claim guest {how} --request FILE" in one.seen for one in found)


@pytest.mark.parametrize(
    ("disk_gb", "told", "slots"),
    [
        (RUNS.disk_gb, "which has all that it should have", SET),
        (None, "to which you add its DISK_GB", {name: SET[name] for name in SET if name != "DISK_GB"}),
    ],
)
def test_a_guest_without_an_owner_is_told_with_the_request_that_claims_it(
    disk_gb: int | None, told: str, slots: dict[str, int]
) -> None:
    """Without nova's metadata the domain does not tell its disk."""
    one, *_ = find_all(snapshot(known=replace(RUNS, project=None, disk_gb=disk_gb)))

    said = re.search(rf"Write this request, {told}, (.*), to FILE", one.seen)
    assert said
    assert decode_request(AllocationRequest(said[1])) == {ROOT: slots}


def test_a_guest_that_has_nothing_that_is_on_offer_here_is_told_at_the_root() -> None:
    holdings = Holdings(guests=frozenset({"guest"}), known={"guest": RUNS})

    (found,) = find_all(snapshot(holdings=holdings))

    assert (found.kind, found.provider, found.expected, found.repair) == (Kind.MISSING, "host", None, None)
    assert "this host offers none of the resources that the guest uses" in found.seen


def test_a_guest_that_is_allocated_on_another_host_only_is_not_repaired_by_itself() -> None:
    """Its resize to here may be half done: a person must say."""
    guest = consumer(slots={AWAY: SET, SHARED: {"DISK_GB": 10}}, kind="OTHER")
    found = find_all(snapshot(guest))

    assert {(one.kind, one.safe) for one in found} == {(Kind.MISSING, False)}
    assert all(one.seen.endswith("only on another host") for one in found)
    written = rewrites(found[0])["guest"]
    assert (written.before, written.after) == (guest.slots, {ROOT: FLAVOR, SHARED: {"DISK_GB": 10}})
    assert (written.generation, written.kind) == (guest.generation, "OTHER")


@pytest.mark.parametrize("kind", ["MIGRATION", None])
def test_what_a_migration_keeps_of_a_guest_that_runs_here_goes_back_to_it(kind: str | None) -> None:
    found = find_all(snapshot(consumer("keeper", kind=kind)))

    assert {(one.kind, one.consumer, one.safe, one.arriving) for one in found} == {(Kind.MISSING, "guest", True, True)}
    assert {one.untyped for one in found} == {kind is None}
    assert "its allocations here still belong to migration keeper" in found[0].seen
    back = rewrites(found[0])
    assert back["keeper"].after == {}
    assert (back["guest"].generation, back["guest"].kind) == (None, "INSTANCE" if kind else None)
    assert shown(found) == {("host", name, amount, 0) for name, amount in SET.items()}
    assert back["guest"].after == {ROOT: SET}


def test_what_a_migration_keeps_takes_the_place_of_what_the_guest_got_elsewhere() -> None:
    """The guest has its disk on shared storage, and CPUs on a host to which it never went."""
    new = consumer(slots={AWAY: FLAVOR, SHARED: {"DISK_GB": 10}})

    found = find_all(snapshot(new, consumer("keeper", {ROOT: FLAVOR}, "MIGRATION")))

    assert {(one.kind, one.safe) for one in found} == {(Kind.MISSING, True)}
    assert rewrites(found[0])["guest"].after == {ROOT: FLAVOR, SHARED: {"DISK_GB": 10}}
    assert shown(found) == {
        *(("host", name, amount, 0) for name, amount in FLAVOR.items()),
        *((AWAY, name, 0, amount) for name, amount in FLAVOR.items()),
    }


def test_of_two_migrations_that_may_keep_a_guests_set_none_is_taken_for_certain() -> None:
    found = find_all(snapshot(consumer("one", kind="MIGRATION"), consumer("two", kind="MIGRATION")))

    assert {(one.kind, one.consumer, one.safe) for one in found} == {
        (Kind.MISSING, "guest", False),
        (Kind.LEAKED, "one", False),
        (Kind.LEAKED, "two", False),
    }
    assert all(one.arriving for one in found if one.kind is Kind.MISSING)


def test_nothing_but_its_owner_speaks_for_the_keeper_of_a_guest_of_which_nothing_is_told() -> None:
    """The host could tell of CPUs that the tree does not offer."""
    holdings = Holdings(guests=frozenset({"guest"}), known={"guest": RUNS}, told=frozenset({"PCPU"}))

    found, *others = find_all(snapshot(consumer("keeper", kind="MIGRATION"), holdings=holdings))

    assert (found.kind, found.consumer, found.safe, found.arriving) == (Kind.MISSING, "guest", False, True)
    assert {(one.kind, one.consumer, one.safe) for one in others} == {(Kind.LEAKED, "keeper", False)}


def test_of_two_migrations_the_one_that_has_what_the_guest_has_is_its_own() -> None:
    smaller = consumer("a-smaller", {ROOT: {"VCPU": 1, "MEMORY_MB": 64}}, "MIGRATION")

    found = find_all(snapshot(smaller, consumer("exact", kind="MIGRATION")))

    assert {(one.consumer, one.safe) for one in found if one.kind is Kind.MISSING} == {("guest", True)}
    assert "its allocations here still belong to migration exact" in found[0].seen


@pytest.mark.parametrize(
    "stranger",
    [
        pytest.param(consumer("stranger", kind="MIGRATION", user="somebody"), id="another's migration"),
        pytest.param(consumer("stranger"), id="another guest"),
        pytest.param(consumer("stranger", {ROOT: SET, AWAY: SET}, "MIGRATION"), id="one that is on two hosts"),
        pytest.param(consumer("stranger", {ROOT: {"VCPU": 1}}, None), id="one of no type with another amount"),
    ],
)
def test_what_cannot_be_a_guests_migration_does_not_speak_for_it(stranger: Consumer) -> None:
    found = find_all(snapshot(stranger))

    missing = [one for one in found if one.kind is Kind.MISSING]
    assert {one.arriving for one in missing} == {False}
    assert all(rewrites(one).keys() == {"guest"} for one in missing)
    assert "stranger" in {one.consumer for one in found}


# -- guests of which not all is known ----------------------------------------------------------------------------------


UNSEEN = "nova up to 2025.1 started the guest"


def test_an_amount_that_a_flavor_may_set_is_for_a_person_where_the_flavor_is_not_shown() -> None:
    known = replace(RUNS, flavor_unseen=True)

    (found,) = find_all(snapshot(consumer(slots={ROOT: {**SET, "VCPU": 1}}), known=known))
    missing = find_all(snapshot(known=known))

    assert (found.kind, found.safe, UNSEEN in found.seen) == (Kind.WRONG_AMOUNT, False, True)
    assert {(one.kind, one.repair, UNSEEN in one.seen) for one in missing} == {(Kind.MISSING, None, True)}
    lost = find_all(snapshot(consumer(slots={ROOT: {"VCPU": 1}}), known=known))
    assert {one.seen.count(UNSEEN) for one in lost} == {1}
    assert find_all(snapshot(consumer(), known=known)) == ()


def test_devices_beyond_those_of_the_guest_are_not_judged_where_its_flavor_which_may_name_them_is_not_shown() -> None:
    """Up to 2025.1 nova wrote no extra specs into a domain, and so each guest with ``resources:VGPU=1`` was found."""
    holds = consumer(slots={ROOT: SET, CARD: {"VGPU": 1}})

    assert [one.kind for one in find_all(snapshot(holds))] == [Kind.WRONG_AMOUNT]
    assert find_all(snapshot(holds, known=replace(RUNS, flavor_unseen=True))) == ()


def test_a_guest_that_lost_a_class_gets_its_disk_back_too() -> None:
    found = find_all(snapshot(consumer(slots={ROOT: {"VCPU": 2}})))

    assert {(one.resource_class, one.expected, one.actual, one.safe) for one in found} == {
        ("MEMORY_MB", 512, 0, True),
        ("DISK_GB", 10, 0, True),
    }
    assert rewrites(found[0])["guest"].after == {ROOT: SET}


# -- consumers that are no guests here ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slots", "kind", "finding", "after"),
    [
        pytest.param({ROOT: SET}, "INSTANCE", Kind.ORPHANED, {}, id="nowhere"),
        pytest.param({ROOT: SET, AWAY: SET}, "INSTANCE", Kind.DOUBLED, {AWAY: SET}, id="on another host too"),
        pytest.param({ROOT: SET}, "MIGRATION", Kind.LEAKED, {}, id="a migration"),
        pytest.param({ROOT: SET, SHARED: {"CUSTOM_X": 5}}, "MIGRATION", Kind.LEAKED, {}, id="a migration has no data"),
    ],
)
def test_a_consumer_that_is_no_guest_here_loses_what_it_has_here(
    slots: Slots, kind: str, finding: Kind, after: Slots
) -> None:
    """It looks like one that our own verbs make: a claim before its guest, or the source's part of a resize."""
    found = find_all(snapshot(consumer("stranger", slots, kind), holdings=Holdings()))

    assert {(one.kind, one.consumer, one.safe, one.arriving) for one in found} == {(finding, "stranger", True, True)}
    assert {(one.resource_class, one.expected, one.actual) for one in found} == {
        (name, 0, amount) for place in slots.keys() - after for name, amount in slots[place].items()
    }
    assert rewrites(found[0])["stranger"].after == after


def test_an_orphan_with_a_disk_on_shared_storage_is_told_at_each_audit_until_a_person_decides() -> None:
    """No audit of any host would see the disk alone, and its data may be there."""
    found = find_all(snapshot(consumer("stranger", {ROOT: SET, SHARED: {"DISK_GB": 5}}), holdings=Holdings()))

    assert {(one.kind, one.safe) for one in found} == {(Kind.ORPHANED, False)}
    assert all("something on shared storage too" in one.seen for one in found)
    assert all("run compute-node-agent release stranger" in one.seen for one in found)
    assert rewrites(found[0])["stranger"].after == {}


def test_a_consumer_of_another_service_is_no_finding() -> None:
    assert find_all(snapshot(consumer(), consumer("volume", kind="BLOCK_STORAGE"))) == ()


@pytest.mark.parametrize(
    ("kind", "user", "finding", "safe"),
    [
        pytest.param("MIGRATION", "u", Kind.LEAKED, False, id="a migration"),
        pytest.param(None, "u", Kind.ORPHANED, False, id="of no type"),
        pytest.param(None, "v", Kind.ORPHANED, True, id="another user's"),
        pytest.param("INSTANCE", "u", Kind.ORPHANED, True, id="no migration, by its type"),
    ],
)
def test_a_stranger_with_a_guest_of_its_owner_here_may_be_that_guests_migration(
    kind: str | None, user: str, finding: Kind, safe: bool
) -> None:
    (found,) = find_all(snapshot(consumer(), consumer("stranger", {ROOT: {"VCPU": 1}}, kind, user)))

    assert (found.kind, found.safe) == (finding, safe)
    for words in (
        "consumer stranger may be the migration of a guest of the same project and user on this host",
        "server migration list --limit 1 --marker stranger",
        "run compute-node-agent release stranger",
    ):
        assert (words in found.seen) != safe
    assert found.seen.endswith("is neither defined nor running on this host") == safe


def test_a_doubtful_consumer_that_is_on_another_host_too_keeps_what_it_has_there() -> None:
    """It has only storage of the other host, so it may still be a migration of the guest's owner."""
    stranger = consumer("stranger", {ROOT: {"VCPU": 1}, AWAY: {"DISK_GB": 1}}, None)
    holdings = has()
    two = replace(
        holdings, guests=holdings.guests | {"other"}, known={"guest": RUNS, "other": replace(RUNS, active=False)}
    )

    (found,) = find_all(snapshot(consumer(), stranger, holdings=two))

    assert (found.kind, found.safe) == (Kind.DOUBLED, False)
    assert "guest of the same project and user on this host" in found.seen
    assert "allocation set stranger with all that it has on other hosts" in found.seen
    assert "release" not in found.seen


# -- whose sets must be read -------------------------------------------------------------------------------------------


def test_a_stranger_and_the_guests_of_its_owner_are_read() -> None:
    stranger = consumer("stranger", {ROOT: {"VCPU": 1}}, "MIGRATION")
    elsewhere = replace(snapshot(consumer()), consumers={"stranger": stranger})

    assert suspects(snapshot(consumer(), stranger)) == {"stranger"}
    assert kin(snapshot(consumer(), stranger)) == {"guest"}
    assert kin(snapshot(consumer(), replace(stranger, project="another"))) == frozenset()
    assert kin(snapshot(consumer(), replace(stranger, user="another"))) == frozenset()
    assert kin(snapshot(consumer())) == kin(elsewhere) == frozenset()


def test_a_guest_of_which_nobody_says_whose_it_is_is_read_only_where_a_stranger_is() -> None:
    unowned = replace(RUNS, project=None)
    sound, stranger = snapshot(consumer()), Allocation("stranger", "host", "VCPU", 1)
    alone = replace(sound, consumers={}, holdings=replace(sound.holdings, known={"guest": unowned}))

    assert suspects(alone) == frozenset()
    assert suspects(replace(alone, allocations=(*alone.allocations, stranger))) == {"guest", "stranger"}


@pytest.mark.parametrize(("keepers_s", "healed"), [(5.0, Healed.REPORTED), (5000.0, Healed.HEALED)])
def test_a_repair_that_rewrites_a_guest_and_its_keeper_waits_until_neither_is_young(
    keepers_s: float, healed: Healed
) -> None:
    keeper = replace(consumer("migration", kind="MIGRATION"), age_s=keepers_s)
    (first, *_) = find_all(snapshot(keeper))

    (outcome,) = heal(None, audit(first, consumers=(keeper,)), MISSING_ONES)

    assert (outcome.healed, "it has been so for 5 s" in outcome.why) == (healed, healed is Healed.REPORTED)


def test_of_two_repairs_that_rewrite_one_keeper_the_second_waits_for_the_next_audit() -> None:
    keeper = consumer("migration", kind="MIGRATION")
    (first, *_) = find_all(snapshot(keeper))
    assert first.repair is not None
    second = replace(first, consumer="another", repair=replace(first.repair, text="another repair"))

    outcomes = heal(None, audit(first, second), MISSING_ONES)

    assert [one.healed for one in outcomes] == [Healed.HEALED, Healed.REPORTED]
    assert "another repair of the same consumer goes first" in outcomes[1].why


@pytest.mark.parametrize(
    ("elsewhere", "whole"),
    [
        pytest.param({SHARED: {"CUSTOM_TOKEN": 1}}, True, id="another service's provider gives it"),
        pytest.param({SHARED: {"DISK_GB": 1}}, False, id="nobody gives it"),
    ],
)
def test_a_guest_gets_its_set_back_only_with_what_its_flavor_names(elsewhere: Slots, whole: bool) -> None:
    named = replace(RUNS, named={"CUSTOM_TOKEN": 1})

    (found, *_) = find_all(snapshot(consumer(slots=elsewhere), known=named))

    assert (found.kind, found.repair is not None) == (Kind.MISSING, whole)
    assert whole or "how much CUSTOM_TOKEN the guest should have" in found.seen


@pytest.mark.parametrize(
    ("stands", "kind"),
    [
        pytest.param((), "INSTANCE", id="no consumer"),
        pytest.param((consumer(slots={SHARED: {"DISK_GB": 10}}, kind=None),), None, id="without a type"),
        pytest.param((consumer(slots={SHARED: {"DISK_GB": 10}}, kind="SERVER"),), "SERVER", id="of another type"),
    ],
)
def test_a_guest_that_gets_its_set_back_keeps_the_type_of_its_consumer(
    stands: tuple[Consumer, ...], kind: str | None
) -> None:
    (found, *_) = find_all(snapshot(*stands))

    assert found.kind is Kind.MISSING
    assert rewrites(found)["guest"].kind == kind


@pytest.mark.parametrize("active", [True, False], ids=["runs", "is shut off"])
@pytest.mark.parametrize(
    "consumers",
    [
        pytest.param((consumer(slots={ROOT: {**SET, "VCPU": 3}}),), id="other allocations"),
        pytest.param((), id="no allocations"),
        pytest.param((consumer("m", kind="MIGRATION"),), id="a migration may have them"),
    ],
)
def test_nothing_is_found_of_a_guest_that_is_not_understood_and_nothing_is_taken_from_what_may_be_its_migration(
    active: bool, consumers: tuple[Consumer, ...]
) -> None:
    known = replace(RUNS, active=active, unread=True, untold=frozenset({"VCPU", "MEMORY_MB", "VGPU"}))
    odd = snapshot(*consumers, holdings=Holdings(guests=frozenset({"guest"}), known={"guest": known}, told=has().told))

    found = find_all(odd)

    assert not [one for one in found if one.consumer == "guest" or one.safe]
