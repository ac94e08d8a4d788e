"""
All options that the agent reads, with defaults and help.

Where nova has an option, ours has the same name, group and meaning, so that a host's nova.conf can be used as it is.
"""

import copy
import math
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import get_args

from keystoneauth1 import exceptions, loading
from oslo_config import cfg, types

from drivers import NAMES
from drivers.fake import SHAPES
from drivers.policy import Layout

NOVA_STATE = Path("/var/lib/nova")
OWN_STATE = Path("/var/lib/compute-node-agent")
TIMEOUT_S = 60
LOGINS = ("placement", "ironic", "nova")  # groups with options of keystoneauth, each for one service


class _Ratio(types.Float):
    """Type of an allocation ratio: a finite number that is not negative."""

    def __call__(self, value: object) -> float:
        number = float(super().__call__(value) or 0)
        if not (math.isfinite(number) and number >= 0):
            raise ValueError(f"must be finite and not negative, got {value}")
        return number


_RATIO = _Ratio()
_COUNT = types.Integer(min=0, max=0x7FFFFFFF)

OPTIONS: Mapping[str, tuple[cfg.Opt, ...]] = {
    "DEFAULT": (
        cfg.StrOpt("compute_driver", default="libvirt.LibvirtDriver", choices=sorted(NAMES),
                   help="The virt driver, by nova's names and one of ours."),
        cfg.StrOpt("state_path", default=str(NOVA_STATE),
                   help="Folder of nova's state. compute_id is read here; a new one is made here if the folder can be "
                        "written."),
        cfg.StrOpt("instances_path", default="$state_path/instances",
                   help="Folder of the guests' disks; the size of its file system is reported as DISK_GB."),
        cfg.BoolOpt("force_raw_images", default=True,
                    help="Nova turns images into raw ones. If false, a host with images_type = lvm takes no qcow2."),
        cfg.Opt("reserved_host_cpus", type=_COUNT, default=0, help="Number of VCPU reserved for the host."),
        cfg.Opt("reserved_host_memory_mb", type=_COUNT, default=512, help="MEMORY_MB reserved for the host, in MiB."),
        cfg.Opt("reserved_host_disk_mb", type=_COUNT, default=0,
                help="Disk reserved for the host, in MiB; rounded up to whole GiB of DISK_GB."),
        cfg.Opt("cpu_allocation_ratio", type=_RATIO,
                help="Allocation ratio of VCPU. Unset: the ratio in placement stays as it is."),
        cfg.Opt("ram_allocation_ratio", type=_RATIO,
                help="Allocation ratio of MEMORY_MB. Unset: the ratio in placement stays as it is."),
        cfg.Opt("disk_allocation_ratio", type=_RATIO,
                help="Allocation ratio of DISK_GB. Unset: the ratio in placement stays as it is."),
        cfg.Opt("initial_cpu_allocation_ratio", type=_RATIO, default=4.0,
                help="Allocation ratio of VCPU on a new host."),
        cfg.Opt("initial_ram_allocation_ratio", type=_RATIO, default=1.0,
                help="Allocation ratio of MEMORY_MB on a new host."),
        cfg.Opt("initial_disk_allocation_ratio", type=_RATIO, default=1.0,
                help="Allocation ratio of DISK_GB on a new host."),
        cfg.StrOpt("vcpu_pin_set", help="Nova's older option for the CPUs of all guests, which are reported as VCPU."),
        cfg.MultiOpt("reserved_huge_pages", item_type=types.Dict(),
                     help="Huge pages reserved for the host, for instance node:0,size:2048,count:64 (size in KiB, or "
                          "with a unit as in 1GB). Only the layouts cells and numa count them. May be "
                          "given several times."),
    ),
    "compute": (
        cfg.StrOpt("layout", default="devices", choices=get_args(Layout),
                   help="Shape of the provider tree: everything on the root (flat), a provider for each device "
                        "below it (devices), or a provider for each NUMA cell with its devices below it. Memory in "
                        "small pages is on the cell (cells), or on a provider of its own below it (numa)."),
        cfg.StrOpt("cpu_shared_set", help="CPUs for guests without pinned CPUs (VCPU), for instance 0-7,^3."),
        cfg.StrOpt("cpu_dedicated_set", help="CPUs for guests with pinned CPUs (PCPU)."),
        cfg.StrOpt("provider_config_location", default="/etc/nova/provider_config/",
                   help="Folder of provider.yaml files with inventories and traits of your own; read at each pass."),
        cfg.ListOpt("image_type_exclude_list", default=[],
                    help="Image formats whose COMPUTE_IMAGE_TYPE_ traits this host does not report."),
    ),
    "libvirt": (
        cfg.StrOpt("connection_uri", default="", help="URI of libvirt; empty: qemu:///system."),
        cfg.StrOpt("virt_type", default="kvm", choices=("kvm", "qemu"), help="Type of virtualization."),
        cfg.StrOpt("cpu_mode", choices=("host-model", "host-passthrough", "custom", "none"),
                   help="Which CPU guests see; decides the HW_CPU_ traits. Unset: host-model."),
        cfg.ListOpt("cpu_models", default=[], deprecated_name="cpu_model",
                    help="CPU models that guests see, with cpu_mode = custom."),
        cfg.ListOpt("cpu_model_extra_flags", default=[], help="CPU features to add (name) or remove (-name)."),
        cfg.BoolOpt("cpu_power_management", default=False,
                    help="Nova switches unused dedicated CPUs off. They are counted although they are offline."),
        cfg.ListOpt("hw_machine_type", default=[], help="Default machine types, as arch=machine."),
        cfg.BoolOpt("swtpm_enabled", default=False, help="Guests can have an emulated TPM."),
        cfg.ListOpt("supported_tpm_secret_security", default=["user", "host", "deployment"],
                    help="Who may own the secret of a guest's emulated TPM (values as in nova)."),
        cfg.StrOpt("images_type", default="default", choices=("raw", "flat", "qcow2", "lvm", "rbd", "default"),
                   help="How guests' disks are stored. rbd: DISK_GB is what the Ceph cluster has, see [agent] "
                        "rbd_capacity. lvm: DISK_GB is what images_volume_group has."),
        cfg.StrOpt("images_volume_group", help="Volume group of LVM that has the disks, with images_type = lvm."),
        cfg.StrOpt("images_rbd_pool", default="rbd", help="Pool of Ceph that has the disks, with images_type = rbd."),
        cfg.StrOpt("images_rbd_ceph_conf", default="",
                   help="File of Ceph's configuration. Empty: where Ceph looks for it."),
        cfg.StrOpt("rbd_user", help="Name at Ceph, without client. before it. Unset: Ceph's own choice."),
        cfg.IntOpt("rbd_connect_timeout", default=5, min=1,
                   help="Seconds to wait for an answer of Ceph. Without one, DISK_GB stays as it is in placement, and "
                        "all else is reported."),
        cfg.IntOpt("num_memory_encrypted_guests", help="Not supported: must not be set."),
        cfg.IntOpt("num_intel_tdx_guests", min=0,
                   help="Number of guests with Intel TDX that this host can run at a time. Set it if the kernel does "
                        "not show this number (misc.capacity), or to report less. TDX is reported with cpu_mode = "
                        "host-passthrough."),
        cfg.IntOpt("file_backed_memory", default=0, min=0,
                   help="Guests' memory is in files of this many MiB in all, which are reported as MEMORY_MB. 0: it is "
                        "the host's own memory."),
        cfg.ListOpt("pmem_namespaces", default=[],
                    help="Namespaces of persistent memory for guests, as LABEL:NAME|NAME. Each is a unit of "
                         "CUSTOM_PMEM_NAMESPACE_LABEL on the root. Needs the command ndctl."),
    ),
    "pci": (
        cfg.MultiStrOpt("device_spec", default=[],
                        deprecated_opts=[cfg.DeprecatedOpt("passthrough_whitelist", group="pci"),
                                         cfg.DeprecatedOpt("pci_passthrough_whitelist", group="DEFAULT")],
                        help="Rules for the PCI devices that guests may use, each a JSON object as in nova. The rules "
                             "of all configuration files count: a later file does not replace earlier ones. This "
                             "agent knows two more keys than nova. resource_class_attribute names a file of the "
                             "vendor's driver below the device's folder in sysfs; its number becomes part of the "
                             "resource class (nvidia/current_vgpu_type). bandwidth is \"link\", a number of kbit/s, "
                             "or an object with egress and ingress."),
        cfg.MultiStrOpt("alias", default=[], deprecated_opts=[cfg.DeprecatedOpt("pci_alias", group="DEFAULT")],
                        help="What the names in a flavor's pci_passthrough:alias mean, each a JSON object as in nova. "
                             "explain --flavor reads it, and nothing else."),
        cfg.BoolOpt("report_in_placement", default=False, help="Report the devices that match device_spec."),
        cfg.StrOpt("discover", default="rules", choices=("rules", "all"),
                   help="If set to all: each VF of an SR-IOV NIC is reported as SRIOV_NET_VF, unless a rule matches "
                        "anything of that NIC. A whole PF is reported only if a rule matches it."),
        cfg.BoolOpt("link_bandwidth", default=False,
                    help="Report the link speed of each reported PF as its bandwidth, unless its rule sets bandwidth. "
                         "Do not use it on a host whose bandwidth Neutron's agent reports."),
    ),
    "devices": (
        cfg.ListOpt("enabled_mdev_types", deprecated_name="enabled_vgpu_types", default=[],
                    help="Types of mediated devices to offer. If there are several, all but one need [mdev_TYPE] "
                         "device_addresses. A group [mdev_TYPE] has the name of its type in place of TYPE, for "
                         "instance [mdev_nvidia-231]."),
    ),
    "workarounds": (
        cfg.BoolOpt("reserve_disk_resource_for_image_cache", default=False,
                    help="Reserve of DISK_GB what nova's image cache takes, in whole GiB, rounded up."),
    ),
    "image_cache": (
        cfg.StrOpt("subdirectory_name", default="_base", help="Folder of nova's image cache, below instances_path."),
    ),
    "agent": (
        cfg.StrOpt("state_directory", default=str(OWN_STATE),
                   help="Folder for the state that this agent keeps between passes, its locks and status.json."),
        cfg.ListOpt("root_traits", default=[],
                    help="Traits to report on the root for what other services on this host can do, for instance "
                         "COMPUTE_RESCUE_BFV."),
        cfg.StrOpt("reserved_cells",
                   help="NUMA cells whose memory is reserved whole, as guests are not to have it: ids such as 250-255, "
                        "or without_cpus for the cells without CPUs, or none. GPUs of POWER9 and Grace hosts show "
                        "their memory as such cells; HBM, CXL and persistent memory can be ones too "
                        "(docs/layouts.md). Unset: without_cpus in the layouts cells and numa, and none in flat and "
                        "devices, as nova."),
        cfg.MultiOpt("reserved_cell_memory", item_type=types.Dict(),
                     help="MiB of small pages reserved for the host in one NUMA cell, for instance cell:0,mb:4096. "
                          "They are a part of [DEFAULT] reserved_host_memory_mb; the other cells with CPUs share the "
                          "rest, in proportion to their memory. Only the layouts cells and numa have memory of cells. "
                          "May be given several times."),
        cfg.StrOpt("role", choices=("sole", "beside", "audit"),
                   help="What this agent does on a hypervisor. sole: it reports the host. beside: nova-compute reports "
                        "the host and its devices, and this agent reports, below nova's root, the devices that nova "
                        "leaves out: those of a physical_network, those of resource_class_attribute, and those that "
                        "[pci] discover finds. audit: nova-compute reports the host, and this agent reports nothing. "
                        "In each role the agent compares allocations with guests, and repairs what its policy allows. "
                        "Unset: sole. As sole it writes nothing while a sign shows that nova reports the host."),
        cfg.StrOpt("shared_disk", default="own",
                   help="Where DISK_GB of guests on shared storage stands. own: on the root of each host, as with "
                        "nova: every host reports all of the storage. A name or a uuid: on this provider, once for all "
                        "hosts that share it. sharing: on the provider of this host's Ceph pool, or, with other "
                        "storage, on the only one that shares DISK_GB with this host by an aggregate. This host never "
                        "writes the provider: the agent with report_pool writes that of a Ceph pool, the operator any "
                        "other."),
        cfg.BoolOpt("report_pool", default=False,
                    help="Report the provider of the pool in images_rbd_pool, which hosts with shared_disk share. Set "
                         "it on exactly one host of the pool; a second agent refuses."),
        cfg.StrOpt("rbd_capacity", default="cluster", choices=("cluster", "pool"),
                   help="What is reported as DISK_GB with [libvirt] images_type = rbd. cluster: all that the disks of "
                        "the Ceph cluster have, as nova reports it; if a pool keeps each byte three times, that is "
                        "three times of what guests can store. pool: what is stored in images_rbd_pool, and Ceph's "
                        "max_avail of it. It is reported anew when it differs by more than 1/100."),
        cfg.BoolOpt("allow_reshape", default=False,
                    help="Allow sync, and the service at its start, to convert a host: to move allocations of guests "
                         "because the shape of the tree changes. If false, a host is converted only by "
                         "compute-node-agent reshape --apply, or before a start of the service if a person approved "
                         "the plan (reshape --approve)."),
        cfg.IntOpt("reshape_timeout", default=300, min=1,
                   help="Seconds after which the agent gives up a conversion that other writers keep disturbing. What "
                        "it wrote so far does no harm, and the next conversion continues from there."),
        cfg.IntOpt("expect_timeout", default=3600, min=0,
                   help="Seconds for which VFs, vGPUs and MIG instances are expected back that were there before the "
                        "host was booted: their stock stays, reserved. 0: not at all."),
        cfg.IntOpt("audit_grace", default=60, min=0,
                   help="Seconds after a consumer's last change in which an audit reports nothing about it: after a "
                        "claim, an image may have to be downloaded before the guest starts. A device that cannot be "
                        "read is a finding once audits have seen it for this time."),
        cfg.IntOpt("node_grace", default=60, min=0,
                   help="The provider of a bare-metal node is deleted when the node is missing in two answers of "
                        "Ironic that are at least this many seconds apart."),
        cfg.BoolOpt("reserve_critical_nodes", default=False,
                    help="Reserve a bare-metal node while Ironic says that the health of its hardware is Critical. "
                         "Needs Ironic's API 1.109, and [conductor] enable_health_monitoring there."),
        cfg.IntOpt("interval", default=60, min=1,
                   help="Seconds between two regular passes of the service. Events of the host cause more passes."),
        cfg.IntOpt("full_audit_interval", default=3600, min=1,
                   help="Seconds between two audits of the service that read everything. Each host takes a part of "
                        "this time, from 0.6 to 1, so that the hosts of a fleet do not read everything together. The "
                        "audits between them read only what changed."),
        cfg.IntOpt("start_spread", default=60, min=0,
                   help="The service begins its first pass within this number of seconds after its start, each host "
                        "at a different moment."),
        cfg.StrOpt("heal_policy",
                   help="File that says which findings of its audits the service repairs, see audit --policy. Unset: "
                        "the service repairs nothing."),
        cfg.IntOpt("keep_cases", default=5, min=0, max=100,
                   help="Number of cases that the service keeps below the state directory. The service writes one "
                        "case for each refused or failed pass over a hypervisor. plan --replay FILE repeats such a "
                        "pass. A case has no logins; docs/commands.md says what it contains."),
        cfg.PortOpt("metrics_port",
                    help="Port for /metrics, /healthz and /readyz; 0: a free port. Unset: no port."),
        cfg.IPOpt("bind_address", default="127.0.0.1",
                  help="Address at which metrics_port is opened. Whoever reaches it can read metrics and status: there "
                       "is neither a login nor TLS. Put a proxy before an address that others reach."),
        cfg.IntOpt("node_workers", default=8, min=1, max=64,
                   help="Number of requests to placement that are under way at the same time: reads of providers and "
                        "consumers, writes of bare-metal nodes. A placement in this process gets one at a time."),
        cfg.Opt("shrink_limit_percent", type=types.Integer(min=0, max=100), default=30,
                help="Refuse a pass that takes away more than this percentage of a resource class, unless it is "
                     "forced, or three passes in a row find the same."),
    ),
    "metrics": (
        cfg.DictOpt("slots", default={},
                    help="For each NAME:FILE a metric says how many more guests of that kind fit this host, counted "
                         "after each pass without a request to placement. FILE has the query of a request for "
                         "allocation candidates, as explain --request reads it. Separated by commas."),
    ),
    "ironic": (
        cfg.StrOpt("shard", help="Report only nodes of this shard. Nova has the same option."),
        cfg.StrOpt("conductor_group",
                   help="Report only nodes of this conductor group; empty: only nodes without a conductor group. Nova "
                        "has the same option."),
    ),
    "fake": (
        cfg.IntOpt("seed", default=0, help="A number; hosts of other seeds have other names and uuids."),
        cfg.StrOpt("shape", default="small", choices=SHAPES,
                   help="Hardware of this host. small, medium and large: CPUs, memory and disk. network, gpu and "
                        "mixed: also SR-IOV NICs, GPUs and huge pages. To report all of it, set [pci] discover = all "
                        "and [devices] enabled_mdev_types = nvidia-222."),
    ),
}  # fmt: skip

