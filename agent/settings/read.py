"""
oslo.config options into one frozen Settings.

What a nova.conf says beyond our options is nova's business and passed over; what would change a number we report, and
is not supported, is refused.
"""

import difflib
import logging
import os.path
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from oslo_config import cfg

from agent.errors import ConfigError
from agent.settings.devices import parse_mdev_rules, parse_pages, parse_rules
from agent.settings.options import (
    MDEV_OPTIONS,
    OPTIONS,
    OWN_GROUPS,
    REFUSED,
    register,
    register_auth,
    register_mdevs,
    register_secrets,
)
from drivers.host.parse import parse_cpu_set
from drivers.policy import CpuPolicy, DevicePolicy, GuestPolicy, Layout, MdevRule, Policy, Ratio
from reportclient.names import is_custom, is_name, is_standard_trait

LOG = logging.getLogger(__name__)
DEFAULT_FILE = Path("/etc/compute-node-agent/compute-node-agent.conf")
LOGIN = ("auth_type", "auth_section")  # read before it is known which other options there are
DOLLAR = r"a dollar sign itself is written $$ or \$"
UNRESOLVED = f"has a $ that refers to what no file gives; {DOLLAR}"
SECRET = re.compile("pass|secret|token|key|credential")  # in the name of an option: its value is not shown


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """What the fake driver makes up."""

    hosts: int
    seed: int
    shape: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IronicSettings:
    """Which of Ironic's nodes are this agent's; None does not narrow them."""

    shard: str | None
    conductor_group: str | None
    ring_url: str | None  # where the agents that share the rest find each other; None: there is one
    ring_member: str
    ring_timeout_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All that was configured; ``source`` is for ``connect.keystone``, which lets keystoneauth read its own options."""

    policy: Policy
    driver: str
    libvirt_uri: str
    instances: Path
    instances_may_be_missing: bool  # nobody named the folder, and nova may not have made it yet
    state_directory: Path
    identity_folders: tuple[Path, ...]  # where compute_id is looked for, first of them the one to make it in
    provider_config: Path
    provider_config_named: bool  # the operator named the folder, so it must be there
    shrink_fraction: float
    allow_reshape: bool
    reshape_timeout_s: int
    node_grace_s: int  # between two answers of Ironic's that it has not a node any more
    node_workers: int  # nodes that are written at a time
    ironic: IronicSettings
    audit_grace_s: int
    interval_s: int  # between two passes of the service that nothing asked for
    full_audit_interval_s: int
    start_spread_s: int
    stop_timeout_s: int
    heal_policy: Path | None  # None: the service heals nothing
    keep_cases: int  # of passes that were refused or failed
    metrics_port: int | None  # on loopback; 0 a free one; None: none
    metrics_textfile: Path | None
    fleet: FleetSettings
    placement_chosen: bool
    provider_config_shown: Path | None = None  # by which name messages call that folder; None: its own
    recorded: bool = False  # the nodes are host archives, which keep their own identity
    source: cfg.ConfigOpts


def load_settings(files: Iterable[Path], directories: Iterable[Path] = (), *, service: bool = False) -> Settings:
    """
    Read configuration files, later ones over earlier ones; none given: ours in /etc where it is.

    A ``service`` has the options of its log too.

    Raises:
        ConfigError: a file cannot be read, or a value in it cannot be meant; all problems at once.
    """
    conf = cfg.ConfigOpts()
    register(conf)
    if service:
        from agent.settings.log import register_log

        register_log(conf)
    directories = list(directories)
    named = list(files) or ([DEFAULT_FILE] if DEFAULT_FILE.exists() else [])
    arguments = [argument for path in named for argument in ("--config-file", str(path))]
    arguments += [argument for path in directories for argument in ("--config-dir", str(path))]
    try:
        conf(arguments, project="compute-node-agent", default_config_files=[], default_config_dirs=[])
    except (cfg.Error, OSError, UnicodeDecodeError) as error:
        where = ", ".join(map(str, [*named, *directories]))
        raise ConfigError(f"configuration {where}: {_without_line(error)}") from error
    except RecursionError as error:  # by options that oslo.config reads at once, as those of the log
        raise ConfigError(f"configuration {', '.join(map(str, named))}: an option refers to itself") from error
    _learn_login(conf)
    _take_credentials(conf)
    _resolve_references(conf)
    _check_login(conf)
    return _Reader(conf).settings([path.absolute().parent for path in named])


def literal(text: str) -> str:
    """The text as an oslo.config value that means exactly it: a dollar sign refers to nothing."""
    return text.replace("$", r"\$")  # not $$: after a backslash, oslo.config would read the first of them as escaped


def slips_of_the_pen(settings: Settings) -> tuple[str, ...]:
    """Names in the files that are nearly, and not quite, a group or an option that is read: one sentence each."""
    found = _groups_nearly_read(settings.source)
    for path, line, group, name, _ in _mentions(settings.source):
        known = [option.name for option in OPTIONS.get(group, ())]
        near = [] if _is_registered(settings.source, group, name) else difflib.get_close_matches(name, known, 1, 0.85)
        if near:
            found.append(f"{path}:{line}: [{group}] {name} is not read: is {near[0]} meant?")
    return tuple(found)


def files_of(settings: Settings, group: str, name: str) -> tuple[Path, ...]:
    """The files that give an option, under any of its names, in the order in which they count."""
    option = next(option for option in OPTIONS[group] if option.name == name)
    names = {(group, name)} | {(old.group or group, old.name or name) for old in option.deprecated_opts}
    return tuple(dict.fromkeys(path for path, _, *mention, _ in _mentions(settings.source) if tuple(mention) in names))


def keep_in(settings: Settings, folder: Path) -> Settings:
    """The same settings with identity and state in ``folder``."""
    return replace(settings, state_directory=folder, identity_folders=(folder,))


class _Reader:
    """Reads option by option and gathers what is wrong, so that a person sees all of it at once."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._problems: list[str] = []

    def settings(self, config_folders: list[Path]) -> Settings:
        for group, name, unsupported, reason in REFUSED:
            if unsupported(self._value(group, name)):
                self._problem(group, name, f"{self._value(group, name)} is not supported: {reason}")
        self._check_own_names()
        state_path = Path(self._value("DEFAULT", "state_path"))
        own_state = Path(self._value("agent", "state_directory"))
        # Nova's, where it is and a new identity can be kept there: a unit may not let us write anywhere but in our own.
        home = state_path if os.path.isdir(state_path) and os.access(state_path, os.W_OK) else own_state
        settings = Settings(
            policy=self._policy(),
            driver=self._value("DEFAULT", "compute_driver"),
            libvirt_uri=self._value("libvirt", "connection_uri") or "qemu:///system",
            instances=Path(self._value("DEFAULT", "instances_path")),
            instances_may_be_missing=not self._is_set("DEFAULT", "instances_path"),
            state_directory=own_state,
            identity_folders=(home, state_path, *config_folders, own_state),
            provider_config=Path(self._value("compute", "provider_config_location")),
            provider_config_named=self._is_set("compute", "provider_config_location"),
            shrink_fraction=self._value("agent", "shrink_limit_percent") / 100,
            allow_reshape=self._value("agent", "allow_reshape"),
            reshape_timeout_s=self._value("agent", "reshape_timeout"),
            audit_grace_s=self._value("agent", "audit_grace"),
            interval_s=self._value("agent", "interval"),
            full_audit_interval_s=self._value("agent", "full_audit_interval"),
            start_spread_s=self._value("agent", "start_spread"),
            stop_timeout_s=self._value("agent", "stop_timeout"),
            heal_policy=_path(self._value("agent", "heal_policy")),
            keep_cases=self._value("agent", "keep_cases"),
            metrics_port=self._value("agent", "metrics_port"),
            metrics_textfile=_path(self._value("agent", "metrics_textfile")),
            node_grace_s=self._value("agent", "node_grace"),
            node_workers=self._value("agent", "node_workers"),
            ironic=IronicSettings(
                shard=self._value("ironic", "shard"),
                conductor_group=self._value("ironic", "conductor_group"),
                ring_url=self._value("agent", "ring_url"),
                ring_member=self._value("agent", "ring_member"),
                ring_timeout_s=self._value("agent", "ring_timeout"),
            ),
            fleet=FleetSettings(
                hosts=self._value("fake", "hosts"),
                seed=self._parsed("fake", "seed", int) or 0,
                shape=self._value("fake", "shape"),
            ),
            placement_chosen=self._is_set("placement", "auth_type") or self._is_set("placement", "auth_section"),
            source=self._conf,
        )
        if self._problems:
            raise ConfigError(*dict.fromkeys(self._problems))
        return settings

    def _policy(self) -> Policy:
        return Policy(
            layout=cast(Layout, self._value("compute", "layout")),
            cpus=self._cpus(),
            guests=self._guests(),
            devices=self._devices(),
            reserved_pages=tuple(self._parsed("DEFAULT", "reserved_huge_pages", parse_pages) or ()),
            reserved_memory_mib=self._value("DEFAULT", "reserved_host_memory_mb"),
            reserved_disk_mib=self._value("DEFAULT", "reserved_host_disk_mb"),
            cpu_ratio=self._ratio("cpu"),
            ram_ratio=self._ratio("ram"),
            disk_ratio=self._ratio("disk"),
            root_traits=frozenset(self._parsed("agent", "root_traits", _trait_names) or ()),
        )

    def _ratio(self, name: str) -> Ratio:
        """0 means unset, as in nova."""
        initial, configured = (self._value("DEFAULT", f"{start}{name}_allocation_ratio") for start in ("initial_", ""))
        if not initial:
            self._problem("DEFAULT", f"initial_{name}_allocation_ratio", "must be above 0")
        return Ratio(initial or 1.0, configured or None)

    def _cpus(self) -> CpuPolicy:
        pinned = self._parsed("DEFAULT", "vcpu_pin_set", parse_cpu_set)
        shared = self._parsed("compute", "cpu_shared_set", parse_cpu_set)
        dedicated = self._parsed("compute", "cpu_dedicated_set", parse_cpu_set)
        reserved = self._value("DEFAULT", "reserved_host_cpus")
        if pinned and dedicated:
            self._problem(
                "DEFAULT", "vcpu_pin_set", "cannot stand beside [compute] cpu_dedicated_set: use cpu_shared_set instead"
            )
        if both := (shared or frozenset()) & (dedicated or frozenset()):
            self._problem(
                "compute", "cpu_dedicated_set", f"and cpu_shared_set must not share CPUs, and both name {sorted(both)}"
            )
        if reserved and not pinned and (shared or dedicated):
            self._problem(
                "DEFAULT",
                "reserved_host_cpus",
                "cannot stand beside cpu_shared_set or cpu_dedicated_set: leave those CPUs out of the sets",
            )
        return CpuPolicy(
            shared=pinned or shared,
            shared_option="[DEFAULT] vcpu_pin_set" if pinned else "[compute] cpu_shared_set",
            dedicated=dedicated,
            reserved=reserved,
            power_management=self._value("libvirt", "cpu_power_management"),
        )

    def _guests(self) -> GuestPolicy:
        mode, models = self._value("libvirt", "cpu_mode"), self._value("libvirt", "cpu_models")
        if mode == "custom" and not models:
            self._problem("libvirt", "cpu_mode", "custom needs cpu_models")
        if mode != "custom" and models:
            self._problem("libvirt", "cpu_models", "needs cpu_mode = custom")
        return GuestPolicy(
            virt_type=cast(Literal["kvm", "qemu"], self._value("libvirt", "virt_type")),
            cpu_mode=mode,
            cpu_models=tuple(models),
            cpu_flags=dict(map(_parse_flag, self._value("libvirt", "cpu_model_extra_flags"))),
            machine_types=self._parsed("libvirt", "hw_machine_type", _parse_machines) or {},
            tpm=self._value("libvirt", "swtpm_enabled"),
            tpm_secret_security=tuple(self._value("libvirt", "supported_tpm_secret_security")),
            excluded_image_types=frozenset(self._value("compute", "image_type_exclude_list")),
        )

    def _devices(self) -> DevicePolicy:
        report = self._value("pci", "report_in_placement")
        rules = self._parsed("pci", "device_spec", parse_rules) or ()
        if not report and any(rule.one_time_use for rule in rules):
            self._problem("pci", "device_spec", "has one_time_use, which needs report_in_placement = true")
        return DevicePolicy(
            report=report,
            rules=tuple(rules),
            discover_all=self._value("pci", "discover") == "all",
            link_bandwidth=self._value("pci", "link_bandwidth"),
            mdevs=self._mdevs(),
        )

    def _mdevs(self) -> tuple[MdevRule, ...]:
        """The enabled types with their groups, in order."""
        names = list(dict.fromkeys(self._value("devices", "enabled_mdev_types") or ()))
        register_mdevs(self._conf, names)
        records = [
            (name, {option.name: self._value(f"mdev_{name}", option.name) for option in MDEV_OPTIONS}) for name in names
        ]
        try:
            rules = parse_mdev_rules(records)
        except ValueError as error:
            self._problem("devices", "enabled_mdev_types", str(error))
            return ()
        for name in names:
            if name not in {rule.type for rule in rules}:
                LOG.warning(
                    "not offered, as another type before it has no [mdev_TYPE] device_addresses either type=%s", name
                )
        return rules

    def _value(self, group: str, name: str) -> Any:
        """An option's value; where it cannot be read, its default, with the problem noted."""
        try:
            value = self._conf[name] if group == "DEFAULT" else self._conf[group][name]
            if value is None and _default(group, name) is not None:
                raise ValueError("is not valid: nothing stands behind the =")
            return value
        except RecursionError:
            self._problem(group, name, "refers to itself")
            return _default(group, name)
        except (ValueError, cfg.Error) as error:
            reason = _one_line(error).rpartition("is not valid: ")[2]
            self._problem(group, name, f"is not valid: {reason}")
            return _default(group, name)

    def _parsed(self, group: str, name: str, parse: Callable[[Any], Any]) -> Any:
        value = self._value(group, name)
        try:
            return parse(value) if value else None
        except ValueError as error:
            self._problem(group, name, str(error))
            return None

    def _is_set(self, group: str, name: str) -> bool:
        """Whether a file gives the option under the name that we know it by."""
        return any(mention == [group, name] for _, _, *mention, _ in _mentions(self._conf))

    def _problem(self, group: str, name: str, text: str) -> None:
        self._problems.append(f"{_place(self._conf, group, name)}[{group}] {name} {text}")

    def _check_own_names(self) -> None:
        """In the groups that are ours alone, a name that we do not know is a slip of the pen."""
        for path, line, group, name, _ in _mentions(self._conf):
            if group in OWN_GROUPS and name not in {option.name for option in OPTIONS[group]}:
                near = difflib.get_close_matches(name, [option.name for option in OPTIONS[group]], 1)
                meant = f": is {near[0]} meant?" if near else ""
                self._problems.append(f"{path}:{line}: [{group}] {name} is no option of this agent{meant}")


