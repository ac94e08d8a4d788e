"""
Parse the nodes of Ironic's API, and shape the provider of each by the rules of nova's Ironic driver.

Name and uuid of the provider are the node's uuid. It has one unit of one class: CUSTOM_ and the node's resource class.
That unit is reserved while the node cannot be deployed or is in use.

Placement itself shows what an agent gave a provider, so any agent knows it with any memory: a class by the form of its
unit, and traits by a mark with their hashes.
"""

from base64 import b32encode
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from hashlib import sha256
from types import MappingProxyType
from typing import Any
from uuid import UUID

import os_resource_classes

from reportclient.json_text import decode_as
from reportclient.names import LONGEST, is_custom, is_name
from reportclient.ownership import MARKER
from reportclient.tree import Inventory, Provider

BARE_METAL = "CUSTOM_OWNER_COMPUTE_NODE_AGENT_BARE_METAL"
"""Trait on the provider of each node, so that one request finds all of them among the hosts of a cloud."""
MARKS = frozenset({MARKER, BARE_METAL})
GAVE = f"{MARKER}_GAVE_"
"""Prefix of traits on the provider of each node, followed by hashes of the traits that the node gave."""
_HASH = 8  # characters of the hash of a trait
MOST_TRAITS = 50  # of a node, in Ironic's API
AVAILABLE = ("available", None)  # provision states; Ironic before Kilo had None for available
NO_POWER = ("error", None)
SET_CLASS = "openstack baremetal node set --resource-class"
CLASS_FIELDS = ("uuid", "resource_class")  # of the nodes of other agents
NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Node:
    """One bare-metal node (Ironic's API reference, "Nodes")."""

    uuid: str
    resource_class: str | None  # as the operator wrote it; None: not set
    traits: frozenset[str]
    maintenance: bool
    power_state: str | None  # None: Ironic has not read it from the node yet
    provision_state: str | None  # None: available, in Ironic before Kilo
    instance_uuid: str | None  # None: no instance
    health: str | None = None  # that Ironic's driver read from its BMC, for instance "Critical"; None: unknown, unasked


