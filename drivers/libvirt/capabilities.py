"""Parses libvirt's capabilities and domain capabilities (formatcaps.html, formatdomaincaps.html); what these refuse."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from xml.etree.ElementTree import Element, tostring

from drivers.errors import PolicyError
from drivers.facts import DomainCapabilities, GuestArch, HostModel, MemoryPages, NumaCell, OfferedEncryption
from drivers.host.archive import Document
from drivers.host.parse import parse_cpu_set
from drivers.libvirt.xml import attribute, bytes_of, number, parsed, require, text_of
from drivers.policy import GuestPolicy
from reportclient.errors import few

DEFAULT_MACHINES = {  # nova's machine type by architecture, where [libvirt] hw_machine_type names none
    "armv7l": "virt",
    "aarch64": "virt",
    "ppc64le": "pseries",
    "s390": "s390-ccw-virtio",
    "s390x": "s390-ccw-virtio",
    "i686": "pc",
    "x86_64": "pc",
}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The parts of virConnectGetCapabilities that this project uses."""

    arch: str  # of the host
    cpu: str | None  # the host's <cpu> element; None where it names no model, so that libvirt cannot expand it
    features: frozenset[str]  # CPU features that the <cpu> element lists
    cells: tuple[NumaCell, ...]  # lowest id first; empty where libvirt tells none
    guests: tuple[GuestArch, ...]  # in libvirt's order
    vendor: str  # of the host's CPU, for instance "Intel"; empty: libvirt does not tell
    uuid: str = ""  # of the machine: SMBIOS's product uuid, or host_uuid of libvirtd.conf; empty: libvirt does not tell


@dataclass(frozen=True, slots=True)
class Offer:
    """Arguments of one call of virConnectGetDomainCapabilities, beside the virt type."""

    emulator: str  # path of the program
    arch: str
    machine: str | None  # None: libvirt chooses


def parse_capabilities(document: Document) -> Capabilities:
    """
    Parse the host's capabilities.

    Raises:
        MalformedFact: not in libvirt's form.
    """
    with parsed(document, "capabilities") as root:
        cells = [_parse_cell(cell) for cell in root.iterfind("host/topology/cells/cell")]
        if len({cell.id for cell in cells}) < len(cells):
            raise ValueError("lists a cell twice")
        if cells and not any(cell.memory_kib for cell in cells):
            raise ValueError("lists no memory in any cell")
        cpu = require(root, "host/cpu")
        return Capabilities(
            arch=text_of(root, "host/cpu/arch"),
            cpu=tostring(cpu, encoding="unicode") if cpu.find("model") is not None else None,
            features=_features(cpu),
            cells=tuple(sorted(cells, key=lambda cell: cell.id)),
            guests=tuple(_parse_guest(arch) for arch in root.iterfind("guest/arch")),
            vendor=cpu.findtext("vendor", ""),
            uuid=root.findtext("host/uuid", ""),
        )


def parse_domain_capabilities(document: Document) -> DomainCapabilities:
    """
    Parse the domain capabilities of one emulator and machine type.

    Raises:
        MalformedFact: not in libvirt's form.
    """
    with parsed(document, "domainCapabilities") as root:
        sev = root.find("features/sev[@supported='yes']")
        return DomainCapabilities(
            arch=text_of(root, "arch"),
            disk_buses=_values(root, "devices/disk/enum[@name='bus']"),
            video_models=_values(root, "devices/video/enum[@name='modelType']"),
            secure_boot="yes" in _values(root, "os/loader/enum[@name='secure']"),
            tpm_models=_values(root, "devices/tpm/enum[@name='model']"),
            tpm_versions=_values(root, "devices/tpm/enum[@name='backendVersion']"),
            encryption=OfferedEncryption(
                sev_guests=_count(sev, "maxGuests"),
                sev_es_guests=_count(sev, "maxESGuests"),
                tdx=root.find("features/tdx[@supported='yes']") is not None,
                launch_security=_values(root, "features/launchSecurity[@supported='yes']/enum[@name='sectype']"),
            ),
            cpu_modes=frozenset(str(mode.get("name")) for mode in root.iterfind("cpu/mode[@supported='yes']")),
            cpu_models=tuple(
                (model.findtext(".", ""), model.get("usable", "unknown"))
                for model in root.iterfind("cpu/mode[@name='custom']/model")
            ),
            host_model=_host_model(root),
        )


