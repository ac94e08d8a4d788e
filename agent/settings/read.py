"""
Reads configuration files into one frozen ``Settings``.

Options of nova that this agent does not have are ignored. Options that would change a reported number in a way that
the agent does not support are refused.
"""

import os.path
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, TypeVar, get_origin, get_type_hints

from oslo_config import cfg

from agent.errors import ConfigError
from agent.settings.host_policy import build_policy
from agent.settings.log import register_log
from agent.settings.options import OWN_GROUPS, register
from agent.settings.resolve import resolve
from agent.settings.slips import slips_of_the_pen, unread_options
from agent.settings.values import Values, mentions, one_line, registered
from drivers import INSIDE
from drivers.policy import CephPool, DiskPlace, InstancesFolder, Policy, VolumeGroup

T = TypeVar("T")
DEFAULT_FILE = Path("/etc/compute-node-agent/compute-node-agent.conf")


@dataclass(frozen=True, slots=True, kw_only=True)
class HypervisorSettings:
    """What the driver reads, and where."""

    driver: Annotated[str, "DEFAULT", "compute_driver"]  # a name in ``drivers.NAMES``
    libvirt_uri: Annotated[str, "libvirt", "connection_uri", lambda uri: uri or "qemu:///system"]
    disk: DiskPlace
    seed: Annotated[int, "fake", "seed"]  # of a made-up host: the same seed makes the same one
    shape: Annotated[str, "fake", "shape"]  # its hardware, one of ``drivers.fake.SHAPES``


@dataclass(frozen=True, slots=True, kw_only=True)
class IronicSettings:
    """Which of Ironic's nodes this agent reports."""

    shard: Annotated[str | None, "ironic", "shard"]  # only nodes of this shard; None: of all
    conductor_group: Annotated[str | None, "ironic", "conductor_group"]  # only nodes of it, "": of none; None: of all
    reserve_critical: Annotated[bool, "agent", "reserve_critical_nodes"]  # nodes whose health is critical
    node_grace_s: Annotated[int, "agent", "node_grace"]  # wait between two answers that lack a node, before it goes


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """Where this agent keeps what must outlive it."""

    state: Path
    identity: tuple[Path, ...]  # where compute_id is read; a new one is made in the first of them
    of_nova: tuple[Path, ...]  # where nova reads compute_id: its state_path, and the folders of configuration files
    option: str = "[agent] state_directory"  # which option names ``state``, for messages


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFiles:
    """The operator's provider.yaml files."""

    folder: Path
    named: bool  # whether a file sets this folder, so that it must exist
    shown: Path | None = None  # name of the folder in messages; None: its own path


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSettings:
    """How much may change without a person."""

    # Part of a resource class; a plan that takes away more is refused.
    shrink_fraction: Annotated[float, "agent", "shrink_limit_percent", lambda percent: percent / 100]
    allow_reshape: Annotated[bool, "agent", "allow_reshape"]  # whether sync and the service may convert the host
    reshape_timeout_s: Annotated[int, "agent", "reshape_timeout"]
    expect_timeout_s: Annotated[int, "agent", "expect_timeout"]  # for devices that a boot took away; 0: not at all


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """What the service does, and when."""

    interval_s: Annotated[int, "agent", "interval"]  # between two regular passes
    full_audit_interval_s: Annotated[int, "agent", "full_audit_interval"]
    start_spread_s: Annotated[int, "agent", "start_spread"]
    # None: it repairs nothing.
    heal_policy: Annotated[Path | None, "agent", "heal_policy", lambda path: Path(path) if path else None]
    keep_cases: Annotated[int, "agent", "keep_cases"]  # how many cases of refused or failed passes to keep
    bind_address: Annotated[str, "agent", "bind_address"]  # of metrics and health; numeric
    metrics_port: Annotated[int | None, "agent", "metrics_port"]  # 0: a free port; None: no port
    slots: Annotated[Mapping[str, Path], "metrics", "slots", lambda files: {one: Path(files[one]) for one in files}]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """How placement, Ironic and nova are reached, and what nova's flavors mean."""

    source: cfg.ConfigOpts  # from which keystoneauth reads its own options
    placement_chosen: bool  # whether a file sets [placement] auth_type or auth_section
    nova_chosen: bool  # whether a file sets [nova] auth_type or auth_section: the audit asks nova only then
    node_workers: Annotated[int, "agent", "node_workers"]  # requests to placement that are under way at a time
    aliases: Annotated[tuple[str, ...], "pci", "alias", tuple]  # of PCI devices in nova's flavors, as JSON


