"""The service's log, by oslo.log: its options, its formats, and nothing of it before the service runs."""

import logging
from pathlib import Path

from oslo_config import cfg
from oslo_log import log

from reportclient.errors import mask

QUIET = (
    *("drivers.libvirt.connection", "keystoneauth", "urllib3", "oslo_service", "oslo_concurrency", "stevedore"),
    *("alembic", "placement"),  # of an embedded one
)


def set_up_log(conf: cfg.ConfigOpts, verbose: int) -> None:
    """
    Log as ``conf`` says, to standard error where it says nothing; what libraries tell below a warning is left out.

    Called again it opens files anew, as after a rotation. A line that cannot be written, as the disk is full, is lost.

    Raises:
        ValueError: a file to log to cannot be opened.
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
            handler.addFilter(_mask)
    except OSError as error:
        raise ValueError(f"cannot log to {error.filename}: {error.strerror}") from error
    except (log.LogConfigError, ValueError, TypeError, RuntimeError) as error:
        _restore(before)
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if not conf.debug:
        for name in QUIET:
            logging.getLogger(name).setLevel(logging.WARNING)
        logging.getLogger("keystoneauth.identity").setLevel(logging.ERROR)  # a Keystone that is away is told by us


def _restore(handlers: list[logging.Handler]) -> None:
    """What was there before a set-up that failed in its middle."""
    root = logging.getLogger()
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    for handler in handlers:
        root.addHandler(handler)


def _try_file(conf: cfg.ConfigOpts) -> None:
    """Before what is open is given up; OSError: the file cannot be written."""
    if conf.log_file and not conf.log_config_append:
        with (Path(conf.log_dir or "") / conf.log_file).open("a"):
            pass


def register_log(conf: cfg.ConfigOpts) -> None:
    """Make oslo.log's options known, before files are read."""
    log.register_options(conf)


def _mask(record: logging.LogRecord) -> bool:
    """Libraries tell whole URLs at DEBUG, and a URL may have a password in it."""
    told = record.getMessage()
    if "://" in told:
        record.msg, record.args = mask(told), None
    return True
