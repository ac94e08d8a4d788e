"""Operations on allocations on placement's own application: the mail of 2016, and each conflict of that of 2018."""

import json
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keystoneauth1 import exceptions

from agent.allocations.decide.sets import merge_set, moved_sets, replace_set, reverted_set
from agent.allocations.operations import TRIES, Ending, Operations, Result
from beds.by_hand import ByHand, claim_body
from beds.meddler import Act, Meddler, first, lost, raced
from reportclient.allocations import AllocationRequest, Slots
from reportclient.client import PlacementClient
from reportclient.errors import Rejected, Unavailable, UnsafePlan
from reportclient.plan import Rewrite
from reportclient.transport import Transport

pytestmark = pytest.mark.contract

HOST = {"VCPU": 8, "MEMORY_MB": 8192}
SMALL, LARGE = {"VCPU": 2, "MEMORY_MB": 2048}, {"VCPU": 4, "MEMORY_MB": 4096}
DISK = {"DISK_GB": 50}


@dataclass
class Claims:
    """Three hosts and storage that all share, on a placement; a guest i1 and its migration."""

    sender: Any
    rp: dict[str, str] = field(default_factory=lambda: {name: str(uuid.uuid4()) for name in ("A", "B", "C", "D")})
    i1: str = field(default_factory=lambda: str(uuid.uuid4()))
    migration: str = field(default_factory=lambda: str(uuid.uuid4()))

    def __post_init__(self) -> None:
        for name, stock in {"A": HOST, "B": HOST, "C": {"DISK_GB": 1000}, "D": HOST}.items():
            self.add(name, stock)
        self.by_hand.add_traits(self.rp["C"], "MISC_SHARES_VIA_AGGREGATE")

    @property
    def by_hand(self) -> ByHand:
        return ByHand(self.sender)

    def add(self, name: str, stock: Mapping[str, int], parent: str | None = None) -> None:
        own = self.rp.setdefault(name, str(uuid.uuid4()))
        totals = {key: {"total": total} for key, total in stock.items()}
        self.by_hand.add_provider(f"{name} {own}", own, parent=self.rp[parent] if parent else None, stock=totals)

    def record(self, consumer: str) -> Any:
        """A consumer as placement tells it."""
        return self.by_hand.send("GET", f"/allocations/{consumer}")

    def slots(self, **by_name: Mapping[str, int]) -> dict[str, dict[str, int]]:
        return {self.rp[name]: dict(resources) for name, resources in by_name.items()}

    def request(self, **by_name: Mapping[str, int]) -> AllocationRequest:
        slots = {provider: {"resources": resources} for provider, resources in self.slots(**by_name).items()}
        return AllocationRequest(json.dumps({"allocations": slots, "mappings": {"": list(slots)}}))

    def give(self, consumer: str, slots: Slots, kind: str | None = "INSTANCE") -> None:
        """By another's hand: the consumer has this now, whatever it had."""
        self.by_hand.claim(consumer, slots, kind, project="project", user="user")

    def held(self, consumer: str) -> dict[str, dict[str, int]]:
        """By the names of the providers."""
        names = {own: name for name, own in self.rp.items()}
        found = self.record(consumer)["allocations"]
        return {names[own]: record["resources"] for own, record in sorted(found.items(), key=lambda one: names[one[0]])}

    def generation(self, name: str) -> int:
        return int(self.by_hand.send("GET", f"/resource_providers/{self.rp[name]}")["generation"])

    def operations(self, sender: Any | None = None) -> Operations:
        return Operations(PlacementClient(Transport(sender or self.sender, where="placement")), pause=lambda: None)


@pytest.fixture
def world(placement_sender: Any) -> Claims:
    return Claims(placement_sender)


