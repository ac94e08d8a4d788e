"""Servers that fork from one process, which has imported what they need: a start costs no import."""

import ctypes
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

PRELOADED = (
    "gunicorn.app.wsgiapp",
    "gunicorn.workers.gthread",
    "keystonemiddleware.auth_token",
    "placement.deploy",
    "pymysql",
    "psycopg2",
)  # not placement.wsgi.api, which reads its configuration when it is imported

PR_SET_PDEATHSIG = 1  # prctl(2)


class Forked:
    """A forked process in the form of a ``Popen``, as far as the beds use it."""

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        assert self._process.pid
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return self._process.exitcode

    def terminate(self) -> None:
        self._process.terminate()


def start_gunicorn(directory: Path, log: Path, environment: Mapping[str, str]) -> Forked:
    """Start gunicorn as the file ``gunicorn.conf.py`` in ``directory`` says, with this whole environment."""
    process = _context().Process(target=_gunicorn, args=(directory, log, dict(environment)), daemon=True)
    process.start()
    return Forked(process)


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    return context


def _gunicorn(directory: Path, log: Path, environment: Mapping[str, str]) -> None:
    """
    The forked process: leader of its own process group, as ``beds.process.start`` has them.

    It ends with the fork server, which ends with the tests once nobody else has the write end of its pipe.
    """
    os.setsid()
    os.closerange(3, 1 << 16)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    os.environ["GUNICORN_CMD_ARGS"] = f"--config={directory / 'gunicorn.conf.py'}"
    sys.argv[:] = ["gunicorn"]
    with log.open("ab") as output, Path(os.devnull).open("rb") as nothing:
        for descriptor, file in ((0, nothing), (1, output), (2, output)):
            os.dup2(file.fileno(), descriptor)
    runpy.run_module("gunicorn", run_name="__main__")
