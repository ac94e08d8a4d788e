"""
Replaces what tells a host: its names and those of its guests, serial numbers, and MAC addresses. Pure.

The same value has the same mask in the whole bundle, so that what belongs together still does. A key that is drawn for
each bundle makes the masks, so that nobody can try names until one has the mask.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import partial

_MAC = re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{2}(?:([:_-])[0-9A-Fa-f]{2})(?:\1[0-9A-Fa-f]{2}){4}(?![0-9A-Fa-f])")
_NOBODYS = frozenset({"000000000000", "ffffffffffff"})
_FROM_MAC = re.compile(r"\b([0-9a-f]{16})([0-9a-f]{6})fffe([0-9a-f]{6})\b")  # an address in /proc/net/if_inet6
_SPELT = re.compile(r"\b([0-9a-f]{1,4}):([0-9a-f]{0,2})ff:fe([0-9a-f]{2}):([0-9a-f]{1,4})\b")  # end of such an address
_SERIAL = re.compile(r"<(?:serial_number|serial|wwn|wwnn|wwpn|asset_tag)>\s*([^<\s][^<]*?)\s*<|\bwwn-(0x[0-9a-f]+)")
_UUID = re.compile(r"<uuid>\s*([0-9a-fA-F-]{36})\s*<")
_GUEST = re.compile(
    r"<(?:\w+:)?(?:name|user|project)\b[^>]*>\s*([^<\s][^<]*?)\s*<|<(?:\w+:)?flavor\b[^>]*\bname=\"([^\"]+)"
)
_NAMED = re.compile(r"\\?\"(?:name|hypervisor_hostname|hostname|host|node)\\?\":\s*\\?\"([^\"\\]+)")
_WORDS = frozenset({"localhost", "default", "none", "null", "true", "false", "unknown", "instance", "computer"})
_SHORTEST = 2  # letters of a name that is masked


class Sort(StrEnum):
    """What a value that is masked is; the mask begins with it."""

    NAME = "name"
    SERIAL = "serial"
    UUID = "uuid"
    MAC = "mac"


Values = Mapping[str, Sort]  # what is masked


def find_values(files: Mapping[str, str], names: Iterable[str]) -> Values:
    """Return what tells a host in a bundle's files, except MAC addresses; ``names`` are those of the host itself."""
    found = dict.fromkeys(names, Sort.NAME)
    for path, text in files.items():
        found |= dict.fromkeys(_matches(_SERIAL, text), Sort.SERIAL)
        found |= dict.fromkeys((form for mac in _macs(text) for form in _without_colons(mac)), Sort.MAC)
        if path.endswith(("capabilities.xml", "computer.xml")):
            found |= dict.fromkeys(_matches(_UUID, text), Sort.UUID)
        if "libvirt/domains/" in path and path.endswith(".xml"):
            found |= dict.fromkeys(_matches(_GUEST, text), Sort.NAME)
        if path.endswith(("host.json", "ironic.jsonl", "nova.jsonl")):
            found |= dict.fromkeys(_matches(_NAMED, text), Sort.NAME)
    return {value: sort for value, sort in found.items() if len(value) >= _SHORTEST and value.lower() not in _WORDS}


def mask_files(files: Mapping[str, str], values: Values, key: bytes) -> dict[str, str]:
    """Return the files with the masks of these values, and of all MAC addresses, in names and texts."""
    mask = partial(_mask, pattern=_pattern(values), values=values, key=key)
    return {mask(path): mask(text) for path, text in files.items()}


def unmasked(files: Mapping[str, str], masked: Mapping[str, str], values: Values) -> Iterator[str]:
    """Yield the path of each file that still has one of the values, or a MAC address that the files had."""
    pattern = _pattern(values)
    macs = {_bare(found) for text in (*files, *files.values()) for found in _macs(text)} - _NOBODYS
    for path, text in masked.items():
        left = macs & {_bare(found) for found in (*_macs(path), *_macs(text))}
        if left or (pattern and (pattern.search(path) or pattern.search(text))):
            yield path


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    return (next(filter(None, found.groups())) for found in pattern.finditer(text))