def _count(element: Element | None, name: str) -> int:
    text = element.findtext(name) if element is not None else None
    return 0 if text is None else number(text)


def _host_model(root: Element) -> HostModel | None:
    mode = root.find("cpu/mode[@name='host-model'][@supported='yes']")
    if mode is None or not (model := mode.findtext("model")):
        return None
    off = {attribute(one, "name") for one in mode.iterfind("feature[@policy='disable']")}
    return HostModel(model, _features(mode), frozenset(off))


def parse_cpu_features(document: Document) -> frozenset[str]:
    """Return the features in an expanded ``<cpu>``, which is the answer of virConnectBaselineCPU."""
    with parsed(document, "cpu") as cpu:
        return _features(cpu)


def _features(cpu: Element) -> frozenset[str]:
    """Return the features of a ``<cpu>``, without those that its model has and this host lacks (policy disable)."""
    return frozenset(
        attribute(feature, "name") for feature in cpu.iterfind("feature") if feature.get("policy") != "disable"
    )


def offers(guests: tuple[GuestArch, ...], virt_type: str, machine_types: Mapping[str, str]) -> tuple[Offer, ...]:
    """
    Return the domain capabilities that describe the whole host together.

    For each architecture that ``virt_type`` can run: the aliases of the current machine types, and the default machine
    type, if QEMU here has it; libvirt refuses to answer for any other. ``machine_types`` are the operator's defaults by
    architecture.

    On x86_64, i686 is left out: it is the same QEMU with the same devices, no trait names it, and an answer can take
    libvirt seconds.
    """
    found: list[Offer] = []
    named = {guest.name for guest in guests if virt_type in dict(guest.emulators)}
    for guest in guests:
        emulator = dict(guest.emulators).get(virt_type)
        if emulator and not (guest.name == "i686" and "x86_64" in named):
            default = machine_types.get(guest.name) or DEFAULT_MACHINES.get(guest.name)
            machines: set[str | None] = {default, *guest.machine_aliases}
            there = {*(guest.machines or machines), None}
            found += [Offer(emulator, guest.name, name) for name in sorted(machines & there, key=str)]
    return tuple(found)


def check_virt_type(policy: GuestPolicy, capabilities: Capabilities) -> None:
    """
    Check that libvirt runs guests of this virt type on the host's own architecture.

    Raises:
        PolicyError: it does not.
    """
    for guest in capabilities.guests:
        if guest.name == capabilities.arch and policy.virt_type not in dict(guest.emulators):
            raise PolicyError(
                f"{policy.place('virt_type')}[libvirt] virt_type is {policy.virt_type}, and libvirt offers "
                f"{', '.join(sorted(dict(guest.emulators)))} for {capabilities.arch} on this host: "
                f"make /dev/kvm usable (see virt-host-validate), or set [libvirt] virt_type = qemu"
            )


def known_models(
    policy: GuestPolicy, arch: str, names: Collection[str], offered: Collection[DomainCapabilities]
) -> tuple[str, ...]:
    """
    Return the configured CPU models in libvirt's spelling.

    ``names`` are the models that libvirt can expand; of a recorded host only those that were recorded.

    Raises:
        PolicyError: libvirt does not know a model.
    """
    listed = {name for one in offered if one.arch == arch for name, _ in one.cpu_models}
    known = {name.lower(): name for name in (*listed, *names)}
    unknown = [model for model in policy.cpu_models if model.lower() not in known]
    if unknown and listed:
        raise PolicyError(
            f"{policy.place('cpu_models')}[libvirt] cpu_models: libvirt has no CPU model {', '.join(unknown)} for "
            f"{arch}: there are {offered_names(known.values())} (virsh cpu-models {arch})"
        )
    return tuple(known.get(model.lower(), model) for model in policy.cpu_models)


def unusable_models(arch: str, offered: Collection[DomainCapabilities]) -> frozenset[str]:
    """Return the CPU models that no machine type can have on this host (formatdomaincaps.html: usable)."""
    models = [one.cpu_models for one in offered if one.arch == arch and one.cpu_models]
    cannot = [frozenset(name for name, usable in each if usable == "no") for each in models]
    return frozenset.intersection(*cannot) if cannot else frozenset()


