"""Parses libvirt's domains (formatdomain.html): which devices, CPUs and memory of the host each guest has."""

from collections.abc import Mapping
from dataclasses import replace
from xml.etree.ElementTree import Element

from drivers.errors import MalformedFact
from drivers.facts import Guest, GuestDevices, GuestMemory, Tenant
from drivers.host.archive import Document
from drivers.host.parse import parse_cpu_set
from drivers.libvirt.nodedev import parse_address
from drivers.libvirt.xml import attribute, bytes_of, is_number, located, number, parse_xml, require
from drivers.pci import PciAddress

BINDING = ("strict", "restrictive")  # modes of numatune in which the kernel takes memory from the named cells only
NOVA = ("http://openstack.org/xmlns/libvirt/nova/1.1", "http://openstack.org/xmlns/libvirt/nova/1.0")
MIB = 1024**2
MOST_PINS = 1 << 19  # CPUs in all different cpusets of a guest; libvirt runs at most 4,096 vCPUs
DAX = "/dev/dax"  # begins the paths of namespaces of persistent memory in the mode devdax
SEV_ES_POLICY = 0x4  # the bit for SEV-ES in a guest's policy (AMD's SEV API)


def parse_guest(document: Document, uuid: str, state: str, *, migrating: bool = False) -> Guest:
    """
    Parse one domain, but for where its memory is.

    ``document`` is the live XML of a running domain, else the XML that it will start with. Of a guest whose CPUs,
    memory or encryption are not understood, its devices alone are known.

    Raises:
        MalformedFact: not in libvirt's form, or a device of the host that the guest has is not understood.
    """
    domain = parse_xml(document, "domain")
    id_, name = domain.get("id", ""), domain.findtext("name")
    with located(document.source):
        guest = Guest(
            uuid=uuid,
            state=state,
            name=_name(domain),
            machine=(int(id_), name) if is_number(id_) and name else None,
            devices=_parse_devices(domain),
            migrating=migrating,
            tenant=_parse_tenant(domain),
        )
    try:
        return _with_resources(guest, domain, document.source)
    except MalformedFact as error:
        return replace(guest, unread=str(error))


def _parse_devices(domain: Element) -> GuestDevices:
    pci: set[PciAddress] = set()
    mdevs: set[str] = set()
    for device in domain.iterfind("devices/hostdev"):
        if device.get("type") == "pci":
            pci.add(_source_address(device))
        elif device.get("type") == "mdev":
            mdevs.add(attribute(require(device, "source/address"), "uuid").lower())
    for disk in domain.iterfind("devices/disk[@type='nvme']"):
        pci.add(_source_address(disk))
    netdevs = _sources(domain, "direct", "passthrough")
    interfaces = domain.iterfind("devices/interface[@type='hostdev']")
    ports = frozenset(_source_address(interface) for interface in interfaces if not _is_usb(interface))
    return GuestDevices(
        pci=frozenset(pci) | ports,
        ports=ports,
        netdevs=netdevs,
        shared=_sources(domain, "direct") - netdevs,
        vdpa=_sources(domain, "vdpa"),
        mdevs=frozenset(mdevs),
        pmem=_pmem(domain),
        tpm=domain.find("devices/tpm/backend[@type='emulator']") is not None,
    )


def _with_resources(guest: Guest, domain: Element, source: str) -> Guest:
    """Return the guest with its CPUs, memory and encryption; errors name the place."""
    emulator = domain.find("cputune/emulatorpin")
    with located(f"<vcpu> or <cputune> of {source}"):
        vcpus, some_off = _parse_vcpus(domain)
        emulator_cpus = _cpus(attribute(emulator, "cpuset")) if emulator is not None else frozenset[int]()
    with located(f"<memory>, <numatune>, <memoryBacking> or <cpu> of {source}"):
        memory = _parse_memory(domain)
    with located(source):
        devices = replace(guest.devices, encryption=_parse_encryption(domain))
    return replace(guest, vcpus=vcpus, some_off=some_off, emulator_cpus=emulator_cpus, memory=memory, devices=devices)


def _name(domain: Element) -> str:
    """Return the name that nova's user gave the guest, else libvirt's; empty where the domain has none."""
    places = (*(f"metadata/{{{version}}}instance/{{{version}}}name" for version in NOVA), "name")
    return next(filter(None, (domain.findtext(place, "").strip() for place in places)), "")


def _sources(domain: Element, kind: str, mode: str | None = None) -> frozenset[str]:
    """Return the host's devices that are sources of interfaces of this type and, where one is given, this mode."""
    sources = (one.find("source") for one in domain.iterfind(f"devices/interface[@type='{kind}']"))
    return frozenset(one.get("dev", "") for one in sources if one is not None and mode in (None, one.get("mode")))


