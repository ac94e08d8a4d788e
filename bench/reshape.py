"""
A host's vGPUs go from one total on its root to a provider for each GPU: our conversion, and that of nova's client.

Each side has a tree of its own in the same placement, laid down by itself, with the same stock and the same guests.
What is measured begins when these stand: it is all that a service start reads and writes until the new tree does.
"""

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from beds.gpu_host import Allocations, GpuHost, make_host, options_of, write_archive
from beds.placement import serving
from beds.proxy import Answer, Forward, Proxy, Request
from bench.goals import Goal, print_table
from bench.lab import AGENT, BenchError, Host, only_provider, run, run_nova, write_config

SIZES = ((8, 10), (8, 100), (64, 500))  # GPUs, guests
RESHAPER = "/reshaper"
LIMIT = 3  # of nova's bytes at most one part in so many
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sent:
    """One request that went through the proxy, and when, in seconds of the performance counter."""

    request: Request
    began: float
    ended: float

    @property
    def size(self) -> int:
        """Bytes of path and body."""
        return len(self.request.path) + len(self.request.body)

    @property
    def whole(self) -> int:
        """Bytes with the request line and all headers but those of the connection."""
        line = len(f"{self.request.method}  HTTP/1.1\r\n")
        headers = sum(len(f"{name}: {value}\r\n") for name, value in self.request.headers)
        return self.size + line + headers + len("\r\n")


@dataclass(slots=True)
class Meter:
    """A hook of the proxy that keeps what passes."""

    sent: list[Sent] = field(default_factory=list)

    def __call__(self, request: Request, forward: Forward) -> Answer:
        began = time.perf_counter()
        answer = forward(request)
        self.sent.append(Sent(request, began, time.perf_counter()))
        return answer

    @property
    def size(self) -> int:
        return sum(one.size for one in self.sent)

    @property
    def reshape(self) -> int:
        """Bytes of the reshape alone."""
        return sum(one.size for one in self.sent if one.request.path == RESHAPER)

    @property
    def shortest(self) -> int:
        """Bytes of the reshape if its JSON had no blanks."""
        bodies = [json.loads(one.request.body) for one in self.sent if one.request.path == RESHAPER]
        return sum(len(RESHAPER) + len(json.dumps(body, separators=(",", ":"))) for body in bodies)

    @property
    def whole(self) -> int:
        return sum(one.whole for one in self.sent)

    @property
    def wall_s(self) -> float:
        """From the first request to the last answer."""
        return max(one.ended for one in self.sent) - min(one.began for one in self.sent)


@dataclass(frozen=True, slots=True)
class Bed:
    """One host, and the archive that the agent sees of it."""

    lab: Host
    host: GpuHost
    archive: Path

    def agent(self, layout: str, verb: str, *more: object) -> Any:
        """What one verb of the installed command says of the host in one layout."""
        options = (
            "--host",
            self.archive,
            "--config-file",
            self.configure(layout, self.lab.proxy.url),
            "--format",
            "json",
        )
        return run([AGENT, verb, *more, *options]).json

    def configure(self, layout: str, url: str, **agent: object) -> Path:
        """A configuration file for a layout; ``agent`` has options of that group."""
        placement = {"auth_type": "none", "endpoint": url}
        own = {"state_directory": self.lab.folder / "state", **agent}
        groups: dict[str, Mapping[str, object]] = {
            **options_of(self.host.shape),
            "compute": {"layout": layout},
            "placement": placement,
            "agent": own,
        }
        return write_config(self.lab.folder, f"{layout}.conf", **groups)

    @contextmanager
    def metered(self) -> Iterator[Meter]:
        """Inside, what goes through the proxy is kept."""
        meter, before = Meter(), self.lab.proxy.hook
        self.lab.proxy.hook = meter
        try:
            yield meter
        finally:
            self.lab.proxy.hook = before


@dataclass(frozen=True, slots=True)
class Comparison:
    """What each side sent for one size."""

    gpus: int
    guests: int
    nova: Meter
    ours: Meter

    def rows(self) -> Iterator[tuple[object, ...]]:
        figures = [(len(one.sent), one.size, one.reshape, one.whole, one.wall_s) for one in (self.nova, self.ours)]
        for who, (*counts, wall_s) in zip(("nova", "agent"), figures, strict=True):
            yield self.gpus, self.guests, who, *counts, f"{wall_s:.2f}"
        yield "", "", "agent to nova", *(f"{own / theirs:.2f}" for theirs, own in zip(*figures, strict=True))

    def goals(self) -> Iterator[Goal]:
        what = f"reshape of {self.gpus} GPUs with {self.guests} guests"
        theirs, own = len(self.nova.sent), len(self.ours.sent)
        yield Goal(f"{what}, requests", str(own), f"fewer than nova's {theirs}", own < theirs)
        theirs, own = self.nova.size, self.ours.size
        yield Goal(f"{what}, bytes sent", str(own), f"at most a third of nova's {theirs}", own * LIMIT <= theirs)


