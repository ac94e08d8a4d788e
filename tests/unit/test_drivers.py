"""The table of drivers says what each reports, and the rest of the agent asks it."""

import argparse
import errno
from pathlib import Path

import pytest

from agent.command.result import ENDINGS, settings_of
from agent.connect.choice import Choice, lists_nodes, open_driver
from agent.errors import ConfigError, StateError
from agent.settings.read import Settings, load_settings
from agent.sync.outcome import Status
from configured import changed
from drivers import FAKE, IRONIC, NAMES


def settings_with(driver: str) -> Settings:
    return changed(load_settings([]), hypervisor={"driver": driver})


@pytest.mark.parametrize("driver", NAMES)
def test_the_configuration_takes_every_driver_of_the_table(driver: str, tmp_path: Path) -> None:
    config = tmp_path / "agent.conf"
    config.write_text(f"[DEFAULT]\ncompute_driver = {driver}\n")

    assert load_settings([config]).hypervisor.driver == driver


@pytest.mark.parametrize("driver", sorted({*NAMES} - {IRONIC}))
def test_a_driver_of_hosts_lists_no_bare_metal_nodes(driver: str) -> None:
    assert not lists_nodes(settings_with(driver))


def test_a_driver_of_bare_metal_nodes_opens_no_host() -> None:
    settings = settings_with(IRONIC)

    assert lists_nodes(settings)
    with pytest.raises(ConfigError, match="is for bare-metal nodes"), open_driver(settings, Choice()):
        pass


def test_a_full_disk_for_temporary_files_is_an_error_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("agent.connect.choice.TemporaryDirectory", full)
    with (
        pytest.raises(StateError, match="No space left"),
        open_driver(settings_with(FAKE), Choice()),
    ):
        pass


def test_every_status_has_an_exit_code() -> None:
    assert ENDINGS.keys() == set(Status)


def test_the_settings_of_a_run_are_read_once() -> None:
    options = argparse.Namespace(config_file=[], config_dir=[])

    assert settings_of(options) is settings_of(options)