HEALTH = "health"  # of ``Node``: asked for only where the operator wants it to count
FIELDS = tuple(one.name for one in fields(Node) if one.name != HEALTH)
"""The fields that a listing asks for: everything that decides about a node's provider."""
CRITICAL = "Critical"  # health of a node whose hardware fails (Ironic's health_states)
HEALTHY = ("OK", "Warning")  # another health than these says nothing (likewise)
WAS_CRITICAL = f"{MARKER}_CRITICAL"
"""Trait on the provider of such a node: it stays reserved while Ironic does not know another health."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """A node that cannot be reported; its provider in placement stays as it is."""

    uuid: str  # "" if the record has no valid uuid
    why: str
    node: Node | None = None  # None: the record is no node in Ironic's documented form
    collides: str = ""  # the class in placement that another resource class already has; empty: another kind of misfit


@dataclass(frozen=True, slots=True)
class Share:
    """The nodes that this agent reports, by uuid, and those of them that cannot be reported."""

    providers: Mapping[str, Provider]
    misfits: Mapping[str, Misfit]
    reserved: Mapping[str, str] = field(default_factory=dict)  # why a node is reserved, by uuid; no free nodes
    spellings: Mapping[str, str] = field(default_factory=dict)  # resource classes of ``providers``, as Ironic has them


def parse_node(record: Any, asked: Iterable[str] = FIELDS) -> Node | Misfit:
    """Parse one element of ``nodes`` in a listing of these fields; any other content becomes a misfit that says why."""
    uuid = ""
    try:
        uuid = str(UUID(record["uuid"]))
        record = {name: record[name] for name in asked}
        return replace(decode_as(Node, record), uuid=uuid)
    except KeyError as error:
        return Misfit(uuid, f"Ironic's record of it lacks the field {error.args[0]}")
    except (TypeError, ValueError, AttributeError) as error:
        return Misfit(uuid, f"Ironic's record of it is not in its documented form: {error}")


def parse_class(record: Any) -> tuple[str, str] | None:
    """Parse one element of a listing of ``CLASS_FIELDS``: uuid and resource class; None: it is no node."""
    try:
        text = record["resource_class"] or ""
        return (str(UUID(record["uuid"])), text) if isinstance(text, str) else None
    except (KeyError, TypeError, ValueError, AttributeError):
        return None  # no agent reports such a node: it is a misfit


def shape_share(
    nodes: Iterable[Node | Misfit],
    *,
    reported: Mapping[str, str] = NOTHING,
    standing: Container[str] = (),
    elsewhere: Mapping[str, str] = NOTHING,
    critical: Container[str] = (),
) -> Share:
    """
    Return the providers of these nodes.

    Several resource classes may become one class in placement. They are not mixed: one resource class stays, and nodes
    of the others are misfits. The resource class stays that most nodes were ``reported`` with (by uuid, for nodes that
    stand in placement); then the one of most ``standing`` nodes (by uuid); then the one of most nodes.

    ``elsewhere`` are resource classes of nodes by uuid, also of nodes that other agents list. Where one of those
    collides, what this agent ``reported`` does not count, and nobody's class may stay.

    ``critical`` are nodes (by uuid) that stand with ``WAS_CRITICAL``, where the health of nodes counts.
    """
    misfits: dict[str, Misfit] = {}
    fitting: dict[str, tuple[Node, str]] = {}
    for number, node in enumerate(nodes, 1):
        found = _fit(node)
        if isinstance(found, Misfit):
            misfits[found.uuid or f"record {number}"] = found
        else:
            fitting[found[0].uuid] = found
    others = {uuid: text for uuid, text in elsewhere.items() if uuid not in fitting and uuid not in misfits}
    ill = {uuid for uuid, (node, _) in fitting.items() if node.health == CRITICAL}
    ill |= {uuid for uuid, (node, _) in fitting.items() if node.health not in HEALTHY and uuid in critical}
    reserved = {
        uuid: why for uuid, (node, _) in fitting.items() if (why := why_reserved(node, was_critical=uuid in ill))
    }
    misfits |= {one.uuid: one for one in _colliding(fitting, reported, standing, others)}
    spellings = {uuid: text for uuid, (_, text) in fitting.items() if uuid not in misfits}
    providers = {
        uuid: Provider(
            name=uuid,
            inventories={_class_of(text): Inventory(total=1, reserved=int(uuid in reserved), max_unit=1)},
            traits=_traits(fitting[uuid][0], is_ill=uuid in ill),
        )
        for uuid, text in spellings.items()
    }
    return Share(providers, misfits, reserved, spellings)


def _fit(node: Node | Misfit) -> tuple[Node, str] | Misfit:
    """Return a node with its resource class, or a misfit that says why the node cannot be reported."""
    if isinstance(node, Misfit):
        return node
    if not node.resource_class:
        return Misfit(node.uuid, f"it has no resource class: set one with {SET_CLASS}", node)
    if len(node.traits) > MOST_TRAITS:
        return Misfit(node.uuid, f"it has {len(node.traits)} traits, and Ironic allows {MOST_TRAITS}", node)
    if strange := sorted(trait for trait in node.traits if not is_name(trait)):
        return Misfit(node.uuid, f"no trait can have the name {strange[0][:80]!r}", node)
    if not is_name(_class_of(node.resource_class)):
        why = (
            f"its resource class {node.resource_class[:80]!r} cannot become a class of placement. The name of "
            f"such a class needs a letter or digit, and has at most {LONGEST} characters with the prefix CUSTOM_: "
            f"rename the resource class with {SET_CLASS}"
        )
        return Misfit(node.uuid, why, node)
    return node, node.resource_class


def _colliding(
    fitting: Mapping[str, tuple[Node, str]],
    reported: Mapping[str, str],
    standing: Container[str],
    elsewhere: Mapping[str, str],
) -> Iterator[Misfit]:
    """
    Yield the nodes whose class in placement stays with another resource class.

    Which class a node of another agent had when it was reported is not known: that it stands counts for the other
    resource classes alone. So two agents that see the same never both keep their own.
    """
    classes = {uuid: text for uuid, (_, text) in fitting.items()}
    every = (*classes.items(), *elsewhere.items())
    # A node whose resource class was changed does not count: this pass reports or reserves it anew.
    as_before = [text for uuid, text in reported.items() if classes.get(uuid, text) == text]
    shared = set(map(_class_of, elsewhere.values()))
    kept = Counter(text for text in as_before if _class_of(text) not in shared)
    nodes = Counter(text for _, text in every)
    ours = Counter(text for uuid, text in classes.items() if uuid in standing)
    at_most = Counter(text for uuid, text in every if uuid in standing)
    texts: dict[str, set[str]] = {}
    for text in nodes.keys() | kept.keys():
        texts.setdefault(_class_of(text), set()).add(text)

    def rank(text: str, stand: Counter[str]) -> tuple[int, int, int, str]:
        return -kept[text], -stand[text], -nodes[text], text

    for node, text in fitting.values():
        name, own = _class_of(text), rank(text, ours)
        first = min((rank(one, at_most) for one in texts[name] - {text}), default=own)
        if first < own:
            why = (
                f"its resource class {text!r} would become {name} in placement, and so would the resource class "
                f"{first[-1]!r} of other nodes: rename one of the two with {SET_CLASS}"
            )
            yield Misfit(node.uuid, why, node, name)


@lru_cache(1000)
def _class_of(text: str) -> str:
    return str(os_resource_classes.normalize_name(text))


def _traits(node: Node, *, is_ill: bool) -> frozenset[str]:
    given = node.traits | ({WAS_CRITICAL} if is_ill else frozenset[str]())
    return given | MARKS | given_marks(given)


def given_marks(traits: Iterable[str]) -> frozenset[str]:
    """Return the traits by which a provider shows that its node gave these traits."""
    hashes = "".join(sorted(map(_hash, traits)))
    size = (LONGEST - len(GAVE)) // _HASH * _HASH
    return frozenset(GAVE + hashes[start : start + size] for start in range(0, len(hashes), size))


def with_critical(traits: Collection[str]) -> frozenset[str]:
    """Return the traits of a provider, and ``WAS_CRITICAL`` as if its node had given it."""
    given = frozenset(one for one in given_traits(traits) if not one.startswith(GAVE)) | {WAS_CRITICAL}
    return frozenset(one for one in traits if not one.startswith(GAVE)) | given | given_marks(given)


def given_traits(traits: Collection[str]) -> frozenset[str]:
    """Return those traits of a provider that its node gave, and those that show it."""
    marks = frozenset(name for name in traits if name.startswith(GAVE))
    texts = [name.removeprefix(GAVE) for name in marks]
    hashes = {text[start : start + _HASH] for text in texts for start in range(0, len(text), _HASH)}
    return marks.union(name for name in traits if _hash(name) in hashes)


@lru_cache(1000)
def _hash(trait: str) -> str:
    return b32encode(sha256(trait.encode()).digest())[:_HASH].decode()


def single_classes(stands: Provider) -> frozenset[str]:
    """Return the custom classes on a provider of which it has one unit; a node has one of them."""
    return frozenset(name for name, one in stands.inventories.items() if one.total == 1 and is_custom(name))


def node_classes(stands: Provider) -> frozenset[str]:
    """Return the classes in the form in which this agent and nova's Ironic driver report a node."""
    form = Inventory(total=1, max_unit=1)
    return frozenset(
        name for name in single_classes(stands) if replace(stands.inventories[name], reserved=0).equals(form)
    )


def on_offer(stands: Provider) -> frozenset[str]:
    """Return the classes by which a node is on offer: those in its form, or any that may be it where none is."""
    names = node_classes(stands) or single_classes(stands)
    return frozenset(name for name in names if not stands.inventories[name].reserved)


def why_reserved(node: Node, *, was_critical: bool = False) -> str:
    """Return why a node must be reserved: it has a fault, is not ready, or has an instance; empty if it is free."""
    reasons = {
        "in maintenance": node.maintenance,
        f"power state {node.power_state or 'unknown'}": node.power_state in NO_POWER,
        f"health {node.health}": node.health == CRITICAL,
        f"health {node.health or 'unknown'}, and {CRITICAL} before": was_critical and node.health != CRITICAL,
        f"provision state {node.provision_state}": node.provision_state not in AVAILABLE,
        f"instance {node.instance_uuid}": node.instance_uuid is not None,
    }
    return ", ".join(reason for reason, holds in reasons.items() if holds)