OWN_GROUPS = ("agent", "fake", "metrics")

MDEV_OPTIONS = (  # options of the group [mdev_TYPE] of each enabled type
    cfg.ListOpt("device_addresses", default=[],
                help="Cards that offer this type: PCI addresses, or libvirt's names of parents that are not on PCI. "
                     "Empty: all cards that are not listed for another type."),
    cfg.Opt("max_instances", type=types.Integer(min=1),
            help="Highest number of devices of this type to offer on this host. Unset: no limit."),
    cfg.StrOpt("mdev_class", default="VGPU",
               help="Resource class of the devices: VGPU, or a name that starts with CUSTOM_."),
)  # fmt: skip


def register(conf: cfg.ConfigOpts) -> None:
    """Register all options with ``conf``, also those of keystoneauth in the groups ``LOGINS``."""
    for group, options in OPTIONS.items():
        conf.register_opts(options, group=None if group == "DEFAULT" else group)
    for group in LOGINS:
        loading.register_auth_conf_options(conf, group)
        loading.register_session_conf_options(conf, group)
        loading.register_adapter_conf_options(conf, group)
        conf.set_default("timeout", TIMEOUT_S, group=group)


def register_mdevs(conf: cfg.ConfigOpts, types_: Iterable[str]) -> None:
    """Register the options of each enabled type; call it after files are read."""
    for type_ in types_:
        for option in MDEV_OPTIONS:
            mine = copy.copy(option)
            mine.deprecated_opts = [cfg.DeprecatedOpt(option.name, group=f"vgpu_{type_}")]  # nova's older name
            conf.register_opt(mine, group=f"mdev_{type_}")


