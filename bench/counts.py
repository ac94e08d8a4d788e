"""How many requests a report costs, nova's report client and our agent on one placement."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.goals import Goal, print_table
from bench.lab import Host, only_provider, reporting

GUESTS = 5
SEED = 3


def count_requests(scratch: Path, template: Path) -> tuple[Goal, ...]:
    """Both report one root without children; the same inventories, and the same traits but for the owner's."""
    with reporting(scratch / "counts", template, seed=SEED) as host:
        *ours, arrival, settled = _ours(host)
        ours.append(settled)
        nova = list(_nova(host))
    reports = (
        "first report",
        "identical report, new process",
        f"identical report, {GUESTS} guests there since",
    )
    rows = list(zip(reports, map(len, nova), map(len, ours), strict=True))
    print_table(
        ("report of one root without children", "nova, requests", "agent, requests", "nova to agent"),
        [(what, theirs, own, f"{theirs / own:.1f}" if own else "-") for what, theirs, own in rows],
    )
    print("The agent's reports are a process each, and its state is on disk; nova's last is warm.")
    print(f"Its report just after the guests came took {len(arrival)}: their allocations had moved the generation.")
    print("\nthe agent's first report:")
    print("\n".join(f"  {_short(request)}" for request in ours[0]))
    print("the agent's identical report:")
    print("\n".join(f"  {_short(request)}" for request in ours[1]))
    return tuple(
        Goal(f"requests of the {what}", str(own), f"at most nova's {theirs}", 0 < own <= theirs)
        for what, theirs, own in rows
    )


def _ours(host: Host) -> Iterator[list[str]]:
    """Two reports, then guests come, then two more."""
    for _ in range(2):
        yield host.requests_of("sync")[1]
    _, record = only_provider(host.agent("show").json)
    for _ in range(GUESTS):
        add_guest(host, record["uuid"])
    for _ in range(2):
        yield host.requests_of("sync")[1]


def _nova(host: Host) -> Iterator[list[str]]:
    """One report of each of two processes; then guests come, and the second report of a third process."""
    report = nova_report(host) | {"uuid": str(uuid.uuid4()), "name": "nova-host"}
    for _ in range(2):
        yield from host.nova(report)
    for _ in range(GUESTS):
        add_guest(host, report["uuid"])
    yield host.nova(report, cycles=2)[1]


def nova_report(host: Host) -> dict[str, Any]:
    """The host's tree as nova would report it: the same, with nova's mark instead of ours."""
    name, root = only_provider(host.agent("discover").json)
    traits = {trait for trait in root["traits"] if not trait.startswith("CUSTOM_")} | {"OWNER_NOVA"}
    return {"name": name, "inventories": root["inventories"], "traits": sorted(traits)}


def add_guest(host: Host, root_uuid: str) -> str:
    """A consumer that holds one VCPU and some memory of a root; its uuid."""
    consumer = str(uuid.uuid4())
    body = {
        "allocations": {root_uuid: {"resources": {"VCPU": 1, "MEMORY_MB": 256}}},
        "project_id": "bench",
        "user_id": "bench",
        "consumer_generation": None,
    }
    host.ask("PUT", f"/allocations/{consumer}", body)
    return consumer


def _short(request: str) -> str:
    return request if len(request) <= 100 else request[:97] + "..."
