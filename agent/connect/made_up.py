"""Makes the hosts of the fake driver, with the script that an operator wrote for them."""

from collections.abc import Callable
from pathlib import Path

from agent.errors import ConfigError, StateError
from agent.form_errors import form_error
from agent.settings.read import FleetSettings
from agent.sync.yaml_file import load_once
from drivers.fake.fleet import make_hosts
from drivers.fake.script import SCHEMA, Step, histories, parse_script
from drivers.fake.scripted import ScriptedFleet


def open_fleet(settings: FleetSettings, folder: Path, now_s: Callable[[], float]) -> ScriptedFleet:
    """
    Write the fleet's archives below ``folder`` as the hosts are now; ``now_s`` tells seconds since the script began.

    Raises:
        ConfigError: the script cannot be read, or does not fit the fleet.
        StateError: the folder cannot be written.
    """
    hosts = make_hosts(settings.hosts, seed=settings.seed, shape=settings.shape)
    steps = _read_script(settings.script) if settings.script else ()
    try:
        return ScriptedFleet(folder, histories(hosts, steps), now_s)
    except ValueError as error:
        raise ConfigError(f"[fake] script {settings.script}: {error}") from error
    except OSError as error:
        raise StateError(f"cannot write the fake driver's hosts below {folder}: {error.strerror}") from error


def _read_script(path: Path) -> tuple[Step, ...]:
    record = load_once(path, path)
    wrong = form_error(record, SCHEMA)
    try:
        if wrong:
            raise ValueError(wrong)
        return parse_script(record)
    except ValueError as error:
        raise ConfigError(f"[fake] script {path}: {error}") from error