def test_the_example_of_the_mail_of_2016(world: Claims) -> None:
    """
    "We have an allocation for an instance i1 that is consuming 2 VCPU and 2048 MEMORY_MB on compute node rpA, 50
    DISK_GB on a shared storage pool rpC. Now, we need to migrate instance i1 to compute node rpB."
    """
    world.give(world.i1, world.slots(A=SMALL, C=DISK))
    before = world.generation("B")
    consumer_generation = world.record(world.i1)["consumer_generation"]
    sender = Meddler(world.sender)

    ending = world.operations(sender).replace(world.i1, [world.request(B=SMALL, C=DISK)])

    assert ending == Ending(told=Result.DONE, consumer=world.i1, held=world.slots(B=SMALL, C=DISK))
    assert sender.writes == 1
    assert world.held(world.i1) == {"B": SMALL, "C": DISK}
    assert world.generation("B") > before  # that of rpA, which only lost, is not moved by placement
    assert world.record(world.i1)["consumer_generation"] == consumer_generation + 1
    stale = claim_body(world.slots(A=SMALL), project="project", user="user", generation=consumer_generation)
    refused = world.sender.request(f"/allocations/{world.i1}", "PUT", raise_exc=False, microversion="1.39", json=stale)
    assert refused.status_code == 409
    assert refused.json()["errors"][0]["code"] == "placement.concurrent_update"
    assert world.held(world.i1) == {"B": SMALL, "C": DISK}


def test_shared_storage_that_a_request_does_not_speak_of_stays(world: Claims) -> None:
    world.give(world.i1, world.slots(A=SMALL, C=DISK))

    world.operations().replace(world.i1, [world.request(B=SMALL)])

    assert world.held(world.i1) == {"B": SMALL, "C": DISK}


def test_a_claim_is_passed_on_as_it_was_offered(world: Claims) -> None:
    seen: list[Any] = []

    class Watching:
        def request(self, url: str, method: str, **kwargs: Any) -> Any:
            seen.append(kwargs.get("json"))
            return world.sender.request(url, method, **kwargs)

    offered = world.request(B=SMALL)
    spawn(world.operations(Watching()), world, offered)

    assert len(seen) == 1
    assert {"allocations": seen[0]["allocations"], "mappings": seen[0]["mappings"]} == json.loads(offered.text)


Act_ = Callable[[Operations, Claims], Ending]


def spawn(operations: Operations, world: Claims, *requests: AllocationRequest) -> Ending:
    requests = requests or (world.request(B=SMALL, C=DISK),)
    return operations.spawn(world.i1, project="project", user="user", kind="INSTANCE", requests=requests)


def repair(operations: Operations, world: Claims) -> Ending:
    """What an audit read, with other amounts."""
    read = operations.client.consumer(world.i1)
    assert read is not None
    return operations.carry_out(world.i1, [Rewrite.of(read, world.slots(A=LARGE, C=DISK))])


@dataclass(frozen=True)
class Row:
    """One operation: what guest and migration have before it, who conflicts, and what they have after it."""

    do: Act_
    guest: dict[str, Mapping[str, int]]
    migration: dict[str, Mapping[str, int]]
    after: dict[str, Mapping[str, int]]  # of the guest
    kept: dict[str, Mapping[str, int]]  # of the migration
    changes: str = "guest"  # whose allocations somebody else changes in between
    changed: Result | None = Result.CONFLICT  # and how it ends then; None: the change is no matter
    full: Result = Result.NO_ROOM  # how it ends when its target has no room left


HERE: dict[str, Mapping[str, int]] = {"A": SMALL, "C": DISK}
THERE: dict[str, Mapping[str, int]] = {"B": SMALL, "C": DISK}
NOTHING: dict[str, Mapping[str, int]] = {}