def refusals(
    policy: GuestPolicy, capabilities: Capabilities, offered: Collection[DomainCapabilities]
) -> tuple[str, ...]:
    """
    Return a sentence on each value of an option that libvirt lists as one that guests here cannot have; empty: none.

    nova-compute does not start with a CPU model that libvirt does not know or that this host cannot run; a machine type
    or a CPU mode that libvirt refuses ends the start of a guest. Here each is told with the values that there are.
    """
    arch = capabilities.arch
    sentences = []
    for guest in sorted(capabilities.guests, key=lambda one: one.name):
        machine = policy.machine_types.get(guest.name)
        if machine and guest.machines and machine not in guest.machines:
            sentences.append(
                f"{policy.place('hw_machine_type')}[libvirt] hw_machine_type: QEMU here has no machine type {machine} "
                f"for {guest.name}, so guests whose image names none cannot start: there are "
                f"{offered_names(guest.machine_aliases or guest.machines)} (virsh capabilities)"
            )
    modes = frozenset[str]().union(*(one.cpu_modes for one in offered if one.arch == arch))
    if modes and policy.cpu_mode not in (None, "none", *modes):
        sentences.append(
            f"{policy.place('cpu_mode')}[libvirt] cpu_mode: libvirt offers no {policy.cpu_mode} for {policy.virt_type} "
            f"guests of {arch} on this host, so no guest can start: there are {offered_names(modes - {'maximum'})}"
        )
    unusable = {name.lower() for name in unusable_models(arch, offered)}
    if cannot := [model for model in policy.cpu_models if model.lower() in unusable]:
        usable = {name for one in offered if one.arch == arch for name, usable in one.cpu_models if usable == "yes"}
        what = (
            f"this host cannot run {', '.join(cannot)}, so no guest can start with it, it gives no traits, and "
            f"nova-compute does not start"
            if policy.virt_type == "kvm"
            else f"QEMU emulates only a part of {', '.join(cannot)}, so the other part gives no traits"
        )
        sentences.append(
            f"{policy.place('cpu_models')}[libvirt] cpu_models: {what}: there are {offered_names(usable)} (virsh "
            f"domcapabilities)"
        )
    return tuple(sentences)


def _parse_cell(cell: Element) -> NumaCell:
    memory = cell.find("memory")
    memory_kib = bytes_of(memory.text, memory.get("unit")) // 1024 if memory is not None else 0
    siblings = (cpu.get("siblings") for cpu in cell.iterfind("cpus/cpu"))  # libvirt gives none for a CPU that is off
    return NumaCell(
        id=number(attribute(cell, "id")),
        memory_kib=memory_kib,
        cpus=frozenset(number(attribute(cpu, "id")) for cpu in cell.iterfind("cpus/cpu")),
        pages=_parse_pages(cell),
        has_siblings=max((len(parse_cpu_set(text)) for text in siblings if text), default=1) > 1,
        sockets=frozenset(number(one) for cpu in cell.iterfind("cpus/cpu") if (one := cpu.get("socket_id"))),
    )


def _parse_pages(cell: Element) -> tuple[MemoryPages, ...]:
    """Return the pages of a cell by size, smallest first; each size once."""
    found = {}
    for pages in cell.iterfind("pages"):
        size_kib = bytes_of(attribute(pages, "size"), pages.get("unit")) // 1024
        found[size_kib] = number(pages.text)
    return tuple(MemoryPages(size, found[size]) for size in sorted(found))


def _parse_guest(arch: Element) -> GuestArch:
    default = text_of(arch, "emulator")
    emulators = [
        (attribute(domain, "type"), domain.findtext("emulator") or default) for domain in arch.iterfind("domain")
    ]
    aliases = {machine.findtext(".", "") for machine in arch.iterfind(".//machine[@canonical]")}
    machines = frozenset(machine.findtext(".", "") for machine in arch.iterfind(".//machine"))
    return GuestArch(attribute(arch, "name"), tuple(emulators), tuple(sorted(aliases)), machines)


def _values(root: Element, path: str) -> frozenset[str]:
    return frozenset(value.findtext(".", "") for value in root.iterfind(f"{path}/value"))


def offered_names(names: Iterable[str]) -> str:
    """Return the first of the names that libvirt offers, for a sentence."""
    return few(sorted(names, key=str.lower), 12) or "none"
