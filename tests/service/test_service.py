"""
The service as systemd runs it: the package, its units, the unprivileged user; on a synthetic host and real placement.

The host's real libvirtd runs outside of the container; its socket, which belongs to the group libvirt as on Debian, and
what its kernel would show are bound into the units' own view.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from beds import nspawn, placement
from beds.by_hand import ByHand
from beds.nspawn import PATIENCE_S, Container
from beds.process import wait_until
from beds.proxy import Answer, Forward, Proxy, Request, pass_on
from beds.synthetic import bed
from beds.synthetic.hosts import QUEENS_FIRST
from beds.upgrades import write_config
from reportclient.ownership import MARKER

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]
UNIT, RESHAPE = "compute-node-agent.service", "compute-node-agent-reshape.service"
APPROVALS = "/var/lib/compute-node-agent/approvals"
HOST = """\
[Service]
Environment=SYSTEMD_DEVICE_VERIFY_SYSFS=0
BindReadOnlyPaths=/srv/host/sys:/sys
"""
OFTEN = "WatchdogSec=6\nRestartSec=1\n"


@dataclass(frozen=True, slots=True)
class Installed:
    """A container with the package in it, and the placement that it reports to."""

    container: Container
    proxy: Proxy
    placement: ByHand

    def running(self, but: str = "0") -> str:
        """The process of the service once it is up to date, and another than that one."""
        show = self.container.show
        wait_until(
            lambda: show(UNIT, "MainPID") not in ("0", but) and show(UNIT, "StatusText").startswith("up to date"),
            PATIENCE_S,
            lambda: self.container.run("journalctl", "-u", UNIT, "--no-pager", "-n", "40", check=False),
            pause_s=0.2,
        )
        return show(UNIT, "MainPID")

    def report(self) -> None:
        """The service starts, is up to date, and stops."""
        self.container.run("systemctl", "start", UNIT)
        self.running()
        self.container.run("systemctl", "stop", UNIT)


@pytest.fixture(scope="module")
def package() -> Path:
    """The Debian package of this tree."""
    command = [str(ROOT / "tools/deb.sh"), sys._base_executable]  # type: ignore[attr-defined]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return ROOT / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def installed(package: Path, placement_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    folder = tmp_path_factory.mktemp("service")
    share = folder / "share"
    share.mkdir()
    share.chmod(0o755)
    with (
        placement.serving(folder / "placement", placement_template) as server,
        Proxy(server.url) as proxy,
        bed.serving(folder / "host", QUEENS_FIRST) as host,
        nspawn.booted(
            folder / "container",
            binds={
                share: "/srv/share",
                host.files.root / "sys": "/srv/host/sys",
                host.libvirtd.socket.parent: "/srv/run",
            },
        ) as container,
    ):
        shutil.chown(host.libvirtd.socket, "root", "libvirt")
        host.libvirtd.socket.chmod(0o770)
        for path in (host.libvirtd.socket.parent, *host.libvirtd.socket.parent.parents):
            if path.stat().st_uid == os.getuid() and not path.stat().st_mode & 0o001:
                path.chmod(path.stat().st_mode | 0o001)
        (share / package.name).write_bytes(package.read_bytes())
        config: dict[str, dict[str, object]] = {
            "placement": {"auth_type": "none", "endpoint": proxy.url},
            "agent": {"interval": 2, "start_spread": 0},
            "libvirt": {"virt_type": "qemu", "connection_uri": "qemu:///system?socket=/srv/run/libvirt-sock"},
            "pci": {"discover": "all"},
            "DEFAULT": {"instances_path": "/var/lib", "state_path": "/nonexistent"},
        }
        path = write_config(config, share / "agent.conf")
        container.run("dpkg", "-i", "--force-depends", f"/srv/share/{package.name}")
        container.run(
            "install", "-D", "-m", "644", f"/srv/share/{path.name}", "/etc/compute-node-agent/compute-node-agent.conf"
        )
        for name in ("passwd", "group"):  # libvirtd looks up who calls it: here somebody of the container
            known = folder / name
            known.write_text(container.run("cat", f"/etc/{name}"), encoding="utf-8")
            subprocess.run([*host.libvirtd.inside, "mount", "--bind", str(known), f"/etc/{name}"], check=True)
        for unit, text in ((UNIT, HOST + OFTEN), (RESHAPE, HOST)):
            container.run("mkdir", "-p", f"/etc/systemd/system/{unit}.d")
            container.run("tee", f"/etc/systemd/system/{unit}.d/test.conf", text=text)
        container.run("systemctl", "daemon-reload")
        yield Installed(container, proxy, ByHand(server.url))


def hang(request: Request, forward: Forward) -> Answer:
    time.sleep(30)
    return forward(request)


@contextmanager
def approval_of_another_host(container: Container) -> Iterator[None]:
    """Inside the context there is an approval, so that the unit of conversions runs, and it is none of this host."""
    container.run("install", "-d", "-o", "compute-node-agent", APPROVALS)
    container.run("touch", f"{APPROVALS}/of-another-host.json")
    try:
        yield
    finally:
        container.run("rm", f"{APPROVALS}/of-another-host.json")


def test_the_service_lives_its_life_under_systemd(installed: Installed) -> None:
    """Started, ready, reloaded, killed and restarted, hung and killed by the watchdog, stopped: as its own user."""
    with approval_of_another_host(installed.container):
        _live(installed)


def _live(installed: Installed) -> None:
    container = installed.container

    container.run("systemctl", "start", UNIT)
    first = installed.running()
    assert container.show(RESHAPE, "Result") == "success"
    assert (
        0
        < int(container.show(RESHAPE, "ExecMainExitTimestampMonotonic"))
        <= int(container.show(UNIT, "ExecMainStartTimestampMonotonic"))
    )
    assert container.run("ps", "-o", "user:32=", "-p", first).strip() == "compute-node-agent"

    container.run("systemctl", "reload", UNIT)
    assert installed.running() == first

    container.run("kill", "-KILL", first)
    second = installed.running(but=first)

    installed.proxy.hook = hang  # the loop waits for an answer, and everything else in the process goes on
    log = ("journalctl", "-u", UNIT, "--no-pager")
    wait_until(lambda: "Watchdog timeout" in container.run(*log), PATIENCE_S, lambda: container.run(*log), pause_s=0.5)
    installed.proxy.hook = pass_on
    third = installed.running(but=second)
    assert len({first, second, third}) == 3
    assert container.show(UNIT, "NRestarts") == "2"

    container.run("systemctl", "stop", UNIT)
    assert container.show(UNIT, "Result") == "success"

    names = {f"{QUEENS_FIRST.name}_{nic.address}" for nic in QUEENS_FIRST.nics}
    assert installed.placement.providers().keys() == names | {QUEENS_FIRST.name}


def test_the_reshape_before_the_start_is_harmless_when_repeated(installed: Installed) -> None:
    container = installed.container
    installed.report()
    installed.proxy.seen.clear()

    container.run("systemctl", "start", RESHAPE)
    assert installed.proxy.seen == []  # nothing is approved
    with approval_of_another_host(container):
        container.run("systemctl", "start", RESHAPE)

    assert container.show(RESHAPE, "Result") == "success"
    tree = 1 + len(QUEENS_FIRST.nics)  # a command reads every provider, by three requests after the listing
    assert [seen.method for seen in installed.proxy.seen] == ["GET"] * (1 + 3 * tree)


def by_hand(container: Container, *arguments: str) -> str:
    """What the command prints for root, to whom the host looks as it does to the units."""
    host = [f"--property={line}" for line in HOST.splitlines()[1:]]
    command = ["systemd-run", "--quiet", "--wait", "--pipe", *host, "/usr/bin/compute-node-agent", *arguments]
    return container.run(*command, check=False)


def test_the_reshape_before_the_start_converts_only_what_was_approved(installed: Installed) -> None:
    """The host changes its layout under somebody who holds a VF; root approves, and the agent's user uses that up."""
    container, send = installed.container, installed.placement.send
    installed.report()
    card = f"{QUEENS_FIRST.name}_{QUEENS_FIRST.nics[0].address}"
    slots = {installed.placement.providers()[card]["uuid"]: {"SRIOV_NET_VF": 1}}
    consumer = str(uuid.uuid4())
    installed.placement.claim(consumer, slots, "OTHER")
    path = "/etc/compute-node-agent/compute-node-agent.conf"
    before = container.run("cat", path)
    try:
        container.run("tee", path, text=before + "[compute]\nlayout = flat\n")

        container.run("systemctl", "start", RESHAPE)
        assert container.run("systemctl", "show", "--property=ConditionResult", "--value", RESHAPE).strip() == "no"
        assert "nobody approved that" in by_hand(container, "reshape", "--apply", "--approved")
        assert set(send("GET", f"/allocations/{consumer}")["allocations"]) == set(slots)

        planned = by_hand(container, "reshape", "--format", "json")
        digest = json.loads(planned[planned.index("{") : planned.rindex("}") + 1])["digest"]
        assert "approved: the plan" in by_hand(container, "reshape", "--approve", "--digest", digest)
        owners = container.run("stat", "-c", "%U", APPROVALS)
        container.run("systemctl", "start", RESHAPE)

        assert owners.strip() == "compute-node-agent"
        (root,) = installed.placement.providers().values()
        assert set(send("GET", f"/allocations/{consumer}")["allocations"]) == {root["uuid"]}
        assert container.run("ls", APPROVALS).strip() == ""
    finally:
        container.run("tee", path, text=before)
        send("DELETE", f"/allocations/{consumer}")