def _pmem(domain: Element) -> frozenset[str]:
    """Return the namespaces that a guest has whole; other memory of this kind is in files."""
    paths = (one.findtext("source/path", "") for one in domain.iterfind("devices/memory[@model='nvdimm']"))
    return frozenset(path for path in paths if path.startswith(DAX))


def _parse_tenant(domain: Element) -> Tenant | None:
    """
    Return owner and disk from the metadata that nova writes into a domain; None where it is not in nova's form.

    Other programs may also write metadata, so another form is no error.
    """
    for version in NOVA:
        nova = domain.find(f"metadata/{{{version}}}instance")
        if nova is None:
            continue
        owners = (nova.find(f"{{{version}}}owner/{{{version}}}{name}") for name in ("project", "user"))
        names = [one.get("uuid") if one is not None else None for one in owners]
        if names[0] and names[1]:
            return Tenant(names[0], names[1], _disk_gb(nova, version), _overridden(nova, version))
    return None


def _overridden(nova: Element, version: str) -> dict[str, int | None] | None:
    """
    Return the amounts in the flavor's extra specs, by class, from ``resources:VCPU`` and ``resources_GROUP:VCPU``.

    None as an amount: it is no number. None in place of all: nova up to 2025.1 wrote no extra specs; later ones write
    the element even if it is empty (``LibvirtConfigGuestMetaNovaFlavor`` in nova/virt/libvirt/config.py).
    """
    if nova.find(f"{{{version}}}flavor/{{{version}}}extraSpecs") is None:
        return None
    found: dict[str, int | None] = {}
    for one in nova.iter(f"{{{version}}}extraSpec"):
        group, _, name = one.get("name", "").partition(":")
        if group.startswith("resources"):
            text, before = one.findtext(".", "").strip(), found.get(name, 0)
            found[name] = before + int(text) if before is not None and is_number(text) else None
    return found


