"""An audit of a host with 20 providers and 60 guests: our requests, beside those of a pass of nova's report client."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from beds.by_hand import ByHand
from beds.gpu_host import make_host, write_archive, write_config_of
from beds.placement import serving
from beds.proxy import Proxy
from beds.trees import add_consumer
from bench.goals import Goal, print_table
from bench.lab import AGENT, Run, run, run_nova

HOST = make_host("bench-audit", gpus=19, guests=60)
PROVIDERS = len(HOST.cards) + 1


def compare_audits(scratch: Path, template: Path) -> tuple[Goal, ...]:
    """Full and light on a quiet host, and light after one guest changed; nova compares no guest with anything."""
    folder = scratch / "audit"
    folder.mkdir()
    with serving(folder / "placement", template) as server, Proxy(server.url) as proxy:
        archive = write_archive(folder / "host", HOST).root
        config = write_config_of(HOST, folder, proxy.url, "devices")
        options = ("--host", archive, "--config-file", config, "--format", "json")
        run([AGENT, "sync", *options])
        placement = ByHand(server.url)
        for guest in HOST.guests:
            add_consumer(placement, guest.uuid, {"allocations": HOST.allocations(guest)})
        run([AGENT, "sync", *options])

        def audit(*more: str, codes: tuple[int, ...] = (0,)) -> tuple[int, Run]:
            proxy.seen.clear()
            done = run([AGENT, "audit", *options, *more], codes=codes)
            return len(proxy.seen), done

        full, quiet = audit(), audit("--light")
        _change(placement)
        changed = audit("--light")
        first, later = run_nova("nova_client.py", server.url, _report(placement, folder), 2).json
    rows = [
        ("full, or the first pass of a process", len(first), full),
        ("light, or a later pass, nothing new", len(later), quiet),
        ("light, after one guest changed", "", changed),
    ]
    print_table(
        (f"{PROVIDERS} providers, {len(HOST.guests)} guests", "nova, requests", "agent, requests", "agent, s"),
        [(what, theirs, own, f"{done.wall_s:.2f}") for what, theirs, (own, done) in rows],
    )
    print("The agent's audits are a process each, with the interpreter's start; nova's two passes are one process.")
    figures = (
        ("full audit", full[0], 1 + PROVIDERS),
        ("light audit with nothing new", quiet[0], 1),
        ("light audit after one guest changed", changed[0], 2 + len(("the root", "its card"))),
    )
    return tuple(
        Goal(f"requests of a {what}", str(own), f"at most {most}", 0 < own <= most) for what, own, most in figures
    )


def _change(placement: ByHand) -> None:
    """A guest's own allocations are written again as they are, which moves the generation of what it has."""
    path = f"/allocations/{HOST.guests[0].uuid}"
    now = placement.send("GET", path)
    placement.send("PUT", path, {key: value for key, value in now.items() if key != "consumers"})


def _report(placement: ByHand, folder: Path) -> Path:
    """The root as it stands, as nova would report it."""
    base = f"/resource_providers/{HOST.identity}"
    inventories: Mapping[str, Any] = placement.send("GET", f"{base}/inventories")["inventories"]
    traits = placement.send("GET", f"{base}/traits")["traits"]
    report = {"uuid": HOST.identity, "name": HOST.name, "inventories": inventories, "traits": traits}
    path = folder / "nova-report.json"
    path.write_text(json.dumps(report), encoding="utf-8")
    return path
