"""Keeps the archives of made-up hosts as their script says."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from drivers.errors import DiscoveryError
from drivers.fake.archives import write_archive
from drivers.fake.hosts import FakeHost
from drivers.fake.script import History, state_at
from drivers.host.archive import HostArchive


class ScriptedFleet:
    """Archives of made-up hosts, by name below one folder; ``refresh`` brings one up to date."""

    def __init__(self, folder: Path, histories: Mapping[str, History], now_s: Callable[[], float]) -> None:
        """
        Write each host as it is now; ``now_s`` tells the seconds since the script began.

        Raises:
            OSError: the folder cannot be written.
        """
        self._folder = folder
        self._histories = histories
        self._now_s = now_s
        self._written: dict[str, FakeHost] = {}  # by name, as the archive has it
        for name in histories:
            host = state_at(histories[name], now_s()).host
            write_archive(folder / name, host)
            self._written[name] = host

    def archives(self) -> tuple[HostArchive, ...]:
        """Return the archives, in the order of the fleet."""
        return tuple(HostArchive(self._folder / name) for name in self._histories)

    def refresh(self, name: str) -> None:
        """
        Write a host's archive again if the host has changed.

        Raises:
            DiscoveryError: the host fails now, or its archive cannot be written.
        """
        now = state_at(self._histories[name], self._now_s())
        if now.fails:
            raise DiscoveryError(
                f"{name} does not answer: its script made it fail after {now.after_s:g} s: add a step that does heal, "
                f"or wait for it"
            )
        if now.host != self._written[name]:
            try:
                self._replace(now.host)
            except OSError as error:
                raise DiscoveryError(
                    f"cannot write the made-up host {name} below {self._folder}: {error.strerror}: free disk space, or "
                    f"set TMPDIR to another folder"
                ) from error
            self._written[name] = now.host

    def _replace(self, host: FakeHost) -> None:
        """Put a new archive in the place of the old one once it is whole."""
        root, fresh, old = (self._folder / name for name in (host.name, "fresh", "old"))
        for left in (fresh, old):  # by an attempt that failed
            shutil.rmtree(left, ignore_errors=True)
        write_archive(fresh, host)
        if root.exists():
            root.rename(old)
        fresh.rename(root)
        shutil.rmtree(old, ignore_errors=True)
