"""Sets up the service's log by oslo.log; other verbs do not load it."""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from oslo_config import cfg
from oslo_log import log, rate_limit

from agent.errors import ConfigError
from agent.records import clean

LOG = logging.getLogger(__name__)
NAME = "compute-node-agent"
STDERR_ALONE = {  # options of oslo.log, where what the files say cannot be done
    "log_config_append": None, "log_dir": None, "log_file": None,
    "use_journal": False, "publish_errors": False, "use_stderr": True,
}  # fmt: skip
QUIET = (
    *("drivers.libvirt.connection", "keystoneauth", "urllib3", "oslo_service", "oslo_concurrency", "stevedore"),
    *("alembic", "placement"),  # for the embedded placement
)


def set_up_log(conf: cfg.ConfigOpts, verbose: int) -> None:
    """
    Log as ``conf`` says, by default to standard error; without debug, libraries log only warnings and errors.

    Where the log cannot be opened as ``conf`` says, which may be nova's, a warning tells so, and the log goes to
    standard error. A second call opens the files again, as needed after a rotation. A line that cannot be written, for
    instance because the disk is full or a rotated file cannot be opened again, is lost.

    Raises:
        ConfigError: an option of the log is wrong.
    """
    conf.set_default("use_stderr", True)
    conf.set_override("debug", conf.debug or verbose > 1)
    logging.raiseExceptions = False
    before = logging.getLogger().handlers[:]
    unopened, said = None, list[str]()
    rate_limit.uninstall_filter()  # oslo.log refuses a second one
    log._load_log_config.old_time = 0  # type: ignore[attr-defined] # else it reads an unchanged file no second time
    for name in STDERR_ALONE:
        conf.clear_override(name)
    try:
        try:
            log.setup(conf, NAME)
        except (OSError, RuntimeError, ImportError, AttributeError, NameError, SyntaxError, log.LogConfigError) as why:
            unopened = why
            said = [name for name in STDERR_ALONE if conf[name] and name != "use_stderr"]
            for name, value in STDERR_ALONE.items():
                conf.set_override(name, value)
            log.setup(conf, NAME)
        for handler in before:
            handler.close()
        for handler in logging.getLogger().handlers:
            handler.addFilter(clean)
            handler.emit = partial(_emit, handler.emit)  # type: ignore[method-assign]
    except (ValueError, TypeError) as error:
        logging.getLogger().handlers[:] = before
        raise ConfigError(f"the log options in [DEFAULT]: {type(error).__name__}: {error}") from error
    if not conf.debug:
        for name in QUIET:
            logging.getLogger(name).setLevel(logging.WARNING)
        logging.getLogger("keystoneauth.identity").setLevel(logging.ERROR)  # the service logs a Keystone outage itself
    if unopened:
        LOG.warning(
            "the log goes to standard error, as it cannot go where [DEFAULT] says: to end this warning, set %s empty "
            "or false in a file of the agent's own, after nova.conf reason=%s",
            ", ".join(said),
            unopened,
        )


def _emit(emit: Callable[[logging.LogRecord], None], record: logging.LogRecord) -> None:
    """Write a record; without this, one whose rotated file cannot be opened again would end the service."""
    with suppress(OSError):
        emit(record)


def register_log(conf: cfg.ConfigOpts) -> None:
    """Register the options of oslo.log, for files alone; call it before files are read."""
    log.register_options(conf)
    conf._cli_opts.clear()  # argparse would refuse a wrong value without its line
