"""What an audit asks nova, and what placement holds after its repairs, on a whole host."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from agent.audit.audit import AuditResult, witness
from agent.audit.decide.findings import Kind
from agent.audit.heal import Healed, RepairOutcome, heal
from agent.nova.client import NovaClient
from agent.service.rounds import Audits
from agent.settings.read import keep_in
from agent.state.audit_memory import write_memory
from agent.sync.run import run_pass
from beds.nova import HOST, Direct, FakeNova, failing
from beds.worlds import HASTY, ROOT, World, worlds
from drivers.facts import ServiceSigns
from reportclient.ownership import OWNER_NOVA

LOST, MOVED, NOBODY = (f"00000000-0000-0000-0000-0000000000a{number}" for number in (1, 2, 3))
SMALL = {"VCPU": 1, "MEMORY_MB": 64}


@pytest.fixture(scope="module")
def make() -> Iterator[Any]:
    with worlds() as maker:
        yield maker


@pytest.fixture
def world(make: Any) -> World:
    """A host with one guest, and nothing else."""
    found: World = make(shared=False)
    found.take()
    found.spawn("float", 0, None)
    return found


@pytest.fixture
def nova() -> FakeNova:
    """A nova that knows the host, a server whose guest is lost, and a resize."""
    found = FakeNova(hypervisors={ROOT: HOST})
    found.add_server(LOST)
    found.add_migration(MOVED, of="a-guest", status="finished")
    return found


def claim(world: World, consumer: str, kind: str = "INSTANCE", project: str = "p") -> None:
    body = {
        "allocations": {ROOT: {"resources": SMALL}},
        "project_id": project,
        "user_id": "u",
        "consumer_generation": None,
        "consumer_type": kind,
    }
    assert world._send("PUT", f"/allocations/{consumer}", body).status_code == 204


def claim_three(world: World) -> None:
    claim(world, LOST)
    claim(world, MOVED, "MIGRATION")
    claim(world, NOBODY)


def audit(world: World, nova: FakeNova | None, **options: Any) -> AuditResult:
    world.clock.now += 100_000
    node = replace(world.node(), nova=lambda: NovaClient(Direct(nova), "nova") if nova else None)
    found = witness(node, **options)
    write_memory(world.settings.folders.state, found.root_uuid, found.memory)
    return found


def healed(world: World, nova: FakeNova | None) -> tuple[RepairOutcome, ...]:
    audit(world, nova)
    return heal(world.node(), audit(world, nova), HASTY)


def mark_as_novas(world: World) -> None:
    path = f"/resource_providers/{ROOT}/traits"
    body = world._send("GET", path).json()
    assert world._send("PUT", path, body | {"traits": [*body["traits"], OWNER_NOVA]}).status_code == 200


def test_nova_is_not_asked_where_nothing_is_suspected(world: World, nova: FakeNova) -> None:
    assert audit(world, nova).findings == ()
    assert nova.asked == []


def test_nova_is_not_asked_about_consumers_that_are_too_young_to_be_judged(world: World, nova: FakeNova) -> None:
    claim(world, NOBODY)
    world.settings = replace(world.settings, audit_grace_s=10**9)

    assert (audit(world, nova).findings, nova.asked) == ((), [])


def test_only_what_nova_does_not_know_is_taken_away(world: World, nova: FakeNova) -> None:
    claim_three(world)

    told = audit(world, nova)
    requests = len(nova.asked)
    healed(world, nova)

    assert {(one.kind, one.consumer, one.safe) for one in told.findings} == {
        (Kind.GUEST_LOST, LOST, False),
        (Kind.ORPHANED, NOBODY, True),
    }
    assert requests == 4 + 3 + 1
    assert (world.rows(NOBODY), bool(world.rows(LOST)), bool(world.rows(MOVED))) == ({}, True, True)
    assert {one.kind for one in audit(world, nova).findings} == {Kind.GUEST_LOST}


@pytest.mark.parametrize("fault", [failing(500), failing(403, "os-migrations"), failing(500, "marker")])
def test_nothing_is_healed_while_nova_does_not_answer(world: World, nova: FakeNova, fault: Any) -> None:
    claim_three(world)
    nova.fault = fault
    assert audit(world, nova).silence

    outcomes = healed(world, nova)

    assert not any(one.healed is Healed.HEALED for one in outcomes)
    assert all(world.rows(uuid) for uuid in (LOST, MOVED, NOBODY))
    nova.fault = lambda _request: None
    healed(world, nova)
    assert world.rows(NOBODY) == {}


@pytest.mark.parametrize("running", [True, False])
def test_beside_nova_and_without_its_credentials_nothing_is_safe(world: World, running: bool) -> None:
    claim_three(world)
    if running:
        world.settings = replace(keep_in(world.settings, world.settings.folders.state), recorded=False)
        (world.settings.folders.state / "compute_id").write_text(f"{ROOT}\n", encoding="utf-8")
    else:
        mark_as_novas(world)
    node = replace(world.node(), probe=lambda name: ServiceSigns(processes=(7,) if name == "nova-compute" else ()))
    world.clock.now += 100_000

    found = witness(node)

    assert {(one.kind, one.safe) for one in found.findings} == {(Kind.ORPHANED, False), (Kind.LEAKED, False)}
    assert all("set [nova] auth_type" in one.seen for one in found.findings)
    assert found.silence == ""


def test_a_repair_needs_novas_answer_at_two_audits(world: World, nova: FakeNova) -> None:
    claim(world, NOBODY)
    nova.fault = failing(500)
    for _ in range(3):
        audit(world, nova)
    nova.fault = lambda _request: None

    first = heal(world.node(), audit(world, nova), HASTY)
    before = world.rows(NOBODY)
    heal(world.node(), audit(world, nova), HASTY)

    assert all("a later audit must find it again" in one.why for one in first)
    assert (bool(before), world.rows(NOBODY)) == (True, {})


def test_a_host_without_nova_heals_as_before(world: World) -> None:
    claim_three(world)

    healed(world, None)

    assert not any(world.rows(uuid) for uuid in (LOST, MOVED, NOBODY))


def test_the_service_tells_once_why_novas_answer_is_missing(
    world: World, nova: FakeNova, caplog: pytest.LogCaptureFixture
) -> None:
    claim_three(world)
    world.clock.now += 100_000
    audits, client = Audits(HASTY), NovaClient(Direct(nova), "nova")

    def told() -> int:
        caplog.clear()
        audits.take(replace(world.node(), nova=lambda: client), run_pass(world.node()), deep=True)
        return sum("no finding that needs nova's answer is repaired" in one.message for one in caplog.records)

    nova.fault = failing(500)
    first = [told(), told()]
    nova.fault = lambda _request: None
    second = [told()]
    nova.fault = failing(500)

    assert (first, second, told()) == ([1, 0], [0], 1)
