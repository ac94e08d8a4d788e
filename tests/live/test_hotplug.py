"""Hot-plug while the agent watches: what the kernel announces is in placement before anybody could ask for it."""

import json
import queue
import signal
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beds.placement import PlacementServer
from beds.synthetic import bed
from beds.synthetic.bed import Host
from beds.synthetic.hosts import FOUR_CELLS
from beds.synthetic.model import Machine, Nic
from beds.synthetic.plugging import Plugging

pytestmark = pytest.mark.live

Start = Callable[[Machine], Host]
Write = Callable[..., Path]
NEW = Nic(address="0000:41:00.0", cell=1, name="ens9", vfs=8)


@pytest.fixture
def host(synthetic: Start) -> Host:
    return synthetic(FOUR_CELLS)


@contextmanager
def watching(host: Host, *options: object) -> Iterator[Callable[[], Any]]:
    """The agent watching a host; yields what waits for the next thing that it says."""
    said: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen(lines: Iterable[str]) -> None:
        for line in lines:
            said.put(line)

    with host.start("watch", "--format", "json", *options) as process:
        listener = threading.Thread(target=listen, args=(process.stdout,))
        listener.start()
        try:
            yield lambda: json.loads(said.get(timeout=20))
        finally:
            process.send_signal(signal.SIGTERM)
            listener.join(10)
    assert process.returncode == 0


def until(heard: Callable[[], Any], enough: Callable[[list[Any]], bool]) -> list[Any]:
    """What is said from now on until it is enough: events that belong together may be told in several lines."""
    said = [heard()]
    while not enough(said):
        said.append(heard())
    return said


def all_of(name: str, said: list[Any]) -> list[Any]:
    """The ``events`` or ``operations`` of several lines."""
    return [one for line in said for one in line[name]]


def tells(what: str) -> Callable[[list[Any]], bool]:
    """Whether any event of several lines says this."""
    return lambda said: any(what in event["what"] for event in all_of("events", said))


def test_a_card_its_vfs_and_a_vgpu_come_and_go_and_placement_follows(
    host: Host, placement_server: PlacementServer, tmp_path: Path
) -> None:
    with Plugging(host, placement_server.url, tmp_path) as plugging:
        rounds = [plugging.round() for _ in range(2)]

    assert all(len(seconds) == 7 for seconds in rounds)  # how long each took is for the bench to say


def test_watch_says_what_each_event_changes_and_writes_nothing(host: Host, write_config: Write, tmp_path: Path) -> None:
    config = write_config(libvirt={"connection_uri": host.libvirtd.uri, "virt_type": "qemu"}, pci={"discover": "all"})
    created = tells("node device pci_0000_41_00_0 created")

    with watching(host, "--config-file", config) as heard:
        assert heard()["events"] == []
        host.announce("add", host.files.add_nic(NEW))
        try:
            came = until(heard, lambda said: created(said) and bool(all_of("operations", said)))
        finally:
            host.announce("remove", host.files.remove_nic(NEW))
        left = until(heard, lambda said: bool(all_of("operations", said)))

    assert {"source": "udev", "what": "add pci 0000:41:00.0"} in all_of("events", came)
    operations = all_of("operations", came)
    assert [one["operation"] for one in operations] == [
        "create",
        "ensure-traits",
        "set-traits",
        "set-inventories",
    ]
    assert operations[-1]["inventories"]["SRIOV_NET_VF"]["total"] == 8
    assert [one["operation"] for one in all_of("operations", left)] == ["delete"]


def test_guests_that_start_and_stop_ask_for_a_look(host: Host, write_config: Write) -> None:
    config = write_config(libvirt={"connection_uri": host.libvirtd.uri, "virt_type": "qemu"})
    identity = str(uuid.uuid4())
    xml = (
        f"<domain type='qemu'><name>here-and-gone</name><uuid>{identity}</uuid><memory unit='MiB'>32</memory>"
        f"<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>"
    )

    with watching(host, "--config-file", config) as heard:
        heard()
        host.virsh("create", "/dev/stdin", text=xml)
        until(heard, tells("domain here-and-gone started"))
        host.virsh("destroy", identity)
        until(heard, tells("domain here-and-gone stopped"))


def test_a_look_in_the_middle_of_a_storm_is_whole_or_none(host: Host, write_config: Write) -> None:
    """VFs come and go while the host is read: what did not change is in every answer, whatever else is."""
    config = write_config(libvirt={"connection_uri": host.libvirtd.uri, "virt_type": "qemu"}, pci={"discover": "all"})
    options = ("--config-file", config, "--format", "json")
    quiet = host.run("discover", *options).json["providers"]
    over = threading.Event()

    def plug() -> None:
        while not over.is_set():
            host.announce("add", host.files.add_nic(NEW))
            host.announce("remove", host.files.remove_nic(NEW))

    storm = threading.Thread(target=plug)
    storm.start()
    try:
        looks = [host.run("discover", *options) for _ in range(12)]
    finally:
        over.set()
        storm.join()

    answers = [look.json["providers"] for look in looks if look.code == 0]
    assert answers
    for answer in answers:
        assert {name: answer[name] for name in quiet} == quiet
    for look in looks:
        assert look.code == 0 or "while the host was read" in look.err, look.err


def test_a_libvirtd_that_is_restarted_is_found_again(write_config: Write, tmp_path: Path) -> None:
    """On a host of its own, as others share theirs."""
    with bed.serving(tmp_path / "host", replace(FOUR_CELLS, name="restarted")) as host:
        config = write_config(
            libvirt={"connection_uri": host.libvirtd.uri, "virt_type": "qemu"}, pci={"discover": "all"}
        )
        with watching(host, "--config-file", config) as heard:
            heard()
            again = host.restart_libvirtd()
            try:
                lost = heard()
                until(heard, tells("connected again"))
                host.announce("add", host.files.add_nic(NEW))
                came = until(heard, lambda said: bool(all_of("operations", said)))
            finally:
                again.terminate()
                again.wait(30)

    assert lost["events"] == [{"source": "libvirt", "what": "connection lost"}]
    assert lost["operations"] == []  # a host that cannot be read does not change
    assert all_of("operations", came)[0]["provider"] == "restarted_0000:41:00.0"


def test_a_recorded_host_cannot_be_watched(tmp_path: Path) -> None:
    from beds.agents import run_agent

    config = tmp_path / "agent.conf"
    config.write_text("[DEFAULT]\ncompute_driver = fake.FakeDriver\n")

    refused = run_agent("watch", "--config-file", config)

    assert (refused.code, len(refused.err.splitlines())) == (1, 1)
    assert "watch works only on a live host" in refused.err
