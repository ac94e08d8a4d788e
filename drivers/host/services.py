"""Finds signs of another service on this host: its processes, and the systemd units that start it."""

import re
from collections.abc import Iterator
from pathlib import Path

import psutil

from drivers.errors import DiscoveryError
from drivers.facts import ServiceSigns

_UNIT_FOLDERS = (  # in the order in which systemd looks for a unit; Quadlets are made in generator
    "etc/systemd/system",
    "run/systemd/system",
    "run/systemd/generator",
    "lib/systemd/system",
    "usr/lib/systemd/system",
)
_ENABLING = (".wants", ".requires", ".upholds")  # folders of these names there link what is enabled
_WITH_VALUE = ("-W", "-X")  # options of Python that the next word belongs to
_INTERPRETER = re.compile(r"(^|-)(python|pypy)[0-9.]*$")  # whose first word that is no option is the program that runs
_MODULES = {"nova-compute": "nova.cmd.compute"}  # as python -m runs it
_OTHER_NAMES = {"nova-compute": r"@n-cpu\."}  # DevStack's


def probe_service(program: str, root: Path = Path("/")) -> ServiceSigns:
    """
    Return the processes of a program, and the enabled systemd units that start it, as files below ``root`` show them.

    A process counts if its program, or the script or module that Python runs, is ``program``. A unit
    counts if its name contains ``program`` as distributions write it, with ``-`` or ``_``; a unit for Ironic does not.

    Raises:
        DiscoveryError: a folder of units cannot be read.
    """
    processes, hidden = _processes(program)
    return ServiceSigns(processes=processes, units=tuple(sorted(set(_enabled(program, root)))), hidden=hidden)


def _processes(program: str) -> tuple[tuple[int, ...], bool]:
    """Return the processes, and whether there are some that this user may not see (proc(5), hidepid)."""
    names = {program, _MODULES.get(program, program)}
    seen = {process.pid: process.info for process in psutil.process_iter(["cmdline", "status"])}
    found = sorted(pid for pid, one in seen.items() if not names.isdisjoint(_programs(one["cmdline"] or [])))
    hidden = 1 not in seen or any(one["status"] is None for one in seen.values())  # a zombie has a status
    return tuple(found), hidden


def _programs(words: list[str]) -> Iterator[str]:
    """Yield the file name of the program of a command line, and that of the script or module that Python runs."""
    program = words[0].rpartition("/")[2] if words else ""
    yield program
    rest = iter(words[1:] if _INTERPRETER.search(program) else ())
    for word in rest:
        if word == "-m":
            yield next(rest, "")
            return
        if not word.startswith("-"):
            yield word.rpartition("/")[2]
            return
        if word in _WITH_VALUE:
            next(rest, None)


def _enabled(program: str, root: Path) -> Iterator[str]:
    """Yield the names of units that some target wants, that are installed, and that are not masked (systemd.unit)."""
    words = program.replace("-", "[-_]")
    named = re.compile(rf"(^|[-_@.]){words}(?![-_]ironic)([-_@.])|{_OTHER_NAMES.get(program, '(?!)')}")
    try:
        for folder in (root / name for name in _UNIT_FOLDERS):
            for target in _names(folder):
                units = _names(folder / target) if target.endswith(_ENABLING) else []
                yield from (unit for unit in units if named.search(unit) and _starts(unit, root))
    except OSError as error:
        raise DiscoveryError(f"{error.filename}: {error.strerror}: the units of {program} cannot be listed") from error


def _names(folder: Path) -> list[str]:
    """Return the names in a folder, empty if there is none; unlike ``Path.glob`` it fails where it may not look."""
    try:
        return [path.name for path in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _starts(unit: str, root: Path) -> bool:
    """Return whether a file of the unit, or of its template, is installed; the first folder that has one decides."""
    template = re.sub("@[^.]*", "@", unit)
    for name in dict.fromkeys((unit, template)):
        for folder in _UNIT_FOLDERS:
            file = root / folder / name
            if file.is_symlink() and file.readlink() == Path("/dev/null"):
                return False  # masked
            if file.is_symlink() or file.exists():
                return True
    return False
