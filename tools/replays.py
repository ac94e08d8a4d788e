"""
Make the cases of ``tests/replays`` anew: plans and audits of recorded hosts, for the unit tests to replay.

Each host stands in a placement in this process, has guests, and is meddled with by hand. Then a plan, a conversion or
an audit is saved. What a replay says stands beside the case; ``pytest tests/unit/test_replays.py --update-golden``
writes it. Run this only where the requests to placement change, or the form of a case.
"""

import json
import os
import random
import sys
import tempfile
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import behaviour
from behaviour import LAYOUTS, ROOT, World

TARGET = ROOT / "tests/replays"
NAMES = UUID(int=44)
DEEDS = 3  # of each kind, at most, before a case is saved


class Meddler:
    """Others who write to a tree: what they do follows from a name."""

    def __init__(self, name: str, placement: Any) -> None:
        self._dice = random.Random(name)
        self._send = placement.send
        self._rows = self._send("GET", "/resource_providers")["resource_providers"]

    def act(self) -> None:
        """Several deeds, of which those that placement refuses are left out."""
        deeds = (
            self.reserve,
            self.limit,
            self.mark,
            self.unmark,
            self.adopt,
            self.claim,
            self.change,
            self.migrate,
            self.free,
        )
        for deed in self._dice.sample(deeds, DEEDS) if self._rows else ():
            try:
                deed()
            except (AssertionError, IndexError) as error:
                print(deed.__name__, error, file=sys.stderr)

    def reserve(self) -> None:
        name, record, body = self._stock()
        record["reserved"] = min(record["total"], record["reserved"] + self._dice.randint(1, 3))
        self._put(name, "inventories", body)

    def limit(self) -> None:
        name, record, body = self._stock()
        record["max_unit"] = max(1, record["max_unit"] // 2)
        record["allocation_ratio"] = self._dice.choice((1.5, 2.0))
        self._put(name, "inventories", body)

    def mark(self) -> None:
        for trait in ("CUSTOM_OF_OTHERS", "COMPUTE_STATUS_DISABLED"):
            name = self._row()["uuid"]
            body = self._send("GET", f"/resource_providers/{name}/traits")
            if trait.startswith("CUSTOM_"):
                self._send("PUT", f"/traits/{trait}")
            self._put(name, "traits", {**body, "traits": sorted({*body["traits"], trait})})

    def unmark(self) -> None:
        name = self._row()["uuid"]
        body = self._send("GET", f"/resource_providers/{name}/traits")
        kept = [one for one in body["traits"] if not one.startswith(("CUSTOM_OWNER", "HW_CPU"))]
        self._put(name, "traits", {**body, "traits": kept})

    def adopt(self) -> None:
        """A child of another service below one of ours."""
        above, own = self._row(), str(uuid5(NAMES, str(self._dice.random())))
        self._send(
            "POST", "/resource_providers", {"name": f"other-{own}", "uuid": own, "parent_provider_uuid": above["uuid"]}
        )
        kind = self._dice.choice(("VGPU", "PCI_DEVICE", "DISK_GB"))
        self._send("PUT", "/traits/CUSTOM_OWNER_OTHER")
        self._put(own, "inventories", {"resource_provider_generation": 0, "inventories": {kind: {"total": 4}}})
        self._put(
            own,
            "traits",
            {"resource_provider_generation": 1, "traits": [self._dice.choice(("OWNER_CYBORG", "CUSTOM_OWNER_OTHER"))]},
        )

    def claim(self) -> None:
        """A consumer that is no guest of the host."""
        name, record, body = self._stock()
        kind = next(key for key, one in body["inventories"].items() if one is record)
        self._allocate(
            str(uuid5(NAMES, str(self._dice.random()))),
            {name: {"resources": {kind: record["min_unit"] * record["step_size"]}}},
            None,
        )

    def change(self) -> None:
        consumer, body = self._consumer()
        slots = body["allocations"]
        provider = self._dice.choice(sorted(slots))
        kind = self._dice.choice(sorted(slots[provider]["resources"]))
        slots[provider]["resources"][kind] *= 2
        self._allocate(consumer, slots, body["consumer_generation"])

    def migrate(self) -> None:
        """What a consumer has belongs to a migration."""
        consumer, body = self._consumer()
        self._allocate(str(uuid5(NAMES, consumer)), body["allocations"], None, kind="MIGRATION")
        self._send("DELETE", f"/allocations/{consumer}")

    def free(self) -> None:
        consumer, _ = self._consumer()
        self._send("DELETE", f"/allocations/{consumer}")

    def _row(self) -> dict[str, Any]:
        found: dict[str, Any] = self._dice.choice(sorted(self._rows, key=lambda one: str(one["name"])))
        return found

    def _stock(self) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """A class of a provider: the provider, its record, and all inventories, of which the record is a part."""
        for _ in range(20):
            name = self._row()["uuid"]
            body = self._send("GET", f"/resource_providers/{name}/inventories")
            if body["inventories"]:
                return name, body["inventories"][self._dice.choice(sorted(body["inventories"]))], body
        raise IndexError("nothing is on offer")

    def _consumer(self) -> tuple[str, dict[str, Any]]:
        paths = [f"/resource_providers/{one['uuid']}/allocations" for one in self._rows]
        consumer = self._dice.choice(sorted({key for path in paths for key in self._send("GET", path)["allocations"]}))
        return consumer, self._send("GET", f"/allocations/{consumer}")

    def _put(self, name: str, aspect: str, body: object) -> None:
        self._send("PUT", f"/resource_providers/{name}/{aspect}", body)

    def _allocate(self, consumer: str, slots: Any, generation: int | None, *, kind: str = "INSTANCE") -> None:
        who = {"project_id": "project", "user_id": "user", "consumer_generation": generation, "consumer_type": kind}
        kept = {name: {"resources": one["resources"]} for name, one in slots.items()}
        self._send("PUT", f"/allocations/{consumer}", {"allocations": kept, **who})


def keep(world: World, name: str, verb: str, *more: object) -> None:
    """Carry out a verb that writes nothing, and save what it read."""
    world.run(verb, *more, "--save", TARGET / f"{name}.tar.gz")


def meddle(world: World, name: str) -> None:
    world.set_up(lambda placement: Meddler(name, placement).act())


def host(folder: Path, world: World) -> None:
    """A recorded host: in one layout with guests and others' hands, audited and converted, and once more."""
    own, heal = folder / "agent.conf", world.write("heal.yaml", behaviour.HEAL)
    files = {layout: world.write(f"{layout}.conf", f"[compute]\nlayout = {layout}\n") for layout in LAYOUTS}
    fit = [one for one in LAYOUTS if "providers" in json.loads((folder / f"{one}.json").read_text(encoding="utf-8"))]
    first = sum(folder.name.encode()) % len(fit)
    turned = [*fit[first:], *fit[:first], fit[first]]
    for before, after in list(pairwise(turned))[:2]:
        world.options = ["--host", folder / "archive", "--config-file", own, "--config-file", files[before]]
        world.run("sync")
        world.run("audit", "--heal", "--policy", heal)
        name = f"{folder.name}-{before}"
        meddle(world, name)
        keep(world, f"{name}-audit", "audit")
        keep(world, f"{name}-plan", "plan")
        world.options = ["--host", folder / "archive", "--config-file", own, "--config-file", files[after]]
        keep(world, f"{name}-to-{after}", "reshape")
        world.run("reshape", "--apply")


def upgrade(folder: Path, world: World) -> None:
    """An old tree, before it is converted and afterwards."""
    from beds.trees import add_consumer, lay_down
    from beds.upgrades import write_config, write_host

    story = json.loads((folder / "story.json").read_text(encoding="utf-8"))
    archive, before = write_host(story, world.folder), story["before"]
    world.set_up(lambda placement: lay_down(placement, before["providers"]))
    for number, conf in enumerate([story[key] for key in ("first", "config") if key in story]):
        world.options = ["--host", archive, "--config-file", write_config(conf, world.folder / f"{number}.conf")]
        if conf is not story["config"]:
            world.run("sync")
    for name, consumer in before["consumers"].items():
        world.set_up(partial(add_consumer, name=name, consumer=consumer))
    keep(world, folder.name, "reshape")
    world.run("reshape", "--apply")
    meddle(world, folder.name)
    keep(world, f"{folder.name}-audit", "audit")


def case(path: Path, world: World) -> None:
    """What nova reported step by step: the plan of the last step."""
    from beds import cases

    host: dict[str, Any] = {}
    conf: dict[str, Any] = {}
    steps = json.loads(path.read_text(encoding="utf-8"))["steps"]
    for number, step in enumerate(steps):
        host = host if step.get("host", "same") == "same" else step["host"]
        conf = conf if step.get("conf", "same") == "same" else step["conf"]
        archive = cases.write_archive(host, step["host_name"], world.folder / "host")
        world.options = ["--host", archive, "--config-file", cases.write_config(conf, world.folder / "nova.conf")]
        if number and "allocations" in step.get("after", {}):
            world.set_up(partial(behaviour._step, after=step["after"]))
        if number + 1 < len(steps):
            world.run("sync")
        else:
            keep(world, path.stem.rpartition("__")[2], "plan")


def main() -> None:
    """Play all worlds, one after the other."""
    tests = ROOT / "tests"
    TARGET.mkdir(exist_ok=True)
    for path in TARGET.iterdir():
        path.unlink()
    worlds = [(path.name, partial(host, path)) for path in sorted((tests / "hosts").iterdir()) if path.is_dir()]
    worlds += [(path.name, partial(upgrade, path)) for path in sorted((tests / "upgrades").iterdir()) if path.is_dir()]
    worlds += [(path.stem, partial(case, path)) for path in sorted((tests / "cases").glob("*.json"))]
    with tempfile.TemporaryDirectory(prefix="replays-") as scratch:
        os.environ |= {"HOME": scratch, "COLUMNS": "160", "NO_COLOR": "1"}
        template = behaviour.new_placement(Path(scratch))
        for name, play in worlds:
            print(name, flush=True)
            (Path(scratch) / "worlds").mkdir(exist_ok=True)
            play(World(name, Path(scratch) / "record", Path(scratch) / "worlds", template))


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    main()
