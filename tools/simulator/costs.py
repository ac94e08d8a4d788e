"""What each request costs, as ``measure.py`` found it: the only numbers of the simulation that are not chosen."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from beds.spent import Spent

COSTS = Path(__file__).with_name("costs.json")
FIRST_SPREAD_S = 10  # of the services of the soak test that populate an empty placement
SOAK, ALONE = "soak", "small flat"  # hosts: services of the soak test, and one with the same host by itself
QUIET = "quiet"  # a pass at rest
CLAIM, TOKEN, VALIDATION = "PUT /allocations/{uuid}", "POST /v3/auth/tokens", "GET /v3/auth/tokens"


@dataclass(frozen=True, slots=True)
class Cost:
    """One request of a kind: mean seconds of CPU in its service and in the database, and of waiting for the disk."""

    service_s: float
    database_s: float
    wait_s: float
    counted: int  # requests that were measured


@dataclass(frozen=True, slots=True)
class Pause:
    """
    A process of placement answers nothing for a while, again and again: Python collects its garbage, all of it.

    ``gc`` in Python's documentation: the collector looks through everything once there is enough that is new.
    """

    every: int  # requests
    service_s: tuple[float, ...]  # CPU of each one that was measured, which the costs of requests do not have

    @property
    def share_s(self) -> float:
        """CPU of the pauses for one request."""
        return fmean(self.service_s) / self.every


@dataclass(frozen=True, slots=True)
class Activity:
    """What an agent does in one go: its requests in order, equal ones as one item, and what it computes meanwhile."""

    parts_s: tuple[float, ...]  # CPU before each request, and after the last one
    requests: tuple[tuple[str, int], ...]

    @property
    def agent_s(self) -> float:
        """CPU of all parts."""
        return sum(self.parts_s)

    def taking(self, agent_s: float) -> "Activity":
        """Return a copy that takes so much CPU, divided as this one's."""
        return replace(self, parts_s=tuple(round(part * agent_s / self.agent_s, 6) for part in self.parts_s))


@dataclass(frozen=True, slots=True)
class Load:
    """
    How much more CPU the same request takes beside others than alone.

    Caches are shared, threads take turns; and where requests are few, other work has taken the caches between them.
    """

    service: float
    database: float


@dataclass(frozen=True, slots=True)
class Costs:
    """All that was measured."""

    measured: Mapping[str, str]  # date, and versions
    kinds: Mapping[str, Cost]  # by method and path
    hosts: Mapping[str, Mapping[str, Activity]]  # by host and layout, for instance "network numa"; then by activity
    loads: Mapping[str, Load]  # by what all services of the soak test do: "first", "quiet", or as ``restart`` names it
    pause: Pause  # of a process of placement
    searches_s: Mapping[str, Mapping[str, float]]  # by layout, then by number of hosts: one search for candidates

    def loaded(self, activity: str | None = None) -> Mapping[str, Cost]:
        """Return what requests cost while all agents do this; None: the most that they cost."""
        of_any = Load(*(max(getattr(one, part) for one in self.loads.values()) for part in ("service", "database")))
        load = self.loads[activity] if activity else of_any
        return {
            kind: replace(cost, service_s=cost.service_s * load.service, database_s=cost.database_s * load.database)
            for kind, cost in self.kinds.items()
        }

    def together(self, used: Mapping[str, Spent]) -> "Costs":
        """
        Return a copy with the services of the soak test as they are together, where some share a process.

        ``used`` is what one of them took, placement and the database included, by activity: from its start for
        restarts, and for a pass at rest. Their requests are those of a host of the same shape alone.
        """
        start = self.hosts[SOAK]["start"]
        alone = {name: self.hosts[ALONE][name.partition(",")[0]] for name in used}
        took_s = {name: one.services_s - (0 if name == QUIET else start.agent_s) for name, one in used.items()}
        found = {name: alone[name].taking(took_s[name]) for name in used}
        whole = self.hosts[ALONE]["whole"]
        whole_s = whole.agent_s * found[QUIET].agent_s / alone[QUIET].agent_s
        services = {**found, "start": start, "whole": whole.taking(whole_s)}
        loads = {name: self._load(one, alone[name]) for name, one in used.items()}
        return replace(self, hosts={**self.hosts, SOAK: services}, loads=loads)

    def _load(self, used: Spent, activity: Activity) -> Load:
        """Compare what placement took for an activity of one of many with the same requests alone, without pauses."""
        pauses_s = self.pause.share_s * sum(times for _, times in activity.requests)
        service_s = sum(times * self.kinds[kind].service_s for kind, times in activity.requests)
        database_s = sum(times * self.kinds[kind].database_s for kind, times in activity.requests)
        return Load(round((used.others_s - pauses_s) / service_s, 3), round(used.database_s / database_s, 3))

    def search_s(self, layout: str, hosts: int) -> float:
        """
        Return the seconds of a search for candidates with nova's limit, by a line through what was measured.

        Placement finds all candidates before it counts them off: so the time grows with the hosts.
        """
        points = sorted((int(count), seconds) for count, seconds in self.searches_s[layout].items())
        below = max((one for one in points[:-1] if one[0] <= hosts), default=points[0])
        above = points[points.index(below) + 1]
        return below[1] + (above[1] - below[1]) * (hosts - below[0]) / (above[0] - below[0])


def restart(spread_s: int) -> str:
    """Return the name of what services of the soak test do when all restart."""
    return f"restart, spread {spread_s}"


def read_costs(path: Path = COSTS) -> Costs:
    """
    Read what was measured.

    Raises:
        OSError, ValueError, KeyError, TypeError: the file cannot be read, or is not one of ``write_costs``.
    """
    found: Any = json.loads(path.read_text(encoding="utf-8"))
    return Costs(
        measured=found["measured"],
        kinds={kind: Cost(**cost) for kind, cost in found["kinds"].items()},
        hosts={
            host: {
                name: Activity(tuple(one["parts_s"]), tuple((kind, times) for kind, times in one["requests"]))
                for name, one in activities.items()
            }
            for host, activities in found["hosts"].items()
        },
        loads={name: Load(**load) for name, load in found["loads"].items()},
        pause=Pause(found["pause"]["every"], tuple(found["pause"]["service_s"])),
        searches_s=found["searches_s"],
    )


def write_costs(costs: Costs, path: Path = COSTS) -> None:
    """
    Write what was measured.

    Raises:
        OSError: the file cannot be written.
    """
    path.write_text(json.dumps(asdict(costs), indent=1) + "\n", encoding="utf-8")