ROWS: dict[str, Row] = {
    "spawn": Row(spawn, NOTHING, NOTHING, THERE, NOTHING, changed=Result.EXISTS),
    "replace": Row(
        lambda ops, world: ops.replace(world.i1, [world.request(A=LARGE)]),
        HERE, NOTHING, {"A": LARGE, "C": DISK}, NOTHING,
    ),
    "merge": Row(
        lambda ops, world: ops.merge(world.i1, [world.request(B=LARGE)], world.request(A=SMALL)),
        HERE, NOTHING, {"B": LARGE, "C": DISK}, NOTHING, changed=Result.DONE,
    ),
    "evacuate": Row(
        lambda ops, world: ops.evacuate(world.i1, [world.request(B=SMALL, C=DISK)]),
        HERE, NOTHING, {"A": SMALL, "B": SMALL, "C": DISK}, NOTHING,
    ),
    "move": Row(
        lambda ops, world: ops.move(world.i1, world.migration, [world.request(B=SMALL, C=DISK)]),
        HERE, NOTHING, THERE, {"A": SMALL},
    ),
    "confirm": Row(
        lambda ops, world: ops.confirm(world.migration), THERE, {"A": SMALL}, THERE, NOTHING, changes="migration"
    ),
    "revert": Row(
        lambda ops, world: ops.revert(world.i1, world.migration), THERE, {"A": SMALL}, HERE, NOTHING
    ),
    "release": Row(lambda ops, world: ops.release(world.i1), HERE, NOTHING, NOTHING, NOTHING),
    "forced release": Row(
        lambda ops, world: ops.release_forced(world.i1), HERE, NOTHING, NOTHING, NOTHING, changed=None
    ),
    "repair": Row(lambda ops, world: repair(ops, world), HERE, NOTHING, {"A": LARGE, "C": DISK}, NOTHING),
}  # fmt: skip


def run(world: Claims, row: Row, act: Act | None = None, times: int = 1) -> tuple[Ending, int]:
    """How an operation ends, and its writes, with somebody else's ``act`` at each of the first ``times`` writes."""
    if row.guest:
        world.give(world.i1, world.slots(**row.guest))
    if row.migration:
        world.give(world.migration, world.slots(**row.migration), "MIGRATION")
    sender = Meddler(world.sender, act, times)
    return row.do(world.operations(sender), world), sender.writes


def stands(world: Claims) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]:
    return world.held(world.i1), world.held(world.migration)


each = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)


@each
def test_nobody_else_is_there(row: Row, world: Claims) -> None:
    ending, writes = run(world, row)

    assert (ending.told, writes) == (Result.DONE, 1)
    assert stands(world) == (row.after, row.kept)
    subject, expected = (world.migration, row.kept) if row.changes == "migration" else (world.i1, row.after)
    assert (ending.consumer, ending.held) == (subject, world.slots(**expected))


@each
def test_somebody_changes_the_consumer_in_between(row: Row, world: Claims) -> None:
    subject = world.i1 if row.changes == "guest" else world.migration
    theirs = {"A": {"VCPU": 2, "MEMORY_MB": 2048}, "C": {"DISK_GB": 60}}

    ending, _ = run(world, row, first(lambda: world.give(subject, world.slots(**theirs))))

    if row.changed is None:
        assert (ending.told, stands(world)) == (Result.DONE, (row.after, row.kept))
    elif row.changed is Result.DONE:  # merged with what they made of it
        assert (ending.told, stands(world)) == (Result.DONE, ({"B": LARGE, "C": {"DISK_GB": 60}}, row.kept))
    else:
        assert ending.told is row.changed
        guest, kept = (theirs, row.migration) if row.changes == "guest" else (row.guest, theirs)
        assert stands(world) == (guest, kept)  # theirs stands, and nothing of ours was written
        assert subject in ending.note


def test_a_migration_that_exists_already_is_not_written_over(world: Claims) -> None:
    row = ROWS["move"]

    ending, _ = run(world, row, first(lambda: world.give(world.migration, world.slots(A=SMALL))))

    assert ending.told is Result.EXISTS
    assert world.migration in ending.note
    assert stands(world) == (row.guest, {"A": SMALL})


@each
def test_others_write_on_its_providers_and_it_goes_through_in_the_end(row: Row, world: Claims) -> None:
    ending, writes = run(world, row, raced, times=TRIES - 1)

    assert (ending.told, writes) == (Result.DONE, TRIES)
    assert stands(world) == (row.after, row.kept)


@each
def test_others_write_on_its_providers_without_end(row: Row, world: Claims) -> None:
    ending, writes = run(world, row, raced, times=1000)

    assert (ending.told, writes) == (Result.CONFLICT, TRIES)
    assert stands(world) == (row.guest, row.migration)
    assert "try again later" in ending.note


