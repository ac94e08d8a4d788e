"""Each kind of finding, made for real: found, explained, healed within the policy and left alone outside it."""

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from beds.agents import Result, run_agent
from beds.guests import METADATA, add_guests, read_spec
from beds.placement import PlacementServer
from beds.proxy import Proxy
from beds.trees import add_consumer, identity
from beds.upgrades import Upgrade, recorded_host
from reportclient.ownership import MARKER

pytestmark = pytest.mark.live

ROOT, FIRST, SECOND = "four-cells", "four-cells_pci_0000_06_00_0", "four-cells_pci_0000_86_00_0"
ON_FIRST = "c2177883-f1bb-47f0-914d-32a22e3a8804"  # a mediated device of the first card
ON_A_CARD = {"guest": {"mdevs": [ON_FIRST]}}
SMALL, LARGE = {"VCPU": 1, "MEMORY_MB": 512}, {"VCPU": 2, "MEMORY_MB": 1024}
MIGRATION = {"type": "MIGRATION", "allocations": {ROOT: SMALL}}
UNTYPED = {"type": None, "allocations": {ROOT: SMALL}}
OWNED = {"metadata": METADATA.format(memory_mib=512, vcpus=1, user="user", project="project")}
ELSEWHERE = {
    "other-host": {"parent": None, "inventories": {"VCPU": {"total": 8}, "MEMORY_MB": {"total": 8192}}},
    "storage": {"parent": None, "inventories": {"DISK_GB": {"total": 100}}, "traits": ["MISC_SHARES_VIA_AGGREGATE"]},
}
Lab = Callable[..., Upgrade]
EVERY = (
    "orphaned, missing, wrong-amount, wrong-provider, leaked-migration, doubled, ownerless, "
    "duplicate-provider, ghost-provider, over-capacity"
)


@pytest.fixture
def lab(placement_server: PlacementServer, tmp_path: Path) -> Lab:
    """Makes a host that is up to date, with these guests, and these consumers: provider -> resources."""

    def make(guests: Mapping[str, Mapping[str, Any]], grace_s: int = 0, **consumers: Any) -> Upgrade:
        return recorded_host(
            placement_server.url,
            tmp_path,
            guests=guests,
            providers=ELSEWHERE,
            consumers=consumers,
            agent={"audit_grace": grace_s},
        )

    return make


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


def heal(one: Upgrade, kinds: str = EVERY, **rules: Any) -> Result:
    """An audit that heals within a policy of these kinds."""
    return one.run("audit", "--heal", "--policy", policy(one.folder, kinds, **rules))


def healed(one: Upgrade) -> Any:
    """Who has what where, once the policy has let everything be healed at the second look."""
    done = heal(one)
    assert done.code == 0, done.out + done.err
    assert found(one) == []
    return {name: record["allocations"] for name, record in one.stands()["consumers"].items()}


@pytest.mark.parametrize(
    ("guests", "consumers", "expected", "after"),
    [
        pytest.param(
            {},
            {"gone": {ROOT: SMALL}},
            {("orphaned", ROOT, "VCPU", 0, 1), ("orphaned", ROOT, "MEMORY_MB", 0, 512)},
            {"gone": {}},
            id="a consumer without a guest is orphaned",
        ),
        pytest.param(
            ON_A_CARD,
            {"guest": {ROOT: {"VCPU": 4, "MEMORY_MB": 512}}},
            {("wrong-amount", ROOT, "VCPU", 1, 4), ("wrong-amount", FIRST, "VGPU", 1, 0)},
            {"guest": {ROOT: SMALL, FIRST: {"VGPU": 1}}},
            id="a wrong amount, and a vGPU that nobody accounted for, become what the guest has",
        ),
        pytest.param(
            {"guest": {}},
            {"migration": MIGRATION, "guest": {"other-host": SMALL}},
            {
                ("missing", ROOT, "VCPU", 1, 0),
                ("missing", ROOT, "MEMORY_MB", 512, 0),
                ("missing", identity("other-host"), "VCPU", 0, 1),
                ("missing", identity("other-host"), "MEMORY_MB", 0, 512),
            },
            {"migration": {}, "guest": {ROOT: SMALL}},
            id="a guest that runs here after a failed migration gets back what it had",
        ),
        pytest.param(
            {},
            {"evacuated": {ROOT: SMALL, "other-host": SMALL, "storage": {"DISK_GB": 5}}},
            {("doubled", ROOT, "VCPU", 0, 1), ("doubled", ROOT, "MEMORY_MB", 0, 512)},
            {"evacuated": {"other-host": SMALL, "storage": {"DISK_GB": 5}}},
            id="an evacuated guest lets go of its old host only",
        ),
    ],
)
def test_a_finding_is_healed(guests: Any, consumers: Any, expected: Any, after: Any, lab: Lab) -> None:
    one = lab(guests, **consumers)

    assert told(found(one)) == expected
    assert healed(one) == after


