"""Parse the rules of ``[pci] device_spec``, and match PCI functions with them."""

import re
from collections.abc import Mapping
from dataclasses import replace

from drivers.facts import PciFunction
from drivers.pci import PciAddress
from drivers.policy import Bandwidth, DevicePolicy, DeviceRule, RuleNetwork, RulePlace
from reportclient.names import normalise_class, normalise_trait
from reportclient.ownership import check_no_marks
from reportclient.reserve import check_length
from reportclient.tree import MAX_INT

PARTS = (("domain", 4, 0xFFFF), ("bus", 2, 0xFF), ("slot", 2, 0x1F), ("function", 1, 0x7))
ON, OFF = ("true", "1", "yes", "on", "t", "y"), ("false", "0", "no", "off", "f", "n")
SWITCHES = dict.fromkeys(ON, True) | dict.fromkeys(OFF, False)
TAGS = ("devname", "vendor_id", "product_id", "address", "resource_class", "traits", "physical_network", "managed",
        "remote_managed", "trusted", "one_time_use", "live_migratable", "resource_class_attribute",
        "bandwidth")  # fmt: skip
"""The keys of a rule that nova or this agent knows; other keys are ignored, and told."""
ALWAYS_CHECKED = frozenset({"vendor_id", "product_id", "address", "managed", "live_migratable", "one_time_use"})
"""The keys that nova checks at start although it reports no devices; a wrong value stops nova-compute then."""
NO_DEVICE = frozenset({"VCPU", "PCPU", "MEMORY_MB", "DISK_GB", "MEM_ENCRYPTION_CONTEXT"})
ATTRIBUTE = re.compile(r"[\w-]+(/[\w-]+)*")
MAX_KBPS = 0x7FFFFFFF  # the largest number that placement takes


def parse_rule(record: Mapping[str, object], number: int) -> DeviceRule:
    """
    Parse a rule in nova's form, which may have our own tags ``resource_class_attribute`` and ``bandwidth``.

    Unknown tags are ignored, as nova ignores them; ``agent.settings.slips`` tells them.

    Raises:
        ValueError: the rule is wrong, or asks for what is not supported; the message continues "rule 1".
    """
    if record.get("devname"):
        raise ValueError("names a device by devname, which may change: use its address")
    resource_class = None
    if record.get("resource_class"):
        resource_class = check_length(normalise_class(_text(record, "resource_class")))
    if resource_class in NO_DEVICE or (resource_class or "").startswith("NET_BW_"):
        raise ValueError(f"has resource_class {resource_class}, which is not a class for devices: name another")
    if record.get("resource_class") and record.get("resource_class_attribute"):
        raise ValueError("has both resource_class and resource_class_attribute: remove one of them")
    traits = frozenset(normalise_trait(name) for name in _text(record, "traits").split(",") if name)
    check_no_marks(traits)
    patterns, exact = _parse_address(record.get("address"))
    _switch(record, "managed")  # only nova's code that starts guests uses it; a wrong value is refused here too
    return DeviceRule(
        number=number,
        vendor_id=_parse_id(record, "vendor_id"),
        product_id=_parse_id(record, "product_id"),
        place=RulePlace(address=patterns, exact=exact),
        resource_class=resource_class,
        class_attribute=_parse_attribute(record),
        traits=traits,
        network=RuleNetwork(
            name=_text(record, "physical_network") or None, bandwidth=_parse_bandwidth(record.get("bandwidth"))
        ),
        one_time_use=_switch(record, "one_time_use"),
        live_migratable=bool(_switch(record, "live_migratable")),
        remote_managed=bool(_switch(record, "remote_managed")),
    )


def parse_idle_rule(record: Mapping[str, object], number: int) -> DeviceRule:
    """
    Parse a rule that counts for nothing, as no device is reported: only what nova refuses then is refused.

    Nova's code: ``PciDeviceSpec._init_dev_details`` in nova/pci/devspec.py. It reads any unknown word of remote_managed
    as false.

    Raises:
        ValueError: as ``parse_rule``.
    """
    devname = _text(record, "devname")
    if devname and record.get("address"):
        raise ValueError("has both devname and address: remove one of them")
    rule = parse_rule({key: value for key, value in record.items() if key in ALWAYS_CHECKED}, number)
    remote = SWITCHES.get(str(record.get("remote_managed")).strip().lower(), False)
    if devname:  # about the whole card, whatever ids its functions have
        return replace(rule, vendor_id=None, product_id=None, place=replace(rule.place, interface=devname))
    return replace(rule, remote_managed=remote)


def matches(rule: DeviceRule, function: PciFunction) -> bool:
    """Return whether the rule matches this function; a rule with the address of a PF matches its VFs too."""
    if rule.place.interface and rule.place.interface not in {net.name for net in function.net_devices}:
        return False
    if rule.vendor_id not in (None, function.ids.vendor) or rule.product_id not in (None, function.ids.product):
        return False
    if function.pf is not None and function.pf == rule.place.exact:
        return True
    at = function.address
    parts = f"{at.domain:04x}", f"{at.bus:02x}", f"{at.slot:02x}", f"{at.function:x}"
    return not rule.place.address or all(
        pattern.match(part) for pattern, part in zip(rule.place.address, parts, strict=True)
    )