@pytest.mark.parametrize("operation", ["spawn", "replace", "merge", "evacuate", "move"])
def test_its_target_has_no_room_any_more(operation: str, world: Claims) -> None:
    row = ROWS[operation]
    target = "A" if operation == "replace" else "B"
    others = world.slots(**{target: {"VCPU": 5 if target == "A" else 8}})

    ending, _ = run(world, row, first(lambda: world.give(str(uuid.uuid4()), others)))

    assert ending.told is Result.NO_ROOM
    assert stands(world) == (row.guest, row.migration)
    assert world.rp[target] in ending.note


def test_a_host_that_shrank_meanwhile_has_no_room_for_a_revert(world: Claims) -> None:
    """Units of a class that all became fewer than one guest may take of it."""
    row = ROWS["revert"]

    ending, _ = run(world, row, first(lambda: world.by_hand.change_stock(world.rp["A"], VCPU={"max_unit": 1})))

    assert ending.told is Result.NO_ROOM
    assert stands(world) == (row.guest, row.migration)


@each
def test_the_answer_is_lost_although_it_was_done(row: Row, world: Claims) -> None:
    ending, writes = run(world, row, lost)

    assert (ending.told, writes) == (Result.DONE, 1)
    assert stands(world) == (row.after, row.kept)


@each
def test_nothing_is_said_to_be_done_while_placement_does_not_answer(row: Row, world: Claims) -> None:
    def down(_send: object) -> Any:
        raise exceptions.ConnectFailure("down")

    with pytest.raises(Unavailable, match="no connection: does it run"):
        run(world, row, down, times=1000)

    assert stands(world) == (row.guest, row.migration)


def test_a_uuid_of_which_a_claim_was_refused_can_be_claimed_later(world: Claims) -> None:
    """Placement leaves a consumer behind that holds nothing and cannot be seen, and refuses it as one that is new."""
    unknown = AllocationRequest(json.dumps({"allocations": {str(uuid.uuid4()): {"resources": SMALL}}}))
    with pytest.raises(Rejected, match="that does not exist"):
        spawn(world.operations(), world, unknown)

    ending = spawn(world.operations(), world, world.request(A=SMALL))

    assert (ending.told, world.held(world.i1)) == (Result.DONE, {"A": SMALL})


def test_what_its_caller_objects_to_is_not_written(world: Claims) -> None:
    world.give(world.i1, world.slots(A=LARGE))
    operations = replace(world.operations(), objection=lambda sent: f"{len(sent)} of {sent[0].consumer}")

    ending = operations.replace(world.i1, [world.request(A=SMALL)])

    assert (ending.told, ending.note, ending.held) == (Result.REFUSED, f"1 of {world.i1}", world.slots(A=LARGE))
    assert world.held(world.i1) == {"A": LARGE}


def test_a_guest_is_not_its_own_migration(world: Claims) -> None:
    world.give(world.i1, world.slots(A=SMALL))
    operations = world.operations()

    assert operations.move(world.i1, world.i1, [world.request(B=SMALL)]).told is Result.CONFLICT
    assert operations.revert(world.i1, world.i1).told is Result.CONFLICT
    assert world.held(world.i1) == {"A": SMALL}


def test_a_guest_is_evacuated_to_a_host_once(world: Claims) -> None:
    world.give(world.i1, world.slots(A=SMALL, C=DISK))
    request = world.request(B=SMALL)

    tolds = [world.operations().evacuate(world.i1, [request]).told for _ in range(2)]

    assert tolds == [Result.DONE, Result.EXISTS]
    assert world.held(world.i1) == {"A": SMALL, "B": SMALL, "C": DISK}


def test_a_guest_that_was_evacuated_is_not_evacuated_to_another_host_too(world: Claims) -> None:
    world.give(world.i1, world.slots(A=SMALL, C=DISK))

    endings = [world.operations().evacuate(world.i1, [world.request(**{name: SMALL})]) for name in ("B", "D")]

    assert [ending.told for ending in endings] == [Result.DONE, Result.EXISTS]
    assert all(f"{name} {world.rp[name]}" in endings[1].note for name in ("A", "B"))
    assert world.held(world.i1) == {"A": SMALL, "B": SMALL, "C": DISK}


