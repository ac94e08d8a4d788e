"""Writes the options that decide a plan as a configuration file without secrets, for a case."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oslo_config import cfg

from agent.settings.options import MDEV_OPTIONS, OPTIONS
from agent.settings.read import Settings
from agent.settings.resolve import literal

LEFT_OUT = frozenset(  # paths, ports and names of this host, and addresses of other services
    {
        *("state_path", "instances_path", "provider_config_location", "connection_uri", "state_directory"),
        *("heal_policy", "bind_address", "metrics_port", "keep_cases", "slots"),
        *("images_rbd_ceph_conf", "rbd_user"),
    }
)
_SOURCES = frozenset({"config_source", "config_file", "config_dir"})  # other places that oslo.config would read


def encode_options(settings: Settings) -> str:
    """
    Return a configuration file with all options that differ from the default, without paths, logins and secrets.

    ``load_settings`` reads the same policy, driver and limits from it.
    """
    groups = {group: tuple(options) for group, options in OPTIONS.items()}
    groups |= {f"mdev_{rule}": MDEV_OPTIONS for rule in settings.apis.source.devices.enabled_mdev_types or ()}
    lines: list[str] = []
    for group, options in groups.items():
        values = settings.apis.source if group == "DEFAULT" else settings.apis.source[group]
        said = [line for option in options if option.name not in LEFT_OUT for line in _lines(option, values)]
        lines += [f"[{group}]", *said] if said else []
    return "".join(f"{line}\n" for line in lines)


def check_options(path: Path) -> None:
    """
    Refuse a case's configuration file with an option that ``encode_options`` never writes, and that reads elsewhere.

    Raises:
        ValueError: the file has such an option.
    """
    sections: dict[str, dict[str, list[str]]] = {}
    try:
        cfg.ConfigParser(str(path), sections).parse()
    except cfg.ParseError:
        return  # load_settings reports it with its line
    for group, values in sections.items():
        for name in values:
            if name.lower().replace("-", "_") in LEFT_OUT | _SOURCES:
                raise ValueError(f"{path.name}: [{group}] {name} is not allowed in a case")


def _lines(option: cfg.Opt, values: Any) -> Iterator[str]:
    value = values[option.name]
    if value is None or value == option.default:
        return
    for one in value if option.multi else (value,):
        yield f"{option.name} = {literal(_text(one))}"


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}:{each}" for key, each in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
