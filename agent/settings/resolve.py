"""
Prepares the options before they are read: references between them, the login's own options, systemd's credentials.

A value may refer to another option as ``$name`` or ``${group.name}``.
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from oslo_config import cfg

from agent.errors import ConfigError
from agent.settings.mentions import is_registered, mentions, place
from agent.settings.options import register_auth, register_secrets

LOGIN = ("auth_type", "auth_section")  # read first, as they decide which other options there are
DOLLAR = r"write a dollar sign itself as $$ or \$"
UNRESOLVED = f"has a $ that refers to an option that no file gives; {DOLLAR}"
SECRET = re.compile("pass|secret|token|key|credential")  # in an option's name: its value is not shown


def resolve(conf: cfg.ConfigOpts) -> None:
    """
    Register the options that the files refer to and that the login needs, and take secrets from systemd.

    Raises:
        ConfigError: a reference cannot be resolved, or a credential cannot be read.
    """
    _learn_login(conf)
    _take_credentials(conf)
    _resolve_references(conf)
    _check_login(conf)


def literal(text: str) -> str:
    """The text as an oslo.config value that means exactly it: a dollar sign refers to nothing."""
    return text.replace("$", r"\$")  # not $$: after a backslash, oslo.config would read the first of them as escaped


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
                raise ConfigError(f"{place(conf, group, name)}[{group}] {name} refers to itself") from error
            except (cfg.NoSuchOptError, cfg.NoSuchGroupError, cfg.TemplateSubstitutionError) as error:
                raise ConfigError(f"{place(conf, group, name)}[{group}] {name} {UNRESOLVED}") from error
            except (ValueError, cfg.Error):
                continue  # a value of the wrong type matters to those who log in there


def _resolve_references(conf: cfg.ConfigOpts, names: Iterable[str] = ()) -> None:
    """
    Make known what values of ours refer to as ``$name`` or ``${group.name}`` and only other services have options for.

    Only the values of the options ``names`` are looked at, where some are given.

    Raises:
        ConfigError: no file gives it, so that it can only be a default of a service that is not here, or a slip.
    """
    given = {(group, name) for _, _, group, name, _ in mentions(conf)}
    for path, line, group, name, value in mentions(conf):
        if (names and name not in names) or (group != "placement" and not is_registered(conf, group, name)):
            continue
        for target, option in _references(value):
            if is_registered(conf, target or group, option) or is_registered(conf, target, option):
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