def test_a_guest_is_not_evacuated_to_another_cell_of_a_host_that_it_is_on(world: Claims) -> None:
    for name in ("B0", "B1"):
        world.add(name, HOST, parent="B")
    world.give(world.i1, world.slots(B0=SMALL))

    ending = world.operations().evacuate(world.i1, [world.request(B1=SMALL)])

    assert (ending.told, world.held(world.i1)) == (Result.EXISTS, {"B0": SMALL})


@dataclass
class Late:
    """A write whose answer does not come in time, and that placement carries out ``after`` so many more reads."""

    sender: Any
    after: int
    writes: int = 0
    waiting: Callable[[], Any] | None = None

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        if method == "GET":
            self.after -= 1
            if self.waiting and self.after < 0:
                self.waiting()
                self.waiting = None
            return self.sender.request(url, method, **kwargs)
        self.writes += 1
        if self.writes == 1:
            self.waiting = partial(self.sender.request, url, method, **kwargs)
            raise exceptions.ConnectTimeout("no answer")
        return self.sender.request(url, method, **kwargs)


@pytest.mark.parametrize("after", range(6))
def test_a_merge_that_placement_carries_out_late_is_added_once(after: int, world: Claims) -> None:
    """Whenever that is: between any two reads that look whether it was done, or after the last one."""
    world.give(world.i1, world.slots(A=SMALL))

    with suppress(Unavailable):  # where two reads do not agree on whether it was done
        ending = world.operations(Late(world.sender, after)).merge(world.i1, [world.request(B=SMALL)])
        assert ending.told is Result.DONE or "may have been carried out" in ending.note

    assert world.held(world.i1) == {"A": SMALL, "B": SMALL}


def test_a_merge_that_a_proxy_sends_twice_is_added_once(world: Claims) -> None:
    """The proxy's second request meets what the first one did; another client that merges the same looks like it."""
    world.give(world.i1, world.slots(A=SMALL))

    def twice(send: Callable[[], Any]) -> Any:
        send()
        return send()

    ending = world.operations(Meddler(world.sender, twice)).merge(world.i1, [world.request(B=SMALL)])

    assert ending.told is Result.CONFLICT
    assert "may have been carried out" in ending.note
    assert world.held(world.i1) == {"A": SMALL, "B": SMALL}


@pytest.mark.parametrize("amount", ["1.9", '"2"', "true", "Infinity", "1e400", "NaN", "0", "-1"])
def test_amounts_are_whole_numbers(amount: str, world: Claims) -> None:
    world.give(world.i1, world.slots(A=SMALL))
    text = f'{{"allocations": {{"{world.rp["A"]}": {{"resources": {{"VCPU": {amount}}}}}}}}}'

    with pytest.raises(ValueError, match=r"number|less than 1"):
        world.operations().replace(world.i1, [AllocationRequest(text)])


def test_the_first_alternate_with_room_is_taken(world: Claims) -> None:
    world.give(str(uuid.uuid4()), world.slots(A={"VCPU": 7}))

    ending = spawn(world.operations(), world, world.request(A=SMALL), world.request(B=SMALL))

    assert ending.told is Result.DONE
    assert world.held(world.i1) == {"B": SMALL}


def test_a_resize_on_the_same_host_keeps_the_old_size_until_it_is_confirmed(world: Claims) -> None:
    operations = world.operations()
    world.give(world.i1, world.slots(A=SMALL, C=DISK))

    operations.move(world.i1, world.migration, [world.request(A=LARGE, C=DISK)])

    assert stands(world) == ({"A": LARGE, "C": DISK}, {"A": SMALL})
    operations.revert(world.i1, world.migration)
    assert stands(world) == ({"A": SMALL, "C": DISK}, {})


