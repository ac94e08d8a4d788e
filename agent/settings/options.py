"""
Every option that is read, its default and its help; and those of nova's that are refused.

Where nova has an option, ours has nova's name, group and meaning, so that a host's nova.conf serves as it is.
"""

import copy
import math
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from keystoneauth1 import exceptions, loading
from oslo_config import cfg, types

from drivers import DRIVERS, IRONIC
from drivers.fake.fleet import SHAPES
from drivers.policy import Layout

NOVA_STATE = Path("/var/lib/nova")
OWN_STATE = Path("/var/lib/compute-node-agent")
TIMEOUT_S = 60


class _Ratio(types.Float):
    """An allocation ratio: finite and not negative."""

    def __call__(self, value: object) -> float:
        number = float(super().__call__(value) or 0)
        if not (math.isfinite(number) and number >= 0):
            raise ValueError(f"must be finite and not negative, got {value}")
        return number


_RATIO = _Ratio()
_COUNT = types.Integer(min=0, max=0x7FFFFFFF)

OPTIONS: Mapping[str, tuple[cfg.Opt, ...]] = {
    "DEFAULT": (
        cfg.StrOpt("compute_driver", default="libvirt.LibvirtDriver", choices=sorted([*DRIVERS, IRONIC]),
                   help="The virt driver, as nova names it."),
        cfg.StrOpt("state_path", default=str(NOVA_STATE),
                   help="Where nova keeps its state; compute_id is read here, and made here where the folder is."),
        cfg.StrOpt("instances_path", default="$state_path/instances",
                   help="Where guests' disks are; the size of its file system is DISK_GB."),
        cfg.Opt("reserved_host_cpus", type=_COUNT, default=0, help="VCPU kept for the host."),
        cfg.Opt("reserved_host_memory_mb", type=_COUNT, default=512, help="MEMORY_MB kept for the host, in MiB."),
        cfg.Opt("reserved_host_disk_mb", type=_COUNT, default=0,
                help="Disk kept for the host, in MiB; rounded up to whole GiB of DISK_GB."),
        cfg.Opt("cpu_allocation_ratio", type=_RATIO, help="VCPU ratio; unset, placement's own is kept."),
        cfg.Opt("ram_allocation_ratio", type=_RATIO, help="MEMORY_MB ratio; unset, placement's own is kept."),
        cfg.Opt("disk_allocation_ratio", type=_RATIO, help="DISK_GB ratio; unset, placement's own is kept."),
        cfg.Opt("initial_cpu_allocation_ratio", type=_RATIO, default=4.0, help="VCPU ratio of a new host."),
        cfg.Opt("initial_ram_allocation_ratio", type=_RATIO, default=1.0, help="MEMORY_MB ratio of a new host."),
        cfg.Opt("initial_disk_allocation_ratio", type=_RATIO, default=1.0, help="DISK_GB ratio of a new host."),
        cfg.StrOpt("vcpu_pin_set", help="Nova's older name for the CPUs of all guests; they become VCPU."),
        cfg.MultiOpt("reserved_huge_pages", item_type=types.Dict(),
                     help="Huge pages kept for the host, as node:0,size:2048,count:64; counted in the layout numa. "
                          "May be given several times."),
    ),
    "compute": (
        cfg.StrOpt("layout", default="devices", choices=get_args(Layout),
                   help="Shape of the provider tree: everything on the root (flat), a provider for each device "
                        "below it (devices), or cells with their memory and devices (numa)."),
        cfg.StrOpt("cpu_shared_set", help="CPUs of floating guests (VCPU), for instance 0-7,^3."),
        cfg.StrOpt("cpu_dedicated_set", help="CPUs of pinned guests (PCPU)."),
        cfg.StrOpt("provider_config_location", default="/etc/nova/provider_config/",
                   help="Folder of provider.yaml files with inventories and traits of your own; read at each pass."),
        cfg.ListOpt("image_type_exclude_list", default=[], help="Image formats that this host shall not promise."),
    ),
    "libvirt": (
        cfg.StrOpt("connection_uri", default="", help="libvirt's URI; empty: qemu:///system."),
        cfg.StrOpt("virt_type", default="kvm", choices=("kvm", "qemu", "lxc", "parallels"), help="How guests are run."),
        cfg.StrOpt("cpu_mode", choices=("host-model", "host-passthrough", "custom", "none"),
                   help="Which CPU guests see; decides the HW_CPU_ traits. Unset: host-model."),
        cfg.ListOpt("cpu_models", default=[], deprecated_name="cpu_model", help="With cpu_mode = custom: the models."),
        cfg.ListOpt("cpu_model_extra_flags", default=[], help="CPU features to add (name) or take away (-name)."),
        cfg.BoolOpt("cpu_power_management", default=False,
                    help="Nova switches unused dedicated CPUs off; they count although they are offline."),
        cfg.ListOpt("hw_machine_type", default=[], help="Default machine types, as arch=machine."),
        cfg.BoolOpt("swtpm_enabled", default=False, help="Guests can have an emulated TPM."),
        cfg.ListOpt("supported_tpm_secret_security", default=["user", "host", "deployment"],
                    help="Who can own the secret of a TPM."),
        cfg.StrOpt("images_type", default="default", choices=("raw", "flat", "qcow2", "lvm", "rbd", "ploop", "default"),
                   help="Where guests' disks are kept."),
        cfg.IntOpt("num_memory_encrypted_guests", help="Not supported: must not be set."),
        cfg.IntOpt("file_backed_memory", default=0, help="Not supported: must be 0."),
        cfg.ListOpt("pmem_namespaces", default=[], help="Not supported: must be empty."),
    ),
    "pci": (
        cfg.MultiStrOpt("device_spec", default=[],
                        deprecated_opts=[cfg.DeprecatedOpt("passthrough_whitelist", group="pci"),
                                         cfg.DeprecatedOpt("pci_passthrough_whitelist", group="DEFAULT")],
                        help="Rules for the PCI devices that guests may have, each a JSON object as nova takes it; "
                             "those of all configuration files count, a later file replaces none; "
                             "beyond nova: resource_class_attribute names a file of the vendor's driver below the "
                             "device's folder in sysfs whose number makes the class (nvidia/current_vgpu_type), and "
                             "bandwidth is \"link\", kbit/s, or an object of egress and ingress."),
        cfg.BoolOpt("report_in_placement", default=False, help="Report the devices of device_spec."),
        cfg.StrOpt("discover", default="rules", choices=("rules", "all"),
                   help="With all, every VF of an SR-IOV NIC is reported as SRIOV_NET_VF, without a rule; rules go "
                        "before. A PF is reported whole by a rule only."),
        cfg.BoolOpt("link_bandwidth", default=False,
                    help="Report the speed of each reported PF's link as its bandwidth, where no rule says it. Not on "
                         "a host whose bandwidth Neutron's agent reports."),
    ),
    "devices": (
        cfg.ListOpt("enabled_mdev_types", deprecated_name="enabled_vgpu_types", default=[],
                    help="Types of mediated devices to offer; of several, all but one need [mdev_TYPE] "
                         "device_addresses."),
    ),
    "workarounds": (
        cfg.BoolOpt("reserve_disk_resource_for_image_cache", default=False, help="Not supported: must be false."),
    ),
    "agent": (
        cfg.StrOpt("state_directory", default=str(OWN_STATE), help="Where this agent keeps what it must remember."),
        cfg.ListOpt("root_traits", default=[],
                    help="Promises of other services here, as traits of the root: COMPUTE_RESCUE_BFV, for one."),
        cfg.BoolOpt("allow_reshape", default=False,
                    help="Convert a host whose tree changes its shape under guests when the service starts, or by "
                         "sync; else only compute-node-agent reshape --apply does, and before a start of the "
                         "service the plan that a person approved (reshape --approve)."),
        cfg.IntOpt("reshape_timeout", default=300, min=1,
                   help="Seconds after which a conversion that others keep disturbing is given up; what it began "
                        "stands without harm, and the next one goes on from there."),
        cfg.IntOpt("audit_grace", default=60, min=0,
                   help="Seconds after its last change for which an audit does not judge a consumer that has no guest "
                        "here: between a claim and the start of its guest there may be the download of an image."),
        cfg.IntOpt("node_grace", default=60, min=0,
                   help="Seconds between two answers of Ironic's that it does not have a bare-metal node any more, "
                        "before the node's provider is deleted."),
        cfg.IntOpt("interval", default=60, min=1,
                   help="Seconds between two passes of the service that no event asked for."),
        cfg.IntOpt("full_audit_interval", default=3600, min=1,
                   help="Seconds between two audits of the service that read everything; the others read what moved."),
        cfg.IntOpt("start_spread", default=30, min=0,
                   help="The service begins its first pass within so many seconds, each host at a moment of its own."),
        cfg.IntOpt("stop_timeout", default=20, min=1,
                   help="Seconds after which a service that is told to stop abandons its pass, without harm."),
        cfg.StrOpt("heal_policy", help="The service heals what this file lets, see audit --policy; unset, nothing."),
        cfg.IntOpt("keep_cases", default=5, min=0, max=100,
                   help="How many passes over a hypervisor that were refused or failed the service keeps as cases, "
                        "below the state directory; plan --replay FILE does one again. Without secrets."),
        cfg.PortOpt("metrics_port", help="A port of loopback for /metrics, /healthz and /readyz; 0: a free one."),
        cfg.StrOpt("metrics_textfile", help="Write metrics to this file, for the node exporter's textfile collector."),
        cfg.StrOpt("ring_url",
                   help="Where agents that share one Ironic without shards find each other, as tooz names it: "
                        "etcd3+http://HOST:2379. Unset, all nodes that Ironic lists are this agent's."),
        cfg.StrOpt("ring_member", default=socket.gethostname(), sample_default="<hostname>",
                   help="This agent's name among those of the ring."),
        cfg.IntOpt("ring_timeout", default=180, min=5,
                   help="Seconds after its last pass after which the nodes of an agent are given to the others; more "
                        "than the time between two passes."),
        cfg.IntOpt("node_workers", default=8, min=1, max=64, help="Bare-metal nodes that are written at a time."),
        cfg.Opt("shrink_limit_percent", type=types.Integer(min=0, max=100), default=30,
                help="Refuse a pass that takes away more of a class than this, unless forced or seen three times."),
    ),
    "ironic": (
        cfg.StrOpt("shard", help="Report only nodes of this shard; nova's option."),
        cfg.StrOpt("conductor_group",
                   help="Report only nodes of this conductor group; empty: those of none. nova's option."),
    ),
    "fake": (
        cfg.IntOpt("hosts", default=1, min=1, max=100_000, help="How many hosts the fake driver makes up."),
        cfg.StrOpt("seed", default="0", help="The same seed makes the same hosts."),
        cfg.StrOpt("shape", default="small", choices=sorted(SHAPES), help="How large they are."),
    ),
}  # fmt: skip