Role = Literal["sole", "beside", "audit"]
ONE_LAYOUT = "nova reports in the layout devices alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole configuration, with checked values."""

    policy: Policy
    hypervisor: HypervisorSettings
    ironic: IronicSettings
    folders: Folders
    operator_files: OperatorFiles
    role: Role | None  # what this agent does on a hypervisor; None: not configured
    changes: ChangeSettings
    audit_grace_s: int
    service: ServiceSettings
    apis: ApiSettings
    recorded: bool = False  # the nodes are host archives, which have their own identity

    @property
    def audits_only(self) -> bool:
        """Whether this agent writes nothing on a hypervisor but repairs of its audits."""
        return self.role == "audit"

    @property
    def reports_root(self) -> bool:
        """Whether this agent reports the root, unless a sign shows that nova does."""
        return self.role in (None, "sole")

    @property
    def beside_nova(self) -> bool:
        """Whether this agent reports only children below the root that nova reports."""
        return self.role == "beside"


def load_settings(
    files: Iterable[Path],
    directories: Iterable[Path] = (),
    *,
    service: bool = False,
    environment: bool = True,
    driver: str | None = None,
) -> Settings:
    """
    Read configuration files; later files override earlier ones. Without files, read ``DEFAULT_FILE`` if it exists.

    With ``service``, also the options of the service's log are known. With ``environment``, variables as
    OS_COMPUTE__LAYOUT override the files. ``driver`` replaces the value of compute_driver, which the files of
    nova-compute may set to a name that only nova loads; None: as the files say.

    Raises:
        ConfigError: a file cannot be read, or values in it are wrong; the error has all problems, and then all names
            that are probably misspelt.
    """
    conf = cfg.ConfigOpts()
    register(conf)
    if service:
        register_log(conf)
    if driver:
        conf.set_override("compute_driver", driver)
    directories = list(directories)
    named = list(files) or ([DEFAULT_FILE] if DEFAULT_FILE.exists() else [])
    arguments = [argument for path in named for argument in ("--config-file", str(path))]
    arguments += [argument for path in directories for argument in ("--config-dir", str(path))]
    try:
        conf(
            arguments,
            project="compute-node-agent",
            default_config_files=[],
            default_config_dirs=[],
            use_env=environment,
        )
        resolve(conf)
    except (cfg.Error, OSError, UnicodeDecodeError, SystemExit) as error:  # the last from oslo.config, of [DEFAULT]
        where = ", ".join(map(str, [path for path in named if not path.exists()] or [*named, *directories]))
        raise ConfigError(f"configuration {where}: {_tell_reading(error)}") from error
    except RecursionError as error:  # from options that are read here already: those of a login
        raise ConfigError(f"configuration {', '.join(map(str, named))}: an option refers to itself") from error
    return _read_settings(Values(conf), [path.absolute().parent for path in named])


def keep_in(settings: Settings, folder: Path) -> Settings:
    """Return the same settings with identity and state in ``folder``."""
    option = "--embedded-dir to another folder"
    return replace(settings, folders=replace(settings.folders, state=folder, identity=(folder,), option=option))


def _read_settings(values: Values, config_folders: list[Path]) -> Settings:
    # Unknown options in the groups that only this agent has must be misspelt.
    own = (
        f"{one} is no option of this agent{meant}"
        for one, group, meant in unread_options(values)
        if group in OWN_GROUPS
    )
    values.problems += own
    for _, _, group, name, _ in mentions(values.conf):  # also those of the log
        if group == "DEFAULT" and name in registered(values.conf, group):
            values.value(group, name)
    settings = Settings(
        policy=build_policy(values),
        hypervisor=_filled(values, HypervisorSettings, disk=_disk(values)),
        ironic=_filled(values, IronicSettings),
        folders=_read_folders(values, config_folders),
        operator_files=OperatorFiles(
            folder=Path(values.value("compute", "provider_config_location")),
            named=values.is_set("compute", "provider_config_location"),
        ),
        role=_read_role(values),
        changes=_filled(values, ChangeSettings),
        audit_grace_s=values.value("agent", "audit_grace"),
        service=_filled(values, ServiceSettings),
        apis=_filled(
            values,
            ApiSettings,
            source=values.conf,
            placement_chosen=values.is_set("placement", "auth_type") or values.is_set("placement", "auth_section"),
            nova_chosen=values.is_set("nova", "auth_type") or values.is_set("nova", "auth_section"),
        ),
    )
    if values.problems:
        raise ConfigError(*dict.fromkeys((*values.problems, *slips_of_the_pen(values))))
    return settings


