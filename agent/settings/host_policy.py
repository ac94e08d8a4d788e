"""Builds the policy of a host from the values of options."""

from functools import partial
from typing import Literal, cast

from agent.settings.devices import parse_mdev_rules, parse_page, parse_pmem, parse_reserved_cells, parse_rules
from agent.settings.options import MDEV_OPTIONS, register_mdevs
from agent.settings.values import Values
from drivers import INSIDE
from drivers.host.parse import parse_cpu_set
from drivers.policy import CpuPolicy, DevicePolicy, DiskPolicy, GuestPolicy, Layout, MdevRule, Policy, Ratio, Ratios
from reportclient.names import is_custom, is_name, is_standard_trait
from reportclient.ownership import check_no_marks


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
        disk=DiskPolicy(
            reserved_mib=values.value("DEFAULT", "reserved_host_disk_mb"),
            by_pool=values.value("agent", "rbd_capacity") == "pool",
            shared=_shared_disk(values),
            reports_pool=_reports_pool(values),
        ),
        ratios=Ratios(cpu=_ratio(values, "cpu"), ram=_ratio(values, "ram"), disk=_ratio(values, "disk")),
        root_traits=frozenset(values.parsed("agent", "root_traits", _trait_names) or ()),
    )


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
    refuse(
        "sharing has no use for [workarounds] reserve_disk_resource_for_image_cache: reserve of the storage's own "
        "provider in placement",
        when=kind != "rbd" and values.value("workarounds", "reserve_disk_resource_for_image_cache"),
    )
    refuse(
        "sharing has no use for [DEFAULT] disk_allocation_ratio: set the ratio of the storage's own provider in "
        "placement",
        when=kind != "rbd" and values.value("DEFAULT", "disk_allocation_ratio"),
    )
    inside = values.value("DEFAULT", "compute_driver") == INSIDE
    refuse("sharing does not fit nova-compute, which reports DISK_GB on the root", when=inside)
    novas = values.value("agent", "role") in ("beside", "audit")
    refuse("sharing needs [agent] role = sole: nova reports DISK_GB on its root", when=novas)
    refuse(
        "sharing has no use for [DEFAULT] reserved_host_disk_mb, as the pool is not this host's: reserve of the "
        "pool's own provider in placement",
        when=values.value("DEFAULT", "reserved_host_disk_mb"),
    )
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
    return Ratio(initial or 1.0, configured or None)


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
    return GuestPolicy(
        virt_type=cast(Literal["kvm", "qemu"], values.value("libvirt", "virt_type")),
        cpu_mode=mode,
        cpu_models=tuple(models),
        cpu_flags=dict(map(_parse_flag, values.value("libvirt", "cpu_model_extra_flags"))),
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


def _parse_flag(text: str) -> tuple[str, bool]:
    return text.lower().lstrip("+-"), not text.startswith("-")


def _parse_machines(pairs: list[str]) -> dict[str, str]:
    found = dict(pair.partition("=")[::2] for pair in pairs)
    if bare := [pair for pair in pairs if not pair.partition("=")[2]]:
        raise ValueError(f"has {', '.join(bare)}: write each as arch=machine, for instance x86_64=q35")
    return found
