"""Made-up hosts with guests of every kind, through every layout and back, on a real placement."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from beds.agents import Result, run_agent
from beds.by_hand import ByHand
from beds.made_up import options_of
from beds.placement import PlacementServer
from beds.trees import add_consumer
from beds.upgrades import write_config
from drivers.fake.archives import write_archive
from drivers.fake.fleet import make_hosts
from drivers.fake.hosts import Allocations, FakeHost

pytestmark = pytest.mark.live

SEED = 20
LAYOUTS = ("devices", "numa", "cells", "flat")


@dataclass(frozen=True, slots=True)
class Lab:
    """A made-up host and the agent that reports it."""

    host: FakeHost
    archive: Path
    folder: Path
    server: PlacementServer

    def run(self, layout: str, verb: str, *more: object) -> Result:
        options = options_of(self.host.shape)
        groups: dict[str, Mapping[str, object]] = {
            "placement": {"auth_type": "none", "endpoint": self.server.url},
            "agent": {"state_directory": self.folder / "state"},
            **options,
            "compute": {**options.get("compute", {}), "layout": layout},
        }
        config = write_config(groups, self.folder / f"{layout}.conf")
        return run_agent(verb, "--config-file", config, "--host", self.archive, "--format", "json", *more)

    def held(self, layout: str) -> dict[str, Allocations]:
        found: dict[str, Allocations] = self.run(layout, "show").json["allocations"]
        return found


def sums(held: Mapping[str, Allocations]) -> dict[str, Counter[str]]:
    """What each guest has of each class, wherever it has it."""
    found: dict[str, Counter[str]] = {guest: Counter() for guest in held}
    for guest, allocations in held.items():
        for resources in allocations.values():
            found[guest].update(resources)
    return found


@pytest.mark.parametrize("shape", ["network", "gpu", "mixed"])
def test_guests_keep_what_they_have_in_every_layout(
    shape: str, placement_server: PlacementServer, tmp_path: Path
) -> None:
    (host,) = make_hosts(1, seed=SEED, shape=shape)
    lab = Lab(host, write_archive(tmp_path / "host", host).root, tmp_path, placement_server)
    first = lab.run("flat", "sync")
    assert first.code == 0, first.out + first.err
    placement = ByHand(placement_server.url)
    for guest in host.guests:
        add_consumer(placement, guest.uuid, {"allocations": host.flat(guest)})
    flat = lab.held("flat")
    assert flat == {guest.uuid: host.flat(guest) for guest in host.guests}

    for layout in LAYOUTS:
        done = lab.run(layout, "reshape", "--apply")

        assert done.code == 0, done.out + done.err
        held = lab.held(layout)
        assert sums(held) == sums(flat)
        if layout == "devices":
            assert held == {guest.uuid: host.allocations(guest) for guest in host.guests}
        audited = lab.run(layout, "audit")
        assert (audited.code, audited.json["findings"]) == (0, []), audited.out

    assert lab.held("flat") == flat
