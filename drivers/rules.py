"""Rules for PCI devices: from the text of ``[pci] device_spec`` to rules, and from a function to the rule about it."""

import re
from collections.abc import Mapping
from typing import Any

from drivers.facts import PciFunction
from drivers.pci import PciAddress, parse_pci_address
from drivers.policy import Bandwidth, DevicePolicy, DeviceRule
from reportclient.names import normalise_class, normalise_trait
from reportclient.reserve import check_length
from reportclient.tree import MAX_INT

PARTS = (("domain", 4, 0xFFFF), ("bus", 2, 0xFF), ("slot", 2, 0x1F), ("function", 1, 0x7))
SWITCHES = {"true": True, "1": True, "yes": True, "on": True, "t": True, "y": True,
            "false": False, "0": False, "no": False, "off": False, "f": False, "n": False}  # fmt: skip
NO_DEVICE = frozenset({"VCPU", "PCPU", "MEMORY_MB", "DISK_GB", "MEM_ENCRYPTION_CONTEXT"})
ATTRIBUTE = re.compile(r"[\w-]+(/[\w-]+)*")
MAX_KBPS = 0x7FFFFFFF  # the largest number that placement takes


def parse_rule(record: Mapping[str, Any], number: int) -> DeviceRule:
    """
    One rule as nova writes it, with our ``resource_class_attribute`` and ``bandwidth``.

    Tags that neither knows are nova's business, as its own documentation allows any.

    Raises:
        ValueError: it cannot be meant, or names what is not supported.
    """
    if "devname" in record:
        raise ValueError("names a device by devname, which may change: use its address")
    if _switch(record, "remote_managed"):
        raise ValueError("has remote_managed, which is not supported")
    resource_class = None
    if record.get("resource_class"):
        resource_class = check_length(normalise_class(_text(record, "resource_class")))
    if resource_class in NO_DEVICE or (resource_class or "").startswith("NET_BW_"):
        raise ValueError(f"has resource_class {resource_class}, which is no device's")
    if record.get("resource_class") and record.get("resource_class_attribute"):
        raise ValueError("has both resource_class and resource_class_attribute")
    patterns, exact = _parse_address(record.get("address"))
    _switch(record, "managed")  # told to nova's own code that starts guests; wrong values are wrong here too
    return DeviceRule(
        number=number,
        vendor_id=_parse_id(record, "vendor_id"),
        product_id=_parse_id(record, "product_id"),
        address=patterns,
        exact=exact,
        resource_class=resource_class,
        class_attribute=_parse_attribute(record),
        traits=frozenset(normalise_trait(name) for name in _text(record, "traits").split(",") if name.strip()),
        physical_network=_parse_network(record),
        one_time_use=_switch(record, "one_time_use"),
        live_migratable=bool(_switch(record, "live_migratable")),
        bandwidth=_parse_bandwidth(record.get("bandwidth")),
    )


def matches(rule: DeviceRule, function: PciFunction, *, pf_exists: bool) -> bool:
    """
    Whether the rule is about this function.

    A rule with the address of a PF is about its VFs too; ``pf_exists`` tells whether there is a PF at the rule's one
    address.
    """
    if rule.vendor_id not in (None, function.vendor_id) or rule.product_id not in (None, function.product_id):
        return False
    if pf_exists and rule.exact is not None and function.pf == rule.exact:
        return True
    return not rule.address or all(
        pattern.match(part) for pattern, part in zip(rule.address, _parts(function.address), strict=True)
    )


def rule_attributes(policy: DevicePolicy) -> dict[str, frozenset[str]]:
    """The files of vendors' drivers that rules name, by vendor id."""
    found: dict[str, frozenset[str]] = {}
    for rule in policy.rules if policy.report else ():
        if rule.class_attribute and rule.vendor_id:
            found[rule.vendor_id] = found.get(rule.vendor_id, frozenset()) | {rule.class_attribute}
    return found


def _parts(address: PciAddress) -> tuple[str, str, str, str]:
    return f"{address.domain:04x}", f"{address.bus:02x}", f"{address.slot:02x}", f"{address.function:x}"


