"""Builds the policy of a host from the values of options."""

import json
import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Literal, cast

from agent.settings.options import MDEV_OPTIONS, register_mdevs
from agent.settings.values import Values
from drivers import INSIDE
from drivers.host.parse import parse_cpu_set
from drivers.pci import parse_pci_address
from drivers.policy import (
    WITHOUT_CPUS,
    CpuPolicy,
    DevicePolicy,
    DeviceRule,
    DiskPolicy,
    GuestPolicy,
    Layout,
    MdevRule,
    Policy,
    Ratio,
    Ratios,
    ReservedCells,
    ReservedPages,
)
from drivers.rules import parse_idle_rule, parse_rule
from reportclient.names import is_custom, is_name, is_standard_trait, normalise_class
from reportclient.ownership import check_no_marks
from reportclient.reserve import check_length

UNITS_KIB = {"kb": 1, "mb": 1024, "gb": 1024**2}
PAGES_EXAMPLE = "node:0,size:2048,count:64"
CELL_EXAMPLE = "cell:0,mb:4096"
_NUMBER = re.compile(r"[0-9]{1,10}")


def build_policy(values: Values) -> Policy:
    """Return the policy; problems are noted in ``values``, and the policy is of use only without them."""
    pages = values.parsed("DEFAULT", "reserved_huge_pages", lambda records: tuple(map(parse_page, records)))
    return Policy(
        layout=cast(Layout, values.value("compute", "layout")),
        file_backed_mib=_file_backed(values),
        cpus=_cpus(values),
        guests=_guests(values),
        devices=_devices(values),
        reserved_pages=pages or (),
        reserved_cells=values.parsed("agent", "reserved_cells", parse_reserved_cells),
        reserved_memory_mib=values.value("DEFAULT", "reserved_host_memory_mb"),
        reserved_cell_mib=_cell_memory(values),
        disk=DiskPolicy(
            reserved_mib=values.value("DEFAULT", "reserved_host_disk_mb"),
            by_pool=values.value("agent", "rbd_capacity") == "pool",
            shared=_shared_disk(values),
            reports_pool=_reports_pool(values),
        ),
        ratios=Ratios(cpu=_ratio(values, "cpu"), ram=_ratio(values, "ram"), disk=_ratio(values, "disk")),
        root_traits=frozenset(values.parsed("agent", "root_traits", _trait_names) or ()),
    )


def _cell_memory(values: Values) -> dict[int, int]:
    """Return the MiB that the host keeps in each cell that the operator names, of all that it keeps."""
    several = values.parsed("agent", "reserved_cell_memory", parse_cell_memory) or {}
    named, whole = sum(several.values()), values.value("DEFAULT", "reserved_host_memory_mb")
    text = f"keeps {named} MiB, and [DEFAULT] reserved_host_memory_mb keeps {whole} MiB in all: raise that option"
    values.problem("agent", "reserved_cell_memory", text, when=named > whole)
    return several


def _file_backed(values: Values) -> int:
    """Return the MiB of files that are guests' memory; like nova, without overcommit and without a reserve."""
    mib = int(values.value("libvirt", "file_backed_memory"))
    ratio, reserve = (values.value("DEFAULT", name) for name in ("ram_allocation_ratio", "reserved_host_memory_mb"))
    refuse = partial(values.problem, "libvirt", "file_backed_memory")
    refuse("needs [DEFAULT] ram_allocation_ratio = 1.0: set it", when=mib and ratio != 1.0)
    refuse("needs [DEFAULT] reserved_host_memory_mb = 0: set it", when=mib and reserve)
    return mib


