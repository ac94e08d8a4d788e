"""Reads the namespaces of persistent memory, by the command that nova uses (ndctl-list(1))."""

import json

from drivers.errors import DiscoveryError, MalformedFact
from drivers.facts import Namespace
from drivers.host.archive import Document, fields
from drivers.host.commands import CommandFailed, output_of

NAMESPACES = "ndctl.json"  # the file of a host archive
OPTION = "[libvirt] pmem_namespaces"
COMMAND = ("ndctl", "list", "--device-dax")
PATIENCE_S = 30


def read_namespaces() -> Document:
    """
    Return what the command answers: a JSON list; empty text where the host has no namespace.

    Raises:
        DiscoveryError: it cannot be asked.
    """
    try:
        return Document(output_of(COMMAND, PATIENCE_S), " ".join(COMMAND))
    except CommandFailed as error:
        raise DiscoveryError(
            f"cannot list the namespaces of persistent memory ({OPTION}): {error}: install ndctl, or remove the option"
        ) from error


def parse_namespaces(document: Document) -> tuple[Namespace, ...]:
    """
    Return the namespaces that have a name, by name; nova knows no others.

    Raises:
        MalformedFact: not in the form of ndctl.
    """
    if not document.text.strip():
        return ()
    with fields(document.source):
        try:
            records = json.loads(document.text)
        except (ValueError, RecursionError) as error:
            raise MalformedFact(f"{document.source} is not JSON: {error}") from error
        found = [Namespace(str(one["name"]), _path(one)) for one in records if one.get("name")]
    return tuple(sorted(found, key=lambda one: one.name))


def _path(record: dict[str, object]) -> str | None:
    """Return the character device of a namespace in the mode devdax; None in another mode."""
    region = record.get("daxregion")
    if not isinstance(region, dict):
        return None
    first, *_ = region["devices"]
    return f"/dev/{first['chardev']}"