def network_trait(name: str) -> str:
    """Return Neutron's trait of a physical network; empty where no trait can be made of its name."""
    try:
        return normalise_trait(f"PHYSNET_{name}") if re.search("[A-Za-z0-9]", name) else ""
    except ValueError:
        return ""


def rule_attributes(policy: DevicePolicy) -> dict[str, frozenset[str]]:
    """Return the files of vendors' drivers that rules name, by vendor id; none where devices are not reported."""
    found: dict[str, frozenset[str]] = {}
    for rule in policy.rules if policy.report else ():
        if rule.class_attribute and rule.vendor_id:
            found[rule.vendor_id] = found.get(rule.vendor_id, frozenset()) | {rule.class_attribute}
    return found


def _parse_address(address: object) -> tuple[tuple[re.Pattern[str], ...], PciAddress | None]:
    """Return the patterns of the four parts, and the address where exactly one matches."""
    if address is None:
        return (), None
    if isinstance(address, str):
        parts = _split(address)
        texts = ["" if part == "*" else f"{part}$" for part in parts]
    elif isinstance(address, dict) and all(isinstance(value, str) for value in address.values()):
        if unknown := address.keys() - {name for name, _, _ in PARTS}:
            names = ", ".join(name for name, _, _ in PARTS)
            raise ValueError(f"has {', '.join(sorted(unknown))} in its address, whose parts are {names}")
        parts = texts = [address.get(name, "") for name, _, _ in PARTS]
    else:
        raise ValueError(f"has the address {address!r}, which is neither a string nor an object of patterns")
    try:
        patterns = tuple(map(re.compile, texts))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"has an address that is no regular expression: {error}") from error
    # Where each part has only hex digits, no other address matches.
    is_exact = all(re.fullmatch("[0-9a-fA-F]+", part) for part in parts)
    return patterns, PciAddress(*(int(part, 16) for part in parts)) if is_exact else None


def _split(address: str) -> list[str]:
    """Split ``bus:slot.function`` into its four parts: full-width hex digits, and ``*`` for a missing or empty part."""
    place, _, function = address.partition(".")
    fields = place.split(":")
    if len(fields) > 3:
        raise ValueError(f"has the address {address!r}, with more than domain, bus and slot before the dot")
    texts = [*["*"] * (3 - len(fields)), *(field.strip() or "*" for field in fields), function.strip() or "*"]
    return [_check_part(text, *part) for text, part in zip(texts, PARTS, strict=True)]


def _check_part(text: str, name: str, width: int, highest: int) -> str:
    if text == "*":
        return text
    if not re.fullmatch("[0-9a-fA-F]+", text) or int(text, 16) > highest:
        raise ValueError(f"has {text!r} as the {name} of an address, which must be hex digits, at most {highest:X}")
    return f"{int(text, 16):0{width}x}"


def _parse_id(record: Mapping[str, object], name: str) -> str | None:
    text = _text(record, name).strip() or "*"
    if text == "*":
        return None
    if not re.fullmatch("(0x)?[0-9a-fA-F]{1,4}", text):
        raise ValueError(f"has {text!r} as its {name}, which must be four hex digits")
    return f"{int(text, 16):04x}"


def _parse_attribute(record: Mapping[str, object]) -> str | None:
    text = _text(record, "resource_class_attribute")
    if not text:
        return None
    if not ATTRIBUTE.fullmatch(text):
        raise ValueError(f"has {text!r} as resource_class_attribute, which must be a file below the device's folder")
    if _parse_id(record, "vendor_id") is None:
        raise ValueError(
            "has resource_class_attribute but no vendor_id: add the vendor_id of the cards whose driver makes that file"
        )
    check_length(normalise_class(f"{text.split('/')[0]}_{MAX_INT}"))
    return text


def _parse_bandwidth(value: object) -> Bandwidth | None:
    """Parse ``"link"`` or kbit/s, of both directions, or ``{"egress": ..., "ingress": ...}`` with such values."""
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
    if not (re.fullmatch(r"\d{1,10}", text) and 0 < int(text) <= MAX_KBPS):
        raise ValueError(f"has the bandwidth {value!r}, which must be link, or kbit/s from 1 to {MAX_KBPS}")
    return int(text)


def _text(record: Mapping[str, object], name: str) -> str:
    value = record.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"has {value!r} as its {name}, which must be a string")
    return value


def _switch(record: Mapping[str, object], name: str) -> bool | None:
    value = record.get(name)
    if value is None:
        return None
    found = SWITCHES.get(str(value).strip().lower())
    if found is None:
        raise ValueError(f"has {value!r} as {name}, which must be true or false")
    return found
