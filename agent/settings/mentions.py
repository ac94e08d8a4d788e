"""Finds in which file and line each option is set, which oslo.config does not tell."""

from collections.abc import Iterator
from pathlib import Path

from oslo_config import cfg


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


def is_registered(conf: cfg.ConfigOpts, group: str, name: str) -> bool:
    """Whether the agent, or a library for it, reads an option of this name; group "" is DEFAULT."""
    try:
        return name in (conf[group] if group not in ("", "DEFAULT") else conf)
    except cfg.NoSuchOptError:
        return False
