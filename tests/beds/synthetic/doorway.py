"""A door from a network namespace to a server on this machine's loopback."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from beds.forked import enter
from beds.process import LOOPBACK


@contextmanager
def relaying(pid: int, port: int) -> Iterator[int]:
    """Listens in the network namespace of ``pid``; yields the port there, from which all is passed to ours."""
    found: list[socket.socket] = []
    thread = threading.Thread(target=lambda: found.append(_listen_in(pid)))
    thread.start()
    thread.join()
    door = found[0]
    threading.Thread(target=_accept, args=(door, port), daemon=True).start()
    try:
        yield int(door.getsockname()[1])
    finally:
        door.shutdown(socket.SHUT_RDWR)
        door.close()


def _listen_in(pid: int) -> socket.socket:
    """Called in a thread of its own, which stays in that namespace until it ends."""
    enter(pid, "net")
    return socket.create_server((LOOPBACK, 0))


def _accept(door: socket.socket, port: int) -> None:
    with suppress(OSError):
        while True:
            inside, _ = door.accept()
            threading.Thread(target=_relay, args=(inside, port), daemon=True).start()


def _relay(inside: socket.socket, port: int) -> None:
    with inside, socket.create_connection((LOOPBACK, port)) as outside:
        for end in (inside, outside):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a door that does not wait for more to come
        back = threading.Thread(target=_pump, args=(outside, inside), daemon=True)
        back.start()
        _pump(inside, outside)
        back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
