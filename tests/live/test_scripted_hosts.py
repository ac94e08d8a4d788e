"""The service follows made-up hosts that change by a script, on a real placement."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from beds.agents import run_agent
from beds.by_hand import ByHand
from beds.made_up import claim, release, stock_of, use_of
from beds.placement import PlacementServer
from beds.service import Service, made_up, noauth, serving
from beds.upgrades import write_config
from drivers.fake.fleet import make_hosts
from drivers.fake.hosts import CLASSES, FakeHost
from drivers.fake.script import Moment, histories, parse_script, state_at
from drivers.fake.shapes import options_of

pytestmark = pytest.mark.live

SEED = 20
FIRST_S, GAP_S = 30, 8  # until the first step, and between two steps that are looked at
SLOT = 4  # the first free one of these hosts

HOSTS = make_hosts(2, seed=SEED, shape="mixed")
LINES: tuple[dict[str, Any], ...] = (  # each is looked at before the next one
    {"do": "start_guest", "kind": "port", "hosts": [0]},
    {"do": "add_card", "card": "nic", "count": 16},
    {"do": "set_vfs", "slot": SLOT, "count": 4},
    {"do": "start_guest", "kind": "vf", "hosts": [0]},
    {"do": "fail", "hosts": [1]},
    {"do": "fail", "hosts": [0]},
    {"do": "heal"},
    {"do": "end_guest", "number": HOSTS[0].started + 2, "hosts": [0]},
    {"do": "remove_card", "slot": SLOT},
)
MOMENTS = tuple(range(FIRST_S, FIRST_S + len(LINES) * GAP_S, GAP_S))
UNSEEN = {"after_s": MOMENTS[5], "do": "add_card", "card": "gpu", "hosts": [1]}  # while host 1 fails
STEPS = sorted(
    [UNSEEN, *({"after_s": after_s, **line} for after_s, line in zip(MOMENTS, LINES, strict=True))],
    key=lambda step: step["after_s"],
)


@dataclass(frozen=True, slots=True)
class Stands:
    """What one host's tree has in placement: by provider and class, and what consumers have of each class."""

    cards: Mapping[str, int]
    totals: Mapping[str, int]
    used: Mapping[str, int]


def made(host: FakeHost) -> Stands:
    """What it is to have, by the values that were made."""
    cards = {provider: total for (provider, name), total in stock_of(host).items() if name in CLASSES.values()}
    totals: Counter[str] = Counter()
    for (_, name), total in stock_of(host).items():
        totals[name] += total
    used: Counter[str] = Counter()
    for (*_, name), amount in use_of(host).items():
        used[name] += amount
    return Stands(cards, totals, used)


class Lab:
    """A service that follows the script, and its placement."""

    def __init__(self, service: Service, placement: ByHand) -> None:
        self._service = service
        self.placement = placement
        self._began_s = time.monotonic()
        self._histories = histories(HOSTS, parse_script({"steps": STEPS}))

    def at(self, after_s: float) -> tuple[Moment, ...]:
        """Each host as it is after so many seconds."""
        return tuple(state_at(self._histories[host.name], after_s) for host in HOSTS)

    def stands(self, host: FakeHost) -> Stands:
        cards: dict[str, int] = {}
        totals: Counter[str] = Counter()
        used: Counter[str] = Counter()
        for one in self._providers(host):
            path = f"/resource_providers/{one['uuid']}"
            stock = self.placement.send("GET", f"{path}/inventories")["inventories"]
            totals.update({name: each["total"] for name, each in stock.items()})
            used.update(self.placement.send("GET", f"{path}/usages")["usages"])
            cards.update((one["name"], each["total"]) for name, each in stock.items() if name in CLASSES.values())
        return Stands(cards, totals, used)

    def generations(self, moments: Iterable[Moment]) -> dict[str, int]:
        """Those of all providers of the hosts that fail."""
        trees = (self._providers(moment.host) for moment in moments if moment.fails)
        return {one["name"]: one["generation"] for tree in trees for one in tree}

    def wait_until(self, after_s: float) -> None:
        time.sleep(max(0.0, self._began_s + after_s - time.monotonic()))

    def wait_for(self, moments: Iterable[Moment]) -> None:
        """Until placement has the hosts that do not fail as they were made."""
        wanted = [moment.host for moment in moments if not moment.fails]
        self._service.wait(lambda: all(map(self._is_as_made, wanted)), GAP_S, pause_s=0.2)

    def wait_for_failure(self) -> None:
        self._service.wait(lambda: "does not answer" in json.dumps(self._service.status()), GAP_S)

    def _is_as_made(self, host: FakeHost) -> bool:
        try:
            return self.stands(host) == made(host)
        except AssertionError as error:  # a provider that went after it was listed
            if "No resource provider" in str(error):
                return False
            raise

    def _providers(self, host: FakeHost) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.placement.send("GET", f"/resource_providers?in_tree={host.identity}")[
            "resource_providers"
        ]
        return found


def test_placement_follows_hosts_that_change_and_is_left_alone_by_those_that_fail(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    script = tmp_path / "script.yaml"
    script.write_text(json.dumps({"steps": STEPS}), encoding="utf-8")
    conf = made_up(tmp_path, noauth(placement_server.url))
    conf |= {group: dict(options) for group, options in options_of(HOSTS[0].shape).items()}
    conf["fake"] = {"hosts": len(HOSTS), "seed": SEED, "shape": "mixed", "script": script}
    with serving(tmp_path, conf) as service:
        lab = Lab(service, ByHand(placement_server.url))
        service.wait_for_passes(1)
        for host in HOSTS:
            claim(lab.placement, host, host.guests)
        lab.wait_for(lab.at(0))

        for after_s, line in zip(MOMENTS, LINES, strict=True):
            before, now = lab.at(after_s - 1), lab.at(after_s)
            stood = lab.generations(now)
            if line["do"] == "start_guest":
                claim(lab.placement, now[0].host, now[0].host.guests[-1:])
            lab.wait_until(after_s + 1)
            if line["do"] == "end_guest":
                release(lab.placement, before[0].host.guests[-1])
            if line["do"] == "fail":
                lab.wait_for_failure()
                lab.wait_until(after_s + GAP_S - 1)
            lab.wait_for(now)
            assert lab.generations(now) == stood
        service.wait_for_passes(1)
        assert service.is_ready()
        assert set(service.status()["outcomes"].values()) == {"unchanged"}

    afterwards = write_config(conf | {"fake": conf["fake"] | {"script_at_s": MOMENTS[-1]}}, tmp_path / "after.conf")
    audited = run_agent("audit", "--config-file", afterwards, "--format", "json")
    assert audited.code == 0, audited.out + audited.err
