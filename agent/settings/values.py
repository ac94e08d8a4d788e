"""Reads the values of single options, finds the line that sets each, and gathers the problems with them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from oslo_config import cfg

from agent.misspelt import most_alike
from agent.settings.options import LOGINS, MDEV_OPTIONS, OPTIONS, login_options, login_types

T = TypeVar("T")


class Values:
    """The values of all options; problems are gathered, so that one error can name all of them."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.conf = conf
        self.problems: list[str] = []  # one sentence each; empty: all values read so far are right

    def value(self, group: str, name: str) -> Any:
        """Return the value of an option; if it cannot be read, note the problem and return the default."""
        try:
            value = self.conf[name] if group == "DEFAULT" else self.conf[group][name]
            if value is None and _default(group, name) is not None:
                raise ValueError("is not valid: there is no value after the =")
            return value
        except (RecursionError, cfg.NoSuchOptError):  # the second in [DEFAULT], where oslo.config hides the first
            self.problem(group, name, "refers to itself")
            return _default(group, name)
        except (ValueError, cfg.Error) as error:
            self.problem(group, name, f"is not valid: {one_line(error).rpartition('is not valid: ')[2]}")
            return _default(group, name)

    def parsed(self, group: str, name: str, parse: Callable[[Any], T]) -> T | None:
        """Return the parsed value of an option; None if it is empty, or if ``parse`` raises ValueError (noted)."""
        value = self.value(group, name)
        try:
            return parse(value) if value else None
        except ValueError as error:
            self.problem(group, name, str(error))
            return None

    def is_set(self, group: str, name: str) -> bool:
        """Whether a file sets the option under its current name."""
        return any(mention == [group, name] for _, _, *mention, _ in mentions(self.conf))

    def places(self, group: str, **renamed: str) -> dict[str, str]:
        """Return FILE:LINE of each option of a group that files set, by its name now; ``renamed``: older names."""
        return {
            renamed.get(name, name): f"{path}:{line}"
            for path, line, its, name, _ in mentions(self.conf)
            if its == group
        }

    def problem(self, group: str, name: str, text: str, *, when: object = True) -> None:
        """Note a problem where ``when`` is true; ``text`` follows the file, line and name of the option."""
        if when:
            self.problems.append(f"{place(self.conf, group, name)}[{group}] {name} {text}")


def _default(group: str, name: str) -> Any:
    return next((option.default for option in OPTIONS.get(group, MDEV_OPTIONS) if option.name == name), None)


def one_line(error: BaseException) -> str:
    """Return the message of an error without line breaks."""
    return " ".join(str(error).split())


def mentions(conf: cfg.ConfigOpts) -> Iterator[tuple[Path, int, str, str, str]]:
    """Yield (file, line, group, option, value) of each option in the files; later ones override earlier ones."""
    folders = [Path(folder) for folder in conf.config_dir or ()]
    files = [path for folder in folders for path in sorted(folder.glob("*.conf"))]
    for path in (*map(Path, conf.config_file or ()), *files):
        group = "DEFAULT"
        for count, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if line.startswith("["):
                group = line.strip("[] \t")
                group = group if group == "DEFAULT" else group.lower()  # as oslo.config does
            elif line[:1].isalpha():
                name, _, value = line.replace(":", "=", 1).partition("=") if "=" not in line else line.partition("=")
                yield path, count, group, name.strip(), value


def place(conf: cfg.ConfigOpts, group: str, name: str) -> str:
    """Return ``FILE:LINE: `` of the last mention of an option, which is the one that counts; "" if there is none."""
    places = [f"{path}:{line}: " for path, line, *mention, _ in mentions(conf) if mention == [group, name]]
    return places[-1] if places else ""


def other_names(conf: cfg.ConfigOpts, group: str) -> frozenset[str]:
    """Return the older names of options in a group, which are read too; oslo.config lists them nowhere else."""
    held = conf._opts if group in ("", "DEFAULT") else conf._groups[group]._opts if group in conf._groups else {}
    older = (each for one in held.values() for each in one["opt"].deprecated_opts)
    return frozenset(one.name.replace("-", "_") for one in older if one.name)


def unknown_login(conf: cfg.ConfigOpts, group: str) -> str:
    """Return a sentence on an auth_type that keystoneauth does not know; empty: it knows it, or none is set."""
    section = conf[group].auth_section or group
    kind = conf[section].auth_type if "auth_type" in registered(conf, section) else None
    if not kind or kind in login_types():
        return ""
    near = most_alike(kind, login_types())
    meant = f"is {near} meant?" if near else f"it is one of {', '.join(login_types())}"
    return f"{place(conf, section, 'auth_type')}[{section}] auth_type = {kind} is not known: {meant}"


def login_groups(conf: cfg.ConfigOpts) -> frozenset[str]:
    """Return the groups that have the logins: of each service its own, or the one that its auth_section names."""
    return frozenset(conf[group].auth_section or group for group in LOGINS)


def with_logins(conf: cfg.ConfigOpts, group: str) -> frozenset[str]:
    """Return the names of a login by password, or without one, where auth_type tells no options; empty elsewhere."""
    if group not in login_groups(conf) or "auth_type" not in registered(conf, group):
        return frozenset()
    if login_options(conf[group].auth_type):
        return frozenset()
    options = [*login_options("password"), *login_options("none")]
    older = {one.name for option in options for one in option.deprecated_opts if one.name}
    return frozenset({option.dest for option in options} | older)


def registered(conf: cfg.ConfigOpts, group: str) -> frozenset[str]:
    """Return the names that the agent, or a library for it, reads in a group; group "" is DEFAULT."""
    try:
        return frozenset(conf[group] if group not in ("", "DEFAULT") else conf)
    except cfg.NoSuchOptError:
        return frozenset()