@pytest.mark.parametrize("kind", ["INSTANCE", "CUSTOM_THING"])
def test_project_user_and_type_are_kept(kind: str, world: Claims) -> None:
    operations = world.operations()
    world.give(world.i1, world.slots(A=SMALL), kind)

    operations.move(world.i1, world.migration, [world.request(B=SMALL)])
    kept = world.record(world.migration)
    operations.revert(world.i1, world.migration)
    operations.replace(world.i1, [world.request(A=LARGE)])

    for found, its in (kept, "MIGRATION"), (world.record(world.i1), kind):
        assert (found["project_id"], found["user_id"], found["consumer_type"]) == ("project", "user", its)


def test_a_guest_without_a_type_stays_without(world: Claims) -> None:
    world.give(world.i1, world.slots(A=SMALL), None)

    world.operations().move(world.i1, world.migration, [world.request(B=SMALL)])

    found = [world.record(one)["consumer_type"] for one in (world.i1, world.migration)]
    assert found == ["unknown", "unknown"]
    assert stands(world) == ({"B": SMALL}, {"A": SMALL})


def test_whoever_is_not_there_is_told_so(world: Claims) -> None:
    operations = world.operations()
    world.give(world.i1, world.slots(A=SMALL))
    nobody = str(uuid.uuid4())

    endings = [
        operations.replace(nobody, [world.request(B=SMALL)]),
        operations.merge(nobody, [world.request(B=SMALL)]),
        operations.evacuate(nobody, [world.request(B=SMALL)]),
        operations.move(nobody, world.migration, [world.request(B=SMALL)]),
        operations.confirm(nobody),
        operations.revert(world.i1, nobody),
        operations.revert(nobody, world.i1),
        operations.release(nobody),
        operations.release_forced(nobody),
    ]

    assert {ending.told for ending in endings} == {Result.ABSENT}


def test_usages_are_told_by_project_and_user(world: Claims) -> None:
    project, user = str(uuid.uuid4()), str(uuid.uuid4())
    operations = world.operations()
    for owner in (user, str(uuid.uuid4())):
        operations.spawn(
            str(uuid.uuid4()), project=project, user=owner, kind="INSTANCE", requests=[world.request(A=SMALL)]
        )

    client = operations.client
    assert client.usages(project) == {"INSTANCE": {"MEMORY_MB": 4096, "VCPU": 4}}
    assert client.usages(project, user) == {"INSTANCE": {"MEMORY_MB": 2048, "VCPU": 2}}
    assert client.usages(str(uuid.uuid4())) == {}
    assert client.usages("\udcff") == {}  # a byte of a command line that is no UTF-8


sets = st.dictionaries(
    st.sampled_from("ABCD"),
    st.dictionaries(st.sampled_from(("VCPU", "MEMORY_MB", "DISK_GB")), st.integers(1, 9), min_size=1),
    min_size=1,
)


@given(sets, sets, st.frozensets(st.sampled_from("CD")))
def test_a_move_and_back_is_as_before(held: Slots, request: Slots, sharing: frozenset[str]) -> None:
    """Or it is refused, as what it takes of shared storage was nowhere before."""
    try:
        kept, guest = moved_sets(held, request, sharing)
    except UnsafePlan:
        before = {name for resources in held.values() for name in resources}
        assert any(name not in before for one in sharing for name in request.get(one, {}))
        return

    assert reverted_set(guest, kept, sharing) == held


@given(sets, sets, st.frozensets(st.sampled_from("CD")))
def test_a_guest_that_moves_has_what_was_asked_for_and_nothing_of_its_old_host(
    held: Slots, request: Slots, sharing: frozenset[str]
) -> None:
    guest = replace_set(held, request, sharing)

    for uuid_, resources in request.items():
        assert resources.items() <= guest[uuid_].items()
    assert all(uuid_ in request or uuid_ in sharing for uuid_ in guest)


@given(sets, sets, sets)
def test_what_others_own_of_a_consumer_survives_a_merge(others: Slots, before: Slots, request: Slots) -> None:
    whole = merge_set(others, {}, before)

    assert merge_set(merge_set(whole, before, request), request, {}) == others
