"""Where the service logs to, and that it lives on where it cannot."""

import logging
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from oslo_config import cfg

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
class = nowhere.at.all.Handler
args = ("x", "a")
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
    file.write_text(TO_ANOTHER)

    set_up_log(read(**{option: file if option == "log_config_append" else True}), 0)

    assert "the log goes to standard error" in capsys.readouterr().err


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
