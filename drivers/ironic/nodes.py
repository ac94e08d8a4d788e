"""Parse the nodes of Ironic's API: the fields that decide about providers, and why a record is no node."""

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
"""The fields that a listing asks for: everything that decides about a node's provider."""
CLASS_FIELDS = ("uuid", "resource_class")


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


@dataclass(frozen=True, slots=True)
class Misfit:
    """A node that cannot be reported; its provider in placement stays as it is."""

    uuid: str  # "" if the record has no valid uuid
    why: str
    node: "Node | None" = None  # None: the record is no node in Ironic's documented form
    collides: str = ""  # the class in placement that another resource class already has; empty: another kind of misfit


def parse_node(record: Any) -> Node | Misfit:
    """Parse one element of ``nodes`` in a listing; any other content becomes a misfit that says why."""
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
        return Misfit(uuid, f"Ironic's record of it lacks the field {error.args[0]}")
    except (TypeError, ValueError, AttributeError) as error:
        return Misfit(uuid, f"Ironic's record of it is not in its documented form: {error}")


def parse_class(record: Any) -> tuple[str, str] | None:
    """Parse one element of a listing of ``CLASS_FIELDS``: uuid and resource class; None: it is no node."""
    try:
        return str(UUID(record["uuid"])), _text(record, "resource_class") or ""
    except (KeyError, TypeError, ValueError, AttributeError):
        return None  # no agent reports such a node: it is a misfit


def _text(record: Mapping[str, object], name: str) -> str | None:
    value = record[name]
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is {str(value)[:80]!r}")
    return value


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"traits are {str(value)[:80]!r}")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"maintenance is {str(value)[:80]!r}")
    return value
