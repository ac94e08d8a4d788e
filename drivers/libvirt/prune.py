"""
Removes from a domain's XML everything that the agent does not read.

A guest's XML can hold secrets in many places: kernel arguments, firmware and SMBIOS entries, queries of disk URLs,
options of QEMU, foreign metadata. Host archives and cases are shown to other people.
"""

from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element, tostring

from drivers.host.archive import Document
from drivers.libvirt.domains import NOVA
from drivers.libvirt.xml import parsed

_Kept = Mapping[str, Any]  # what stays below an element: tag -> _Kept; None: its text and all below it
_DOMAIN: _Kept = {
    **dict.fromkeys(("name", "uuid", "memory", "currentMemory", "maxMemory", "memoryBacking", "numatune")),
    **dict.fromkeys(("vcpu", "vcpus", "cputune", "cpu")),
    "launchSecurity": dict.fromkeys(("policy", "cbitpos", "reducedPhysBits")),
    "metadata": {
        f"{{{version}}}instance": {f"{{{version}}}{part}": None for part in ("flavor", "owner", "root")}
        for version in NOVA
    },
    "devices": {
        "memory": None,
        "tpm": {"backend": {}},
        **{tag: {"source": {"address": {}, "vendor": {}}} for tag in ("hostdev", "disk", "interface")},
    },
}
_TYPES = {"hostdev": ("pci", "mdev"), "disk": ("nvme",)}  # of other types nothing is read


def prune_domain(document: Document) -> str:
    """
    Return a domain's XML that ``parse_guest`` reads alike, with nothing else in it.

    Raises:
        MalformedFact: not in libvirt's form, or with elements nested too deeply.
    """
    with parsed(document, "domain") as domain:
        return tostring(_only(domain, _DOMAIN), encoding="unicode")


def _only(element: Element, kept: _Kept) -> Element:
    """Return an element with its attributes, and of what is below it only this."""
    copy = Element(element.tag, element.attrib)
    for child in element:
        if child.tag not in kept or child.get("type") not in _TYPES.get(child.tag, (child.get("type"),)):
            continue
        below = kept[child.tag]
        copy.append(child if below is None else _only(child, below))
    return copy
