"""The traits that a pass has to ask placement for."""

from dataclasses import replace
from pathlib import Path

import os_traits
import pytest

from agent.state.memory import NodeState
from agent.sync.decide.shaped import Standing
from agent.sync.decide.wanted import Wanted, unseen_traits
from agent.sync.outcome import Status
from beds.one_host import OneHost
from drafts import ROOT, stands
from drivers.policy import Policy
from fakes import FACTS
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
    standing = Standing(formerly=None, observed=TREE, memory=memory, named={}, new_name=str)
    tree = ProviderTree((replace(ROOT, traits=ROOT.traits | {"HW_LACKED"}),))

    wanted = Wanted(tree=tree, others={}, added={}, reported={}, strays=(), ours=Ownership(emitted=Names()))

    assert unseen_traits(standing, wanted) == asked


def test_a_trait_that_placement_is_too_old_to_know_is_left_out_and_told(tmp_path: Path) -> None:
    one = OneHost(tmp_path, FACTS, Policy(root_traits=frozenset({"HW_CPU_X86_FUTURE"})))

    first, second = one.sync(), one.sync()

    assert (first.status, second.status) == (Status.CHANGED, Status.UNCHANGED)
    assert first.notes == second.notes == ("this placement is too old to know the traits HW_CPU_X86_FUTURE",)
    assert "HW_CPU_X86_FUTURE" not in one.traits()


def test_a_trait_is_reported_once_placement_was_upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a host that is empty, as servers ask for just that trait, would never get one."""
    one = OneHost(tmp_path, FACTS, Policy(root_traits=frozenset({"HW_CPU_X86_FUTURE"})))
    one.sync()
    knows = frozenset({"HW_CPU_X86_FUTURE", *os_traits.get_traits()})
    monkeypatch.setattr("beds.memory._standard_traits", lambda: knows)

    whole = one.sync()

    assert (whole.status, whole.notes) == (Status.CHANGED, ())
    assert "HW_CPU_X86_FUTURE" in one.traits()
