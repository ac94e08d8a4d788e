"""One WSGI application behind gunicorn: one worker with one thread, unless told: SQLite locks under any more."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from beds.forked import start_gunicorn
from beds.process import LOOPBACK, Child, answering, laid_over, start
from beds.tls import Certificates
from beds.written import FORMAT

# A thread of gunicorn waits for a new client's first bytes. So a connection is not accepted before they are there,
# as Apache has it on Linux.
ACCEPTING = """
def when_ready(server):
    from socket import IPPROTO_TCP, TCP_DEFER_ACCEPT
    for listener in server.LISTENERS:
        listener.sock.setsockopt(IPPROTO_TCP, TCP_DEFER_ACCEPT, 5)
"""
# A worker answers nothing while Python collects all its garbage. The log has a line on each such pause, written after
# the request: a collection may begin while the log is written.
PAUSING = """
def post_worker_init(worker):
    import gc
    from time import thread_time
    worker.pauses, began = [], [0.0]
    def note(phase, info):
        if info["generation"] == 2 and phase == "start":
            began[0] = thread_time()
        elif info["generation"] == 2:
            worker.pauses.append(thread_time() - began[0])
    gc.callbacks.append(note)

def post_request(worker, req, environ, resp):
    while worker.pauses:
        worker.log.info("all garbage collected, CPU s: %.4f", worker.pauses.pop())
"""
PAUSE = re.compile(r"all garbage collected, CPU s: ([\d.]+)")


@contextmanager
def serving(
    application: str,
    *,
    directory: Path,
    port: int,
    tls: Certificates | None,
    environment: Mapping[str, str],
    workers: int = 1,
    threads: int = 1,
    python: Path | None = None,
    pauses: bool = False,
) -> Iterator[Path]:
    """
    Serve ``module:application`` at :func:`base_url`; yields the log of requests and errors, with ``pauses`` of these.

    ``python`` is that of another virtual environment, which has gunicorn too; None: ours.

    All settings are in a file, and none on the command line: ``keystone.wsgi.api`` parses ``sys.argv`` as its own, and
    a worker meeting gunicorn's options there exits with 2.
    """
    log = directory / "server.log"
    (directory / "gunicorn.conf.py").write_text(_settings(application, port, tls, workers, threads, pauses=pauses))
    if python:
        child = start([str(python), "-m", "gunicorn"], directory=directory, log=log, environment=environment)
    else:
        child = Child(start_gunicorn(directory, log, laid_over(environment)), log)
    with answering(child, base_url(port, tls), tls.ca if tls else None):
        yield log


def base_url(port: int, tls: Certificates | None) -> str:
    """The root of a server on loopback, without a slash at the end."""
    return f"{'https' if tls else 'http'}://{LOOPBACK}:{port}"


def _settings(
    application: str, port: int, tls: Certificates | None, workers: int, threads: int, *, pauses: bool
) -> str:
    settings: dict[str, str | int | bool] = {
        "wsgi_app": application,
        "bind": f"{LOOPBACK}:{port}",
        "workers": workers,
        "worker_class": "gthread",  # the plain worker has no keep-alive, which a production server has
        "threads": threads,
        "keepalive": 3600,  # a client must not meet a connection that is just closed
        "graceful_timeout": 0,  # stop at once, whoever still holds a connection: SQLite survives it
        "accesslog": "-",
        "access_log_format": FORMAT,
        "control_socket_disable": True,
    }
    if tls:
        settings |= {"certfile": str(tls.certificate), "keyfile": str(tls.key)}
    told = "".join(f"{name} = {value!r}\n" for name, value in settings.items())
    return told + ACCEPTING + (PAUSING if pauses else "")