def _pattern(values: Values) -> re.Pattern[str] | None:
    """
    Return what finds the values, in capitals too, the longest first.

    Each is a whole word, which a provider's name may begin with, and a libvirt's path end with. A name of letters alone
    may be a word of the language, so it must stand without a dash or a point beside it.
    """
    ordered = sorted(values, key=len, reverse=True)
    parts = [
        rf"(?<![A-Za-z0-9.-]){re.escape(one)}(?![A-Za-z0-9-]|\.[A-Za-z0-9])"
        if values[one] is Sort.NAME and one.isalpha()
        else rf"(?<![A-Za-z0-9]){re.escape(one)}(?![A-Za-z0-9])"
        for one in ordered
    ]
    return re.compile("|".join(parts), re.IGNORECASE) if parts else None


def _without_colons(mac: str) -> Iterator[str]:
    """Yield other spellings of a MAC address: in one word, and with points."""
    bare = _bare(mac)
    if bare not in _NOBODYS:
        yield bare
        yield ".".join((bare[:4], bare[4:8], bare[8:]))


def _mask(text: str, *, pattern: re.Pattern[str] | None, values: Values, key: bytes) -> str:
    mac = partial(_mac, key)
    text = _MAC.sub(lambda found: mac(found[0], found[1]), text)
    text = _FROM_MAC.sub(lambda found: found[1] + _address(mac, found[2] + found[3]), text)
    text = _SPELT.sub(lambda found: _spelt(mac, found), text)
    if not pattern:
        return text
    spelt = {value.lower(): value for value in values}

    def token(found: re.Match[str]) -> str:
        value = spelt[found[0].lower()]
        return _token(key, value, values[value])

    return pattern.sub(token, text)


def _digest(key: bytes, sort: str, value: str) -> bytes:
    return hmac.digest(key, f"{sort} {value}".encode(), hashlib.sha256)


def _token(key: bytes, value: str, sort: Sort) -> str:
    if sort is Sort.MAC:
        drawn = _mac(key, value, "")
        return ".".join((drawn[:4], drawn[4:8], drawn[8:])) if "." in value else drawn
    drawn = _digest(key, sort, value).hex()
    if sort is Sort.UUID:
        return f"{drawn[:8]}-{drawn[8:12]}-4{drawn[13:16]}-8{drawn[17:20]}-{drawn[20:32]}"
    return f"{sort}-{drawn[:8]}"


def _bare(mac: str) -> str:
    return re.sub("[^0-9a-f]", "", mac.lower())


def _macs(text: str) -> Iterator[str]:
    return (found[0] for found in _MAC.finditer(text))


def _mac(key: bytes, value: str, between: str) -> str:
    """Return the mask of a MAC address: a locally administered one (IEEE 802)."""
    bare = _bare(value)
    if bare in _NOBODYS:
        return value
    drawn = f"02{_digest(key, 'mac', bare).hex()[:10]}"
    return between.join(drawn[at : at + 2] for at in range(0, 12, 2))


def _address(mac: Callable[[str, str], str], halves: str) -> str:
    """Return the end of an IPv6 address that was made of a MAC address (RFC 4291, appendix A), of the mask's."""
    drawn = _flip(_bare(mac(_flip(halves), ":")))
    return f"{drawn[:6]}fffe{drawn[6:]}"


def _spelt(mac: Callable[[str, str], str], found: re.Match[str]) -> str:
    halves = f"{found[1]:>04}{found[2]:>02}{found[3]}{found[4]:>04}"
    drawn = _address(mac, halves)
    return ":".join(drawn[at : at + 4] for at in range(0, 16, 4))


def _flip(mac: str) -> str:
    """Flip the bit of a MAC address that an interface identifier has the other way round."""
    return f"{int(mac[:2], 16) ^ 2:02x}{mac[2:]}"
