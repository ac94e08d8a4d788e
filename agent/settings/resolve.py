"""
Prepares the options before they are read: references between them, the login's own options, systemd's credentials.

A value may refer to another option as ``$name`` or ``${group.name}``.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from oslo_config import cfg

from agent.errors import ConfigError
from agent.settings.options import LOGINS, register_auth, register_secrets
from agent.settings.values import mentions, registered

DOLLAR = r"write a dollar sign itself as $$ or \$"
UNRESOLVED = f"has a $ that refers to an option that no file gives; {DOLLAR}"
SECRET = re.compile("pass|secret|token|key|credential|^code$")  # in an option's name: its value is not shown


def resolve(conf: cfg.ConfigOpts) -> None:
    """
    Register the options that the files refer to and that the login needs, and take secrets from systemd.

    Raises:
        ConfigError: a reference cannot be resolved, or a credential cannot be read.
        RecursionError: an option of a login refers to itself.
    """
    for _ in range(2):  # the second time for the auth_type of an auth_section
        _resolve_references(conf)
        register_auth(conf)
    _take_credentials(conf)
    _resolve_references(conf, also="placement")  # also options of an auth_type that the files do not choose yet


def literal(text: str) -> str:
    """Return an oslo.config value that means exactly this text, also where it has dollar signs."""
    return text.replace("$", r"\$")  # not $$: after a backslash, oslo.config would take the first one as escaped


def _resolve_references(conf: cfg.ConfigOpts, also: str = "") -> None:
    """
    Register options of other services that our values refer to, as ``$name`` or ``${group.name}``.

    ``also``: a group of which the options that nobody reads count too.

    Raises:
        ConfigError: no file gives such an option. It is misspelt, or has only a default in the other service.
    """
    given = {(group, name) for _, _, group, name, _ in mentions(conf)}
    for path, line, group, name, value in mentions(conf):
        if group != also and name not in registered(conf, group):
            continue
        for target, option in _references(value):
            if option in registered(conf, target or group) | registered(conf, target):
                continue
            if (target or "DEFAULT", option) not in given:
                reference = f"{target}.{option}" if target else option
                shown = f"refers to ${reference}, which no file gives; {DOLLAR}"
                raise ConfigError(f"{path}:{line}: [{group}] {name} {UNRESOLVED if is_secret(name, value) else shown}")
            conf.register_opt(cfg.StrOpt(option), group=target or None)


def _references(value: str) -> Iterator[tuple[str, str]]:
    """Yield (group, option) of each reference that oslo.config replaces; group "": the value's own, or DEFAULT."""
    for match in cfg.ConfigOpts.Template.pattern.finditer(value.replace(r"\$", "$$")):
        if key := match["named"] or match["braced"]:
            group, dot, option = key.partition(".")
            yield (group, option) if dot else ("", key)


def is_secret(name: str, value: str) -> bool:
    """Whether the value may be a secret, or a URL with a password, so that no part of it is shown."""
    return bool(SECRET.search(name.lower())) or "@" in value


def _take_credentials(conf: cfg.ConfigOpts) -> None:
    """
    Take secrets from systemd (LoadCredential=GROUP-NAME-OF-THE-OPTION), in place of those in the files.

    Raises:
        ConfigError: a credential exists and cannot be read.
    """
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    for group in LOGINS:
        for section, option in register_secrets(conf, group):
            path = Path(folder or "/", f"{group}-{option.replace('_', '-')}")
            if folder and path.exists():
                try:
                    conf.set_override(option, literal(path.read_text(encoding="utf-8").rstrip("\n")), group=section)
                except (OSError, UnicodeDecodeError) as error:
                    raise ConfigError(f"the credential {path} cannot be read: {error}") from error
