"""Servers and commands that fork from one process, which has imported what they need: a start costs no import."""

import ctypes
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from pkgutil import resolve_name

PRELOADED = (
    "agent.command.allocation_verbs",
    "agent.command.audit_verb",
    "agent.command.host_verbs",
    "agent.connect.adapters",
    "agent.service.loop",
    "drivers.fake",
    "drivers.libvirt.driver",
    "gunicorn.app.wsgiapp",
    "gunicorn.workers.gthread",
    "keystonemiddleware.auth_token",
    "netrc",  # requests asks for it at a first request
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
    process = context().Process(target=_gunicorn, args=(directory, log, dict(environment)), daemon=True)
    process.start()
    return Forked(process)


def run_command(
    main: str, arguments: Sequence[str], timeout_s: float, *, inside: int | None = None, **environment: str
) -> tuple[int, str, str]:
    """
    Run a function of a module, ``package.module:function``, as a command; its exit code, output and errors.

    ``inside`` is a process in whose namespaces it runs, ``environment`` is laid over ours.

    Raises:
        subprocess.TimeoutExpired: it did not end in time, and was killed.
    """
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = context().Process(
            target=_command,
            args=(main, tuple(arguments), Path.cwd(), os.environ | environment, out, err, inside),
            daemon=True,
        )
        process.start()
        process.join(timeout_s)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(arguments, timeout_s)
        return process.exitcode, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8")


def context() -> ForkServerContext:
    """The context whose processes fork from one that has imported what they need."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(list(PRELOADED))
    return found


def enter(process: int, *kinds: str) -> None:
    """
    Enter namespaces of a process, by their names in ``/proc/PID/ns``, as setns(2) says.

    Raises:
        OSError: the process is gone, or we may not.
    """
    namespaces = [os.open(f"/proc/{process}/ns/{kind}", os.O_RDONLY) for kind in kinds]
    for namespace in namespaces:
        if ctypes.CDLL(None, use_errno=True).setns(namespace, 0):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(namespace)


def take_streams(out: Path, err: Path) -> None:
    """Write standard output and errors to these files, and read nothing."""
    with out.open("ab") as output, err.open("ab") as errors, Path(os.devnull).open("rb") as nothing:
        for descriptor, file in ((0, nothing), (1, output), (2, errors)):
            os.dup2(file.fileno(), descriptor)


def _gunicorn(directory: Path, log: Path, environment: Mapping[str, str]) -> None:
    """
    The forked process: leader of its own process group, as ``beds.process.start`` has them.

    It ends with the fork server, which ends with the tests once nobody else has the write end of its pipe.
    """
    os.setsid()
    _become(directory, environment, log, log)
    os.environ["GUNICORN_CMD_ARGS"] = f"--config={directory / 'gunicorn.conf.py'}"
    sys.argv[:] = ["gunicorn"]
    runpy.run_module("gunicorn", run_name="__main__")


def _command(
    main: str,
    arguments: tuple[str, ...],
    directory: Path,
    environment: Mapping[str, str],
    out: Path,
    err: Path,
    inside: int | None,
) -> None:
    """The forked process of a command."""
    _become(directory, environment, out, err)
    if inside:
        enter(inside, "mnt", "net", "uts")
        os.chdir(directory)
    sys.argv[:] = arguments
    sys.exit(resolve_name(main)())


def _become(directory: Path, environment: Mapping[str, str], out: Path, err: Path) -> None:
    """Take on the folder, the environment and the streams of a process that was started anew."""
    os.closerange(3, 1 << 16)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    take_streams(out, err)