OWN_GROUPS = ("agent", "fake")

MDEV_OPTIONS = (  # of each group [mdev_TYPE], one for each enabled type
    cfg.ListOpt("device_addresses", default=[],
                help="PCI addresses of the cards, or libvirt's names of parents that are not on PCI, that offer this "
                     "type; empty: all that are not named elsewhere."),
    cfg.Opt("max_instances", type=types.Integer(min=1), help="How many to offer on this host at most."),
    cfg.StrOpt("mdev_class", default="VGPU", help="The resource class: VGPU, or one that starts with CUSTOM_."),
)  # fmt: skip

REFUSED: tuple[tuple[str, str, Callable[[Any], bool], str], ...] = (
    ("libvirt", "images_type", lambda value: value in ("rbd", "lvm", "ploop"),
     "disk is then not the local file system that this agent measures: use raw, flat or qcow2, or report the disk "
     "through a sharing provider and keep this agent off the host"),
    ("libvirt", "num_memory_encrypted_guests", lambda value: value is not None,
     "guests with encrypted memory are counted as libvirt and the kernel tell: remove the option"),
    ("libvirt", "file_backed_memory", lambda value: value != 0,
     "memory is then a file, which this agent does not measure: set it to 0"),
    ("libvirt", "pmem_namespaces", bool, "persistent memory is not reported by this agent: remove the option"),
    ("libvirt", "virt_type", lambda value: value in ("lxc", "parallels"), "only kvm and qemu are reported"),
    ("workarounds", "reserve_disk_resource_for_image_cache", bool,
     "the image cache is not taken off the disk by this agent: set it to false and use reserved_host_disk_mb"),
)  # fmt: skip


