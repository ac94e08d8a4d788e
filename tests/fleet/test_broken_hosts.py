"""One host of a fleet breaks, in each of three batches: no later batch is begun, and once mended it goes on."""

import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.sync.approvals import read_approval
from beds.agents import COMMAND
from beds.by_hand import ByHand
from beds.inventory import Fleet, FleetHost, make_hosts, trees, units
from beds.placement import PlacementServer
from beds.proxy import Answer, Forward, Hook, Proxy, Request, pass_on
from beds.trees import identity

pytestmark = pytest.mark.live

HOSTS = 6
BATCHES = [1, 2, 3]
Break = Callable[
    [Fleet, FleetHost, "Way"], AbstractContextManager[str]
]  # gives words of the reason; mends it at its end


def of_batch(number: int) -> int:
    """The index of a host in this batch: the last one, so that others of its batch come before it."""
    return sum(BATCHES[: number + 1]) - 1


@contextmanager
def another_plan(_fleet: Fleet, host: FleetHost, _way: "Way") -> Iterator[str]:
    text = host.config.read_text(encoding="utf-8")
    host.config.write_text(f"[DEFAULT]\nreserved_host_disk_mb = 4096\n{text}", encoding="utf-8")
    yield "the plan now has"
    host.config.write_text(text, encoding="utf-8")


@contextmanager
def no_libvirt(_fleet: Fleet, host: FleetHost, _way: "Way") -> Iterator[str]:
    file = host.archive / "libvirt/capabilities.xml"
    file.rename(file.with_suffix(".away"))
    yield "capabilities.xml"
    file.with_suffix(".away").rename(file)


@contextmanager
def placement_that_refuses(fleet: Fleet, host: FleetHost, way: "Way") -> Iterator[str]:
    def refuse(request: Request, forward: Forward) -> Answer:
        return Answer(403) if converts(request, host) else forward(request)

    with way.hooked(refuse):
        yield "the user lacks a role for this"


@contextmanager
def a_kill_in_the_middle(fleet: Fleet, host: FleetHost, way: "Way") -> Iterator[str]:
    """Its process is killed as it sends the reshape: its tree is made in part, and nobody tells the controller why."""
    pid, command = host.folder / "pid", host.folder / "command"
    command.write_text(f'#!/bin/sh\necho $$ > {pid}\nexec {COMMAND} "$@"\n', encoding="utf-8")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    fleet.own[host.name] = {"fleet_command": [str(command)]}

    def kill(request: Request, forward: Forward) -> Answer:
        if not converts(request, host):
            return forward(request)
        os.kill(int(pid.read_text()), signal.SIGKILL)
        raise ConnectionError

    with way.hooked(kill):
        yield ""
    fleet.own.clear()


def converts(request: Request, host: FleetHost) -> bool:
    """Whether this is the reshape of this host: it has the host's root."""
    return request.path.startswith("/reshaper") and identity(host.name).encode() in request.body


@dataclass
class Way:
    """The way of all hosts to placement, with a hook for a time."""

    hook: Hook = pass_on

    def __call__(self, request: Request, forward: Forward) -> Answer:
        return self.hook(request, forward)

    @contextmanager
    def hooked(self, hook: Hook) -> Iterator[None]:
        self.hook = hook
        yield
        self.hook = pass_on


def writes(server: PlacementServer, skip: int) -> list[str]:
    """The requests in placement's own log that may have written, after so many bytes."""
    text = server.log.read_bytes()[skip:].decode(errors="replace")
    lines = [line for line in text.splitlines() if "placement.requestlog" in line]
    return [line for line in lines if any(f'"{method} ' in line for method in ("PUT", "POST", "DELETE"))]


@pytest.fixture
def way() -> Way:
    return Way()


@pytest.fixture
def front(placement_server: PlacementServer, way: Way) -> Iterator[str]:
    """The URL at which all hosts reach placement."""
    with Proxy(placement_server.url, hook=way) as proxy:
        yield proxy.url


@pytest.mark.parametrize("batch", range(len(BATCHES)))
@pytest.mark.parametrize("broken", [another_plan, no_libvirt, placement_that_refuses, a_kill_in_the_middle])
def test_a_host_that_breaks_ends_the_change_and_is_gone_on_with_once_mended(
    broken: Break, batch: int, placement_server: PlacementServer, front: str, way: Way, tmp_path: Path
) -> None:
    placement = ByHand(placement_server.url)
    fleet = Fleet(make_hosts(tmp_path / "hosts", front, HOSTS), tmp_path)
    held = units(placement, fleet.hosts)
    assert fleet.play("plan").code == 0
    assert fleet.play("approve", fleet_approve="all").code == 0
    host, end = fleet.hosts[of_batch(batch)], sum(BATCHES[: batch + 1])
    later = [one.name for one in fleet.hosts[end:]]
    before = {name: one for name, one in trees(placement) if name.startswith(tuple(later))} if later else {}
    skip = placement_server.log.stat().st_size

    with broken(fleet, host, way) as words:
        stopped = fleet.play("convert", fleet_batches=BATCHES)

    told = fleet.read("convert.json")
    assert stopped.code != 0
    assert told[host.name]["state"] == "failed", stopped.out
    assert words in told[host.name]["why"]
    assert host.name in stopped.out.partition("failed, and 0 may")[2]
    assert [one["state"] for name, one in told.items() if name in later] == ["not begun"] * len(later)
    assert sum('"POST /reshaper' in line for line in writes(placement_server, skip)) == end - 1
    if later:
        assert {name: one for name, one in trees(placement) if name.startswith(tuple(later))} == before
    assert units(placement, fleet.hosts) == held
    left = [read_approval(file) for file in (host.folder / "state").glob("approvals/*.json")]
    assert all(one and one.begun for one in left)  # else a start of the service would convert the host
    assert "devices" in host.layout.read_text()

    again = fleet.play("convert", fleet_batches=BATCHES)

    assert again.code == 0, again.out
    done = [*["done before"] * (end - 1), *["converted"] * (HOSTS - end + 1)]
    assert list(fleet.states().values()) == done
    assert units(placement, fleet.hosts) == held
    print(f"{broken.__name__} in batch {batch + 1}: {told[host.name]['why'][:100]}", file=sys.stderr)


def test_a_digest_that_nobody_approved_is_applied_by_no_road(placement_server: PlacementServer, tmp_path: Path) -> None:
    placement = ByHand(placement_server.url)
    (host,) = make_hosts(tmp_path / "hosts", placement_server.url, 1)
    fleet = Fleet([host], tmp_path)
    before = dict(trees(placement))
    assert fleet.play("plan").code == 0
    digest = fleet.read("summary.json")["records"][0]["digest"]

    without = fleet.play("convert")
    assert fleet.play("approve", fleet_approve=[]).code == 0
    unnamed = fleet.play("convert")
    forged = host.run("reshape", "--to", "numa", "--apply", "--digest", "0" * 12)
    host.layout.write_text("[compute]\nlayout = numa\n", encoding="utf-8")
    unit = host.run("reshape", "--apply", "--approved")
    service_pass = host.run("sync")
    wrong = host.run("reshape", "--approve", "--digest", "f" * 12)

    assert (without.code == 0, unnamed.code) == (False, 0)
    assert fleet.states() == {host.name: "not approved"}
    assert (forged.code, unit.code, service_pass.code, wrong.code) == (4, 3, 3, 4)
    assert digest != "0" * 12
    assert dict(trees(placement)) == before
