"""Random calls of nova change its tree as they did before, to the last number: what differs is on purpose."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import get_args

import pytest

from beds.golden import differences
from beds.inside import ABROAD, ROOT, MemoryTree
from drivers.base import Survey
from drivers.errors import PolicyError
from drivers.libvirt.driver import SurveyedElsewhere
from drivers.policy import Layout, Policy
from fakes import FACTS
from inside_nova.decide import AllocationsNeeded, Call, decide
from inside_nova.trees import apply_plan, decode_consumers, decode_tree, take_away
from random_hosts import CLASSES, World
from reportclient.errors import PlacementError
from reportclient.ownership import MANAGED

GOLDEN = Path(__file__).parents[1] / "random" / "inside"
SHAPER = SurveyedElsewhere(lambda: "host", lambda _: Survey(FACTS), lambda _: nullcontext())


class Nova:
    """A nova-compute whose host, options and layout change from call to call."""

    def __init__(self, number: int) -> None:
        random = Random(number)
        self.one, self.any = random.choice, random.randint
        self.worlds = [World(self.any(0, 999)) for _ in "12"]
        self.tree, self.allocations = MemoryTree("host", ROOT), dict[str, dict[str, object]]()

    def told(self) -> Iterator[str]:
        for _ in range(6):
            how = self.one(self.worlds), self.one(get_args(Layout))
            try:
                yield self.call(*how, given=self.any(0, 2) == 0)
            except AllocationsNeeded:
                yield self.call(*how, given=True) if self.any(0, 1) else "allocations needed"
            self.meanwhile()

    def call(self, world: World, layout: Layout, *, given: bool) -> str:
        policy = Policy(layout=layout, devices=world.policy, reserved_memory_mib=self.one((0, 900)))
        take_away(self.tree, "host", {self.one(("$COMPUTE_NODE", "host", "other")): frozenset({self.one(CLASSES)})})
        consumers = decode_consumers(self.allocations) if given else None
        call = Call(node="host", tree=decode_tree(self.tree, "host"), consumers=consumers, starting=self.any(0, 2) == 0)
        try:
            answer = decide(call, Survey(world.facts), policy, SHAPER)
            apply_plan(answer.plan, self.tree, self.allocations if given else None)
        except (PolicyError, PlacementError) as error:
            return f"{layout} {given} {error!r}"
        rows = [row._asdict() for row in self.tree.rows.values()]
        return json.dumps((layout, given, answer.kept, rows, self.allocations), default=sorted, sort_keys=True)

    def meanwhile(self) -> None:
        """Let guests come, and others write to the tree."""
        row = self.tree.data(self.one(list(self.tree.rows)))
        if row.inventory and self.any(0, 1):
            held = {row.uuid: {"resources": {self.one(sorted(row.inventory)): 1}, "generation": 3}}
            more = {ABROAD: {"resources": {"DISK_GB": 5}}} if self.any(0, 1) else {}
            consumer = {"project_id": "p", "user_id": "u", "consumer_generation": self.one((None, 2))}
            self.allocations[self.one("xyz")] = {"allocations": held | more, **consumer}
        if self.any(0, 4) == 0:
            self.tree.update_inventory(row.uuid, row.inventory | {self.one(CLASSES): {"total": 4}})
        if self.any(0, 9) == 0:
            self.tree.update_traits(row.uuid, row.traits ^ {MANAGED})
        if self.any(0, 9) == 0:
            self.tree.update_aggregates(row.uuid, {ABROAD})


def test_nova_gets_its_tree_as_before(request: pytest.FixtureRequest) -> None:
    """Where a number's eight digits differ, compare ``Nova(number).told()`` with that of the commit before."""
    found = [hashlib.sha256("\n".join(Nova(number).told()).encode()).hexdigest()[:8] for number in range(100)]

    lines = "".join(f"{at} {' '.join(found[at : at + 20])}\n" for at in range(0, len(found), 20))
    assert not differences(lines, GOLDEN, update=request.config.getoption("--update-golden"))