def _shared_disk(values: Values) -> str:
    asked, kind = str(values.value("agent", "shared_disk")), values.value("libvirt", "images_type")
    if asked == "own":
        return ""
    refuse = partial(values.problem, "agent", "shared_disk")
    refuse("= sharing does not fit [libvirt] images_type = lvm: a volume group is one host's own", when=kind == "lvm")
    roots = [("DEFAULT", "reserved_host_disk_mb")]  # options of a root's DISK_GB
    if kind != "rbd":
        roots += [("workarounds", "reserve_disk_resource_for_image_cache"), ("DEFAULT", "disk_allocation_ratio")]
    for group, name in roots:
        text = f"sharing has no use for [{group}] {name}: set it on the storage's own provider in placement"
        refuse(text, when=values.value(group, name))
    inside = values.value("DEFAULT", "compute_driver") == INSIDE
    refuse("sharing does not fit nova-compute, which reports DISK_GB on the root", when=inside)
    novas = values.value("agent", "role") in ("beside", "audit")
    refuse("sharing needs [agent] role = sole: nova reports DISK_GB on its root", when=novas)
    return asked


def _reports_pool(values: Values) -> bool:
    """Return whether this agent reports its Ceph pool; nova has no such provider, so the role does not matter."""
    reports, kind = bool(values.value("agent", "report_pool")), values.value("libvirt", "images_type")
    text = "= true needs [libvirt] images_type = rbd: agents report pools of Ceph"
    values.problem("agent", "report_pool", text, when=reports and kind != "rbd")
    return reports


def _ratio(values: Values, name: str) -> Ratio:
    """Return the initial and the configured ratio of a resource; 0 means unset, as in nova."""
    initial, configured = (values.value("DEFAULT", f"{start}{name}_allocation_ratio") for start in ("initial_", ""))
    values.problem("DEFAULT", f"initial_{name}_allocation_ratio", "must be above 0", when=not initial)
    return Ratio(initial or 1.0, configured or None, values.is_set("DEFAULT", f"initial_{name}_allocation_ratio"))


def _cpus(values: Values) -> CpuPolicy:
    pinned = values.parsed("DEFAULT", "vcpu_pin_set", parse_cpu_set)
    shared = values.parsed("compute", "cpu_shared_set", parse_cpu_set)
    dedicated = values.parsed("compute", "cpu_dedicated_set", parse_cpu_set)
    reserved = values.value("DEFAULT", "reserved_host_cpus")
    both = (shared or frozenset()) & (dedicated or frozenset())
    text = "cannot be used together with [compute] cpu_dedicated_set: use [compute] cpu_shared_set instead"
    values.problem("DEFAULT", "vcpu_pin_set", text, when=pinned and dedicated)
    text = f"and cpu_shared_set must not share CPUs, but both name {sorted(both)}"
    values.problem("compute", "cpu_dedicated_set", text, when=both)
    text = (
        "cannot be used together with [compute] cpu_shared_set or cpu_dedicated_set: remove it, and leave the host's "
        "CPUs out of the sets"
    )
    values.problem("DEFAULT", "reserved_host_cpus", text, when=reserved and not pinned and (shared or dedicated))
    return CpuPolicy(
        shared=pinned or shared,
        shared_option="[DEFAULT] vcpu_pin_set" if pinned else "[compute] cpu_shared_set",
        dedicated=dedicated,
        reserved=reserved,
        power_management=values.value("libvirt", "cpu_power_management"),
    )