def test_a_conversion_on_trial_is_taken_back_after_a_reboot(installed: Installed) -> None:
    """The host boots while the trial of a conversion waits, with somebody who holds a VF."""
    container, hand = installed.container, installed.placement
    installed.report()
    before = {name: one["parent_provider_uuid"] for name, one in hand.providers().items()}
    card = f"{QUEENS_FIRST.name}_{QUEENS_FIRST.nics[0].address}"
    slots = {hand.providers()[card]["uuid"]: {"SRIOV_NET_VF": 1}}
    consumer = str(uuid.uuid4())
    hand.claim(consumer, slots, "OTHER")
    try:
        converted = by_hand(container, "reshape", "--to", "flat", "--apply", "--confirm-within", "1m")
        assert "unless reshape --confirm comes" in converted
        assert hand.providers().keys() == {QUEENS_FIRST.name}
        container.run("systemctl", "enable", UNIT)

        container.reboot()

        log = ("journalctl", "-u", UNIT, "--no-pager", "-b")
        taken_back = "a conversion that nobody confirmed is taken back"
        wait_until(lambda: taken_back in container.run(*log), 2 * PATIENCE_S, lambda: container.run(*log), pause_s=0.5)
        assert {name: one["parent_provider_uuid"] for name, one in hand.providers().items()} == before
        assert hand.send("GET", f"/allocations/{consumer}")["allocations"].keys() == slots.keys()
    finally:
        container.run("systemctl", "disable", "--now", UNIT)
        hand.send("DELETE", f"/allocations/{consumer}")