def _disk_gb(nova: Element, version: str) -> int | None:
    """
    Return the GiB that the flavor takes on the host's disk; None where the metadata does not say.

    The root disk counts only for a guest that boots from an image.
    """
    flavor, root = nova.find(f"{{{version}}}flavor"), nova.find(f"{{{version}}}root")
    if flavor is None:
        return None
    sizes = {name: flavor.findtext(f"{{{version}}}{name}") for name in ("disk", "ephemeral", "swap")}
    if not all(text is not None and is_number(text) for text in sizes.values()):
        return None
    disk, ephemeral, swap_mib = (number(str(text)) for text in sizes.values())
    if root is None and disk:
        return None  # nova 26 to 29 write <root> only for a guest that boots from an image
    of_image = root is not None and root.get("type") == "image"
    return disk * of_image + ephemeral + -(-swap_mib // 1024)


def _is_usb(interface: Element) -> bool:
    """Return whether an interface of the type hostdev is a device of USB, named by its bus or by its ids."""
    return any(interface.find(f"source/{one}") is not None for one in ("address[@type='usb']", "vendor"))


def _source_address(device: Element) -> PciAddress:
    return parse_address(require(device, "source/address"))


def _parse_vcpus(domain: Element) -> tuple[tuple[frozenset[int], ...], bool]:
    """
    Return the host's CPUs that each vCPU may run on (empty: any), and whether some vCPUs are off (``current``).

    ``<vcpu>`` is the most that the guest can have, and it may switch any of them on. Nova writes the flavor's vCPUs
    there, which it allocates, and never ``current`` (``LibvirtConfigGuest`` in nova/virt/libvirt/config.py).
    """
    vcpu = domain.find("vcpu")
    if vcpu is None or not vcpu.text:
        return (), False
    count = number(vcpu.text)
    if count > 0xFFFF:
        raise ValueError(f"has {count} vCPUs, more than any guest can have")
    usual = _cpus(vcpu.get("cpuset", ""))
    texts = {number(attribute(pin, "vcpu")): attribute(pin, "cpuset") for pin in domain.iterfind("cputune/vcpupin")}
    sets, size = {}, 0
    for text in set(texts.values()):  # usually all vCPUs of a guest's cell have the same
        sets[text] = _cpus(text)
        size += len(sets[text])
        if size > MOST_PINS:
            raise ValueError(f"pins vCPUs to more than {MOST_PINS} CPUs in all, more than any guest has")
    pinned = {index: sets[text] for index, text in texts.items()}
    on = number(vcpu.get("current", vcpu.text))
    return tuple(pinned.get(index, usual) for index in range(count)), on < count


def _parse_memory(domain: Element) -> tuple[GuestMemory, ...]:
    """
    Return the memory of each of the guest's cells, or all of it in one part where it has none; then its memory devices.

    Empty where the domain does not say.
    """
    whole = domain.find("memory")
    if whole is None:
        return ()
    devices = domain.findall("devices/memory")
    sizes = {
        cell.get("id", str(index)): bytes_of(attribute(cell, "memory"), cell.get("unit"))
        for index, cell in enumerate(domain.iterfind("cpu/numa/cell"))
    }
    if not sizes:
        # <memory> includes all memory devices, also the maximum of a virtio-mem, and devices that are not RAM.
        plugged = sum(_size(device, "size") for device in devices)
        sizes = {"0": max(0, bytes_of(whole.text, whole.get("unit")) - plugged)}
    bound, usual = _bindings(domain)
    found = [GuestMemory(size // MIB, bound.get(id_, usual), *_pages_of(domain, id_)) for id_, size in sizes.items()]
    for device in devices:
        node = device.findtext("target/node", "").strip()
        found += _parse_memory_device(domain, device, node, bound.get(node, usual))
    return tuple(found)


def _parse_memory_device(domain: Element, device: Element, node: str, cells: frozenset[int]) -> list[GuestMemory]:
    """
    Return the memory that a device takes from the host; empty for a device that takes none.

    Its cells and pages are its own where it names some, else those of the guest's cell that it belongs to.
    """
    model = device.get("model")
    if model == "virtio-mem":  # on the way from current to requested the guest may need either amount
        amount = max(_size(device, "requested"), _size(device, "current"))
    elif model == "dimm":
        amount = _size(device, "size")
    else:
        return []  # nvdimm and virtio-pmem are files, and sgx-epc is not ordinary memory
    huge, page_kib = _pages_of(domain, node or "0")
    page, nodes = device.find("source/pagesize"), device.findtext("source/nodemask", "")
    if page is not None:
        huge, page_kib = True, bytes_of(page.text, page.get("unit")) // 1024
    return [GuestMemory(amount // MIB, _cpus(nodes) or cells, huge, page_kib)] if amount else []


def _size(device: Element, name: str) -> int:
    """Return one of a memory device's sizes in bytes; 0 where its XML lacks it."""
    size = device.find(f"target/{name}")
    return bytes_of(size.text, size.get("unit")) if size is not None else 0


def _bindings(domain: Element) -> tuple[Mapping[str, frozenset[int]], frozenset[int]]:
    """Return the host's cells that each cell of the guest is bound to, by its id; and those for all other cells."""
    usual: frozenset[int] = frozenset()
    memory = domain.find("numatune/memory")
    if memory is not None and memory.get("mode", "strict") in BINDING:
        usual = _cpus(memory.get("nodeset", ""))
    bound = {
        attribute(node, "cellid"): _cpus(attribute(node, "nodeset"))
        for node in domain.iterfind("numatune/memnode")
        if node.get("mode", "strict") in BINDING
    }
    return bound, usual


def _pages_of(domain: Element, cell: str) -> tuple[bool, int | None]:
    """Return whether a guest's cell has huge pages, and their size in KiB; None: the host's default size."""
    pages = domain.findall("memoryBacking/hugepages/page")
    if not pages:
        return domain.find("memoryBacking/hugepages") is not None, None
    own = [page for page in pages if number(cell) in _cpus(page.get("nodeset", ""))]
    usual = [page for page in pages if page.get("nodeset") is None]
    for page in (*own, *usual):
        return True, bytes_of(attribute(page, "size"), page.get("unit")) // 1024
    return False, None  # libvirt takes small pages for a cell that no <page> names


def _parse_encryption(domain: Element) -> str | None:
    """Return which kind of encryption context the guest takes, as the suffix of its provider; None: none."""
    security = domain.find("launchSecurity")
    if security is None:
        return None
    if (kind := security.get("type", "")) != "sev":
        return {"sev-snp": "amd_sev_snp", "tdx": "intel_tdx"}.get(kind)
    policy = security.findtext("policy") or "0"
    try:
        return "amd_sev_es" if int(policy, 0) & SEV_ES_POLICY else "amd_sev"
    except ValueError as error:
        raise ValueError(f"has a launchSecurity policy {policy[:40]!r}, which is not a number") from error


def _cpus(text: str) -> frozenset[int]:
    """Parse a set of CPUs or cells in libvirt's form; empty for an empty text."""
    return parse_cpu_set(text) if text.strip() else frozenset()
