"""Drafts of passes over a host that has nothing but CPUs."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import fakes
from agent.state.memory import NodeState
from agent.sync.decide.feature import Draft
from agent.sync.decide.features.nova_root import NovaRoot
from agent.sync.decide.features.renamed_class import RenamedClass
from agent.sync.decide.features.second_writer import SecondWriter
from drivers.base import Survey
from drivers.libvirt.shape import EMITTED
from reportclient.ownership import MARKER, Contest, Ownership
from reportclient.plan import Plan
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

ROOT = Provider(name="host", inventories={"VCPU": Inventory(total=8)}, traits=frozenset({MARKER}))


def stands(*providers: Provider) -> ObservedTree:
    return ObservedTree(tuple(ObservedProvider(uuid=one.name, generation=1, provider=one) for one in providers))


SEEN = NodeState(observed=stands(ROOT))


def draft(*, contest: Contest | None = None, nova: Mapping[str, str] = MappingProxyType({}), **changes: Any) -> Draft:
    """A host that stands in placement as it is wanted, and is remembered; ``nova`` are the signs of it."""
    told = Draft(
        root_uuid="host",
        desired=ProviderTree((ROOT,)),
        observed=stands(ROOT),
        said=stands(ROOT),
        ours=Ownership(emitted=EMITTED),
        plan=Plan(),
        unplaceable="",
        went_back=False,
        survey=Survey(fakes.FACTS),
        present=frozenset(),
        allocations=(),
        held=(),
        stands_in="devices",
        layout="devices",
        strays=(),
        memory=SEEN,
        refused=SEEN,
        meanwhile=SEEN,
        lasting=SEEN,
        identified=True,
        features=(SecondWriter(contest=contest), NovaRoot(signs=nova, looked=True), RenamedClass()),
    )
    return replace(told, **changes)
