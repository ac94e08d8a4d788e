"""What an audit finds of consumers without a guest here, by what nova says of them."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from agent.audit.decide.findings import Finding, Kind
from agent.audit.decide.guests import find_all
from agent.audit.decide.snapshot import Providers, Snapshot
from agent.nova.answers import NovaMigration, NovaServer, NovaWitness
from reportclient.allocations import Allocation, Consumer, Float, GuestState, Holdings, Slots
from reportclient.ownership import MARKER
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

ROOT, AWAY = "root-uuid", "another-host"
STOCK = {"VCPU": Inventory(total=64), "MEMORY_MB": Inventory(total=65536)}
TREE = ObservedTree(
    (
        ObservedProvider(
            uuid=ROOT, generation=1, provider=Provider(name="host", inventories=STOCK, traits=frozenset({MARKER}))
        ),
    )
)
FLAVOR = {"VCPU": 2, "MEMORY_MB": 512}
LARGE = {"VCPU": 4, "MEMORY_MB": 1024}
RUNS = GuestState(active=True, project="p", user="u", disk_gb=0)
OFF = replace(RUNS, active=False)
ALL = frozenset({"stranger", "other"})


def consumer(uuid: str, slots: Slots | None = None, kind: str | None = None) -> Consumer:
    """As nova makes them: without a type."""
    slots = {ROOT: FLAVOR} if slots is None else slots
    return Consumer(uuid=uuid, generation=1, project="p", user="u", kind=kind, slots=slots, age_s=5000)


def snapshot(
    *consumers: Consumer, guests: Mapping[str, GuestState] | None = None, size: Mapping[str, int] = FLAVOR
) -> Snapshot:
    """The host with these guests, all of one size, and these consumers."""
    known = dict(guests or {})
    holdings = Holdings(
        guests=frozenset(known),
        floats=tuple(Float(uuid, name, amount, ("host",), "") for uuid in known for name, amount in size.items()),
        known=known,
        told=frozenset(FLAVOR),
    )
    return Snapshot(
        tree=TREE,
        allocations=tuple(
            Allocation(one.uuid, "host", name, amount)
            for one in consumers
            for name, amount in one.slots.get(ROOT, {}).items()
        ),
        holdings=holdings,
        providers=Providers(classes={"host": frozenset(STOCK)}, present=frozenset({"host"})),
        consumers={one.uuid: one for one in consumers},
    )


HERE = tuple(NovaServer(uuid=name, status="ACTIVE", host="nova-host") for name in ("guest", "bare", "f1"))


def told(
    *servers: NovaServer, migrations: tuple[NovaMigration, ...] = (), unknown: frozenset[str] = frozenset()
) -> NovaWitness:
    return NovaWitness(
        asked=ALL,
        host="nova-host",
        servers={one.uuid: one for one in (*HERE, *servers)},
        migrations={one.uuid: one for one in migrations},
        unknown=unknown,
    )


def server(host: str | None = "nova-host", status: str = "ACTIVE", task: str | None = None) -> NovaServer:
    return NovaServer(uuid="stranger", status=status, host=host, task=task)


def move(status: str, of: str = "guest") -> NovaMigration:
    return NovaMigration(uuid="stranger", status=status, server=of)


def kinds(found: tuple[Finding, ...]) -> set[tuple[Kind, str | None, bool]]:
    return {(one.kind, one.consumer, one.safe) for one in found}


def emptied(found: tuple[Finding, ...]) -> set[str]:
    """The consumers that the safe repairs take everything from."""
    rewrites = [each for one in found if one.repair and one.safe for each in one.repair.rewrites]
    return {one.consumer for one in rewrites if not one.after}


NEITHER = told(unknown=ALL)
UNASKED = NovaWitness()
SILENT = NovaWitness(asked=ALL, host="nova-host", silence="nova is away")


# -- servers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rests", "moves", "is_missing"),
    [
        pytest.param(server(status="SHUTOFF"), (), True, id="nova has it here"),
        pytest.param(server("another-nova-host", "SHUTOFF"), (), False, id="it moved away"),
        pytest.param(server(status="SHUTOFF", task="deleting"), (), False, id="nova is about to delete it"),
        pytest.param(server(status="VERIFY_RESIZE"), (), False, id="it awaits a confirmation"),
        pytest.param(server(status="UNKNOWN"), (), False, id="the database of its cell is away"),
        pytest.param(replace(server(status="SHUTOFF"), uuid="other"), (), False, id="nova does not know it"),
        pytest.param(server(status="SHUTOFF"), (move("finished", "stranger"),), False, id="its resize is finished"),
        pytest.param(server(status="SHUTOFF"), (move("confirmed", "stranger"),), True, id="its resize ended"),
        pytest.param(server(status="SHUTOFF"), (move("finished", "another"),), True, id="another server's resize"),
    ],
)
def test_a_stopped_server_without_rows_is_missing_by_nova_s_word_alone(
    rests: NovaServer, moves: tuple[NovaMigration, ...], is_missing: bool
) -> None:
    off = snapshot(guests={"stranger": OFF})
    asked = replace(off, doubted=off.without_rows_of_nova(running=False))

    assert asked.doubted == {"stranger"}
    assert off.without_rows_of_nova(running=True) == frozenset()
    assert find_all(off) == ()
    found = kinds(find_all(replace(asked, nova=told(rests, migrations=moves))))
    assert found == ({(Kind.MISSING, "stranger", True)} if is_missing else set())
    assert find_all(replace(asked, nova=SILENT)) == ()
    assert find_all(replace(asked, nova=told(rests, migrations=(move("post-migrating", "stranger"),)))) == ()
    moving = snapshot(guests={"stranger": replace(RUNS, migrating=True)})
    allocated_meanwhile = snapshot(consumer("stranger", {ROOT: LARGE}), guests={"stranger": OFF})
    for other in (moving, allocated_meanwhile):
        assert find_all(replace(other, doubted=asked.doubted, nova=told(rests))) == ()


def test_a_domain_that_is_not_nova_s_is_not_asked_for() -> None:
    own = snapshot(guests={"own": replace(OFF, project=None)})

    assert own.without_rows_of_nova(running=False) == frozenset()


@pytest.mark.parametrize(
    ("rests", "safe", "words"),
    [
        pytest.param(told(server()), True, "it runs here, and has no", id="nova has it here"),
        pytest.param(told(server("another-nova-host")), False, "on host another-nova-host", id="on another host"),
        pytest.param(told(server(None, "SHELVED_OFFLOADED")), False, "on host none", id="on none"),
        pytest.param(told(server(task="deleting")), False, "may still work on it", id="nova deletes it"),
        pytest.param(
            told(server(), migrations=(move("running", "stranger"),)), False, "may still work on it", id="it moves"
        ),
        pytest.param(NEITHER, False, "nova does not know stranger", id="deleted in nova"),
        pytest.param(SILENT, False, "nova did not answer", id="nova is away"),
        pytest.param(UNASKED, False, "the agent cannot ask nova", id="nova was not asked"),
    ],
)
def test_a_running_guest_without_rows_gets_them_back_only_by_nova_s_word(
    rests: NovaWitness, safe: bool, words: str
) -> None:
    runs = replace(snapshot(guests={"stranger": RUNS}), beside_nova=True, nova=rests)

    found = find_all(replace(runs, doubted=runs.without_rows_of_nova(running=True)))

    assert kinds(found) == {(Kind.MISSING, "stranger", safe)}
    assert all(words in one.seen for one in found)


@pytest.mark.parametrize("host", ["nova-host", "another-nova-host", None])
@pytest.mark.parametrize("kind", [None, "INSTANCE"])
def test_a_server_that_nova_knows_is_never_orphaned(host: str | None, kind: str | None) -> None:
    lost = replace(snapshot(consumer("stranger", kind=kind)), nova=told(server(host)))

    found = find_all(lost)

    assert kinds(found) == {(Kind.GUEST_LOST, "stranger", False)}
    assert {(one.repair, one.expected, one.actual) for one in found} == {(None, None, 2), (None, None, 512)}
    assert "nova has server stranger" in found[0].seen
    assert "openstack server reboot --hard stranger" in found[0].seen


@pytest.mark.parametrize("host", ["nova-host", "other", None])
@pytest.mark.parametrize(
    ("status", "task"),
    [
        ("ACTIVE", "migrating"),
        ("BUILD", "spawning"),
        ("BUILD", None),
        ("RESIZE", "resize_migrating"),
        ("SHELVED_OFFLOADED", "spawning"),
        ("SHUTOFF", "rebuilding"),
    ],
)
def test_a_server_that_nova_is_doing_something_with_is_no_finding(
    host: str | None, status: str, task: str | None
) -> None:
    """Its guest may be about to appear here, however long an image or a disk takes."""
    coming = replace(snapshot(consumer("stranger")), nova=told(server(host, status, task=task)))

    assert find_all(coming) == ()


BOTH = {ROOT: FLAVOR, AWAY: FLAVOR}


@pytest.mark.parametrize(
    ("known", "migrations", "kind"),
    [
        pytest.param(server("other"), (), Kind.DOUBLED, id="at rest on another host"),
        pytest.param(server("other"), (move("done", "stranger"),), Kind.DOUBLED, id="evacuated"),
        pytest.param(server("other"), (move("migrating", "stranger"),), Kind.GUEST_LOST, id="its migration is open"),
        pytest.param(server("other", "VERIFY_RESIZE"), (), Kind.GUEST_LOST, id="its resize awaits a person"),
        pytest.param(server(), (), Kind.GUEST_LOST, id="on this host"),
        pytest.param(server(None, "SHELVED_OFFLOADED"), (), Kind.GUEST_LOST, id="on no host"),
        pytest.param(server("other", "UNKNOWN"), (), Kind.GUEST_LOST, id="its cell is away"),
    ],
)
def test_a_server_with_allocations_on_two_hosts_loses_these_only_if_nova_has_it_at_rest_on_the_other(
    known: NovaServer, migrations: tuple[NovaMigration, ...], kind: Kind
) -> None:
    moves = tuple(replace(one, uuid="m") for one in migrations)

    found = find_all(replace(snapshot(consumer("stranger", BOTH)), nova=told(known, migrations=moves)))

    assert kinds(found) == {(kind, "stranger", kind is Kind.DOUBLED)}
    assert {(one.by_nova, one.arriving) for one in found} == {(True, kind is Kind.GUEST_LOST)}


def test_where_nova_does_not_name_this_host_no_server_is_taken_for_one_of_another_host() -> None:
    unnamed = replace(told(server("other")), host="")

    found = find_all(replace(snapshot(consumer("stranger", BOTH)), nova=unnamed))

    assert kinds(found) == {(Kind.GUEST_LOST, "stranger", False)}


# -- migrations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["finished", "migrating", "error", "confirmed", "unknown"])
@pytest.mark.parametrize("kind", [None, "MIGRATION"])
def test_a_migration_that_nova_knows_is_no_finding(status: str, kind: str | None) -> None:
    """As the old size of a resize on this host that awaits its confirmation."""
    resized = snapshot(
        consumer("guest", {ROOT: LARGE}), consumer("stranger", kind=kind), guests={"guest": RUNS}, size=LARGE
    )

    assert find_all(replace(resized, nova=told(migrations=(move(status),)))) == ()


@pytest.mark.parametrize(("kind", "finding"), [(None, Kind.ORPHANED), ("MIGRATION", Kind.LEAKED)])
def test_a_consumer_that_nova_does_not_know_is_certain_whoever_else_is_here(kind: str | None, finding: Kind) -> None:
    """Also where a guest of its owner has just its amounts, and where another one of them has no allocations."""
    here = snapshot(
        consumer("guest"), consumer("stranger", kind=kind), guests={"guest": RUNS, "bare": RUNS, "off": OFF}
    )

    found = find_all(replace(here, nova=NEITHER))

    assert kinds(found) == {(finding, "stranger", True), (Kind.MISSING, "bare", True)}
    assert emptied(found) == {"stranger"}
    assert not any(one.arriving for one in found)
    assert all("neither a server nor a migration" in one.seen for one in found if one.consumer == "stranger")


def test_findings_of_one_tenant_neither_hide_nor_explain_each_other() -> None:
    """Allocations of f1 deleted, the domain of another guest gone, and a migration that leaked: all of one flavor."""
    here = snapshot(consumer("stranger"), consumer("other"), guests={"f1": RUNS})
    nova = told(replace(server(), uuid="other"), unknown=frozenset({"stranger"}))

    asked, alone = find_all(replace(here, nova=nova)), find_all(here)

    assert kinds(asked) == {
        (Kind.MISSING, "f1", True),
        (Kind.ORPHANED, "stranger", True),
        (Kind.GUEST_LOST, "other", False),
    }
    assert kinds(alone) == {
        (Kind.MISSING, "f1", False),
        (Kind.ORPHANED, "stranger", False),
        (Kind.ORPHANED, "other", False),
    }
    assert not any("f1" in one.seen for one in (*asked, *alone) if one.consumer != "f1")


# -- guests without allocations here -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told_move", "size", "safe", "words"),
    [
        pytest.param(move("queued"), FLAVOR, None, [], id="nova moves it"),
        pytest.param(
            move("finished"), LARGE, True, ["it runs here"], id="it runs in its new size, beside what is kept"
        ),
        pytest.param(
            move("finished", "another"), FLAVOR, True, ["it runs here"], id="the migration is another guest's"
        ),
        pytest.param(
            move("error"),
            FLAVOR,
            False,
            ["status error", "compute-node-agent revert guest --migration stranger"],
            id="its migration ended: a person gives back what that keeps",
        ),
    ],
)
def test_a_guest_without_allocations_beside_a_migration_that_nova_knows(
    told_move: NovaMigration, size: Mapping[str, int], safe: bool | None, words: list[str]
) -> None:
    here = snapshot(consumer("stranger"), guests={"guest": RUNS}, size=size)

    found = find_all(replace(here, nova=told(migrations=(told_move,))))

    assert kinds(found) == (set() if safe is None else {(Kind.MISSING, "guest", safe)})
    assert {(one.resource_class, one.expected) for one in found} == (set() if safe is None else {*size.items()})
    assert all(each in one.seen for each in words for one in found)
    assert emptied(found) == set()


@pytest.mark.parametrize(
    ("nova", "beside", "safe"),
    [
        pytest.param(UNASKED, False, True, id="no nova here"),
        pytest.param(UNASKED, True, False, id="nova cannot be asked"),
        pytest.param(SILENT, True, False, id="nova does not answer"),
    ],
)
def test_a_guests_set_is_taken_back_from_its_keeper_only_where_nova_need_not_say(
    nova: NovaWitness, beside: bool, safe: bool
) -> None:
    here = replace(snapshot(consumer("stranger"), guests={"guest": RUNS}), nova=nova, beside_nova=beside)

    assert kinds(find_all(here)) == {(Kind.MISSING, "guest", safe)}


def test_guests_that_are_shut_off_explain_as_many_consumers_as_they_are() -> None:
    one = snapshot(consumer("stranger"), guests={"guest": OFF})
    two = snapshot(consumer("stranger"), consumer("other"), guests={"guest": OFF})
    both = snapshot(consumer("stranger"), consumer("other"), guests={"guest": OFF, "second": OFF})
    unlike = snapshot(consumer("stranger", {ROOT: LARGE}), guests={"guest": OFF})

    assert (find_all(one), find_all(both)) == ((), ())
    assert kinds(find_all(two)) == {(Kind.ORPHANED, "stranger", False), (Kind.ORPHANED, "other", False)}
    assert kinds(find_all(unlike)) == {(Kind.ORPHANED, "stranger", False)}


# -- guests with other allocations than they have ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kept", "nova", "expected"),
    [
        pytest.param(FLAVOR, UNASKED, set(), id="it has just what the guest has"),
        pytest.param({"VCPU": 1, "MEMORY_MB": 64}, UNASKED, {(Kind.WRONG_AMOUNT, "guest", False)}, id="it has not"),
        pytest.param(FLAVOR, NEITHER, {(Kind.WRONG_AMOUNT, "guest", True)}, id="nova does not know it"),
        pytest.param(FLAVOR, told(server()), {(Kind.WRONG_AMOUNT, "guest", True)}, id="it is another server"),
        pytest.param({"VCPU": 1}, told(migrations=(move("migrating"),)), set(), id="nova resizes the guest"),
        pytest.param(
            FLAVOR, told(migrations=(move("error"),)), {(Kind.WRONG_AMOUNT, "guest", False)}, id="nova ended its resize"
        ),
        pytest.param(
            FLAVOR,
            told(migrations=(move("migrating", "another"),)),
            {(Kind.WRONG_AMOUNT, "guest", True)},
            id="nova resizes another one",
        ),
    ],
)
def test_a_wrong_amount_is_hidden_by_the_guests_own_resize_only(
    kept: Mapping[str, int], nova: NovaWitness, expected: set[tuple[Kind, str, bool]]
) -> None:
    here = snapshot(consumer("guest", {ROOT: LARGE}), consumer("stranger", {ROOT: kept}), guests={"guest": RUNS})

    found = kinds(find_all(replace(here, nova=nova)))

    assert {one for one in found if one[1] == "guest"} == expected


# -- without nova's answer ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slots", "kind", "finding"),
    [
        pytest.param({ROOT: FLAVOR}, None, Kind.ORPHANED, id="orphaned"),
        pytest.param({ROOT: FLAVOR}, "INSTANCE", Kind.ORPHANED, id="orphaned instance"),
        pytest.param({ROOT: FLAVOR}, "MIGRATION", Kind.LEAKED, id="leaked"),
        pytest.param(BOTH, "INSTANCE", Kind.DOUBLED, id="doubled"),
    ],
)
@pytest.mark.parametrize(
    ("nova", "beside", "safe", "why"),
    [
        pytest.param(UNASKED, False, True, "", id="no nova here"),
        pytest.param(UNASKED, True, False, "set [nova] auth_type", id="nova cannot be asked"),
        pytest.param(SILENT, True, False, "nova did not answer whether it knows stranger", id="nova does not answer"),
        pytest.param(SILENT, False, False, "nova did not answer whether it knows stranger", id="configured, and away"),
    ],
)
def test_without_novas_answer_nothing_is_safe_on_a_host_of_nova(
    slots: Slots, kind: str | None, finding: Kind, nova: NovaWitness, beside: bool, safe: bool, why: str
) -> None:
    here = replace(snapshot(consumer("stranger", slots, kind)), nova=nova, beside_nova=beside)

    found = find_all(here)

    assert kinds(found) == {(finding, "stranger", safe)}
    assert all(why in one.seen for one in found)
    assert "nova is away" not in found[0].seen, "the reason is told once, not with each finding"


def test_a_consumer_that_is_too_young_to_be_judged_is_judged_as_without_nova() -> None:
    nova = replace(NEITHER, asked=frozenset(), unknown=frozenset())

    assert kinds(find_all(replace(snapshot(consumer("stranger")), nova=nova))) == {(Kind.ORPHANED, "stranger", True)}