def _groups_nearly_read(conf: cfg.ConfigOpts) -> list[str]:
    """Groups of the files that are nearly one of ours; nova's many others are not alike enough."""
    known = {group.lower(): group for group in (*OPTIONS, "placement")}
    found: dict[tuple[Path, str], str] = {}
    for path, line, group, _, _ in _mentions(conf):
        if group == "DEFAULT" or group in conf:
            continue
        if near := difflib.get_close_matches(group, known, 1, 0.75):
            text = f"{path}:{line}: the group [{group}] is not read: is [{known[near[0]]}] meant?"
            found.setdefault((path, group), text)
    return list(found.values())


def _learn_login(conf: cfg.ConfigOpts) -> None:
    """
    Make known which way to log in is chosen, and in which group its options stand.

    Raises:
        ConfigError: auth_type or auth_section cannot be resolved.
    """
    for _ in range(2):  # the second time for the auth_type of an auth_section
        _resolve_references(conf, LOGIN)
        _check_login(conf, LOGIN)
        register_auth(conf)


def _check_login(conf: cfg.ConfigOpts, names: Iterable[str] = ()) -> None:
    """
    Read the options of placement's and Ironic's login, those of ``names`` or all, as keystoneauth will.

    Raises:
        ConfigError: one refers to itself, or to what nobody gives.
    """
    groups = ("placement", "ironic")
    sections = () if names else tuple(filter(None, (conf[group].auth_section for group in groups)))
    for group in dict.fromkeys((*groups, *sections)):
        for name in tuple(names or conf[group]):
            try:
                conf[group][name]
            except RecursionError as error:
                raise ConfigError(f"{_place(conf, group, name)}[{group}] {name} refers to itself") from error
            except (cfg.NoSuchOptError, cfg.NoSuchGroupError, cfg.TemplateSubstitutionError) as error:
                raise ConfigError(f"{_place(conf, group, name)}[{group}] {name} {UNRESOLVED}") from error
            except (ValueError, cfg.Error):
                continue  # a value of the wrong type matters to those who log in there


