"""What nova-compute costs on one host with its own driver and with ours: at rest, at a boot, and in memory."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import psutil
import pytest

from beds.cloud.lab import DRIVER, Lab
from beds.proxy import Proxy

pytestmark = pytest.mark.live

BOOTS = int(os.environ.get("BOOTS", "4"))
PERIODICS = int(os.environ.get("PERIODICS", "10"))
QUICK: dict[str, object] = {"update_resources_interval": 2, "debug": True}
QUIET_S = 0.5  # without a request, which are a few ms apart in a periodic
OURS = "ours"
DRIVERS: Mapping[str, Mapping[str, object]] = {"nova's": {}, OURS: DRIVER}
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Costs:
    """What one nova-compute needed."""

    at_rest: float  # requests to placement in a periodic
    cpu_ms: float  # CPU time from the end of one periodic to the end of the next one
    at_a_boot: float  # requests to placement by a boot and a deletion
    memory_mib: float  # resident after all that


@pytest.fixture(scope="module")
def costs(lab: Lab) -> dict[str, Costs]:
    """The costs of both, one after the other on the same cloud."""
    lab = replace(lab, pci={})
    with Proxy(lab.cloud.where.placement) as proxy:
        return {name: measure(lab, proxy, driver) for name, driver in DRIVERS.items()}


def measure(lab: Lab, proxy: Proxy, driver: Mapping[str, object]) -> Costs:
    lab.restart_nova(more={**QUICK, **driver}, placement={"endpoint_override": proxy.url})
    lab.wait_for_periodics(3)  # the first ones learn what placement has
    (before, periodics), began = between_periodics(lab, proxy), cpu_s(lab)
    lab.wait_for_periodics(PERIODICS)
    requests, until = between_periodics(lab, proxy)
    cpu_ms, at_rest = 1000 * (cpu_s(lab) - began) / (until - periodics), (requests - before) / (until - periodics)

    for number in range(BOOTS):
        lab.cloud.delete(lab.cloud.boot(f"server-{number}", "small"))
    in_the_end, last = between_periodics(lab, proxy)
    at_a_boot = (in_the_end - requests - at_rest * (last - until)) / BOOTS
    return Costs(at_rest, cpu_ms, at_a_boot, process(lab).memory_info().rss / MIB)


def between_periodics(lab: Lab, proxy: Proxy) -> tuple[int, int]:
    """Requests and periodics up to now, at a moment when a periodic has ended and the next one has not begun."""
    lab.wait_for_periodics(1)
    requests = -1
    while requests != len(proxy.seen):
        requests = len(proxy.seen)
        time.sleep(QUIET_S)
    return requests, lab.periodics()


def process(lab: Lab) -> psutil.Process:
    assert lab.compute.child
    return psutil.Process(lab.compute.child.process.pid)


def cpu_s(lab: Lab) -> float:
    """CPU time of nova-compute, without its helpers."""
    times = process(lab).cpu_times()
    return times.user + times.system


def test_our_driver_asks_placement_for_no_more_than_novas_own(costs: dict[str, Costs]) -> None:
    print("\ndriver   requests of a periodic   CPU ms of a periodic   requests of a boot   memory MiB")
    for name, each in costs.items():
        print(f"{name:8} {each.at_rest:22.2f} {each.cpu_ms:22.1f} {each.at_a_boot:20.1f} {each.memory_mib:12.0f}")
    assert costs[OURS].at_rest <= costs["nova's"].at_rest
    assert costs[OURS].at_a_boot <= costs["nova's"].at_a_boot + 1
