"""
The PCI devices that nova's own tracker reports, which stay its own in all layouts but devices. Pure.

The tracker writes after the driver: it takes the provider of a device by its name, makes a missing one below the root,
and deletes those with the trait COMPUTE_MANAGED_PCI_DEVICE that it does not know
(nova/compute/pci_placement_translator.py). In the layout devices both write the same.
"""

from collections.abc import Iterable
from dataclasses import replace

from agent.sync.decide.view import Shaper
from drivers.base import Survey
from drivers.errors import PolicyError
from drivers.policy import Policy
from reportclient.allocations import Holdings
from reportclient.errors import TreeMismatch
from reportclient.ownership import MANAGED, Names
from reportclient.tree import ObservedProvider, ObservedTree, Provider, ProviderTree


class WithoutPci:
    """A shaper whose tree leaves out the devices that the tracker reports, and what guests have of them."""

    def __init__(self, shaper: Shaper, standing: ObservedTree) -> None:
        """Make the shaper; ``standing`` is the whole tree as nova knows it, with the tracker's providers."""
        self._shaper = shaper
        self._standing = standing

    @property
    def emitted(self) -> Names:
        return self._shaper.emitted

    def shape(self, survey: Survey, policy: Policy, observed: ObservedTree | None) -> tuple[ProviderTree, Holdings]:
        """
        Return the tree and the holdings as the shaper's own ``shape``, without those devices.

        Raises:
            PolicyError: as the shaper's own. TreeMismatch: a device would be on offer twice, or its name taken twice.
        """
        tree, holdings = self._shaper.shape(survey, policy, observed)
        flat = policy.layout == "flat"
        below = self._shaper.shape(survey, replace(policy, layout="devices"), None)[0] if flat else tree
        theirs = [provider for provider in below if MANAGED in provider.traits]
        names = {provider.name for provider in theirs}
        totals = _totals(below) if flat else frozenset[str]()
        root = replace(tree.root, inventories={n: one for n, one in tree.root.inventories.items() if n not in totals})
        kept = ProviderTree((root, *(provider for provider in tree.providers[1:] if provider.name not in names)))
        _refuse_clashes(kept, theirs, self._standing)
        return kept, replace(
            holdings,
            units=tuple(
                one for one in holdings.units if one.provider not in names and one.resource_class not in totals
            ),
            ports=tuple(
                one for one in holdings.ports if one.provider not in names and one.resource_class not in totals
            ),
        )


def _totals(below: ProviderTree) -> frozenset[str]:
    """
    Return the classes of the tracker's devices, which a root of the layout flat does not get.

    Raises:
        PolicyError: other devices have such a class too.
    """
    theirs, others = (
        {name for one in below if one.parent and (MANAGED in one.traits) is managed for name in one.inventories}
        for managed in (True, False)
    )
    if both := sorted(theirs & others):
        raise PolicyError(
            f"[compute] layout = flat: devices of [pci] device_spec and others have the class {', '.join(both)}, and "
            f"nova-compute reports the former itself: give the latter another class, or set another layout"
        )
    return frozenset(theirs)


def without_pci(tree: ObservedTree) -> ObservedTree:
    """Return a tree without the tracker's providers."""
    return replace(tree, providers=tuple(seen for seen in tree if not _is_trackers(seen, tree)))


def _is_trackers(seen: ObservedProvider, tree: ObservedTree) -> bool:
    """Return whether a provider of a tree is where the tracker makes its own."""
    return MANAGED in seen.provider.traits and seen.provider.parent == tree.providers[0].name


def _refuse_clashes(ours: ProviderTree, theirs: Iterable[Provider], standing: ObservedTree) -> None:
    """
    Refuse what the tracker would contradict: a provider of ours that is its own by now, or the reverse.

    Raises:
        TreeMismatch: a device would be on offer twice, or a name be taken twice.
    """
    wanted, left = {one.name for one in ours}, {one.name for one in theirs}
    for seen in standing:
        if seen.name in (wanted if _is_trackers(seen, standing) else left):
            raise TreeMismatch(
                f"provider {seen.name} is below {seen.provider.parent}, and would have to be elsewhere now, which "
                f"nova-compute cannot do: take back the last change of [pci] device_spec and discover, or let the "
                f"agent that reported this host convert it to the layout devices first"
            )
    root = standing.root
    twice = root.provider.inventories.keys() & {name for one in theirs for name in one.inventories} if root else set()
    if root and twice:
        raise TreeMismatch(
            f"the root {root.name} has {', '.join(sorted(twice))}, which nova's PCI tracker reports below it: start "
            f"nova-compute once with [compute] layout = devices"
        )