def _filled(values: Values, kind: type[T], **others: object) -> T:
    """
    Return a value of this class, with ``others`` and with the options that its fields name.

    Such a field is Annotated with group and name of its option, and maybe with what converts the option's value.
    """
    read: dict[str, object] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if get_origin(hint) is Annotated:
            group, option, *convert = hint.__metadata__
            value = values.value(group, option)
            read[name] = convert[0](value) if convert else value
    return kind(**read, **others)


def _read_folders(values: Values, config_folders: list[Path]) -> Folders:
    state_path = Path(values.value("DEFAULT", "state_path"))
    own_state = Path(values.value("agent", "state_directory"))
    # A new identity is made in nova's folder if it can be written: a unit may allow our own only.
    home = state_path if os.path.isdir(state_path) and os.access(state_path, os.W_OK) else own_state
    of_nova = state_path, *config_folders
    return Folders(state=own_state, identity=(home, *of_nova, own_state), of_nova=of_nova)


def _disk(values: Values) -> DiskPlace:
    """Return where the disks of guests are, by the same options as nova."""
    kind = values.value("libvirt", "images_type")
    if kind == "rbd":
        if not values.value("DEFAULT", "force_raw_images"):
            values.problem("DEFAULT", "force_raw_images", "must be true with [libvirt] images_type = rbd, as in nova")
        return CephPool(
            name=values.value("libvirt", "images_rbd_pool"),
            config=values.value("libvirt", "images_rbd_ceph_conf"),
            user=values.value("libvirt", "rbd_user"),
            timeout_s=values.value("libvirt", "rbd_connect_timeout"),
        )
    if kind == "lvm":
        group = values.value("libvirt", "images_volume_group") or ""
        values.problem("libvirt", "images_type", "lvm needs images_volume_group", when=not group)
        return VolumeGroup(group)
    instances = Path(values.value("DEFAULT", "instances_path"))
    reserves = values.value("workarounds", "reserve_disk_resource_for_image_cache")
    return InstancesFolder(
        instances=instances,
        may_be_missing=not values.is_set("DEFAULT", "instances_path"),
        image_cache=instances / values.value("image_cache", "subdirectory_name") if reserves else None,
    )


def _read_role(values: Values) -> Role | None:
    role: Role | None = values.value("agent", "role")
    if values.value("DEFAULT", "compute_driver") == INSIDE:
        text = f"must be audit with compute_driver = {INSIDE}: nova-compute reports then"
        values.problem("agent", "role", text, when=role not in (None, "audit"))
        return "audit"
    other = role == "beside" and values.value("compute", "layout") != "devices"
    values.problem("compute", "layout", f"does not fit [agent] role = beside: {ONE_LAYOUT}", when=other)
    return role


def _tell_reading(error: BaseException) -> str:
    """Return one line; for a file that cannot be parsed without the text of its line, which may hold a secret."""
    cause = error.__context__
    if isinstance(error, cfg.ConfigFileParseError) and isinstance(cause, cfg.ParseError):
        return f"{cause.filename}:{cause.lineno} cannot be read: {cause.msg}"
    told = cause if isinstance(error, SystemExit) and cause else error
    match told:
        case cfg.ConfigFilesNotFoundError():
            return "there is no such file: name one with --config-file"
        case cfg.ConfigFilesPermissionDeniedError():
            return f"{one_line(told)}: run as a user that may read it, for instance with sudo"
        case IsADirectoryError():
            return "it is a folder: name a file, or the folder with --config-dir"
        case UnicodeDecodeError():
            return "it is no text: is it the right file?"
    return one_line(told)
