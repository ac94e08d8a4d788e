"""A thousand services in threads of this process, each with a made-up host and a state of its own."""

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent.connect.choice import Choice
from agent.service.loop import Daemon
from agent.service.status import ServiceStatus
from agent.service.systemd import Notifier
from beds.process import BedError
from beds.upgrades import write_config
from drivers.fake.shapes import SHAPES, options_of

STOP_S = 60
SECOND = re.compile(r"\[(\d+/\w+/\d+:\d+:\d+:\d+) ")


@dataclass
class Fleet:
    """``count`` hosts that report to the placement at ``url``."""

    folder: Path
    url: str
    count: int
    interval_s: int = 60
    start_spread_s: int = 10
    shape: str = "small"
    scripts: Mapping[int, Sequence[Mapping[str, Any]]] = field(default_factory=dict)  # steps of a service's host
    worst_s: float = 0.0  # of all passes that were looked at
    took: list[float] = field(default_factory=list)
    daemons: list[Daemon] = field(default_factory=list)

    def prepare(self) -> None:
        """Write the configurations, and make the services, which do nothing yet."""
        self._scripts_began = time.monotonic()
        self.daemons = [self._daemon(number) for number in range(self.count)]

    def start(self) -> None:
        """All at once, as after an upgrade of the whole fleet; prepared or not."""
        if not self.daemons:
            self.prepare()
        self._seen: dict[int, float | None] = dict.fromkeys(range(self.count))
        threading.stack_size(1 << 20)
        self._threads = [threading.Thread(target=daemon.run) for daemon in self.daemons]
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        for daemon in self.daemons:
            daemon.stop()
        deadline = time.monotonic() + STOP_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            raise BedError(f"services that do not stop within {STOP_S} s")

    def watch(self, seconds: float) -> None:
        """Look at how long passes take."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for number, status in enumerate(self.statuses()):
                if status.last_pass_s != self._seen[number]:
                    self._seen[number] = status.last_pass_s
                    self.took.append(status.took_s)
                    self.worst_s = max(self.worst_s, status.took_s)
            time.sleep(0.5)

    def watch_until(self, after_s: float) -> None:
        """The same until so many seconds of the scripts are over."""
        self.watch(self._scripts_began + after_s - time.monotonic())

    def wait_until_ready(self, patience_s: float) -> float:
        """How long it took from the start until each had done a pass."""
        while not all(status.is_ready for status in self.statuses()):
            if time.monotonic() > self._began + patience_s:
                ill = [status.sentence() for status in self.statuses() if not status.is_ready]
                raise BedError(f"{len(ill)} services are not ready after {patience_s} s: {ill[:3]}")
            self.watch(0.5)
        return time.monotonic() - self._began

    def statuses(self) -> list[ServiceStatus]:
        return [daemon.status for daemon in self.daemons]

    def passes(self) -> int:
        return sum(status.passes for status in self.statuses())

    def _daemon(self, number: int) -> Daemon:
        folder = self.folder / f"{number:04}"
        folder.mkdir(parents=True, exist_ok=True)
        fake: dict[str, object] = {"seed": number, "shape": self.shape}
        if number in self.scripts:
            fake["script"] = folder / "script.yaml"
            (folder / "script.yaml").write_text(json.dumps({"steps": self.scripts[number]}), encoding="utf-8")
        config = write_config(
            options_of(SHAPES[self.shape])
            | {
                "DEFAULT": {"compute_driver": "fake.FakeDriver"},
                "fake": fake,
                "placement": {"auth_type": "none", "endpoint": self.url},
                "agent": {
                    "state_directory": folder / "state",
                    "interval": self.interval_s,
                    "start_spread": self.start_spread_s,
                },
            },
            folder / "agent.conf",
        )
        choice = replace(Choice(), config_files=(config,), service=True, began_s=self._scripts_began)
        return Daemon(choice, Notifier({}))


def requests_a_second(log: Path, skip_bytes: int = 0) -> list[int]:
    """How many requests a server logged in each second, from the first to the last; those of seconds without any: 0."""
    with log.open("rb") as file:
        file.seek(skip_bytes)
        text = file.read().decode(errors="replace")
    format_ = "%d/%b/%Y:%H:%M:%S"
    found = Counter(int(time.mktime(time.strptime(one, format_))) for one in SECOND.findall(text))
    return [found[second] for second in range(min(found), max(found) + 1)] if found else []
