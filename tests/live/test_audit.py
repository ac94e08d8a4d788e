"""Each kind of finding, made for real: found, explained, healed within the policy and left alone outside it."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.audit.decide.guests import NOBODY
from beds.agents import run_agent
from beds.guests import METADATA, add_guests, read_spec
from beds.placement import PlacementServer
from beds.proxy import Proxy
from beds.trees import add_consumer, identity
from beds.upgrades import UPGRADES, Story, Upgrade
from reportclient.ownership import MARKER

pytestmark = pytest.mark.live

ROOT, FIRST, SECOND = "four-cells", "four-cells_pci_0000_06_00_0", "four-cells_pci_0000_86_00_0"
ON_FIRST = "c2177883-f1bb-47f0-914d-32a22e3a8804"  # a mediated device of the first card
SMALL = {"VCPU": 1, "MEMORY_MB": 512}
ELSEWHERE = {
    "other-host": {"parent": None, "inventories": {"VCPU": {"total": 8}, "MEMORY_MB": {"total": 8192}}},
    "storage": {"parent": None, "inventories": {"DISK_GB": {"total": 100}}, "traits": ["MISC_SHARES_VIA_AGGREGATE"]},
}
EVERY = (
    "orphaned, missing, wrong-amount, wrong-provider, leaked-migration, doubled, to-be-reserved, ownerless, "
    "duplicate-provider, ghost-provider, over-capacity"
)


def lab(
    server: PlacementServer,
    folder: Path,
    guests: Mapping[str, Mapping[str, Any]],
    grace_s: int = 0,
    **consumers: Any,
) -> Upgrade:
    """A host that is up to date, with these guests, and these consumers: provider -> resources."""
    data = Story(UPGRADES / "01-flat-vgpu-to-gpus").data
    data["config"] = {**data["config"], "agent": {"audit_grace": grace_s}}
    data["first"] = data["config"]
    data["guests"] = {name: {"memory_mib": 512, **guest} for name, guest in guests.items()}
    data["before"] = {
        "providers": ELSEWHERE,
        "consumers": {
            name: consumer if "allocations" in consumer else {"allocations": consumer}
            for name, consumer in consumers.items()
        },
    }
    return Upgrade(data, server.url, folder)


def policy(folder: Path, kinds: str = EVERY, limit: int = 10, move_s: int = 0, untyped: bool = True) -> Path:
    rules = {"heal": f"[{kinds}]", "grace_s": 0, "again_s": 0, "move_s": move_s, "limit": limit}
    lines = [f"{name}: {value}\n" for name, value in (rules | {"untyped": str(untyped).lower()}).items()]
    path = folder / "policy.yaml"
    path.write_text("".join(lines), encoding="utf-8")
    return path


def found(one: Upgrade) -> list[dict[str, Any]]:
    """The findings of an audit that changes nothing."""
    before = one.stands()
    done = one.run("audit")
    assert one.stands() == before
    findings: list[dict[str, Any]] = done.json["findings"]
    assert done.code == (3 if findings else 0), done.out + done.err
    return findings


def told(findings: list[dict[str, Any]]) -> set[tuple[str, str | None, str | None, int | None, int | None]]:
    """kind, provider, class, expected, actual."""
    return {(one["kind"], one["provider"], one["resource_class"], one["expected"], one["actual"]) for one in findings}


def healed(one: Upgrade, folder: Path) -> Any:
    """Who has what where, once the policy has let everything be healed at the second look."""
    done = one.run("audit", "--heal", "--policy", policy(folder))
    assert done.code == 0, done.out + done.err
    assert found(one) == []
    return {name: record["allocations"] for name, record in one.stands()["consumers"].items()}


def test_a_sound_host_has_no_findings(placement_server: PlacementServer, tmp_path: Path) -> None:
    one = lab(
        placement_server,
        tmp_path,
        {"guest": {"mdevs": [ON_FIRST]}, "off": {"state": "shutoff"}},
        guest={ROOT: SMALL, FIRST: {"VGPU": 1}, "storage": {"DISK_GB": 5}},
        off={ROOT: SMALL},
    )

    assert found(one) == []


def test_a_consumer_without_a_guest_is_orphaned(placement_server: PlacementServer, tmp_path: Path) -> None:
    one = lab(placement_server, tmp_path, {}, gone={ROOT: SMALL})

    assert told(found(one)) == {
        ("orphaned", ROOT, "VCPU", 0, 1),
        ("orphaned", ROOT, "MEMORY_MB", 0, 512),
    }
    assert healed(one, tmp_path) == {"gone": {}}


def test_vcpus_that_are_switched_off_by_hand_stay_allocated(placement_server: PlacementServer, tmp_path: Path) -> None:
    """Nova allocates the flavor's; of a guest of another program nobody knows what it allocates."""
    novas = METADATA.format(memory_mib=512, vcpus=3, project="p", user="u")
    guests = {"novas": {"metadata": novas}, "less": {"metadata": novas}, "others": {}}
    one = lab(
        placement_server,
        tmp_path,
        {name: {"vcpus": 3, "on": 1, **guest} for name, guest in guests.items()},
        novas={ROOT: SMALL | {"VCPU": 3}},
        less={ROOT: SMALL},
        others={ROOT: SMALL | {"VCPU": 2}},
    )

    assert told(found(one)) == {("wrong-amount", ROOT, "VCPU", 3, 1)}