def _parse_address(address: object) -> tuple[tuple[re.Pattern[str], ...], PciAddress | None]:
    """Patterns for the four parts, and the one address where the text names one."""
    if address is None:
        return (), None
    if isinstance(address, str):
        parts = _split(address)
        patterns = tuple(re.compile("" if part == "*" else f"{part}$") for part in parts)
        exact = None if "*" in parts else parse_pci_address("{}:{}:{}.{}".format(*parts))
        return patterns, exact
    if isinstance(address, dict) and all(isinstance(value, str) for value in address.values()):
        if unknown := address.keys() - {name for name, _, _ in PARTS}:
            raise ValueError(f"has {', '.join(sorted(unknown))} in its address")
        try:
            patterns = tuple(re.compile(address.get(name, "")) for name, _, _ in PARTS)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"has an address that is no regular expression: {error}") from error
        return patterns, _only_address([address.get(name, "") for name, _, _ in PARTS])
    raise ValueError(f"has the address {address!r}, which is neither a text nor a table of patterns")


def _only_address(parts: list[str]) -> PciAddress | None:
    """The address that a table of patterns names, where each is nothing but hex digits; None where it names more."""
    if not all(re.fullmatch("[0-9a-fA-F]+", part) for part in parts):
        return None
    return PciAddress(*(int(part, 16) for part in parts))


def _split(address: str) -> list[str]:
    """``bus:slot.function`` with what is left out or empty as ``*``, each part in hex digits of its full width."""
    place, _, function = address.partition(".")
    fields = place.split(":") if place else []
    if len(fields) > 3:
        raise ValueError(f"has the address {address!r}, with more than domain, bus and slot before the dot")
    texts = [*["*"] * (3 - len(fields)), *(field.strip() or "*" for field in fields), function.strip() or "*"]
    return [_check_part(text, *part) for text, part in zip(texts, PARTS, strict=True)]


def _check_part(text: str, name: str, width: int, highest: int) -> str:
    if text == "*":
        return text
    if not re.fullmatch("[0-9a-fA-F]+", text) or int(text, 16) > highest:
        raise ValueError(f"has {text!r} as the {name} of an address, where at most {highest:X} in hex digits stands")
    return f"{int(text, 16):0{width}x}"


def _parse_id(record: Mapping[str, Any], name: str) -> str | None:
    text = _text(record, name).strip() or "*"
    if text == "*":
        return None
    if not re.fullmatch("(0x)?[0-9a-fA-F]{1,4}", text):
        raise ValueError(f"has {text!r} as its {name}, where four hex digits stand")
    return f"{int(text, 16):04x}"


def _parse_network(record: Mapping[str, Any]) -> str | None:
    """The name, of which a trait must be made."""
    name = _text(record, "physical_network")
    if name and not re.search("[A-Za-z0-9]", name):
        raise ValueError(f"has {name!r} as its physical_network, of which no trait can be made")
    if name:
        normalise_trait(f"PHYSNET_{name}")
    return name or None


def _parse_attribute(record: Mapping[str, Any]) -> str | None:
    text = _text(record, "resource_class_attribute")
    if text and not ATTRIBUTE.fullmatch(text):
        raise ValueError(f"has {text!r} as resource_class_attribute, where a file below the device's folder is named")
    if text and _parse_id(record, "vendor_id") is None:
        raise ValueError("has resource_class_attribute without the vendor_id whose driver makes that file")
    if text:
        check_length(normalise_class(f"{text.split('/')[0]}_{MAX_INT}"))
    return text or None


def _parse_bandwidth(value: object) -> Bandwidth | None:
    """``"link"``, kbit/s for both directions, or ``{"egress": ..., "ingress": ...}`` of either."""
    if value is None:
        return None
    pair = value if isinstance(value, dict) else {"egress": value, "ingress": value}
    if pair.keys() != {"egress", "ingress"}:
        raise ValueError("has a bandwidth that does not name egress and ingress")
    return Bandwidth(*(_parse_kbps(pair[name]) for name in ("egress", "ingress")))


def _parse_kbps(value: object) -> int | None:
    if value == "link":
        return None
    text = str(value)
    if not (text.isdecimal() and len(text) <= 10 and 0 < int(text) <= MAX_KBPS):
        raise ValueError(f"has the bandwidth {value!r}, where kbit/s or link stands")
    return int(text)


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"has {value!r} as its {name}, where a text stands")
    return value


def _switch(record: Mapping[str, Any], name: str) -> bool | None:
    value = record.get(name)
    if value is None:
        return None
    found = SWITCHES.get(str(value).strip().lower())
    if found is None:
        raise ValueError(f"has {value!r} as {name}, where true or false stands")
    return found