def _resolve_references(conf: cfg.ConfigOpts, names: Iterable[str] = ()) -> None:
    """
    Make known what values of ours refer to as ``$name`` or ``${group.name}`` and only other services have options for.

    Only the values of the options ``names`` are looked at, where some are given.

    Raises:
        ConfigError: no file gives it, so that it can only be a default of a service that is not here, or a slip.
    """
    given = {(group, name) for _, _, group, name, _ in _mentions(conf)}
    for path, line, group, name, value in _mentions(conf):
        if (names and name not in names) or (group != "placement" and not _is_registered(conf, group, name)):
            continue
        for target, option in _references(value):
            if _is_registered(conf, target or group, option) or _is_registered(conf, target, option):
                continue
            if (target or "DEFAULT", option) not in given:
                reference = f"{target}.{option}" if target else option
                told = (
                    UNRESOLVED if _is_secret(name, value) else f"refers to ${reference}, which no file gives; {DOLLAR}"
                )
                raise ConfigError(f"{path}:{line}: [{group}] {name} {told}")
            conf.register_opt(cfg.StrOpt(option), group=target or None)


def _references(value: str) -> Iterator[tuple[str, str]]:
    """(group, option) of what oslo.config substitutes; no group: the value's own, or DEFAULT."""
    for match in cfg.ConfigOpts.Template.pattern.finditer(value.replace(r"\$", "$$")):
        if key := match["named"] or match["braced"]:
            group, dot, option = key.partition(".")
            yield (group, option) if dot else ("", key)


