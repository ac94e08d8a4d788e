"""What Ironic's API tells of a node, as far as placement is concerned, and what cannot be a node."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

FIELDS = (
    "uuid",
    "resource_class",
    "traits",
    "maintenance",
    "power_state",
    "provision_state",
    "instance_uuid",
)
"""What a listing is asked for: all that decides about a node's provider."""


@dataclass(frozen=True, slots=True)
class Node:
    """One bare-metal node (Ironic's API reference, "Nodes")."""

    uuid: str
    resource_class: str | None  # as the operator wrote it; None: nobody did
    traits: frozenset[str]
    maintenance: bool
    power_state: str | None  # None: never asked
    provision_state: str | None
    instance_uuid: str | None


@dataclass(frozen=True, slots=True)
class Misfit:
    """A node that cannot be reported: what stands in placement for it stays as it is."""

    uuid: str  # "" where not even that can be told
    why: str
    node: "Node | None" = None  # what is known of it, where it is a node at all
    collides: str = ""  # the class in placement that another resource class has; empty: it is another kind of misfit


def parse_node(record: Any) -> Node | Misfit:
    """One element of ``nodes`` in a listing; whatever it is, the answer is a node or says why it is none."""
    uuid = ""
    try:
        uuid = str(UUID(record["uuid"]))
        return Node(
            uuid=uuid,
            resource_class=_text(record, "resource_class"),
            traits=frozenset(_texts(record["traits"])),
            maintenance=_flag(record["maintenance"]),
            power_state=_text(record, "power_state"),
            provision_state=_text(record, "provision_state"),
            instance_uuid=_text(record, "instance_uuid"),
        )
    except KeyError as error:
        return Misfit(uuid, f"Ironic tells nothing of its {error.args[0]}")
    except (TypeError, ValueError, AttributeError) as error:
        return Misfit(uuid, f"Ironic's record of it is not in its documented form: {str(error)[:200]}")


def _text(record: Mapping[str, Any], name: str) -> str | None:
    value = record[name]
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is {str(value)[:80]!r}")
    return value


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"traits are {str(value)[:80]!r}")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"maintenance is {str(value)[:80]!r}")
    return value