def register_auth(conf: cfg.ConfigOpts) -> None:
    """Register the options of an auth_section of a group of ``LOGINS``; call it after files are read."""
    for group in LOGINS:
        loading.register_auth_conf_options(conf, group)


def register_secrets(conf: cfg.ConfigOpts, group: str) -> list[tuple[str, str]]:
    """
    Register the options of a group's auth_type, and return the secret ones as (group, option).

    Call it after files are read. Empty: auth_type is not set, is unknown, or has no secrets.
    """
    section = conf[group].auth_section or group
    options = login_options(conf[section].auth_type if "auth_type" in conf[section] else None)
    conf.register_opts(options, group=section)
    return [(section, option.dest) for option in options if option.secret]


def login_options(auth_type: str | None) -> list[cfg.Opt]:
    """Return the options of a login of this type; empty: it has none, is unknown, or no type is set."""
    try:
        return list(loading.get_auth_plugin_conf_options(auth_type)) if auth_type in login_types() else []
    except exceptions.NoMatchingPlugin:  # what it needs is not installed
        return []


@cache
def login_types() -> tuple[str, ...]:
    """Return the types of a login that packages here declare, sorted."""
    return tuple(sorted({one.name for one in entry_points(group="keystoneauth1.plugin")}))


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return all options by group, for oslo.config's sample generator and validator."""
    placement = {
        option.name: option
        for options in (
            loading.get_auth_common_conf_options(),
            *(loading.get_auth_plugin_conf_options(name) for name in ("password", "v3applicationcredential", "none")),
            loading.get_session_conf_options(),
            loading.get_adapter_conf_options(),
        )
        for option in options
    }
    session = list(placement.values())
    own = [(group, list(options)) for group, options in OPTIONS.items() if group != "ironic"]
    # mdev_type stands for the groups of all types; oslo.config writes names of groups in small letters.
    services = [("placement", session), ("ironic", [*OPTIONS["ironic"], *session]), ("nova", session)]
    return [*own, ("mdev_type", list(MDEV_OPTIONS)), *services]