def _is_secret(name: str, value: str) -> bool:
    """Whether no part of the value may be shown: a secret, or a URL that may have a password in it."""
    return bool(SECRET.search(name.lower())) or "@" in value


def _is_registered(conf: cfg.ConfigOpts, group: str, name: str) -> bool:
    try:
        return name in (conf[group] if group not in ("", "DEFAULT") else conf)
    except cfg.NoSuchOptError:
        return False


def _mentions(conf: cfg.ConfigOpts) -> Iterator[tuple[Path, int, str, str, str]]:
    """(file, line, group, option, value) of every option that the files give, in the order in which they count."""
    folders = [Path(folder) for folder in conf.config_dir or ()]
    files = [path for folder in folders for path in sorted(folder.glob("*.conf"))]
    for path in (*map(Path, conf.config_file or ()), *files):
        group = "DEFAULT"
        for count, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if line.startswith("["):
                group = line.strip("[] \t")
                group = group if group == "DEFAULT" else group.lower()  # as oslo.config reads it
            elif line[:1].isalpha():
                name, _, value = line.replace(":", "=", 1).partition("=") if "=" not in line else line.partition("=")
                yield path, count, group, name.strip(), value


def _place(conf: cfg.ConfigOpts, group: str, name: str) -> str:
    """``FILE:LINE: `` of the mention that counts, the last one; empty where no file mentions the option."""
    places = [f"{path}:{line}: " for path, line, *mention, _ in _mentions(conf) if mention == [group, name]]
    return places[-1] if places else ""


