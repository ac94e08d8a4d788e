"""
The PCI devices that a flavor asks for by aliases, as nova 34 reads ``[pci] alias`` (nova/pci/request.py). Pure.

With ``[filter_scheduler] pci_in_placement`` nova asks placement for each device as a group of its own
(``generate_request_groups_from_pci_requests`` in nova/objects/request_spec.py).
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from os_traits import COMPUTE_MANAGED_PCI_DEVICE, HW_PCI_LIVE_MIGRATABLE

from drivers.policy import DeviceRule
from reportclient.names import normalise_class, normalise_trait

ALIASES = "pci_passthrough:alias"  # the extra spec: NAME:COUNT, with commas between several


@dataclass(frozen=True, slots=True)
class Alias:
    """What one device of an alias is."""

    resource_class: str
    traits: frozenset[str]


def parse_aliases(texts: Iterable[str]) -> dict[str, Alias]:
    """
    Parse the values of ``[pci] alias``, a JSON object each, by name.

    Raises:
        ValueError: one is wrong, or nova would refuse it with devices in placement; the message names the alias.
    """
    found: dict[str, Alias] = {}
    for text in texts:
        try:
            record = json.loads(text)
            name, alias = record["name"].strip(), _parse(record)
        except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"[pci] alias has {text[:80]}, which is no alias of nova's: {error}") from error
        if name in found:
            raise ValueError(f"[pci] alias has {name} twice, which nova refuses for devices in placement")
        found[name] = alias
    return found


def asked_devices(extra_specs: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return the aliases that a flavor names, with how many devices of each; ValueError: it is no such list."""
    pairs = (one.split(":") for one in extra_specs.get(ALIASES, "").split(",") if one)
    return [(name.strip(), int(count)) for name, count in pairs]


def without_rule(
    extra_specs: Mapping[str, str], aliases: Mapping[str, Alias], rules: Collection[DeviceRule]
) -> Iterator[str]:
    """Yield a sentence for each alias that a flavor names and that no rule of ``[pci] device_spec`` gives devices."""
    for name, one in ((name, aliases[name]) for name, _ in asked_devices(extra_specs) if name in aliases):
        if not any(_gives(rule, one) for rule in rules):
            traits = f" with {', '.join(sorted(one.traits))}" if one.traits else ""
            yield f"the alias {name} asks for {one.resource_class}{traits}, which no rule of [pci] device_spec gives"


def _gives(rule: DeviceRule, alias: Alias) -> bool:
    live = {HW_PCI_LIVE_MIGRATABLE} if rule.live_migratable else set[str]()
    if rule.network.name or not alias.traits <= rule.traits | live | {COMPUTE_MANAGED_PCI_DEVICE}:
        return False  # devices of a network are for ports
    if rule.resource_class or rule.class_attribute:  # the latter: a number of the driver's is in the class
        return rule.resource_class in (None, alias.resource_class)
    ids = alias.resource_class.removeprefix("CUSTOM_PCI_").lower().split("_")
    return len(ids) == 2 and rule.vendor_id in (None, ids[0]) and rule.product_id in (None, ids[1])


def _parse(record: Mapping[str, str]) -> Alias:
    if name := record.get("resource_class"):
        asked = normalise_class(name)
    elif "vendor_id" in record and "product_id" in record:
        asked = f"CUSTOM_PCI_{record['vendor_id']}_{record['product_id']}".upper()
    else:
        raise ValueError("it needs vendor_id and product_id, or resource_class")
    return Alias(asked, frozenset(normalise_trait(one) for one in record.get("traits", "").split(",") if one.strip()))
