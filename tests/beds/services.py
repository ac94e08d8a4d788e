"""
Services in processes that fork from one, so that a thousand of them share what Python has loaded.

Python counts references, so a process copies 20 MB of what it could share. Therefore a few services have one together.
"""

import ctypes
import gc
import os
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from agent.connect.choice import Choice
from agent.service.loop import Daemon
from agent.service.reporting import Notifier
from beds.forked import PR_SET_PDEATHSIG, context, take_streams
from beds.process import BedError, tail

NAME = "many-services"  # of each process, as ps(1) shows it
TOGETHER = 5  # services of a process
PR_SET_NAME = 15  # prctl(2)
PREPARE_S, STOP_S = 300, 60
START, STOP = "start", "stop"


class Services:
    """Services that wait for their start, or run."""

    def __init__(self, configs: Sequence[Path], log: Path) -> None:
        """Start processes that read the configurations, one for each service, and do nothing yet."""
        self._log = log
        self._control, theirs = context().Pipe()
        self._keeper = context().Process(target=_keep, args=(configs, log, theirs), daemon=True)
        self._keeper.start()
        theirs.close()
        self._answer("be prepared", PREPARE_S)

    def start(self) -> None:
        """Start all at the same moment."""
        self._send(START)

    def stop(self) -> None:
        """
        Stop all, as systemd does.

        Raises:
            BedError: some did not end, or not well.
        """
        self._send(STOP)
        if wrong := self._answer("stop", STOP_S):
            raise BedError(f"{wrong} processes of services did not end well:\n{tail(self._log)}")
        self._keeper.join()

    def _send(self, text: str) -> None:
        try:
            self._control.send(text)
        except OSError as error:
            raise BedError(f"services ended by themselves:\n{tail(self._log)}") from error

    def _answer(self, what: str, patience_s: float) -> int:
        with suppress(EOFError, OSError):
            if self._control.poll(patience_s):
                return int(self._control.recv())
        self._keeper.kill()  # and so all services, see _serve
        raise BedError(f"services did not {what} within {patience_s} s, or ended:\n{tail(self._log)}")


def _keep(configs: Sequence[Path], log: Path, control: Connection) -> None:
    """The process that forks the others; they end with it, and it ends with the tests."""
    _become(log, control)
    gc.collect()
    gc.freeze()  # what is shared is not looked through again, and so not copied
    waiting, going = os.pipe()
    prepared, telling = os.pipe()
    pids = []
    for at in range(0, len(configs), TOGETHER):
        pid = os.fork()
        if not pid:
            os.close(going)
            control.close()
            os._exit(_serve(configs[at : at + TOGETHER], telling, waiting))
        pids.append(pid)
    os.close(telling)
    if sum(map(len, iter(lambda: os.read(prepared, 4096), b""))) < len(pids):
        return
    with suppress(EOFError):  # the tests ended
        control.send(0)
        started = control.recv() == START
        if started:
            os.close(going)  # wakes all at the same moment, which bytes for each would not
            control.recv()
        for pid in pids:
            os.kill(pid, signal.SIGTERM if started else signal.SIGKILL)
        ended = [os.waitpid(pid, 0)[1] for pid in pids]
        control.send(sum(map(bool, ended)) if started else 0)


def _become(log: Path, control: Connection) -> None:
    """Take on a session whose processes weigh least, and files of its own."""
    os.setsid()
    with suppress(FileNotFoundError):  # the kernel may share the cores between sessions first (sched(7))
        Path("/proc/self/autogroup").write_text("19", encoding="utf-8")
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    os.closerange(3, control.fileno())
    os.closerange(control.fileno() + 1, 1 << 16)
    take_streams(log, log)
    _call_prctl()


def _serve(configs: Sequence[Path], telling: int, waiting: int) -> int:
    """The forked process of some services, from their configurations to their end; another SIGTERM ends it at once."""
    _call_prctl()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    choices = [Choice(config_files=(config,), service=True) for config in configs]
    daemons = [Daemon(choice, Notifier({})) for choice in choices]
    threads = [threading.Thread(target=_run, args=(daemon, waiting), daemon=True) for daemon in daemons]
    for thread in threads:
        thread.start()
    os.write(telling, b".")
    os.close(telling)
    signal.sigwait({signal.SIGTERM})
    served = all(thread.is_alive() for thread in threads)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    for daemon in daemons:
        daemon.stop()
    for thread in threads:
        thread.join(STOP_S)
    return 0 if served and not any(thread.is_alive() for thread in threads) else 1


def _run(daemon: Daemon, waiting: int) -> None:
    """Wait for the start, each thread by itself: of threads that start one after the other, the last begins late."""
    os.read(waiting, 1)
    daemon.run()


def _call_prctl() -> None:
    """Have a name, and end with the parent."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    libc.prctl(PR_SET_NAME, NAME.encode())
