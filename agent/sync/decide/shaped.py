"""Second step of a draft: what the host gives."""

from dataclasses import dataclass

from agent.state.memory import NodeState
from agent.sync.decide.additions import without
from agent.sync.decide.standing import Standing
from agent.sync.decide.view import Shaper, View
from drivers.base import Survey
from reportclient.allocations import Holdings
from reportclient.diff import adopted
from reportclient.ownership import Ownership, joined
from reportclient.reserve import with_marks_of, with_reservations
from reportclient.settings import with_limits
from reportclient.tree import ObservedTree, ProviderTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """What the host gives, before the operator's files are applied; features change it one after the other."""

    tree: ProviderTree
    holdings: Holdings
    present: frozenset[str]  # names of providers whose hardware the survey found
    ours: Ownership  # as it was before this pass
    stands: ObservedTree  # the standing tree, with marks for what operators reserved since the last pass
    memory: NodeState  # as the last pass left it, with what features add

    def is_lost(self, name: str) -> bool:
        """Return whether the hardware of a provider is away, or shows none of its parts."""
        return name not in self.present or name in self.holdings.backing.silent


def shape_host(view: View, shaper: Shaper, standing: Standing, observed: ObservedTree) -> Shaped:
    """Return the tree that the host gives, with the ratios and reservations of ``observed``, the standing tree."""
    memory = standing.memory

    def as_said(tree: ObservedTree) -> ObservedTree:
        return with_reservations(with_marks_of(tree, memory.observed), standing.files)

    said = without(as_said(observed), standing.named)
    tree, holdings = shaper.shape(view.survey, view.policy, said)
    return Shaped(
        tree=with_limits(tree, said),
        holdings=holdings,
        present=view.survey.present,
        ours=ownership(shaper, view.survey, tree, standing.observed, memory),
        stands=as_said(standing.observed),
        memory=memory,
    )


def ownership(
    shaper: Shaper, survey: Survey, shaped: ProviderTree, observed: ObservedTree, memory: NodeState
) -> Ownership:
    """Return what was ours before this pass, and what nova made for devices of this host."""
    names = survey.present | {provider.name for provider in shaped}
    return Ownership(
        emitted=shaper.emitted,
        configured=joined(memory.configured, memory.reported),
        adopted=adopted(observed, names),
    )
