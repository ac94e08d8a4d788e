"""
Our driver's first call on a tree that nova 34 made: ``tests/upgrades/07-nova-tree-to-numa`` has it as data.

This is the compatibility test of ``plan_provider_tree`` and of the translation of nova's trees.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import pytest

from agent.settings.read import load_settings
from beds.inside import ROOT, Inside, MemoryTree
from beds.trees import identity
from beds.upgrades import UPGRADES, Story, write_config, write_host
from drivers.base import Survey
from drivers.host.archive import HostArchive
from drivers.libvirt.driver import LibvirtDriver
from drivers.libvirt.recorded import RecordedConnection
from drivers.policy import Layout, Policy
from inside_nova.decide import AllocationsNeeded, Answer, Call, decide
from inside_nova.trees import decode_consumers, decode_tree
from reportclient.ownership import MARKER, OWNER_NOVA
from reportclient.plan import EnsureClasses, EnsureTraits, SetTraits

HOST = "four-cells"


class Recorded:
    """The story: its host, its configuration, and what placement holds, in nova's form."""

    def __init__(self, folder: Path) -> None:
        self.story = Story(UPGRADES / "07-nova-tree-to-numa").data
        self.inside = Inside(HOST, MemoryTree(HOST, ROOT))
        self._lay_down(self.story["before"])
        archive = HostArchive(write_host(self.story, folder))
        settings = load_settings([write_config(self.story["config"], folder / "nova.conf")])
        self.policy = settings.policy
        self.driver = LibvirtDriver(RecordedConnection(archive), self.policy, settings.hypervisor.disk)
        self.survey: Survey = self.driver.survey(HOST)

    def call(self, layout: Layout, *, given: bool, starting: bool = True) -> Answer:
        policy: Policy = replace(self.policy, layout=layout)
        call = Call(
            node=HOST,
            tree=decode_tree(self.inside.tree, HOST),
            consumers=decode_consumers(self.inside.allocations) if given else None,
            starting=starting,
        )
        return decide(call, self.survey, policy, self.driver)

    def _lay_down(self, before: Any) -> None:
        tree = self.inside.tree
        for name, one in before["providers"].items():
            if one["parent"]:
                tree.new_child(name, one["parent"], uuid=one.get("uuid") or str(uuid5(NAMESPACE_DNS, name)))
            tree.update_inventory(name, one["inventories"])
            tree.update_traits(name, one["traits"])
        for name, consumer in before["consumers"].items():
            self.inside.allocate(identity(name), consumer["allocations"])


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path)


@pytest.mark.parametrize("given", [True, False])
def test_a_tree_of_nova_s_keeps_its_stock_and_allocations_and_gets_traits_alone(
    recorded: Recorded, given: bool
) -> None:
    answer = recorded.call("devices", given=given, starting=not given)

    plan = answer.plan
    assert not plan.moves
    assert {type(step) for step in plan.operations} <= {EnsureClasses, EnsureTraits, SetTraits}
    changed = {step.name: step for step in plan.operations if isinstance(step, SetTraits)}
    assert not any(name.startswith(f"{HOST}:") for name in changed), "Neutron's providers stay"
    for step in changed.values():
        assert MARKER in step.added
        assert not step.removed
        assert OWNER_NOVA in step.traits


def test_nova_s_tree_becomes_flat_but_for_what_its_pci_tracker_reports(recorded: Recorded) -> None:
    with pytest.raises(AllocationsNeeded):
        recorded.call("flat", given=False)

    answer = recorded.call("flat", given=True)

    assert {move.to_provider for move in answer.plan.moves} == {HOST}
    moved = {(move.consumer, name): n for move in answer.plan.moves for name, n in move.arriving.items()}
    assert moved == {(identity("spread"), "VGPU"): 1, (identity("card"), "VGPU"): 1}
