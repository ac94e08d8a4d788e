"""libvirt's domains (formatdomain.html) into facts: which of the host's devices each guest has."""

from xml.etree.ElementTree import Element

from drivers.facts import Guest
from drivers.host.archive import Document
from drivers.libvirt.nodedev import parse_address
from drivers.libvirt.xml import attribute, parse_xml, require
from drivers.pci import PciAddress


def parse_guest(document: Document, uuid: str, state: str) -> Guest:
    """
    One domain: of a running one its live XML, else the one that it will start with.

    Raises:
        MalformedFact: not in libvirt's form.
    """
    domain = parse_xml(document, "domain")
    pci: set[PciAddress] = set()
    mdevs: set[str] = set()
    for device in domain.iterfind("devices/hostdev"):
        if device.get("type") == "pci":
            pci.add(_source_address(device, document.source))
        elif device.get("type") == "mdev":
            address = require(device, "source/address", document.source)
            mdevs.add(attribute(address, "uuid", document.source).lower())
    for interface in domain.iterfind("devices/interface[@type='hostdev']"):
        pci.add(_source_address(interface, document.source))
    return Guest(uuid=uuid, state=state, pci=frozenset(pci), mdevs=frozenset(mdevs))


def _source_address(device: Element, source: str) -> PciAddress:
    return parse_address(require(device, "source/address", source), source)