def test_a_reshape_that_fails_does_not_keep_the_service_from_starting(installed: Installed) -> None:
    container = installed.container
    container.run(
        "tee", f"/etc/systemd/system/{RESHAPE}.d/fail.conf", text="[Service]\nExecStart=\nExecStart=/bin/false\n"
    )
    container.run("systemctl", "daemon-reload")

    with approval_of_another_host(container):
        container.run("systemctl", "start", UNIT)

    installed.running()
    assert container.show(RESHAPE, "Result") == "exit-code"
    container.run("systemctl", "stop", UNIT)


def test_beside_nova_compute_nothing_is_written(installed: Installed) -> None:
    """The unit lets the service see other processes: without our mark the root may be that one's."""
    container, placement = installed.container, installed.placement
    installed.report()
    root = placement.providers()[QUEENS_FIRST.name]["uuid"]
    traits = placement.traits(root)
    placement.remove_traits(root, MARKER)
    forget = f"rm /var/lib/compute-node-agent/{root}.json"
    container.run("sh", "-c", forget)
    container.run("systemd-run", "--unit=other", "bash", "-c", "exec -a /usr/bin/nova-compute sleep 600")
    try:
        container.run("systemctl", "start", UNIT)
        told = partial(container.show, UNIT, "StatusText")
        wait_until(lambda: told().startswith("contested"), PATIENCE_S, told, pause_s=0.5)
        assert placement.traits(root) == traits - {MARKER}
    finally:
        container.run("systemctl", "stop", UNIT, "other")
        placement.add_traits(root, *traits)
        container.run("sh", "-c", forget)


LIMITED = "/sys/fs/cgroup/memory/limited"
LIMIT = f"""\
mount -o remount,bind,rw /sys/fs/cgroup/memory && mkdir -p {LIMITED} &&
systemctl show {UNIT} -p MemoryMax --value > {LIMITED}/memory.limit_in_bytes &&
systemctl show {UNIT} -p MainPID --value > {LIMITED}/cgroup.procs
"""


def test_a_service_that_takes_more_memory_than_its_unit_allows_is_ended_and_started_again(installed: Installed) -> None:
    """A systemd in a container has no memory controller, so the unit's limit is set on the process from here."""
    container = installed.container
    grown = f"python3 -c \"import time; time.sleep(5); b'x' * {(1 << 30) + 1}; time.sleep(60)\""
    drop_in = f"/etc/systemd/system/{UNIT}.d/grown.conf"
    container.run("tee", drop_in, text=f"[Service]\nType=exec\nExecStart=\nExecStart=/usr/bin/{grown}\n")
    container.run("systemctl", "daemon-reload")
    before = int(container.show(UNIT, "NRestarts"))
    try:
        container.run("systemctl", "start", UNIT)
        container.run("sh", "-c", LIMIT)
        restarts = partial(container.show, UNIT, "NRestarts")
        wait_until(lambda: int(restarts()) > before, PATIENCE_S, restarts, pause_s=0.5)
        assert "status=9/KILL" in container.run("journalctl", "-u", UNIT, "--no-pager", "-n", "20")
    finally:
        container.run("systemctl", "stop", UNIT)
        container.run("rm", drop_in)
        container.run("systemctl", "daemon-reload")
    installed.report()


@pytest.mark.parametrize("unit", [UNIT, RESHAPE])
def test_the_units_expose_little(unit: str, installed: Installed) -> None:
    path = ROOT / "systemd" / unit
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=15", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-300:]
    assert "nknown" not in installed.container.run("systemd-analyze", "verify", f"/lib/systemd/system/{unit}")