def test_vcpus_that_are_switched_off_by_hand_stay_allocated(lab: Lab) -> None:
    """Nova allocates the flavor's; of a guest of another program nobody knows what it allocates."""
    novas = METADATA.format(memory_mib=512, vcpus=3, project="p", user="u")
    guests = {"novas": {"metadata": novas}, "less": {"metadata": novas}, "others": {}}
    one = lab(
        {name: {"vcpus": 3, "on": 1, **guest} for name, guest in guests.items()},
        novas={ROOT: SMALL | {"VCPU": 3}},
        less={ROOT: SMALL},
        others={ROOT: SMALL | {"VCPU": 2}},
    )

    assert told(found(one)) == {("wrong-amount", ROOT, "VCPU", 3, 1)}


def test_a_consumer_whose_guest_may_be_on_its_way_is_not_judged(lab: Lab, tmp_path: Path) -> None:
    """As between a claim and the start of its guest; by hand ``LATE_S=30`` (make soak)."""
    one = lab({}, grace_s=60, new={ROOT: SMALL})
    started = time.monotonic() + float(os.environ.get("LATE_S", "2"))

    while time.monotonic() < started:
        done = one.run("audit")
        assert (done.code, done.json["findings"], done.json["young"]) == (0, [], [identity("new")])
        assert "not judged" in done.err
        time.sleep(1)
    add_guests(tmp_path / "host", {identity("new"): read_spec({"memory_mib": 512})})

    assert (one.run("audit").json["findings"], one.run("audit").json["young"]) == ([], [])


def test_a_consumer_without_a_type_is_anothers_unless_the_policy_says_otherwise(lab: Lab) -> None:
    one = lab({}, container=UNTYPED)

    for _ in range(2):
        done = heal(one, untyped=False)

    assert {finding["why"] for finding in done.json["findings"]} == {
        "its consumer has no type, and the policy does not say untyped: true"
    }
    assert healed(one) == {"container": {}}


def test_providers_that_are_wrong_are_reported(lab: Lab) -> None:
    one = lab({})
    root = identity(ROOT)
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
    assert {finding["outcome"] for finding in heal(one).json["findings"]} == {"reported"}


def test_nothing_is_healed_before_the_second_look_nor_outside_the_policy(lab: Lab) -> None:
    one = lab({}, a={ROOT: SMALL}, b={ROOT: SMALL})
    before = one.stands()

    first = heal(one)
    assert {finding["why"] for finding in first.json["findings"]} == {
        "a later audit must find it again, 0 s or more after the first"
    }
    other = heal(one, "missing")
    assert {finding["why"] for finding in other.json["findings"]} == {"the policy does not list this kind of finding"}
    assert (first.code, other.code, one.stands()) == (3, 3, before)

    limited = heal(one, limit=1)

    assert sorted(finding["outcome"] for finding in limited.json["findings"]) == ["healed"] * 2 + ["reported"] * 2
    assert limited.code == 3


def test_what_an_audit_costs(lab: Lab, placement_server: PlacementServer, tmp_path: Path) -> None:
    guests: dict[str, dict[str, Any]] = {f"g{number}": {} for number in range(6)}
    one = lab(guests, 0, **{name: {ROOT: SMALL} for name in guests})
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


def test_findings_of_names_do_not_come_with_other_findings(lab: Lab) -> None:
    """An orphan makes the audit read more consumers, and each of them is untyped, as all that nova writes."""
    one = lab({"guest": {}}, guest=UNTYPED, gone={**UNTYPED, "project": "another"})

    assert {finding["kind"] for finding in found(one)} == {"orphaned"}


def test_a_doubtful_orphan_names_what_to_look_up_and_the_next_command(lab: Lab) -> None:
    one = lab({"guest": OWNED}, guest=UNTYPED, gone=UNTYPED)

    (finding, _) = found(one)

    assert (finding["kind"], finding["safe"]) == ("orphaned", False)
    assert f"server migration list --limit 1 --marker {identity('gone')}" in finding["seen"]
    assert identity("guest") not in finding["seen"]
    assert f"compute-node-agent release {identity('gone')}" in finding["seen"]


def test_nothing_is_healed_while_a_pass_is_refused(lab: Lab, tmp_path: Path) -> None:
    one = lab({}, gone={ROOT: SMALL})
    cpus = tmp_path / "host/libvirt/cpumap.json"
    online = json.loads(cpus.read_text(encoding="utf-8"))
    cpus.write_text(json.dumps(online | {"online": online["online"][:16]}), encoding="utf-8")
    before = one.stands()

    done = [heal(one) for _ in range(2)][-1]

    assert (done.code, one.stands()) == (3, before)
    assert {finding["outcome"] for finding in done.json["findings"]} == {"reported"}
    assert "VCPU would shrink from 32 to 16" in done.json["findings"][0]["why"]
    assert "no finding is repaired" in done.err