def compare_reshapes(scratch: Path, template: Path) -> tuple[Goal, ...]:
    """All sizes in one placement."""
    folder = scratch / "reshape"
    folder.mkdir()
    with serving(folder / "placement", template) as server, Proxy(server.url) as proxy:
        found = [_compare(folder, server.url, proxy, gpus, guests) for gpus, guests in SIZES]
    head = ("GPUs", "guests", "who", "requests", "bytes sent", "of them the reshape", "with headers", "wall s")
    print_table(head, [row for one in found for row in one.rows()])
    last = found[-1]
    print(
        f"Bytes sent are paths and bodies. Wall time: from the first request to the last answer, through a proxy.\n"
        f"Every guest has a vGPU and moves, and placement takes one that moves only whole, with project and user:\n"
        f"the agent's last reshape would have {last.ours.shortest} bytes in the shortest JSON; "
        f"a third of all that nova sent is {last.nova.size // LIMIT}."
    )
    return tuple(goal for one in found for goal in one.goals())


def _compare(parent: Path, placement: str, proxy: Proxy, gpus: int, guests: int) -> Comparison:
    folder = parent / f"{gpus}-{guests}"
    folder.mkdir()
    host, theirs = (make_host(f"{who}-{gpus}-{guests}", gpus, guests) for who in ("agent", "nova"))
    archive = write_archive(folder / "host", host).root
    bed = Bed(Host(folder, folder / "flat.conf", placement, proxy), host, archive)
    ours = _reshape_ours(bed)
    return Comparison(gpus, guests, _reshape_nova(bed, theirs), ours)


def _reshape_ours(bed: Bed) -> Meter:
    """The installed command converts what it reported itself in the layout flat."""
    bed.agent("flat", "sync")
    allocate(bed.lab, bed.host)
    with bed.metered() as meter:
        outcome = bed.agent("devices", "reshape", "--apply")
    if outcome["outcome"] != "changed":
        raise BenchError(f"the agent did not convert {bed.host.name}: {outcome['outcome']} {outcome['notes']}")
    check(bed.lab, bed.host)
    return meter


def _reshape_nova(bed: Bed, host: GpuHost) -> Meter:
    return convert_as_nova(bed, host, bed.lab.proxy.url, bed.metered())


def convert_as_nova(bed: Bed, host: GpuHost, url: str, measuring: AbstractContextManager[T]) -> T:
    """
    Nova's client converts what it reported itself: the same trees under another name, with nova's mark.

    It runs inside ``measuring``, whose value is returned.
    """
    _, before = only_provider(bed.agent("flat", "discover"))
    after = bed.agent("devices", "discover")["providers"]
    root = {"uuid": host.identity, "name": host.name}
    bed.lab.nova({**root, **_as_nova(before)})
    allocate(bed.lab, host)
    gpus = {card.slot: card.libvirt_name for card in host.cards}
    wanted = {
        **root,
        **_as_nova(after[bed.host.name]),
        "children": {f"{host.name}_{gpu}": _as_nova(after[f"{bed.host.name}_{gpu}"]) for gpu in gpus.values()},
        "guests": {guest.uuid: f"{host.name}_{gpus[guest.card]}" for guest in host.guests},
    }
    path = bed.lab.folder / "nova-reshape.json"
    path.write_text(json.dumps(wanted), encoding="utf-8")
    with measuring as found:
        run_nova("nova_reshape.py", url, path)
    check(bed.lab, host)
    return found


def _as_nova(provider: dict[str, Any]) -> dict[str, Any]:
    """A provider as nova would report it: the same, with nova's mark instead of ours."""
    traits = {trait for trait in provider["traits"] if not trait.startswith("CUSTOM_")} | {"OWNER_NOVA"}
    return {"inventories": provider["inventories"], "traits": sorted(traits)}


def allocate(lab: Host, host: GpuHost) -> None:
    """All guests come at once, each with all it holds on the root."""
    owner = {"project_id": uuid.uuid4().hex, "user_id": uuid.uuid4().hex, "consumer_generation": None}
    held = {guest.uuid: host.flat(guest)[host.name] for guest in host.guests}
    body = {guest: {"allocations": {host.identity: {"resources": one}}, **owner} for guest, one in held.items()}
    lab.ask("POST", "/allocations", body)


def check(lab: Host, host: GpuHost) -> None:
    """
    Look whether every guest has its vGPU where its device is, and the rest on the root.

    Raises:
        BenchError: not so.
    """
    found: dict[str, Allocations] = {guest.uuid: {} for guest in host.guests}
    for row in lab.ask("GET", f"/resource_providers?in_tree={host.identity}")["resource_providers"]:
        held = lab.ask("GET", f"/resource_providers/{row['uuid']}/allocations")["allocations"]
        for guest, one in held.items():
            found[guest][row["name"]] = one["resources"]
    if found != {guest.uuid: host.allocations(guest) for guest in host.guests}:
        raise BenchError(f"{host.name} does not hold after its reshape what it should")
