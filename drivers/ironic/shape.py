"""
The provider of each bare-metal node, by the rules that nova's users know.

Name and uuid of the provider are the node's uuid. It has one unit of one class, CUSTOM_ and the node's resource class,
which is reserved while the node cannot be deployed or is in use.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import os_resource_classes

from drivers.ironic.nodes import Misfit, Node
from reportclient.names import is_name
from reportclient.ownership import MARKER
from reportclient.tree import Inventory, Provider

BARE_METAL = "CUSTOM_OWNER_COMPUTE_NODE_AGENT_BARE_METAL"
"""On the provider of each node, so that one request finds them all among the hosts of a cloud."""
MARKS = frozenset({MARKER, BARE_METAL})
MOST_TRAITS = 50  # of a node, in Ironic's API
AVAILABLE = ("available", None)  # None is what Ironic called it before Kilo
NO_POWER = ("error", None)
NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Share:
    """What this agent reports, by uuid, and what of it cannot be reported."""

    providers: Mapping[str, Provider]
    misfits: Mapping[str, Misfit]
    others: frozenset[str] = frozenset()  # nodes that are listed and another agent's
    reserved: Mapping[str, str] = field(default_factory=dict)  # why nobody may be placed on a node, by uuid
    spellings: Mapping[str, str] = field(
        default_factory=dict
    )  # the resource class of each of ``providers``, as written


def shape_share(
    nodes: Iterable[Node | Misfit],
    *,
    reported: Mapping[str, str] = NOTHING,
    standing: Container[str] = (),
) -> Share:
    """
    The providers of these nodes.

    Two resource classes that placement could not tell apart are not mixed: one stays, and the nodes of the others are
    misfits. The one that is on offer stays, by ``reported`` (the resource class with which each node was reported, of
    nodes that stand in placement), then the one of most nodes that are ``standing`` there, then the one of most nodes.
    """
    misfits: dict[str, Misfit] = {}
    fitting: dict[str, tuple[Node, str]] = {}
    for number, node in enumerate(nodes, 1):
        found = node if isinstance(node, Misfit) else _fit(node)
        if isinstance(found, Misfit):
            misfits[found.uuid or f"record {number}"] = found
        elif isinstance(node, Node):
            fitting[node.uuid] = node, found
    for uuid, misfit in _colliding(fitting, reported, standing).items():
        misfits[uuid] = misfit
    return Share(
        providers={uuid: _provider(node, name) for uuid, (node, name) in fitting.items() if uuid not in misfits},
        misfits=misfits,
        reserved={node.uuid: why for node, _ in fitting.values() if (why := why_reserved(node))},
        spellings={uuid: node.resource_class or "" for uuid, (node, _) in fitting.items() if uuid not in misfits},
    )


def _fit(node: Node) -> str | Misfit:
    """The class of a node, or why it cannot be reported."""
    if not node.resource_class:
        return Misfit(node.uuid, "it has no resource class: openstack baremetal node set --resource-class", node)
    if len(node.traits) > MOST_TRAITS:
        return Misfit(node.uuid, f"it has {len(node.traits)} traits, and Ironic allows {MOST_TRAITS}", node)
    if strange := sorted(trait for trait in node.traits if not is_name(trait)):
        return Misfit(node.uuid, f"no trait can have the name {strange[0][:80]!r}", node)
    name = str(os_resource_classes.normalize_name(node.resource_class))
    if not is_name(name):
        return Misfit(node.uuid, f"no class can be made of its resource class {node.resource_class[:80]!r}", node)
    return name


def _colliding(
    fitting: Mapping[str, tuple[Node, str]], reported: Mapping[str, str], standing: Container[str]
) -> dict[str, Misfit]:
    """The nodes whose class in placement is another resource class's too, which stays."""
    texts: dict[str, dict[str, _Weight]] = {}
    for uuid, (node, name) in fitting.items():
        weight = texts.setdefault(name, {}).setdefault(node.resource_class or "", _Weight())
        weight.nodes += 1
        weight.standing += uuid in standing
    for uuid, text in reported.items():
        if uuid in fitting and fitting[uuid][0].resource_class != text:
            continue  # it was renamed: this pass reports or reserves it anew
        name = str(os_resource_classes.normalize_name(text))
        if name in texts:
            texts[name].setdefault(text, _Weight()).reported += 1
    first = {name: min(weights, key=lambda text: (*weights[text].rank, text)) for name, weights in texts.items()}
    return {
        uuid: Misfit(uuid, _collision(node.resource_class or "", name, first[name]), node, name)
        for uuid, (node, name) in fitting.items()
        if node.resource_class != first[name]
    }


@dataclass(slots=True)
class _Weight:
    """How many nodes speak for one of several resource classes."""

    reported: int = 0
    standing: int = 0
    nodes: int = 0

    @property
    def rank(self) -> tuple[int, int, int]:
        """Lower goes first."""
        return -self.reported, -self.standing, -self.nodes


def _collision(text: str, name: str, first: str) -> str:
    return (
        f"its resource class {text!r} would be {name} in placement, as {first!r} of other nodes is: rename one of the "
        f"two with openstack baremetal node set --resource-class"
    )


def _provider(node: Node, name: str) -> Provider:
    taken = bool(why_reserved(node))
    return Provider(
        name=node.uuid,
        inventories={name: Inventory(total=1, reserved=int(taken), min_unit=1, max_unit=1, step_size=1)},
        traits=node.traits | MARKS,
    )


def why_reserved(node: Node) -> str:
    """Why nobody may be placed on a node now: it is ill, not ready, or has an instance; empty when one may be."""
    reasons = {
        "in maintenance": node.maintenance,
        f"power state {node.power_state or 'unknown'}": node.power_state in NO_POWER,
        f"provision state {node.provision_state}": node.provision_state not in AVAILABLE,
        f"instance {node.instance_uuid}": node.instance_uuid is not None,
    }
    return ", ".join(reason for reason, holds in reasons.items() if holds)
