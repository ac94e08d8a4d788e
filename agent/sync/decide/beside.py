"""Report only what nova-compute does not: children below the root that nova reports, in the role beside. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from agent.sync.decide.additions import COMPUTE_NODE, Addition
from agent.sync.decide.view import Shaper, View
from drivers.base import Survey
from drivers.policy import Policy
from reportclient.allocations import Holdings
from reportclient.ownership import MARKER, Names, is_marked, is_novas
from reportclient.tree import ObservedProvider, ObservedTree, Provider, ProviderTree


class BesideNova:
    """
    The pure half of a driver, without all that nova-compute reports itself.

    The root is wanted as it stands. A child is wanted if nova makes no provider of its devices, and has made none.
    """

    def __init__(self, whole: Shaper) -> None:
        self._whole = whole

    @property
    def emitted(self) -> Names:
        """Nothing on the root; on children what the driver reports there."""
        return Names(below=self._whole.emitted.below)

    def shape(self, survey: Survey, policy: Policy, observed: ObservedTree | None) -> tuple[ProviderTree, Holdings]:
        tree, holdings = self._whole.shape(survey, replace(policy, layout="devices"), observed)
        root = observed.root.provider if observed and observed.root else Provider(name=tree.root.name)
        novas = holdings.novas | {seen.name for seen in observed or () if _is_left_to_nova(seen)}
        own = tuple(one for one in tree if one.parent and one.name not in novas)
        return ProviderTree((replace(root, name=tree.root.name), *own)), holdings

    def present(self, survey: Survey) -> frozenset[str]:
        return self._whole.present(survey)


def below_novas(additions: Iterable[Addition], view: View) -> tuple[Addition, ...]:
    """Return the entries of the operator's files without those for providers that nova reports, as nova reads them."""
    novas = [seen for seen in view.observed if seen.provider.parent is None or _is_left_to_nova(seen)]
    left = {COMPUTE_NODE, view.node, view.root_uuid, *(key for seen in novas for key in (seen.name, seen.uuid))}
    return tuple(one for one in additions if one.provider not in left)


def against_root(node: str, observed: ObservedTree) -> tuple[str, ...]:
    """Return why nothing is written below this root in the role beside, a sentence each; empty when it may be."""
    root = observed.root
    if root is None:
        return (
            f"[agent] role = beside: placement has no provider {node}, which nova-compute makes at its first start: "
            f"start nova-compute",
        )
    if MARKER in root.provider.traits:
        return (
            f"[agent] role = beside: {node} carries this agent's mark, so this agent reported it and not nova: give "
            f"the host to nova with hand-over, or set [agent] role = sole",
        )
    return ()


def _is_left_to_nova(seen: ObservedProvider) -> bool:
    """Return whether nova made a child, and this agent has not taken it over."""
    return seen.provider.parent is not None and is_novas(seen) and not is_marked(seen)
