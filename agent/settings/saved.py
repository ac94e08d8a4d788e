"""Writes the options that decide a plan as a configuration file without secrets, for a case."""

from collections.abc import Iterator
from typing import Any

from oslo_config import cfg

from agent.settings.options import MDEV_OPTIONS, OPTIONS
from agent.settings.read import Settings
from agent.settings.resolve import literal

LEFT_OUT = frozenset(  # paths, ports and names of this host, and addresses of other services
    {
        *("state_path", "instances_path", "provider_config_location", "connection_uri", "state_directory"),
        *("heal_policy", "metrics_port", "metrics_textfile", "keep_cases", "ring_url", "ring_member"),
    }
)


def encode_options(settings: Settings) -> str:
    """
    Return a configuration file with all options that differ from the default, without paths, logins and secrets.

    ``load_settings`` reads the same policy, driver and limits from it.
    """
    groups = {group: tuple(options) for group, options in OPTIONS.items()}
    groups |= {f"mdev_{rule}": MDEV_OPTIONS for rule in settings.source.devices.enabled_mdev_types or ()}
    lines: list[str] = []
    for group, options in groups.items():
        values = settings.source if group == "DEFAULT" else settings.source[group]
        said = [line for option in options if option.name not in LEFT_OUT for line in _lines(option, values)]
        lines += [f"[{group}]", *said] if said else []
    return "".join(f"{line}\n" for line in lines)


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
