"""The traits that a pass has to ask placement for."""

from dataclasses import replace

import pytest

from agent.state.memory import NodeState
from agent.sync.decide.standing import Standing
from agent.sync.decide.wanted import Wanted, unseen_traits
from drafts import ROOT, stands
from reportclient.ownership import Names, Ownership
from reportclient.tree import Inventory, ObservedTree, ProviderTree

TREE = stands(ROOT)
OTHER = stands(replace(ROOT, inventories={"VCPU": Inventory(total=9)}))


@pytest.mark.parametrize(
    ("left", "asked"),
    [
        pytest.param(TREE, set(), id="nothing changed"),
        pytest.param(OTHER, {"HW_LACKED"}, id="the tree changed: placement may be another version"),
        pytest.param(None, {"HW_LACKED"}, id="it is not known how the tree was left"),
    ],
)
def test_a_standard_trait_that_placement_lacked_is_asked_for_again_once_the_tree_changed(
    left: ObservedTree | None, asked: set[str]
) -> None:
    memory = NodeState(observed=left, lacked_traits=frozenset({"HW_LACKED"}))
    standing = Standing(formerly=None, observed=TREE, memory=memory, named={})
    tree = ProviderTree((replace(ROOT, traits=ROOT.traits | {"HW_LACKED"}),))

    wanted = Wanted(tree=tree, others={}, added={}, reported={}, strays=(), ours=Ownership(emitted=Names()))

    assert unseen_traits(standing, wanted) == asked
