"""What the configuration files give: each option with its file and line, as oslo.config reads them."""

from collections.abc import Iterator
from pathlib import Path

from oslo_config import cfg


def mentions(conf: cfg.ConfigOpts) -> Iterator[tuple[Path, int, str, str, str]]:
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


def place(conf: cfg.ConfigOpts, group: str, name: str) -> str:
    """``FILE:LINE: `` of the mention that counts, the last one; empty where no file mentions the option."""
    places = [f"{path}:{line}: " for path, line, *mention, _ in mentions(conf) if mention == [group, name]]
    return places[-1] if places else ""


def is_registered(conf: cfg.ConfigOpts, group: str, name: str) -> bool:
    try:
        return name in (conf[group] if group not in ("", "DEFAULT") else conf)
    except cfg.NoSuchOptError:
        return False
