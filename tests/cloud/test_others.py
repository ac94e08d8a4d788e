"""Beside nova, Cyborg and Blazar: what the latter two have below the root is theirs, and nobody's fault."""

import json
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from beds.cloud import others
from beds.cloud.lab import CARD, NAME, NETWORKS, Lab, serving

pytestmark = pytest.mark.live

SEED = int(os.environ.get("SOAK_SEED", "20261129"))
STEPS = int(os.environ.get("STEPS", "50"))
RESERVATION = str(UUID(int=7))
RESERVED = f"CUSTOM_RESERVATION_{RESERVATION.replace('-', '_').upper()}"
BLAZARS = f"blazar_{NAME}"
CARDS = others.cyborgs_cards(NAME)
FLAVORS = {
    **{profile: {"accel:device_profile": profile} for profile in others.PROFILES},
    "reserved": {f"resources:{RESERVED}": "1"},
    "small": {},
}
ASKED = {
    "accelerated": {CARDS["accelerated"]: {"FPGA": 1}},
    "passed": {CARDS["passed"]: {"CUSTOM_PCI": 1}},
    "reserved": {BLAZARS: {RESERVED: 1}},
    "small": {},
}
SERVERS = 5


@pytest.fixture(scope="module")
def lab(bed_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with (
        serving(tmp_path_factory.mktemp("cloud"), bed_cache) as lab,
        others.cyborg(lab.folder / "cyborg", lab.cloud, lab.cloud.database("cyborg"), lab.host),
    ):
        others.reserve(lab.folder, lab.cloud.where, NAME, RESERVATION, 4)
        for name, specs in FLAVORS.items():
            if name not in lab.cloud.flavors:
                lab.cloud.add_flavor(name, specs)
        yield lab


def test_no_audit_finds_anything_in_any_life_of_servers_with_accelerators_and_reservations(lab: Lab) -> None:
    assert lab.agent("sync", role="beside").code == 0
    theirs = {name: lab.cloud.stocks()[name] for name in (*CARDS.values(), BLAZARS)}
    generations = {name: lab.generations()[name] for name in theirs}
    print(f"\nseed {SEED}, {STEPS} steps")
    chance, servers = random.Random(SEED), dict[str, tuple[str, str]]()  # uuid -> flavor, state

    for number in range(1, STEPS + 1):
        what = step(lab, chance, servers, number)
        print(f"{number:4} {what}", flush=True)
        for role in ("beside", "audit"):
            assert lab.findings(role=role) == [], role
        assert lab.agent("sync", role="beside").json["outcome"] == "unchanged"
        for uuid, (flavor, _) in servers.items():
            held = lab.cloud.allocations(uuid)
            assert {name: held[name] for name in theirs if name in held} == ASKED[flavor], flavor

    assert {name: lab.cloud.stocks()[name] for name in theirs} == theirs
    claims = {name for name in theirs if lab.generations()[name] != generations[name]}
    print(f"written meanwhile, by claims: {claims or 'none'}")


def step(lab: Lab, chance: random.Random, servers: dict[str, tuple[str, str]], number: int) -> str:
    """Something that a user can do now, to its end; what it was."""
    if not servers or (len(servers) < SERVERS and chance.random() < 0.4):
        taken = {flavor for flavor, _ in servers.values()} & {"passed"}  # there is one
        flavor = chance.choice(sorted(FLAVORS.keys() - taken))
        servers[lab.cloud.boot(f"server-{number}", flavor)] = (flavor, "ACTIVE")
        return f"boot, {flavor}"
    uuid = chance.choice(sorted(servers))
    flavor, state = servers[uuid]
    if state == "SHUTOFF":
        action, options, then = "os-start", None, "ACTIVE"
    else:
        action, options, then = chance.choice((("os-stop", None, "SHUTOFF"), ("reboot", {"type": "HARD"}, "ACTIVE")))
    if chance.random() < 0.4:
        lab.cloud.delete(uuid)
        del servers[uuid]
        return f"delete, {flavor}"
    lab.cloud.act(uuid, action, options, then)
    servers[uuid] = (flavor, then)
    return f"{action}, {flavor}"


def test_a_card_that_cyborg_passes_is_left_to_it_where_our_rules_name_it_too(lab: Lab) -> None:
    both = [{**NETWORKS, "address": one} for one in (CARD, others.PASSED)]
    twice = replace(lab, pci={"device_spec": json.dumps(both), "report_in_placement": True})
    before = lab.cloud.stocks()[CARDS["passed"]]

    refused = twice.agent("sync", role="beside")

    assert refused.code == 1
    assert f"{CARDS['passed']} (" in refused.err
    assert "carries OWNER_CYBORG, the mark of another service, and this host's configuration offers" in refused.err
    assert lab.cloud.stocks()[CARDS["passed"]] == before
    assert lab.agent("sync", role="beside").json["outcome"] == "unchanged"
