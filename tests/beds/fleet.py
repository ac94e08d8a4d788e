"""
A thousand services, each with a made-up host and a state of its own, in processes of a few.

They compute only while no other process does: those of a cloud are on other hosts, and take nothing from placement.
"""

import json
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beds.gpu_host import options_of
from beds.made_up_host import SHAPES
from beds.process import BedError
from beds.services import Services
from beds.upgrades import write_config

SECOND = re.compile(r"\[(\d+/\w+/\d+:\d+:\d+:\d+) ")
LOOK_S = 0.5
AGENTS, SPREADS_S = 1000, (0, 10, 30)  # services of the soak test, and how their starts are spread
REST_S = 300  # how long they rest there


@dataclass
class Fleet:
    """``count`` hosts that report to the placement at ``url``."""

    folder: Path
    url: str
    count: int
    interval_s: int = 60
    start_spread_s: int = 10
    shape: str = "small"
    worst_s: float = 0.0  # of all passes that were looked at
    took: list[float] = field(default_factory=list)
    services: Services | None = None

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def prepare(self) -> None:
        """Start the processes, which read the configurations and do nothing yet."""
        configs = [self._config(number) for number in range(self.count)]
        self._files = [config.parent / "state/status.json" for config in configs]
        self._seen = [_changed(file) for file in self._files]
        self._statuses: list[dict[str, Any]] = [{} for _ in configs]
        self._first_s: dict[int, float] = {}  # when the first pass of each was done
        self.services = Services(configs, self.folder / "services.log")

    def start(self) -> None:
        """All at once, as after an upgrade of the whole fleet; prepared or not."""
        if not self.services:
            self.prepare()
        assert self.services
        self._began_s = time.time()
        self.services.start()

    def stop(self) -> None:
        services, self.services = self.services, None
        if services:
            services.stop()

    def watch(self, seconds: float) -> None:
        """Look at how long passes take."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._look()
            time.sleep(LOOK_S)

    def wait_until_ready(self, patience_s: float) -> float:
        """How long it took from the start until each had done a pass."""
        deadline = time.monotonic() + patience_s
        while not all(status.get("ready") for status in self._statuses):
            if time.monotonic() > deadline:
                ill = [status.get("sentence") for status in self._statuses if not status.get("ready")]
                raise BedError(f"{len(ill)} services are not ready after {patience_s} s: {ill[:3]}")
            self.watch(LOOK_S)
        return max(self._first_s.values()) - self._began_s

    def passes(self) -> int:
        self._look()
        return sum(status.get("passes", 0) for status in self._statuses)

    def outcomes(self) -> Counter[str]:
        """Of the last pass of each service; "not ready" for one whose last pass failed."""
        self._look()
        return Counter(
            outcome
            for status in self._statuses
            for outcome in (status["outcomes"].values() if status["ready"] else ("not ready",))
        )

    def _look(self) -> None:
        for number, file in enumerate(self._files):
            if (changed := _changed(file)) != self._seen[number]:
                before, status = self._statuses[number], json.loads(file.read_text(encoding="utf-8"))
                self._seen[number], self._statuses[number] = changed, status
                if status["last_pass_s"] not in (None, before.get("last_pass_s")):
                    self._first_s.setdefault(number, status["last_pass_s"])
                    self.took.append(status["took_s"])
                    self.worst_s = max(self.worst_s, status["took_s"])

    def _config(self, number: int) -> Path:
        folder = self.folder / f"{number:04}"
        folder.mkdir(parents=True, exist_ok=True)
        fake: dict[str, object] = {"seed": number, "shape": self.shape}
        return write_config(
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


def _changed(file: Path) -> int:
    """When a file was written (ns); 0: there is none."""
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def requests_a_second(log: Path, skip_bytes: int = 0) -> list[int]:
    """How many requests a server logged in each second, from the first to the last; those of seconds without any: 0."""
    with log.open("rb") as file:
        file.seek(skip_bytes)
        text = file.read().decode(errors="replace")
    format_ = "%d/%b/%Y:%H:%M:%S"
    found = Counter(int(time.mktime(time.strptime(one, format_))) for one in SECOND.findall(text))
    return [found[second] for second in range(min(found), max(found) + 1)] if found else []
