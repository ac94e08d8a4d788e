"""Where the service logs to, and that it lives on where it cannot."""

import inspect
import logging
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from oslo_config import cfg
from oslo_log import rate_limit

from agent.command.arguments import main
from agent.command.exits import Exit
from agent.errors import ConfigError
from agent.settings.log import set_up_log
from agent.settings.read import load_settings

LOG = logging.getLogger("here")  # of no package whose level another test may have set
TO_ANOTHER = """
[loggers]
keys = root
[handlers]
keys = one
[formatters]
keys =
[logger_root]
level = INFO
handlers = one
[handler_one]
class = {kind}
args = {arguments}
"""
Read = Callable[..., cfg.ConfigOpts]


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The logging of the tests themselves stays as it is."""
    root, loggers = logging.getLogger(), logging.Logger.manager.loggerDict.values()
    levels = {one: one.level for one in (root, *loggers) if isinstance(one, logging.Logger)}
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(logging, "raiseExceptions", logging.raiseExceptions)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    yield
    rate_limit.uninstall_filter()
    for handler in root.handlers:
        handler.close()
    for one, level in levels.items():
        one.setLevel(level)


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads a file with these options of the log."""

    def read(**options: object) -> cfg.ConfigOpts:
        file = tmp_path / "agent.conf"
        file.write_text("\n".join(("[DEFAULT]", *(f"{name} = {value}" for name, value in options.items()))))
        return load_settings([file], service=True).apis.source

    return read


@pytest.mark.parametrize("option", ["log_config_append", "publish_errors"])
def test_what_is_not_installed_keeps_no_service_from_starting(
    read: Read, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """A handler of another package in nova's file for its log, and notifications of errors."""
    monkeypatch.setitem(sys.modules, "oslo_messaging.notify.log_handler", None)
    file = tmp_path / "logging.conf"
    file.write_text(TO_ANOTHER.format(kind="nowhere.at.all.Handler", arguments='("x", "a")'))

    set_up_log(read(**{option: file if option == "log_config_append" else True}), 0)

    assert "the log goes to standard error" in capsys.readouterr().err


def test_a_value_that_oslo_config_ends_the_process_for_is_an_error_of_the_configuration(read: Read) -> None:
    """It would, if it took the option from a command line too."""
    with pytest.raises(ConfigError, match=r"agent\.conf:2: \[DEFAULT\] debug is not valid"):
        read(debug="yess")


def test_a_line_is_lost_where_the_folder_of_the_log_is_gone(read: Read, tmp_path: Path) -> None:
    """The handler opens its file again at each line once the file is another or gone, as after a rotation."""
    folder = tmp_path / "logs"
    folder.mkdir()
    set_up_log(read(log_file=folder / "own.log", use_stderr=False), 0)
    shutil.rmtree(folder)
    LOG.warning("lost")
    LOG.warning("lost too")

    folder.mkdir()
    LOG.warning("there")

    assert (folder / "own.log").read_text().count("there") == 1


def test_check_finds_an_option_of_the_log_that_the_service_would_not_start_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "agent.conf").write_text("[DEFAULT]\nlog_dir = $nowhere/log\n")

    code = main(["check", "--embedded-dir", str(tmp_path), "--config-file", str(tmp_path / "agent.conf")])

    assert code == Exit.DIFFERENCES
    assert "[DEFAULT] log_dir refers to $nowhere, which no file gives" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", ["(", "(unheard_of,)", "(sys.unheard_of,)"])
def test_a_slip_in_the_file_for_the_log_keeps_no_service_from_starting(
    read: Read, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str
) -> None:
    file = tmp_path / "logging.conf"
    file.write_text(TO_ANOTHER.format(kind="StreamHandler", arguments=arguments))

    set_up_log(read(log_config_append=file), 0)

    assert "the log goes to standard error" in capsys.readouterr().err


def test_a_limit_of_lines_is_set_again_after_a_rotation(read: Read, tmp_path: Path) -> None:
    own = tmp_path / "own.log"
    for text in ("first", "second"):
        set_up_log(read(log_file=own, use_stderr=False, rate_limit_burst=2, rate_limit_interval=600), 0)
        for number in range(9):
            LOG.warning("%s %d", text, number)

    lines = own.read_text()
    assert (lines.count("first"), lines.count("second")) == (2, 2)


def test_a_file_for_the_log_that_was_away_counts_again_unchanged(read: Read, tmp_path: Path) -> None:
    file, own = tmp_path / "logging.conf", tmp_path / "own.log"
    file.write_text(TO_ANOTHER.format(kind="FileHandler", arguments=f'("{own}", "a")'))
    set_up_log(read(log_config_append=file), 0)
    file.rename(tmp_path / "away")
    set_up_log(read(log_config_append=file), 0)
    (tmp_path / "away").rename(file)

    set_up_log(read(log_config_append=file), 0)
    LOG.warning("there")

    assert own.read_text() == "there\n"


def test_a_line_costs_the_same_after_any_number_of_rotations(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the stack would overflow after a thousand."""
    depths = list[int]()
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=lambda _: depths.append(len(inspect.stack(0)))))
    file = tmp_path / "logging.conf"
    file.write_text(TO_ANOTHER.format(kind="StreamHandler", arguments="(sys.stderr,)"))

    for _ in range(3):
        set_up_log(read(log_config_append=file), 0)
        LOG.warning("a line")

    assert (len(depths), len(set(depths))) == (3, 1)
