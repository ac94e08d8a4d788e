"""Sets up the service's log by oslo.log; other verbs do not load it."""

import logging
from pathlib import Path

from oslo_config import cfg
from oslo_log import log

from agent.errors import ConfigError
from agent.records import clean

_WRONG = "the log options in [DEFAULT]:"
QUIET = (
    *("drivers.libvirt.connection", "keystoneauth", "urllib3", "oslo_service", "oslo_concurrency", "stevedore"),
    *("alembic", "placement"),  # for the embedded placement
)


def set_up_log(conf: cfg.ConfigOpts, verbose: int) -> None:
    """
    Log as ``conf`` says, by default to standard error; without debug, libraries log only warnings and errors.

    A second call opens the files again, as needed after a rotation. A line that cannot be written, for instance
    because the disk is full, is lost.

    Raises:
        ConfigError: a log file cannot be opened, or an option of the log is wrong.
    """
    conf.set_default("use_stderr", True)
    conf.set_override("debug", conf.debug or verbose > 1)
    logging.raiseExceptions = False
    before = logging.getLogger().handlers[:]
    try:
        _try_file(conf)
        log.setup(conf, "compute-node-agent")
        for handler in before:
            handler.close()
        for handler in logging.getLogger().handlers:
            handler.addFilter(clean)
    except OSError as error:
        raise ConfigError(f"{_WRONG} cannot log to {error.filename}: {error.strerror}") from error
    except (log.LogConfigError, ValueError, TypeError, RuntimeError) as error:
        _restore(before)
        raise ConfigError(f"{_WRONG} {type(error).__name__}: {error}") from error
    if not conf.debug:
        for name in QUIET:
            logging.getLogger(name).setLevel(logging.WARNING)
        logging.getLogger("keystoneauth.identity").setLevel(logging.ERROR)  # the service logs a Keystone outage itself


def _restore(handlers: list[logging.Handler]) -> None:
    """Put back the handlers that were there before a set-up that failed."""
    root = logging.getLogger()
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    for handler in handlers:
        root.addHandler(handler)


def _try_file(conf: cfg.ConfigOpts) -> None:
    """Raise OSError if the log file cannot be written, while the old one is still open."""
    if conf.log_file and not conf.log_config_append:
        with (Path(conf.log_dir or "") / conf.log_file).open("a"):
            pass


def register_log(conf: cfg.ConfigOpts) -> None:
    """Register the options of oslo.log; call it before files are read."""
    log.register_options(conf)