def test_an_orphan_with_a_disk_on_shared_storage_is_told_until_a_person_decides(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    """No audit would see the disk alone."""
    whole = {ROOT: SMALL, "storage": {"DISK_GB": 5}}
    one = lab(placement_server, tmp_path, {}, gone=whole)

    assert {(each["kind"], each["resource_class"], each["safe"]) for each in found(one)} == {
        ("orphaned", name, False) for name in (*SMALL, "DISK_GB")
    }
    before = one.stands()
    for _ in range(2):
        one.run("audit", "--heal", "--policy", policy(tmp_path))
    assert one.stands() == before
    assert all(f"run compute-node-agent release {identity('gone')}" in each["seen"] for each in found(one))


def test_a_consumer_whose_guest_may_be_on_its_way_is_not_judged(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    """As between a claim and the start of its guest; by hand ``LATE_S=30`` (make soak)."""
    one = lab(placement_server, tmp_path, {}, grace_s=60, new={ROOT: SMALL})
    started = time.monotonic() + float(os.environ.get("LATE_S", "2"))

    while time.monotonic() < started:
        done = one.run("audit")
        assert (done.code, done.json["findings"], done.json["young"]) == (0, [], [identity("new")])
        assert "not judged" in done.err
        time.sleep(1)
    add_guests(tmp_path / "host", {identity("new"): read_spec({"memory_mib": 512})})

    assert (one.run("audit").json["findings"], one.run("audit").json["young"]) == ([], [])


def test_what_looks_like_a_guest_on_its_way_is_healed_late(placement_server: PlacementServer, tmp_path: Path) -> None:
    """A disk that is copied for hours looks the same as an orphan, and a guest that is rebuilt too."""
    one = lab(placement_server, tmp_path, {"rebuilt": {}}, rebuilt={ROOT: SMALL}, coming={ROOT: SMALL})
    assert {finding["consumer"] for finding in found(one)} == {identity("coming")}
    add_guests(tmp_path / "host", {})
    before = one.stands()

    for _ in range(2):
        done = one.run("audit", "--heal", "--policy", policy(tmp_path, move_s=3600))

    assert (done.code, one.stands()) == (3, before)
    assert {finding["why"].rpartition(" waits for ")[2] for finding in done.json["findings"]} == {
        "3600 s, as a guest may be on its way"
    }


def test_a_resize_on_the_same_host_is_nobody_elses_to_end(placement_server: PlacementServer, tmp_path: Path) -> None:
    """Nothing tells whose a migration is but project and user, and here the hypervisor does not tell the guest's."""
    large = {"VCPU": 2, "MEMORY_MB": 1024}
    migration = {"type": "MIGRATION", "allocations": {ROOT: SMALL}}
    guests = {"guest": {"vcpus": 2, "memory_mib": 1024}}
    one = lab(placement_server, tmp_path, guests, guest={ROOT: large}, migration=migration)
    before = one.stands()

    for _ in range(2):
        done = one.run("audit", "--heal", "--policy", policy(tmp_path))

    assert {(finding["kind"], finding["safe"]) for finding in done.json["findings"]} == {("leaked-migration", False)}
    assert one.stands() == before


def test_a_neighbours_migration_is_not_taken_for_a_guests_own(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    large = {"VCPU": 2, "MEMORY_MB": 1024}
    one = lab(
        placement_server,
        tmp_path,
        {"guest": {}, "neighbour": {"vcpus": 2, "memory_mib": 1024}},
        guest={"other-host": SMALL},
        neighbour={ROOT: large},
        migration={"type": "MIGRATION", "allocations": {ROOT: SMALL}},
    )

    assert {(finding["kind"], finding["safe"]) for finding in found(one)} == {
        ("missing", False),
        ("leaked-migration", False),
    }


def test_a_repair_keeps_what_a_guest_has_of_others_here(placement_server: PlacementServer, tmp_path: Path) -> None:
    metadata = METADATA.format(memory_mib=512, vcpus=1, user="user", project="project")
    one = lab(placement_server, tmp_path, {"guest": {"metadata": metadata}})
    rows = one.placement.send("GET", "/resource_providers")["resource_providers"]
    root = next(row for row in rows if row["name"] == ROOT)
    one.placement.send("PUT", "/resource_classes/CUSTOM_LICENCE")
    stock = {"resource_provider_generation": root["generation"], "resource_class": "CUSTOM_LICENCE", "total": 5}
    one.placement.send("POST", f"/resource_providers/{root['uuid']}/inventories", stock)
    add_consumer(one.placement, "guest", {"allocations": {ROOT: {"CUSTOM_LICENCE": 1}, "storage": {"DISK_GB": 5}}})
    one.before["consumers"]["guest"] = {}

    assert {(finding["kind"], finding["safe"]) for finding in found(one)} == {("missing", True)}
    assert healed(one, tmp_path) == {"guest": {ROOT: {"CUSTOM_LICENCE": 1, **SMALL}, "storage": {"DISK_GB": 5}}}


def test_a_consumer_without_a_type_is_anothers_unless_the_policy_says_otherwise(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    one = lab(placement_server, tmp_path, {}, container={"type": None, "allocations": {ROOT: SMALL}})

    for _ in range(2):
        done = one.run("audit", "--heal", "--policy", policy(tmp_path, untyped=False))

    assert {finding["why"] for finding in done.json["findings"]} == {
        "its consumer has no type, and the policy does not say untyped: true"
    }
    assert healed(one, tmp_path) == {"container": {}}


def test_what_old_clouds_left_out_of_a_consumer_is_told_and_written_from_the_hypervisor(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    metadata = METADATA.format(memory_mib=512, vcpus=1, user="its-user", project="its-project")
    old = {"project": NOBODY, "user": NOBODY, "type": None, "allocations": {ROOT: SMALL}}
    one = lab(placement_server, tmp_path, {"told": {"metadata": metadata}, "untold": {}}, told=old, untold=old)
    assert found(one) == []

    done = one.run("audit", "--consumers")
    assert {(finding["kind"], finding["consumer"], finding["safe"]) for finding in done.json["findings"]} == {
        (kind, identity(name), name == "told")
        for kind in ("without-owner", "without-type")
        for name in ("told", "untold")
    }
    rules = policy(tmp_path, "without-owner, without-type")
    assert one.run("audit", "--consumers", "--heal", "--policy", rules).code == 3

    consumers = one.stands()["consumers"]
    assert consumers["told"] == {
        "project": "its-project",
        "user": "its-user",
        "type": "INSTANCE",
        "allocations": {ROOT: SMALL},
    }
    assert consumers["untold"] == old


def test_a_guest_that_is_shut_off_keeps_its_allocation(placement_server: PlacementServer, tmp_path: Path) -> None:
    one = lab(placement_server, tmp_path, {"off": {"state": "shutoff"}}, off={ROOT: SMALL})

    assert healed(one, tmp_path) == {"off": {ROOT: SMALL}}


def test_a_wrong_amount_becomes_what_the_guest_has(placement_server: PlacementServer, tmp_path: Path) -> None:
    """And the vGPU that nobody accounted for."""
    one = lab(placement_server, tmp_path, {"guest": {"mdevs": [ON_FIRST]}}, guest={ROOT: {"VCPU": 4, "MEMORY_MB": 512}})

    assert told(found(one)) == {("wrong-amount", ROOT, "VCPU", 1, 4), ("wrong-amount", FIRST, "VGPU", 1, 0)}
    assert healed(one, tmp_path) == {"guest": {ROOT: SMALL, FIRST: {"VGPU": 1}}}


def test_a_unit_on_the_wrong_provider_goes_to_the_right_one(placement_server: PlacementServer, tmp_path: Path) -> None:
    one = lab(placement_server, tmp_path, {"guest": {"mdevs": [ON_FIRST]}}, guest={ROOT: SMALL, SECOND: {"VGPU": 1}})

    assert told(found(one)) == {("wrong-provider", FIRST, "VGPU", 1, 0), ("wrong-provider", SECOND, "VGPU", 0, 1)}
    assert healed(one, tmp_path) == {"guest": {ROOT: SMALL, FIRST: {"VGPU": 1}}}


def test_a_migration_whose_guest_has_gone_lets_go(placement_server: PlacementServer, tmp_path: Path) -> None:
    one = lab(
        placement_server,
        tmp_path,
        {},
        migration={"type": "MIGRATION", "allocations": {ROOT: SMALL}},
        guest={"other-host": SMALL},
    )

    assert {finding["kind"] for finding in found(one)} == {"leaked-migration"}
    assert healed(one, tmp_path) == {"migration": {}, "guest": {"other-host": SMALL}}


def test_a_migration_whose_guest_is_defined_here_is_left_alone(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    """A resize to another host awaits its confirmation: the guest is shut off here, and larger there."""
    one = lab(
        placement_server,
        tmp_path,
        {"guest": {"state": "shutoff"}},
        migration={"type": "MIGRATION", "allocations": {ROOT: SMALL}},
        guest={"other-host": {"VCPU": 2, "MEMORY_MB": 1024}},
    )

    assert found(one) == []


def test_a_guest_that_runs_here_after_a_failed_migration_gets_back_what_it_had(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    one = lab(
        placement_server,
        tmp_path,
        {"guest": {}},
        migration={"type": "MIGRATION", "allocations": {ROOT: SMALL}},
        guest={"other-host": SMALL},
    )

    assert {(finding["kind"], finding["consumer"]) for finding in found(one)} == {("missing", identity("guest"))}
    assert healed(one, tmp_path) == {"migration": {}, "guest": {ROOT: SMALL}}


def test_a_guest_of_which_nobody_says_whose_it_is_is_reported_only(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    one = lab(placement_server, tmp_path, {"guest": {}})

    findings = found(one)

    assert {(finding["kind"], finding["repair"], finding["safe"]) for finding in findings} == {("missing", None, False)}
    assert one.run("audit", "--heal", "--policy", policy(tmp_path)).code == 3


def test_an_evacuated_guest_lets_go_of_its_old_host_only(placement_server: PlacementServer, tmp_path: Path) -> None:
    one = lab(placement_server, tmp_path, {}, evacuated={ROOT: SMALL, "other-host": SMALL, "storage": {"DISK_GB": 5}})

    assert {finding["kind"] for finding in found(one)} == {"doubled"}
    assert healed(one, tmp_path) == {"evacuated": {"other-host": SMALL, "storage": {"DISK_GB": 5}}}


def test_consumers_of_other_services_are_never_touched(placement_server: PlacementServer, tmp_path: Path) -> None:
    one = lab(placement_server, tmp_path, {}, lease={"type": "RESERVATION", "allocations": {ROOT: SMALL}})

    assert found(one) == []


def test_providers_that_are_wrong_are_reported(placement_server: PlacementServer, tmp_path: Path) -> None:
    one = lab(placement_server, tmp_path, {})
    rows = one.placement.send("GET", "/resource_providers")["resource_providers"]
    root = next(row for row in rows if row["name"] == ROOT)
    one.placement.add_child(root, f"{ROOT}_0000:AA:00.0", "VGPU", 1, MARKER)
    one.placement.add_child(root, "somebodys", "IPV4_ADDRESS", 1)
    one.placement.add_child(root, f"{ROOT}:agent:eth0", "NET_BW_EGR_KILOBIT_PER_SEC", 1)
    one.placement.add_child(root, f"{ROOT}_0000:06:00.0", "IPV4_ADDRESS", 1, "OWNER_NOVA")

    assert {(finding["kind"], finding["provider"]) for finding in found(one)} == {
        ("ghost-provider", f"{ROOT}_0000:AA:00.0"),
        ("ownerless", "somebodys"),
        ("duplicate-provider", f"{ROOT}_0000:06:00.0"),
        ("duplicate-provider", FIRST),
    }
    done = one.run("audit", "--heal", "--policy", policy(tmp_path))
    outcomes = {finding["provider"]: finding["outcome"] for finding in done.json["findings"]}
    assert outcomes[f"{ROOT}_0000:AA:00.0"] == "healed"
    assert set(outcomes.values()) == {"healed", "reported"}
    assert not any(finding["kind"] == "ghost-provider" for finding in found(one))


def test_more_than_a_provider_can_give_is_reported(placement_server: PlacementServer, tmp_path: Path) -> None:
    one = lab(placement_server, tmp_path, {"guest": {}}, guest={ROOT: SMALL})
    rows = one.placement.send("GET", "/resource_providers")["resource_providers"]
    root = next(row for row in rows if row["name"] == ROOT)
    stock = one.placement.send("GET", f"/resource_providers/{root['uuid']}/inventories")
    stock["inventories"]["MEMORY_MB"]["reserved"] = stock["inventories"]["MEMORY_MB"]["total"] - 100
    one.placement.send("PUT", f"/resource_providers/{root['uuid']}/inventories", stock)

    assert told(found(one)) == {("over-capacity", ROOT, "MEMORY_MB", 100, 512)}


def test_nothing_is_healed_before_the_second_look_nor_outside_the_policy(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    one = lab(placement_server, tmp_path, {}, a={ROOT: SMALL}, b={ROOT: SMALL})
    before = one.stands()

    first = one.run("audit", "--heal", "--policy", policy(tmp_path))
    assert {finding["why"] for finding in first.json["findings"]} == {
        "a later audit must find it again, 0 s or more after the first"
    }
    other = one.run("audit", "--heal", "--policy", policy(tmp_path, "missing"))
    assert {finding["why"] for finding in other.json["findings"]} == {"the policy does not list this kind of finding"}
    assert (first.code, other.code, one.stands()) == (3, 3, before)

    limited = one.run("audit", "--heal", "--policy", policy(tmp_path, limit=1))

    assert sorted(finding["outcome"] for finding in limited.json["findings"]) == ["healed"] * 2 + ["reported"] * 2
    assert limited.code == 3


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("heal: [everything]", "heal[0]: 'everything' is not one of [", id="no such kind"),
        pytest.param("grace_s: 5", "the file: 'heal' is a required property", id="no kinds"),
        pytest.param("heal: [", "is not YAML", id="no YAML"),
        pytest.param("heal: []\ngrace_s: .nan", "grace_s is no number", id="not a number"),
        pytest.param("heal: []\ngrace_s: 2024-99-99", "is not YAML", id="no date"),
        pytest.param(
            "heal: []\nagain_s: 1" + 12 * "0",
            "again_s: 1000000000000 is greater than the maximum of 1000000000",
            id="too large",
        ),
    ],
)
def test_a_policy_that_is_none_is_refused(text: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text, encoding="utf-8")

    done = run_agent("audit", "--embedded-dir", tmp_path / "own", "--heal", "--policy", path)

    assert done.code == 1
    assert line in done.err
    assert len(done.err.splitlines()) == 1


def test_a_light_audit_finds_what_moved_no_generation_once_it_is_suspect(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    """A DELETE moves none: the rows that are remembered are stale, and are read before anything is said of them."""
    one = lab(placement_server, tmp_path, {}, gone={ROOT: SMALL})
    assert found(one)

    one.placement.send("DELETE", f"/allocations/{identity('gone')}")

    assert one.run("audit", "--light").json["findings"] == []


def test_what_an_audit_costs(placement_server: PlacementServer, tmp_path: Path) -> None:
    guests: dict[str, dict[str, Any]] = {f"g{number}": {} for number in range(60)}
    one = lab(placement_server, tmp_path, guests, 0, **{name: {ROOT: SMALL} for name in guests})
    with Proxy(placement_server.url) as proxy:
        config = tmp_path / "agent.conf"
        text = config.read_text(encoding="utf-8").replace(placement_server.url, proxy.url)
        config.write_text(text, encoding="utf-8")
        providers = 1 + sum(name.startswith(f"{ROOT}_") for name in one.stands()["providers"])
        options = ("--host", tmp_path / "host", "--config-file", config, "--format", "json")
        assert run_agent("sync", *options).code == 0

        def cost(*more: str) -> int:
            proxy.seen.clear()
            done = run_agent("audit", *options, *more)
            assert (done.code, done.json["findings"]) == (0, [])
            return len(proxy.seen)

        full = cost()
        quiet = cost("--light")
        add_consumer(one.placement, "one more", {"allocations": {ROOT: SMALL}})
        extra = {identity(name): read_spec({"memory_mib": 512}) for name in (*guests, "one more")}
        add_guests(tmp_path / "host", extra)
        changed = cost("--light")

    assert (full, quiet, changed) == (1 + 4 * providers, 1, 2)  # three aspects and the allocations of each


def test_findings_of_names_do_not_come_with_other_findings(placement_server: PlacementServer, tmp_path: Path) -> None:
    """An orphan makes the audit read more consumers, and each of them is untyped, as all that nova writes."""
    untyped = {"type": None, "allocations": {ROOT: SMALL}}
    one = lab(placement_server, tmp_path, {"guest": {}}, guest=untyped, gone={**untyped, "project": "another"})

    assert {finding["kind"] for finding in found(one)} == {"orphaned"}


def test_a_doubtful_orphan_names_what_to_look_up_and_the_next_command(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    metadata = METADATA.format(memory_mib=512, vcpus=1, user="user", project="project")
    untyped = {"type": None, "allocations": {ROOT: SMALL}}
    one = lab(placement_server, tmp_path, {"guest": {"metadata": metadata}}, guest=untyped, gone=untyped)

    (finding, _) = found(one)

    assert (finding["kind"], finding["safe"]) == ("orphaned", False)
    assert f"server migration list --limit 1 --marker {identity('gone')}" in finding["seen"]
    assert identity("guest") not in finding["seen"]
    assert f"compute-node-agent release {identity('gone')}" in finding["seen"]


def test_nothing_is_healed_while_a_pass_is_refused(placement_server: PlacementServer, tmp_path: Path) -> None:
    one = lab(placement_server, tmp_path, {}, gone={ROOT: SMALL})
    cpus = tmp_path / "host/libvirt/cpumap.json"
    online = json.loads(cpus.read_text(encoding="utf-8"))
    cpus.write_text(json.dumps(online | {"online": online["online"][:16]}), encoding="utf-8")
    before = one.stands()

    done = [one.run("audit", "--heal", "--policy", policy(tmp_path)) for _ in range(2)][-1]

    assert (done.code, one.stands()) == (3, before)
    assert {finding["outcome"] for finding in done.json["findings"]} == {"reported"}
    assert "VCPU would shrink from 32 to 16" in done.json["findings"][0]["why"]
    assert "no finding is repaired" in done.err


def test_a_tree_in_another_layout_is_judged_as_it_stands(placement_server: PlacementServer, tmp_path: Path) -> None:
    one = lab(placement_server, tmp_path, {"guest": {"mdevs": [ON_FIRST]}}, guest={ROOT: SMALL, FIRST: {"VGPU": 1}})
    digest = one.run("reshape", "--to", "numa").json["digest"]
    assert one.run("reshape", "--to", "numa", "--apply", "--digest", digest).code == 0

    (finding,) = found(one)

    assert (finding["kind"], finding["provider"], finding["repair"]) == ("other-layout", ROOT, None)
    assert "[compute] layout = numa" in finding["seen"]
    assert "compute-node-agent reshape --to devices" in finding["seen"]
