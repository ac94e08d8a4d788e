"""
Report only what nova-compute does not, in the role beside: children below the root that nova reports. Pure.

The decision is made as if this agent's part were a tree of its own: a bare root, and the children that are not nova's.
So nothing of nova's can be wanted, changed or missed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agent.sync.decide.additions import COMPUTE_NODE, Addition
from agent.sync.decide.view import Shaper, View
from drivers.base import Survey
from drivers.policy import Policy
from reportclient.allocations import Holdings
from reportclient.errors import Absent, TreeMismatch
from reportclient.names import device_address
from reportclient.ownership import MANAGED, MARKER, OWNER_NOVA, Names, is_marked, others_marks
from reportclient.tree import ObservedProvider, ObservedTree, Provider, ProviderTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """This agent's part of a node."""

    view: View
    shaper: Shaper
    novas: frozenset[str]  # uuids of the standing children that are left to nova
    notes: tuple[str, ...]  # a sentence on each device that both would report


@dataclass(frozen=True, slots=True)
class _BesideNova:
    """The pure half of a driver, with a bare root and without the devices that nova reports."""

    whole: Shaper
    taken: frozenset[str]  # PCI addresses of nova's children

    @property
    def emitted(self) -> Names:
        return self.whole.emitted

    def shape(self, survey: Survey, policy: Policy, observed: ObservedTree | None) -> tuple[ProviderTree, Holdings]:
        tree, holdings = self.whole.shape(survey, policy, observed)
        own = (one for one in tree if one.parent and one.name not in holdings.backing.novas)
        free = (one for one in own if not holdings.backing.addresses.get(one.name, frozenset()) & self.taken)
        # By this trait nova's PCI tracker would take a child for its own, and delete it.
        unmanaged = (replace(one, traits=one.traits - {MANAGED}) for one in free)
        return ProviderTree((Provider(name=tree.root.name), *unmanaged)), holdings


def own_side(view: View, shaper: Shaper) -> Side:
    """
    Return what this agent sees, remembers and wants of a node, without all that is nova's.

    Raises:
        Absent: nova has not reported the host yet. TreeMismatch: the root has another name.
        PolicyError: as ``Driver.shape``.
    """
    root = _root_of_nova(view)
    policy = replace(view.policy, layout="devices")
    tree, holdings = shaper.shape(view.survey, policy, ObservedTree((_bare(root),)))
    novas = left_to_nova(view.observed, holdings.backing.novas)
    taken = {address: seen.name for seen in novas if (address := device_address(seen.name))}
    uuids = frozenset(seen.uuid for seen in novas)
    left = view.memory.observed
    return Side(
        view=replace(
            view,
            policy=policy,
            additions=_not_for_nova(view, novas, holdings.backing.novas),
            seen=replace(view.seen, tree=_without(view.observed, uuids, holdings.backing.novas)),
            memory=replace(view.memory, observed=_without(left, uuids, holdings.backing.novas) if left else None),
        ),
        shaper=_BesideNova(shaper, frozenset(taken)),
        novas=uuids,
        notes=tuple(_blocked(tree, holdings, taken)),
    )


def against_root(node: str, observed: ObservedTree) -> tuple[str, ...]:
    """Return why nothing is written below this root in the role beside, a sentence each; empty when it may be."""
    root = observed.root
    if root is None or MARKER not in root.provider.traits:
        return ()
    return (
        f"[agent] role = beside: {node} carries this agent's mark, so this agent reported it, or its driver inside "
        f"nova-compute, and not nova's own: stop nova-compute and give the host to nova with hand-over, or set "
        f"[agent] role = sole, or role = audit where that driver stays",
    )


def _root_of_nova(view: View) -> ObservedProvider:
    root = view.observed.root
    if root is None:
        raise Absent(
            f"[agent] role = beside: placement has no provider {view.node}, which nova-compute makes at its first "
            f"start: start nova-compute"
        )
    if root.name != view.node or view.wishes.rename_from:
        raise TreeMismatch(
            f"[agent] role = beside: nova's root is named {root.name}, and nova does not rename it: give this host the "
            f"name {root.name} again; --rename-from is for hosts that this agent reports"
        )
    return root


def left_to_nova(observed: ObservedTree, names: frozenset[str]) -> list[ObservedProvider]:
    """Return the children that are left to nova, with all below them; ``names`` are of devices that nova reports."""
    found = {seen.name for seen in observed if seen.provider.parent and _is_novas(seen, names)}
    while below := {seen.name for seen in observed if seen.provider.parent in found} - found:
        found |= below
    return [seen for seen in observed if seen.name in found]


def _is_novas(seen: ObservedProvider, names: frozenset[str]) -> bool:
    """
    Return whether a child stands for a device that nova reports, or was written by nova.

    All of ours carry our mark, but for those that a pass made and was cut off before it marked them: these are empty.
    """
    empty = not seen.provider.traits and not seen.provider.inventories
    unmarked = not is_marked(seen) and not others_marks(seen) and not empty
    return seen.name in names or OWNER_NOVA in seen.provider.traits or unmarked


def _without(tree: ObservedTree, uuids: frozenset[str], names: frozenset[str]) -> ObservedTree:
    """Return a tree with a bare root, and without the children that are nova's by uuid or by name."""
    gone = uuids | {seen.uuid for seen in left_to_nova(tree, names)}
    kept = (seen for seen in tree if seen.uuid not in gone)
    return replace(tree, providers=tuple(seen if seen.provider.parent else _bare(seen) for seen in kept))


def _bare(root: ObservedProvider) -> ObservedProvider:
    return replace(root, provider=Provider(name=root.name))


def _not_for_nova(view: View, novas: Iterable[ObservedProvider], names: frozenset[str]) -> tuple[Addition, ...]:
    """Return the entries of the operator's files without those for nova's providers: nova reads the same files."""
    left = {COMPUTE_NODE, view.node, view.root_uuid, *names, *(key for seen in novas for key in (seen.name, seen.uuid))}
    return tuple(one for one in view.additions if one.provider not in left)


def _blocked(tree: ProviderTree, holdings: Holdings, taken: dict[str, str]) -> list[str]:
    """Return a sentence on each child that is not reported because nova reports its device."""
    sentences = []
    for one in tree:
        both = sorted(holdings.backing.addresses.get(one.name, frozenset()) & taken.keys())
        if one.parent and one.name not in holdings.backing.novas and both:
            sentences.append(
                f"{one.name} is not reported, as nova reports {taken[both[0]]} for the same device: take the device "
                f"out of nova's configuration, or out of this agent's"
            )
    return sentences
