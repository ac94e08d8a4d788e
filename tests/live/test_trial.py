"""A conversion on trial: the running service takes it back in time, also after a kill, unless a person confirms it."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from beds.agents import Result, run_agent
from beds.by_hand import ByHand
from beds.placement import PlacementServer
from beds.service import made_up, noauth, serving
from beds.trees import identity
from beds.upgrades import write_config

pytestmark = pytest.mark.live


class Trial:
    """A made-up host with cards, and a consumer that has one VF of its flat tree."""

    def __init__(self, url: str, folder: Path) -> None:
        self.folder, self.consumer = folder, identity("guest")
        self.groups = made_up(folder, noauth(url)) | {"fake": {"shape": "network"}, "pci": {"discover": "all"}}
        self.configure("flat")
        assert self.run("sync").code == 0
        shown = self.run("show").json["providers"]
        self.root = next(name for name, one in shown.items() if one["parent"] is None)
        ByHand(url).claim(self.consumer, {shown[self.root]["uuid"]: {"SRIOV_NET_VF": 1}})
        self.before = self.stands()

    def configure(self, layout: str) -> None:
        self.groups |= {"compute": {"layout": layout}}
        self.config = write_config(self.groups, self.folder / "agent.conf")

    def run(self, verb: str, *more: object) -> Result:
        return run_agent(verb, "--config-file", self.config, *more, "--format", "json")

    def stands(self) -> Any:
        done = self.run("show")
        assert done.code == 0, done.out + done.err
        shown = done.json
        tree = {name: (one["parent"], one["inventories"], one["traits"]) for name, one in shown["providers"].items()}
        return tree, shown["allocations"]

    def convert(self, seconds: int) -> datetime:
        end = datetime.now().astimezone() + timedelta(seconds=seconds)
        done = self.run("reshape", "--to", "devices", "--apply", "--confirm-within", end.isoformat(timespec="seconds"))
        assert done.code == 0, done.out + done.err
        assert "unless reshape --confirm comes" in done.err
        assert self.stands() != self.before
        return end


@pytest.fixture
def trial(placement_server: PlacementServer, tmp_path: Path) -> Trial:
    return Trial(placement_server.url, tmp_path)


def test_the_service_takes_it_back_also_after_a_kill(trial: Trial, tmp_path: Path) -> None:
    with serving(tmp_path, trial.groups) as service:
        service.wait_for_passes(1)
        trial.convert(20)
        service.wait(lambda: "takes it back at its first pass after" in str(service.status()), 30)
    # the context killed it
    with serving(tmp_path, trial.groups) as service:
        service.wait(lambda: "a conversion that nobody confirmed is taken back" in service.lines(), 60)
        service.wait_for_passes(2)
        assert trial.stands() == trial.before
        assert "takes it back" not in str(service.status())


def test_what_is_confirmed_stands(trial: Trial, tmp_path: Path) -> None:
    with serving(tmp_path, trial.groups) as service:
        end = trial.convert(30)
        converted = trial.stands()
        assert trial.run("reshape", "--confirm").json["confirmed"]
        service.wait(lambda: datetime.now().astimezone() > end, 60)
        service.wait_for_passes(2)
        assert trial.stands() == converted
    assert trial.run("reshape", "--confirm").json["confirmed"] is None


def test_a_service_that_converts_by_itself_takes_nothing_back(trial: Trial) -> None:
    trial.groups["agent"] |= {"allow_reshape": "true"}
    trial.configure("devices")

    done = trial.run("reshape", "--apply", "--confirm-within", "90m")

    assert done.code == 1
    assert "[agent] allow_reshape is true" in done.err
