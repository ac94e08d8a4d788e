"""Drafts of passes over a host that has nothing but CPUs."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import fakes
from agent.settings.read import ChangeSettings
from agent.state.memory import NodeState
from agent.sync.decide.feature import Draft, Way
from agent.sync.decide.features.nova_root import NovaRoot
from agent.sync.decide.features.renamed_class import RenamedClass
from agent.sync.decide.features.second_writer import SecondWriter
from agent.sync.decide.shaped import Shaped, Standing
from agent.sync.decide.view import SeenTree, Terms, View
from agent.sync.decide.wanted import Wanted
from drivers.base import Survey
from drivers.libvirt.shape import EMITTED
from drivers.policy import Policy
from reportclient.allocations import Holdings
from reportclient.ownership import MARKER, Contest, Ownership
from reportclient.plan import Plan
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

ROOT = Provider(name="host", inventories={"VCPU": Inventory(total=8)}, traits=frozenset({MARKER}))
WANTED, OURS = ProviderTree((ROOT,)), Ownership(emitted=EMITTED)
PARTS = {
    "plan": "way",
    "allocations": "way",
    "unplaceable": "way",
    "memory": "shaped",
    "present": "shaped",
    "strays": "wanted",
    "ours": "wanted",
    "beside": "view",
    "changes": "view",
    "terms": "view",
}
"""The part of a draft that has this field."""


def stands(*providers: Provider) -> ObservedTree:
    return ObservedTree(tuple(ObservedProvider(uuid=one.name, generation=1, provider=one) for one in providers))


SEEN = NodeState(observed=stands(ROOT))
TERMS = Terms(now_s=10_000.0, interval_s=60, microversion=(1, 39))
OPTIONS = ChangeSettings(shrink_fraction=0.3, allow_reshape=False, reshape_timeout_s=0, expect_timeout_s=0)


def draft(
    *,
    contest: Contest | None = None,
    nova: Mapping[str, str] = MappingProxyType({}),
    layout: str = "devices",
    desired: ProviderTree = WANTED,
    **changes: Any,
) -> Draft:
    """A host that stands in placement as it is wanted, and is remembered; ``nova`` are the signs of it."""
    observed = changes.pop("observed", stands(ROOT))
    told = Draft(
        view=View(
            node="host",
            root_uuid="host",
            policy=Policy(layout=layout),  # type: ignore[arg-type]
            additions=(),
            survey=Survey(fakes.FACTS),
            seen=SeenTree(tree=observed, went_back=changes.pop("went_back", False)),
            memory=SEEN,
            changes=OPTIONS,
            terms=TERMS,
        ),
        shaped=Shaped(
            tree=desired,
            holdings=Holdings(),
            present=frozenset(),
            ours=OURS,
            stands=observed,
            memory=SEEN,
            standing=Standing(formerly=None, observed=observed, memory=SEEN, named={}, new_name=str),
        ),
        wanted=Wanted(tree=desired, others={}, added={}, reported={}, strays=(), ours=OURS, notes=()),
        way=Way(tree=desired, plan=Plan(), allocations=(), held=(), unplaceable=""),
        stands_in="devices",
        held=(),
        meanwhile=SEEN,
        lasting=SEEN,
        features=(SecondWriter(contest=contest), NovaRoot(signs=nova, looked=True), RenamedClass()),
    )
    for name, value in changes.items():
        part = PARTS.get(name)
        value = replace(getattr(told, part), **{name: value}) if part else value
        told = replace(told, **{part or name: value})
    return told