def _guests(values: Values) -> GuestPolicy:
    mode, models = values.value("libvirt", "cpu_mode"), values.value("libvirt", "cpu_models")
    # Volumes of LVM take no qcow2 unless nova makes it a raw image (virt/libvirt/driver.py, __init__).
    raw_alone = values.value("libvirt", "images_type") == "lvm" and not values.value("DEFAULT", "force_raw_images")
    excluded = (*values.value("compute", "image_type_exclude_list"), *(("qcow2",) if raw_alone else ()))
    values.problem("libvirt", "cpu_mode", "custom needs cpu_models", when=mode == "custom" and not models)
    values.problem("libvirt", "cpu_models", "needs cpu_mode = custom", when=mode != "custom" and models)
    flags = values.value("libvirt", "cpu_model_extra_flags")
    return GuestPolicy(
        virt_type=cast(Literal["kvm", "qemu"], values.value("libvirt", "virt_type")),
        cpu_mode=mode,
        cpu_models=tuple(models),
        cpu_flags={flag.lower().lstrip("+-"): not flag.startswith("-") for flag in flags},
        machine_types=values.parsed("libvirt", "hw_machine_type", _parse_machines) or {},
        tpm=values.value("libvirt", "swtpm_enabled"),
        tpm_secret_security=tuple(values.value("libvirt", "supported_tpm_secret_security")),
        places=values.places("libvirt", cpu_model="cpu_models"),
        excluded_image_types=frozenset(excluded),
    )


def _devices(values: Values) -> DevicePolicy:
    report = values.value("pci", "report_in_placement")
    rules = values.parsed("pci", "device_spec", partial(parse_rules, report=report)) or ()
    one_time = not report and any(rule.one_time_use for rule in rules)
    values.problem("pci", "device_spec", "has one_time_use, which needs report_in_placement = true", when=one_time)
    values.problem(
        "libvirt",
        "num_memory_encrypted_guests",
        "is not supported: this agent takes the number of guests with encrypted memory from libvirt and the kernel: "
        "remove the option",
        when=values.value("libvirt", "num_memory_encrypted_guests") is not None,
    )
    return DevicePolicy(
        report=report,
        rules=tuple(rules),
        discover_all=values.value("pci", "discover") == "all",
        link_bandwidth=values.value("pci", "link_bandwidth"),
        mdevs=_mdevs(values),
        pmem=values.parsed("libvirt", "pmem_namespaces", parse_pmem) or {},
        tdx=values.value("libvirt", "cpu_mode") == "host-passthrough",
        tdx_guests=values.value("libvirt", "num_intel_tdx_guests"),
    )


def _mdevs(values: Values) -> tuple[MdevRule, ...]:
    """Return the rules of the enabled types, in their order."""

    def parse(types: list[str]) -> tuple[MdevRule, ...]:
        names = tuple(dict.fromkeys(types))
        register_mdevs(values.conf, names)
        said = {name: {one.name: values.value(f"mdev_{name}", one.name) for one in MDEV_OPTIONS} for name in names}
        return parse_mdev_rules(said.items())

    return values.parsed("devices", "enabled_mdev_types", parse) or ()


def _trait_names(names: list[str]) -> list[str]:
    if unknown := [name for name in names if not ((is_custom(name) and is_name(name)) or is_standard_trait(name))]:
        raise ValueError(f"names {', '.join(unknown)}, which is neither a standard trait nor starts with CUSTOM_")
    check_no_marks(names)
    return names


def _parse_machines(pairs: list[str]) -> dict[str, str]:
    found = dict(pair.partition("=")[::2] for pair in pairs)
    if bare := [pair for pair in pairs if not pair.partition("=")[2]]:
        raise ValueError(f"has {', '.join(bare)}: write each as arch=machine, for instance x86_64=q35")
    return found


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


def parse_cell_memory(records: Iterable[Mapping[str, str]]) -> dict[int, int]:
    """
    Parse ``reserved_cell_memory``, records as ``cell:0,mb:4096``: MiB by cell.

    Raises:
        ValueError: a record is not in this form, or a cell is named twice.
    """
    found: dict[int, int] = {}
    for record in filter(None, records):
        if record.keys() != {"cell", "mb"} or not all(_NUMBER.fullmatch(text.strip()) for text in record.values()):
            raise ValueError(f"has {dict(record)}: cell and mb are needed, whole numbers as in {CELL_EXAMPLE}")
        cell = int(record["cell"])
        if cell in found:
            raise ValueError(f"names cell {cell} twice: name it once")
        found[cell] = int(record["mb"])
    return found


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
