"""
The provider of each bare-metal node, by the rules that nova's users know.

Name and uuid of the provider are the node's uuid. It has one unit of one class, CUSTOM_ and the node's resource class,
which is reserved while the node cannot be deployed or is in use.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True)
class Share:
    """What this agent reports, by uuid, and what of it cannot be reported."""

    providers: Mapping[str, Provider]
    misfits: Mapping[str, Misfit]
    others: frozenset[str] = frozenset()  # nodes that are listed and another agent's
    reserved: Mapping[str, str] = field(default_factory=dict)  # why nobody may be placed on a node, by uuid


def shape_share(nodes: Iterable[Node | Misfit]) -> Share:
    """
    The providers of these nodes.

    Two resource classes that placement could not tell apart are not mixed: what most nodes are called stays, and the
    others are misfits.
    """
    misfits: dict[str, Misfit] = {}
    fitting: dict[str, tuple[Node, str]] = {}
    for number, node in enumerate(nodes, 1):
        found = node if isinstance(node, Misfit) else _fit(node)
        if isinstance(found, Misfit):
            misfits[found.uuid or f"record {number}"] = found
        elif isinstance(node, Node):
            fitting[node.uuid] = node, found
    for uuid, misfit in _colliding(fitting).items():
        misfits[uuid] = misfit
    return Share(
        providers={uuid: _provider(node, name) for uuid, (node, name) in fitting.items() if uuid not in misfits},
        misfits=misfits,
        reserved={node.uuid: why for node, _ in fitting.values() if (why := why_reserved(node))},
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


def _colliding(fitting: Mapping[str, tuple[Node, str]]) -> dict[str, Misfit]:
    """The nodes whose class another text makes too, and more nodes have that one."""
    texts: dict[str, dict[str, int]] = {}
    for node, name in fitting.values():
        text = node.resource_class or ""
        counts = texts.setdefault(name, {})
        counts[text] = counts.get(text, 0) + 1
    found = {}
    for uuid, (node, name) in fitting.items():
        counts = texts[name]
        first = min(counts, key=lambda text: (-counts[text], text))
        if node.resource_class != first:
            found[uuid] = Misfit(
                uuid,
                f"its resource class {node.resource_class!r} would be {name} in placement, as {first!r} of "
                f"{counts[first]} {'nodes' if counts[first] > 1 else 'node'} is: rename one of them",
                node,
            )
    return found


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
