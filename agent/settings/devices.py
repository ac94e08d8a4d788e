"""Parses the options on devices and huge pages into rules."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from drivers.host.parse import parse_cpu_set
from drivers.pci import parse_pci_address
from drivers.policy import WITHOUT_CPUS, DeviceRule, MdevRule, ReservedCells, ReservedPages
from drivers.rules import parse_idle_rule, parse_rule
from reportclient.names import is_custom, is_name, normalise_class
from reportclient.reserve import check_length

UNITS_KIB = {"kb": 1, "mb": 1024, "gb": 1024**2}
PAGES_EXAMPLE = "node:0,size:2048,count:64"


def parse_rules(texts: Iterable[str], *, report: bool = True) -> tuple[DeviceRule, ...]:
    """
    Parse the rules of ``device_spec``: each text is one JSON object, or a list of them.

    ``report`` False: they count for nothing, and only what nova refuses at its start is refused.

    Raises:
        ValueError: a text is not such JSON, or a rule is wrong; the message has the number of the rule.
    """
    rules: list[DeviceRule] = []
    parse = parse_rule if report else parse_idle_rule
    for text in texts:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"rule {len(rules) + 1} is not JSON ({error}): {text[:80]}") from error
        for record in found if isinstance(found, list) else [found]:
            number = len(rules) + 1
            if not isinstance(record, dict):
                raise ValueError(f"rule {number} is no JSON object: {text[:80]}")
            try:
                rules.append(parse(record, number))
            except ValueError as error:
                raise ValueError(f"rule {number} {error}") from error
    return tuple(rules)


def parse_mdev_rules(records: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[MdevRule, ...]:
    """
    Parse the rules of the enabled types, from the options of each type's group.

    Of several types without device_addresses only the first counts, as in nova.

    Raises:
        ValueError: two types have the same card, or an address or resource class is wrong.
    """
    rules: list[MdevRule] = []
    for type_, options in records:
        try:
            rule = _parse_mdev_rule(type_, options)
        except ValueError as error:
            raise ValueError(f"has [mdev_{type_}] in which {error}") from error
        for other in rules:
            if both := rule.addresses & other.addresses:
                raise ValueError(f"names {min(both)} in both [mdev_{other.type}] and [mdev_{type_}] device_addresses")
        if rule.addresses or all(other.addresses for other in rules):
            rules.append(rule)
    return tuple(rules)


def parse_pmem(texts: Iterable[str]) -> dict[str, str]:
    """
    Parse ``pmem_namespaces``: each ``LABEL:NAME|NAME``; return the class of each namespace, by its name.

    Raises:
        ValueError: a text is not in this form, a namespace is named twice, or a label gives no class.
    """
    found: dict[str, str] = {}
    for text in texts:
        label, colon, names = text.partition(":")
        if not (colon and re.search("[A-Za-z0-9]", label) and all(name.strip() for name in names.split("|"))):
            raise ValueError(f"has {text!r}: a label and names are needed, for instance 128G:ns0|ns1")
        resource_class = check_length(normalise_class(f"PMEM_NAMESPACE_{label.strip()}"))
        for name in (one.strip() for one in names.split("|")):
            if name in found:
                raise ValueError(f"names the namespace {name} twice")
            found[name] = resource_class
    return found


def parse_reserved_cells(text: str) -> ReservedCells:
    """
    Parse ``reserved_cells``: ids and ranges of cells, or one of the words ``without_cpus`` and ``none``.

    Raises:
        ValueError: something else.
    """
    if text == WITHOUT_CPUS:
        return WITHOUT_CPUS
    try:
        return frozenset() if text in ("none", "") else parse_cpu_set(text)
    except ValueError as error:
        raise ValueError(f"has {text!r}: ids of cells such as 250-255, {WITHOUT_CPUS} or none are needed") from error


def parse_page(record: Mapping[str, str]) -> ReservedPages:
    """
    Parse one of ``reserved_huge_pages``: ``node:0,size:2048,count:64``; the size is in KiB, or has a unit as in 1GB.

    Raises:
        ValueError: the record is not in this form.
    """
    if record.keys() != {"node", "size", "count"}:
        raise ValueError(f"has {dict(record)}: node, size and count are needed, for instance {PAGES_EXAMPLE}")
    node, size, count = (record[name].strip().lower() for name in ("node", "size", "count"))
    unit = UNITS_KIB.get(size[-2:], 0)
    digits = size[:-2] if unit else size
    if not all(text.isdecimal() for text in (node, digits, count)) or not int(digits):
        raise ValueError(f"has {dict(record)}: whole numbers are needed, for instance {PAGES_EXAMPLE}")
    return ReservedPages(cell=int(node), size_kib=int(digits) * (unit or 1), count=int(count))


def _parse_mdev_rule(type_: str, options: Mapping[str, Any]) -> MdevRule:
    resource_class = options["mdev_class"]
    if resource_class != "VGPU" and not (is_custom(resource_class) and is_name(resource_class)):
        raise ValueError(f"mdev_class is {resource_class}, neither VGPU nor CUSTOM_ followed by A-Z, 0-9 or _")
    return MdevRule(
        type=type_,
        addresses=frozenset(map(_parse_parent, options["device_addresses"])),
        max_instances=options["max_instances"] or None,
        resource_class=check_length(resource_class),
    )


def _parse_parent(text: str) -> str:
    """Return a PCI address in the kernel's form, or libvirt's name of a parent that is not on PCI."""
    off_pci = ":" not in text and text.replace("_", "").replace("-", "").isalnum()
    return text if off_pci else str(parse_pci_address(text))
