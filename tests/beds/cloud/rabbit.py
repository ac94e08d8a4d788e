"""A RabbitMQ of our own on loopback, as Debian packages it, never the system's."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beds.process import LOOPBACK, BedError, free_port, start, stop, wait_until_listens

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
PATIENCE_S = 300  # on a busy machine


@contextmanager
def rabbitmq(directory: Path) -> Iterator[str]:
    """The URL of a server as oslo.messaging needs it."""
    epmd = shutil.which("epmd")
    if not SERVER.exists() or epmd is None:
        raise BedError(f"no {SERVER}: tools/host.sh cloud installs it")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "plugins").write_text("[].\n", encoding="ascii")
    port, distribution, names = free_port(), free_port(), free_port()
    environment = {
        "HOME": str(directory),  # of Erlang's cookie
        "ERL_EPMD_ADDRESS": LOOPBACK,
        "ERL_EPMD_PORT": str(names),
        "RABBITMQ_NODENAME": f"bed{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        # Threads of Erlang that have nothing to do must not spin: other services start at the same time.
        "RABBITMQ_SERVER_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none",
    }
    # Erlang would start a daemon for its names, which nobody ends.
    daemon = start([epmd, "-address", LOOPBACK, "-port", str(names)], directory=directory, log=directory / "epmd.log")
    try:
        log = directory / "server.log"
        server = start([str(SERVER)], directory=directory, log=log, environment=environment)
        try:
            wait_until_listens(port, log, PATIENCE_S)
            yield f"rabbit://guest:guest@{LOOPBACK}:{port}/"
        finally:
            stop(server, patience=15)
    finally:
        stop(daemon)
