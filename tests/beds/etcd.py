"""A real etcd on loopback, with its data in a folder of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beds.process import LOOPBACK, free_port, running


@contextmanager
def serving(directory: Path) -> Iterator[str]:
    """Its URL as tooz names it, for as long as the context lasts."""
    directory.mkdir(parents=True, exist_ok=True)
    clients, peers = (f"http://{LOOPBACK}:{free_port()}" for _ in range(2))
    command = [
        *("etcd", "--name", "one", "--data-dir", str(directory / "data")),
        *("--listen-client-urls", clients, "--advertise-client-urls", clients),
        *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
        *("--initial-cluster", f"one={peers}"),
    ]
    with running(command, directory=directory, log=directory / "etcd.log", url=f"{clients}/health"):
        yield f"etcd3+{clients}"
