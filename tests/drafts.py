"""Drafts of passes over a host that has nothing but CPUs."""

from dataclasses import replace
from typing import Any

import fakes
from agent.state.memory import NodeState
from agent.sync.decide.draft import Draft
from drivers.base import Survey
from drivers.libvirt.shape import EMITTED
from reportclient.ownership import MARKER, Ownership
from reportclient.plan import Plan
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

ROOT = Provider(name="host", inventories={"VCPU": Inventory(total=8)}, traits=frozenset({MARKER}))


def stands(*providers: Provider) -> ObservedTree:
    return ObservedTree(tuple(ObservedProvider(uuid=one.name, generation=1, provider=one) for one in providers))


SEEN = NodeState(observed=stands(ROOT))


def draft(**changes: Any) -> Draft:
    """A host that stands in placement as it is wanted, and is remembered."""
    told = Draft(
        root_uuid="host",
        desired=ProviderTree((ROOT,)),
        observed=stands(ROOT),
        said=stands(ROOT),
        ours=Ownership(emitted=EMITTED),
        plan=Plan(),
        unplaceable="",
        contest=None,
        went_back=False,
        survey=Survey(fakes.FACTS),
        hardware=frozenset(),
        present=frozenset(),
        allocations=(),
        elsewhere=frozenset(),
        away=frozenset(),
        held=(),
        awaited=(),
        stands_in="devices",
        layout="devices",
        strays=(),
        memory=SEEN,
        refused=SEEN,
        meanwhile=SEEN,
        lasting=SEEN,
        identified=True,
    )
    return replace(told, **changes)
