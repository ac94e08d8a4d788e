"""Bare-metal nodes of every kind, and an agent that reports them."""

import itertools
import json
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

from beds.agents import COMMAND, Result, run_agent
from beds.upgrades import write_config

STATES = (  # all that ironic.common.states has; what can be deployed is told more often
    *("available",) * 5,
    "active",
    "adopt failed",
    "adopting",
    "clean failed",
    "clean hold",
    "clean wait",
    "cleaning",
    "deleting",
    "deploy failed",
    "deploy hold",
    "deploying",
    "enroll",
    "error",
    "inspect failed",
    "inspect wait",
    "inspecting",
    "manageable",
    "rebuild",
    "rescue",
    "rescue failed",
    "rescue wait",
    "rescuing",
    "service failed",
    "service hold",
    "service wait",
    "servicing",
    "unrescue failed",
    "unrescuing",
    "verifying",
    "wait call-back",
)
WITH_INSTANCE = ("active", "deploying", "wait call-back", "rescue", "deleting")
POWER = ("power off", "power on", "error", None)
CLASSES = ("baremetal", "gold", "Large.x86-64")


def uuid_of(number: int, prefix: str = "node") -> str:
    return str(uuid5(NAMESPACE_DNS, f"{prefix} {number}"))


def make_nodes(count: int, prefix: str = "node") -> list[dict[str, Any]]:
    """Nodes over every provision state, power states, maintenance and traits; each fortieth has no resource class."""
    states = itertools.cycle(STATES)
    return [_node(number, next(states), prefix) for number in range(count)]


def _node(number: int, state: str, prefix: str) -> dict[str, Any]:
    uuid = uuid_of(number, prefix)
    return {
        "uuid": uuid,
        "name": f"{prefix}-{number:05}",
        "provision_state": state,
        "power_state": POWER[number % 23 % len(POWER)] if number % 23 < len(POWER) else "power off",
        "maintenance": number % 10 == 7,
        "resource_class": None if number % 40 == 39 else CLASSES[number % len(CLASSES)],
        "instance_uuid": uuid_of(number, "instance") if state in WITH_INSTANCE else None,
        "shard": f"shard-{number % 3}",
        "traits": ["HW_CPU_X86_VMX", f"CUSTOM_RACK_{number % 20}"] if number % 4 else [],
    }


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run said, how long it took, and the most memory that it had at a time."""

    json: Any
    wall_s: float
    peak_mib: int


def _watch_memory(process: subprocess.Popen[bytes], peaks: list[int]) -> None:
    """The high water mark in KiB as the kernel tells it of the process itself, until that ends."""
    while process.poll() is None:
        with suppress(OSError, StopIteration):
            lines = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines()
            peaks.append(int(next(line for line in lines if line.startswith("VmHWM")).split()[1]))
        time.sleep(0.01)


@dataclass(frozen=True, slots=True)
class NodesAgent:
    """The installed command with a configuration for one Ironic and one placement."""

    config: Path

    def run(self, verb: str, *more: object, form: str = "json") -> Result:
        return run_agent(verb, "--config-file", self.config, "--format", form, *more)

    def measured(self, verb: str) -> "Measured":
        """The same with what it took, for as long as it takes."""
        command = [str(COMMAND), verb, "--config-file", str(self.config), "--format", "json"]
        began = time.monotonic()
        peaks = [0]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            watch = threading.Thread(target=_watch_memory, args=(process, peaks))
            watch.start()
            out = process.stdout.read()
        watch.join()
        return Measured(json.loads(out), time.monotonic() - began, max(peaks) // 1024)

    def sums(self, verb: str = "sync", *more: object) -> dict[str, int]:
        """What became of how many nodes."""
        summary: dict[str, int] = self.run(verb, *more).json["summary"]
        return summary


def nodes_agent(folder: Path, nodes_url: str, placement_url: str, /, **groups: Mapping[str, Any]) -> NodesAgent:
    """An agent without authentication; ``groups`` are laid over."""
    folder.mkdir(parents=True, exist_ok=True)
    usual: dict[str, dict[str, Any]] = {
        "DEFAULT": {"compute_driver": "ironic.IronicDriver"},
        "agent": {"state_directory": str(folder / "state"), "node_grace": 0, "node_workers": 1},
        "ironic": {"auth_type": "none", "endpoint": nodes_url},
        "placement": {"auth_type": "none", "endpoint": placement_url},
    }
    conf = {name: {**usual.get(name, {}), **groups.get(name, {})} for name in usual.keys() | groups.keys()}
    conf = {name: {key: value for key, value in one.items() if value is not None} for name, one in conf.items()}
    return NodesAgent(write_config(conf, folder / "agent.conf"))


def read_nodes(send: Any, uuids: Sequence[str]) -> dict[str, Any]:
    """What placement holds of these nodes, without generations."""
    found = {}
    for uuid in uuids:
        base = f"/resource_providers/{uuid}"
        found[uuid] = {
            "inventories": {
                name: {key: stock[key] for key in ("total", "reserved", "max_unit", "allocation_ratio")}
                for name, stock in send("GET", f"{base}/inventories")["inventories"].items()
            },
            "traits": sorted(send("GET", f"{base}/traits")["traits"]),
        }
    return found
