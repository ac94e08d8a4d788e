"""What an audit finds on a whole host, and what placement holds once its repairs were carried out."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from agent.audit.audit import witness
from agent.audit.decide.findings import Finding, Kind
from agent.audit.heal import Healed, HealPolicy, heal
from agent.state.audit_memory import write_memory
from agent.sync.leave import hand_over_node
from agent.sync.outcome import Status
from beds.worlds import ROOT, World, worlds
from drivers.facts import Devices, HostFacts, MdevParent, MdevType, Tenant
from drivers.policy import MdevRule
from hardware import at

ORPHAN = "00000000-0000-0000-0000-0000000000aa"
MIGRATION = "00000000-0000-0000-0000-0000000000bb"
LONG_S = 100_000.0


@pytest.fixture(scope="module")
def make() -> Iterator[Any]:
    with worlds() as maker:
        yield maker


def findings(world: World, *, light: bool = False) -> tuple[Finding, ...]:
    """What an audit finds, long after all that was done; the next one remembers it."""
    world.clock.now += LONG_S
    found = witness(world.node(), light=light)
    write_memory(world.settings.folders.state, found.root_uuid, found.memory)
    return found.findings


def claim(
    world: World, consumer: str, slots: dict[str, dict[str, int]], *, user: str = "u", kind: str | None = "INSTANCE"
) -> None:
    """A consumer as another client makes it; without a ``kind``, one that speaks a microversion before types."""
    body = {
        "allocations": {uuid: {"resources": resources} for uuid, resources in slots.items()},
        "project_id": "p",
        "user_id": user,
        "consumer_generation": None,
        **({"consumer_type": kind} if kind else {}),
    }
    spoken = "1.39" if kind else "1.37"
    assert world.memory.request(f"/allocations/{consumer}", "PUT", json=body, microversion=spoken).status_code == 204


def child(world: World, ends: str) -> str:
    """The uuid of a provider by the end of its name."""
    return next(uuid for uuid, (name, _) in world.tree().items() if name.endswith(ends))


@pytest.mark.parametrize(
    ("tenant", "why"),
    [
        pytest.param(Tenant("p", "u", None), "DISK_GB", id="nobody tells its disk"),
        pytest.param(Tenant("p", "u", 20, {"CUSTOM_LICENSE": 1}), "CUSTOM_LICENSE", id="a class of others"),
        pytest.param(Tenant("p", "u", 20, {"DISK_GB": 5}), "DISK_GB", id="another amount of disk"),
        pytest.param(Tenant("p", "u", 20), "", id="all is told"),
        pytest.param(Tenant("p", "u", 20, {"CUSTOM_C2_FIRST": 1}), "", id="a class that the hypervisor tells"),
    ],
)
def test_a_guest_is_allocated_again_only_with_all_that_it_had(make: Any, tenant: Tenant, why: str) -> None:
    world: World = make(shared=False)
    world.take()
    world.spawn("bound", 0, 2)
    (uuid,) = world.guests
    world.guests[uuid] = replace(world.guests[uuid], guest=replace(world.guests[uuid].guest, tenant=tenant))
    world._send("DELETE", f"/allocations/{uuid}")

    found = findings(world)
    world.audit()

    assert {(one.kind.value, one.safe, one.repair is not None) for one in found} == {("missing", not why, not why)}
    assert not why or all(why in one.seen and "compute-node-agent claim" in one.seen for one in found)
    assert ("DISK_GB" in world.rows(uuid).get("host", {})) == (not why)


@pytest.mark.parametrize(
    ("policy", "moved"),
    [
        pytest.param(HealPolicy(kinds=frozenset({Kind.WRONG_PROVIDER}), at_once=True), True, id="at once"),
        pytest.param(HealPolicy(kinds=frozenset({Kind.WRONG_PROVIDER})), False, id="after the waiting times"),
        pytest.param(HealPolicy(at_once=True), False, id="another kind"),
    ],
)
def test_misplaced_rows_go_to_where_the_guest_started(make: Any, policy: HealPolicy, moved: bool) -> None:
    world: World = make(layout="cells")
    uuid, right = started_on_another_cell(world)

    result = witness(world.node())
    outcomes = heal(world.node(), result, policy)

    assert (result.findings, result.young) == ((), (uuid,))
    assert {one.healed for one in outcomes} == ({Healed.HEALED} if moved else set())
    assert (world.rows(uuid) == right) == moved


AT_ONCE = HealPolicy(kinds=frozenset({Kind.WRONG_PROVIDER}), at_once=True)


@pytest.mark.parametrize(
    ("more_mb", "of"),
    [
        pytest.param(1, None, id="where an amount is wrong too"),
        pytest.param(0, "u", id="while a resize on this host awaits its confirmation: its migration has where it is"),
        pytest.param(
            0, "its owner", id="while an administrator resizes an old server: its migration is another user's"
        ),
    ],
)
def test_nothing_moves_at_once_where_the_guest_may_not_have_moved(make: Any, more_mb: int, of: str | None) -> None:
    world: World = make(layout="cells")
    uuid, right = started_on_another_cell(world, more_mb)
    before = world.rows(uuid)
    if of:
        claim(world, MIGRATION, by_uuid(world, right), kind="MIGRATION", user=of)

    result = witness(world.node())
    outcomes = heal(world.node(), result, replace(AT_ONCE, kinds=frozenset(Kind)))

    assert (result.findings, outcomes, world.rows(uuid)) == ((), (), before)


def test_rows_that_changed_since_the_look_stay_though_their_consumer_has_the_same_generation(make: Any) -> None:
    """The guest is being resized to another host: placement made its consumer anew, with the first generation."""
    world: World = make(layout="cells")
    uuid, _ = started_on_another_cell(world)
    result = witness(world.node())
    world._send("DELETE", f"/allocations/{uuid}")
    claim(world, uuid, {child(world, "NUMA1"): {"VCPU": 1}})

    outcomes = heal(world.node(), result, AT_ONCE)

    assert {one.healed for one in outcomes} == {Healed.FAILED}
    assert "changed meanwhile" in outcomes[0].why
    assert world.rows(uuid) == {"host_NUMA1": {"VCPU": 1}}


@pytest.mark.parametrize(
    ("kind", "resources", "healed"),
    [
        ("INSTANCE", {"VCPU": 1, "MEMORY_MB": 64}, Healed.HEALED),
        (None, {"VCPU": 1}, Healed.HEALED),
        (None, {"VCPU": 2, "MEMORY_MB": 700}, Healed.HEALED),  # a new server: nova writes no types
        ("OTHER", {"VCPU": 1, "MEMORY_MB": 64}, Healed.HEALED),
        ("MIGRATION", {}, Healed.FAILED),
        (None, {}, Healed.FAILED),
    ],
)
def test_rows_move_though_somebody_came_who_is_no_migration(
    make: Any, kind: str | None, resources: dict[str, int], healed: Healed
) -> None:
    """On a busy cloud somebody always came since the look; a migration has just what the guest has."""
    world: World = make(layout="cells")
    uuid, right = started_on_another_cell(world)
    before = world.rows(uuid)
    result = witness(world.node())
    slots = {child(world, "NUMA1"): resources} if resources else by_uuid(world, before)
    claim(world, MIGRATION, slots, kind=kind)

    outcomes = heal(world.node(), result, AT_ONCE)

    assert {one.healed for one in outcomes} == {healed}
    assert healed is Healed.HEALED or MIGRATION in outcomes[0].why
    assert world.rows(uuid) == (right if healed is Healed.HEALED else before)


def test_misplaced_rows_are_a_new_finding_once_their_consumer_is_old_enough(make: Any) -> None:
    world: World = make(layout="cells")
    started_on_another_cell(world)
    young = witness(world.node())
    write_memory(world.settings.folders.state, young.root_uuid, young.memory)

    world.clock.now += LONG_S
    found = witness(world.node())

    assert (young.findings, len(found.findings)) == ((), len(young.early))
    assert {found.memory.sightings[one.key].looks for one in found.findings} == {1}


def by_uuid(world: World, rows: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {child(world, name): dict(resources) for name, resources in rows.items()}


def started_on_another_cell(world: World, more_mb: int = 0) -> tuple[str, dict[str, dict[str, int]]]:
    """A guest that was allocated on cell 1 a moment ago, and is bound to cell 0; with what it should have."""
    world.take()
    world.spawn("bound", 0, None)
    (uuid,) = world.guests
    right = world.rows(uuid)
    slots = by_uuid(world, right)
    slots[child(world, "NUMA1")] = moving = slots.pop(child(world, "NUMA0"))
    moving["MEMORY_MB"] += more_mb
    world._send("DELETE", f"/allocations/{uuid}")
    claim(world, uuid, slots)
    world.settings = replace(world.settings, audit_grace_s=600)
    return uuid, right


def test_an_orphan_goes_with_all_its_rows(make: Any) -> None:
    """Its guest is gone, so nobody has the bandwidth below our root either."""
    world: World = make()
    world.take()
    world.put_child(":NIC Switch agent", "CUSTOM_OWNER_NEUTRON", "NET_BW_EGR_KILOBIT_PER_SEC")
    world.take()
    bandwidth = {child(world, "NIC Switch agent"): {"NET_BW_EGR_KILOBIT_PER_SEC": 2}}
    claim(world, ORPHAN, {ROOT: {"VCPU": 1, "MEMORY_MB": 64}} | bandwidth)

    found = findings(world)
    world.audit()

    assert ("host:NIC Switch agent", 0, 2) in {(one.provider, one.expected, one.actual) for one in found}
    assert {one.repair.text for one in found if one.repair} == {f"remove all allocations of consumer {ORPHAN}"}
    assert world.rows(ORPHAN) == {}


def test_a_repair_that_would_write_something_else_than_was_shown_waits_anew(make: Any) -> None:
    """Its owner or its disk changed between two looks: what a person saw is not what would be written."""
    world: World = make(shared=False)
    world.take()
    world.spawn("bound", 0, 2)
    (uuid,) = world.guests
    world._send("DELETE", f"/allocations/{uuid}")
    lax = HealPolicy(kinds=frozenset({Kind.MISSING}), grace_s=0, again_s=0)

    def look(disk_gb: int) -> set[str]:
        tenant = Tenant("p", "u", disk_gb)
        world.guests[uuid] = replace(world.guests[uuid], guest=replace(world.guests[uuid].guest, tenant=tenant))
        world.clock.now += LONG_S
        result = witness(world.node())
        write_memory(world.settings.folders.state, result.root_uuid, result.memory)
        return {one.why for one in heal(world.node(), result, lax)}

    assert look(10) == look(20) == {"a later audit must find it again, 0 s or more after the first"}
    assert world.rows(uuid) == {}
    assert look(20) == {""}
    assert world.rows(uuid)["host"]["DISK_GB"] == 20


def test_a_light_audit_remembers_rows_of_a_host_that_is_called_otherwise(make: Any) -> None:
    world: World = make()
    world.take()
    claim(world, ORPHAN, {child(world, "20_00_0"): {"VGPU": 1}})
    world.take()
    assert [one.provider for one in findings(world)] == ["host_pci_0000_20_00_0"]

    world.change(name="renamed")
    world.take()

    assert [one.provider for one in findings(world, light=True)] == ["renamed_pci_0000_20_00_0"]
    assert [one.provider for one in findings(world, light=True)] == ["renamed_pci_0000_20_00_0"]


def test_a_card_that_makes_mdevs_beside_its_vfs_is_no_duplicate(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world: World = make()
    facts, policy = world.facts, world.setup.policy()
    rule = MdevRule(type="type-x", addresses=frozenset({"0000:10:00.0"}), resource_class="CUSTOM_X")
    policy = replace(policy, devices=replace(policy.devices, mdevs=(*policy.devices.mdevs, rule)))

    def with_mdevs() -> HostFacts:
        of: Devices = facts().devices
        more = MdevParent("pci_0000_10_00_0", at("0000:10:00.0"), (MdevType("type-x", "", 4),))
        return replace(facts(), devices=replace(of, mdev_parents=(*of.mdev_parents, more)))

    monkeypatch.setattr(world, "facts", with_mdevs)
    monkeypatch.setattr(type(world.setup), "policy", lambda _: policy)
    world.take()

    assert {"host_0000:10:00.0", "host_pci_0000_10_00_0"} <= world.providers().keys()
    assert findings(world) == ()


@pytest.mark.parametrize("renamed", [False, True])
def test_a_pass_takes_back_what_a_forced_hand_over_left(make: Any, renamed: bool) -> None:
    """The uuid of a provider without any mark proves that this agent made it."""
    world: World = make(shared=False)
    world.take()
    world.spawn("float", 0, 2)  # on a card that nova would not keep
    before, (guest,) = world.providers(), world.guests
    rows = world.rows(guest)
    hand_over_node(world.node(), force=True)
    uuid = child(world, "20_00_0")
    if renamed:
        world._send("PUT", f"/resource_providers/{uuid}", {"name": "old-gpu", "parent_provider_uuid": ROOT})

    world.take()

    assert world.is_well, world.told
    assert world.providers().keys() == before.keys()
    assert child(world, "20_00_0") == uuid
    assert world.rows(guest) == rows


@pytest.mark.parametrize(("layout", "status"), [("flat", "changed"), ("devices", None)])
def test_going_back_to_a_former_name_leaves_anothers_child_of_that_name(
    make: Any, layout: str, status: str | None
) -> None:
    """Our child of the same device would get the name that the foreign child has."""
    world: World = make(layout="devices", shared=False)
    world.put_child("_pci_0000_21_00_0", "OWNER_CYBORG", "VGPU")
    before = world.foreign()
    world.change(name="renamed")
    world.take()

    world.change(name="host", layout=layout)
    world.take()

    assert (world.outcome.status.value if world.outcome else None) == status, world.told
    assert world.foreign() == before
    assert status or "OWNER_CYBORG, the mark of another service" in world.told


def test_a_hand_over_judges_the_layout_that_stands(make: Any) -> None:
    """The configuration may be ahead of the tree, either way."""
    world: World = make(shared=False, layout="numa")
    world.take()
    world.change(layout="devices")

    refused = hand_over_node(world.node(), force=True)

    assert refused.status is Status.UNSAFE
    assert "the tree stands in the layout numa" in refused.notes[0]

    world.take(force=True)
    world.change(layout="numa")
    assert hand_over_node(world.node(), force=True).status is Status.CHANGED