def register(conf: cfg.ConfigOpts) -> None:
    """Make all options known to ``conf``, keystoneauth's own of [placement] included."""
    for group, options in OPTIONS.items():
        conf.register_opts(options, group=None if group == "DEFAULT" else group)
    loading.register_auth_conf_options(conf, "placement")
    loading.register_session_conf_options(conf, "placement")
    loading.register_adapter_conf_options(conf, "placement")
    conf.set_default("timeout", TIMEOUT_S, group="placement")
    loading.register_auth_conf_options(conf, "ironic")
    loading.register_session_conf_options(conf, "ironic")
    loading.register_adapter_conf_options(conf, "ironic")
    conf.set_default("timeout", TIMEOUT_S, group="ironic")


def register_mdevs(conf: cfg.ConfigOpts, types_: Iterable[str]) -> None:
    """Once files are read: make the options of each enabled type known."""
    for type_ in types_:
        for option in MDEV_OPTIONS:
            mine = copy.copy(option)
            mine.deprecated_opts = [cfg.DeprecatedOpt(option.name, group=f"vgpu_{type_}")]  # nova's older name
            conf.register_opt(mine, group=f"mdev_{type_}")


def register_auth(conf: cfg.ConfigOpts) -> None:
    """Once files are read: make the options of [placement] auth_section known, where they stand in another group."""
    loading.register_auth_conf_options(conf, "placement")
    loading.register_auth_conf_options(conf, "ironic")


def register_secrets(conf: cfg.ConfigOpts, group: str) -> list[tuple[str, str]]:
    """Once files are read: what the chosen way to log in keeps secret, as (group, option); none for an unknown way."""
    section = conf[group].auth_section or group
    kind = conf[section].auth_type if "auth_type" in conf[section] else None
    try:
        options = loading.get_auth_plugin_conf_options(kind) if kind else []
    except exceptions.NoMatchingPlugin:
        return []
    conf.register_opts(options, group=section)
    return [(section, option.dest) for option in options if option.secret]


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """All options by group, for oslo.config's sample generator and validator."""
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
    return [*own, ("placement", session), ("ironic", [*OPTIONS["ironic"], *session])]