def _default(group: str, name: str) -> Any:
    return next(option for option in OPTIONS.get(group, MDEV_OPTIONS) if option.name == name).default


def _trait_names(names: list[str]) -> list[str]:
    if unknown := [name for name in names if not ((is_custom(name) and is_name(name)) or is_standard_trait(name))]:
        raise ValueError(f"names {', '.join(unknown)}, which is neither a standard trait nor starts with CUSTOM_")
    return names


def _parse_flag(text: str) -> tuple[str, bool]:
    return text.lower().lstrip("+-"), not text.startswith("-")


def _parse_machines(pairs: list[str]) -> dict[str, str]:
    found = dict(pair.partition("=")[::2] for pair in pairs)
    if not all(found.values()):
        raise ValueError(f"holds {','.join(pairs)} where arch=machine is meant")
    return found


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _without_line(error: Exception) -> str:
    """One line; of a file that cannot be parsed the place only, as the line itself may hold a secret."""
    cause = error.__context__
    if isinstance(error, cfg.ConfigFileParseError) and isinstance(cause, cfg.ParseError):
        return f"{cause.filename}:{cause.lineno} cannot be read: {cause.msg}"
    return _one_line(error)


def _take_credentials(conf: cfg.ConfigOpts) -> None:
    """
    Secrets that systemd hands over (LoadCredential=), instead of what the files say: GROUP-NAME-OF-THE-OPTION.

    Raises:
        ConfigError: one is there and cannot be read.
    """
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    for group in ("placement", "ironic"):
        for section, option in register_secrets(conf, group):
            path = Path(folder or "/", f"{group}-{option.replace('_', '-')}")
            if folder and path.exists():
                try:
                    conf.set_override(option, literal(path.read_text(encoding="utf-8").rstrip("\n")), group=section)
                except (OSError, UnicodeDecodeError) as error:
                    raise ConfigError(f"the credential {path} cannot be read: {error}") from error


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
