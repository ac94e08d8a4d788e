"""Parse the nodes of Ironic's API: the fields that decide about providers, and why a record is no node."""

from dataclasses import dataclass, fields, replace
from typing import Any
from uuid import UUID

from reportclient.json_text import decode_as

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


FIELDS = tuple(one.name for one in fields(Node))
"""The fields that a listing asks for: everything that decides about a node's provider."""


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
