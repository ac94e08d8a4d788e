"""Sets up the service's log by oslo.log; other verbs do not load it."""

import logging

from oslo_config import cfg
from oslo_log import log

from agent.errors import ConfigError
from agent.records import clean

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
        log.setup(conf, "compute-node-agent")
        for handler in before:
            handler.close()
        for handler in logging.getLogger().handlers:
            handler.addFilter(clean)
    except (OSError, log.LogConfigError, ValueError, TypeError, RuntimeError) as error:
        logging.getLogger().handlers[:] = before
        raise ConfigError(f"the log options in [DEFAULT]: {type(error).__name__}: {error}") from error
    if not conf.debug:
        for name in QUIET:
            logging.getLogger(name).setLevel(logging.WARNING)
        logging.getLogger("keystoneauth.identity").setLevel(logging.ERROR)  # the service logs a Keystone outage itself


def register_log(conf: cfg.ConfigOpts) -> None:
    """Register the options of oslo.log; call it before files are read."""
    log.register_options(conf)
