"""Beside nova, Cyborg and Blazar: what the latter two have below the root is theirs, and nobody's fault."""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from beds.cloud import others
from beds.cloud.lab import NAME, Lab, serving

pytestmark = pytest.mark.live

SEED = int(os.environ.get("SOAK_SEED", "20261129"))
STEPS = int(os.environ.get("STEPS", "50"))
RESERVATION = str(UUID(int=7))
RESERVED = f"CUSTOM_RESERVATION_{RESERVATION.replace('-', '_').upper()}"
BLAZARS = f"blazar_{NAME}"
FLAVORS = {
    "accelerated": {"accel:device_profile": others.PROFILE},
    "reserved": {f"resources:{RESERVED}": "1"},
    "small": {},
}
SERVERS = 5


@pytest.fixture(scope="module")
def lab(bed_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with (
        serving(tmp_path_factory.mktemp("cloud"), bed_cache) as lab,
        others.cyborg(lab.folder / "cyborg", lab.cloud, lab.cloud.database("cyborg"), NAME),
    ):
        others.reserve(lab.folder, lab.cloud.where, NAME, RESERVATION, 4)
        for name, specs in FLAVORS.items():
            if name not in lab.cloud.flavors:
                lab.cloud.add_flavor(name, specs)
        yield lab


def test_no_audit_finds_anything_in_any_life_of_servers_with_accelerators_and_reservations(lab: Lab) -> None:
    assert lab.agent("sync", role="beside").code == 0
    card = f"{NAME}_FakeDevice"
    theirs = {name: lab.cloud.stocks()[name] for name in (card, BLAZARS)}
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
            assert (held.get(card), held.get(BLAZARS)) == {
                "accelerated": ({"FPGA": 1}, None),
                "reserved": (None, {RESERVED: 1}),
                "small": (None, None),
            }[flavor]

    assert {name: lab.cloud.stocks()[name] for name in theirs} == theirs
    claims = {name for name in theirs if lab.generations()[name] != generations[name]}
    print(f"written meanwhile, by claims: {claims or 'none'}")


def step(lab: Lab, chance: random.Random, servers: dict[str, tuple[str, str]], number: int) -> str:
    """Something that a user can do now, to its end; what it was."""
    if not servers or (len(servers) < SERVERS and chance.random() < 0.4):
        flavor = chance.choice(sorted(FLAVORS))
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
