"""The gate to libvirt, on a real libvirtd: what is heard, what is kept, and what becomes of one that hangs."""

import itertools
import logging
import os
import queue
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import libvirt
import pytest

from beds import libvirtd
from beds.libvirtd import Libvirtd
from drivers.base import Event
from drivers.errors import DiscoveryError
from drivers.libvirt import library
from drivers.libvirt.connection import LiveConnection
from drivers.libvirt.library import open_connection, start_event_loop
from inside_nova.device_events import DeviceEvents

pytestmark = pytest.mark.live
DOMAIN = "<domain type='qemu'><name>heard</name><memory>4096</memory><os><type>hvm</type></os></domain>"


def test_a_host_that_is_opened_again_and_again_leaves_nothing_open(hypervisor: Libvirtd) -> None:
    """Neither connections nor threads: libvirt keeps what is registered with it until it is taken back."""

    def count() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    for number in range(20):
        connection = LiveConnection(hypervisor.uri)
        with connection.watching(lambda _event: None):
            assert connection.hostname()
        del connection
        if number == 1:  # the first has made what all share
            before = count()
    # the event loop frees the sockets of the last one only when it turns again; a leak has some of each round
    deadline = time.monotonic() + 10
    while (now := count()) and time.monotonic() < deadline and (now[0] > before[0] or now[1] > before[1]):
        time.sleep(0.01)
    assert now[0] <= before[0]
    assert now[1] <= before[1]


def test_what_happens_while_a_host_is_read_is_heard(hypervisor: Libvirtd) -> None:
    heard: queue.SimpleQueue[Event] = queue.SimpleQueue()
    connection = LiveConnection(hypervisor.uri)
    with connection.watching(heard.put):
        for _ in range(2):
            define_and_forget(hypervisor)
            assert connection.domains() == ()
            assert {heard.get(timeout=30).what for _ in range(2)} == {"domain heard defined", "domain heard undefined"}


def define_and_forget(hypervisor: Libvirtd) -> None:
    other = libvirt.open(hypervisor.uri)
    other.defineXML(DOMAIN).undefine()
    other.close()


def test_an_event_loop_that_fails_is_told_once_and_turned_again(
    hypervisor: Libvirtd, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    turn, failures = libvirt.virEventRunDefaultImpl, itertools.count()
    heard: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def failing() -> int:
        if next(failures) < 2:
            raise libvirt.libvirtError("poll failed")
        return int(turn())

    connection = LiveConnection(hypervisor.uri)
    with connection.watching(heard.put):
        caplog.set_level(logging.INFO)
        monkeypatch.setattr(libvirt, "virEventRunDefaultImpl", failing)
        define_and_forget(hypervisor)
        assert {heard.get(timeout=30).what for _ in range(2)} == {"domain heard defined", "domain heard undefined"}
        define_and_forget(hypervisor)
        assert {heard.get(timeout=30).what for _ in range(2)} == {"domain heard defined", "domain heard undefined"}
    assert [one.levelname for one in caplog.records if "event loop" in one.message] == ["WARNING"]


def test_a_libvirtd_that_hangs_while_the_host_is_read_is_given_up_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By keep-alive, which libvirt's event loop looks after."""
    monkeypatch.setattr(library, "OPENING_S", 3.0)
    heard: queue.SimpleQueue[Event] = queue.SimpleQueue()
    with libvirtd.serving(tmp_path / "libvirtd") as hypervisor, ThreadPoolExecutor(1) as aside:
        connection = LiveConnection(hypervisor.uri)
        with connection.watching(heard.put):
            assert connection.node_devices()
            os.kill(hypervisor.pid, signal.SIGSTOP)
            try:
                with pytest.raises(DiscoveryError, match="keepalive"):
                    aside.submit(connection.node_devices).result(40)
                for _ in range(2):
                    with pytest.raises(DiscoveryError, match="does libvirtd hang"):
                        aside.submit(connection.node_devices).result(30)
                names = [thread.name for thread in threading.enumerate()]
                assert names.count("libvirt-open") <= 1
            finally:
                os.kill(hypervisor.pid, signal.SIGCONT)
            assert connection.node_devices()
            assert heard.get(timeout=30).what == "connection lost"
            define_and_forget(hypervisor)
            assert heard.get(timeout=30).what == "domain heard defined"


def test_what_came_of_an_opening_that_nobody_waited_for_serves_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, open_it = [], libvirt.openAuth

    def remembered(*arguments: object) -> libvirt.virConnect:
        made.append(open_it(*arguments))
        return made[-1]

    start_event_loop()
    monkeypatch.setattr(libvirt, "openAuth", remembered)
    with libvirtd.serving(tmp_path / "libvirtd") as hypervisor:
        os.kill(hypervisor.pid, signal.SIGSTOP)
        try:
            monkeypatch.setattr(library, "OPENING_S", 0.5)
            with pytest.raises(DiscoveryError, match="does libvirtd hang"):
                open_connection(hypervisor.uri)
        finally:
            monkeypatch.setattr(library, "OPENING_S", 20.0)
            os.kill(hypervisor.pid, signal.SIGCONT)
        wait_for_openings()

        first, second = open_connection(hypervisor.uri), open_connection(hypervisor.uri)
        assert first.isAlive()
        assert [one is first for one in made] == [True, False]
        assert second is made[1]


def wait_for_openings() -> None:
    """Until nobody opens or closes a connection: one that is being closed must not be asked anything."""
    for thread in threading.enumerate():
        if thread.name in ("libvirt-open", "libvirt-closing"):
            thread.join(20)


def test_a_resolver_that_goes_away_gives_the_host_no_other_name(
    hypervisor: Libvirtd, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answers(name: str) -> None:
        monkeypatch.setattr(libvirt.virConnect, "getHostname", lambda _self: name)

    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "one", "", "", "")))
    connection = LiveConnection(hypervisor.uri)
    answers("one")  # it is away from the start
    assert connection.hostname() == "one"
    answers("one.example.org")
    assert connection.hostname() == "one.example.org"
    answers("one")
    assert connection.hostname() == "one.example.org"

    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "two", "", "", "")))
    answers("two")
    assert connection.hostname() == "two"


def test_each_look_gives_what_libvirt_gives_now(hypervisor: Libvirtd) -> None:
    """With the kernel's files of this very machine."""
    connection, other = LiveConnection(hypervisor.uri), LiveConnection(hypervisor.uri)

    seen = [(connection.capabilities(), connection.versions(), connection.node_devices()) for _ in range(3)]

    assert seen == 3 * [(other.capabilities(), other.versions(), other.node_devices())]


def test_a_borrowed_connection_gives_the_same_answers_and_stays_open(
    hypervisor: Libvirtd, caplog: pytest.LogCaptureFixture
) -> None:
    """As inside nova-compute: the owner runs the event loop, and events of devices can be registered."""
    start_event_loop()
    lent = open_connection(hypervisor.uri)
    heard: queue.SimpleQueue[None] = queue.SimpleQueue()
    events = DeviceEvents(lambda: lent, lambda: heard.put(None))
    try:
        events.listen()
        mine, own = LiveConnection(hypervisor.uri, borrow=lambda: lent), LiveConnection(hypervisor.uri)
        assert mine.hostname() == own.hostname()
        assert mine.capabilities() == own.capabilities()
        assert mine.node_devices() == own.node_devices()
        assert heard.get(timeout=1) is None
        assert lent.isAlive()
    finally:
        events.close()
        lent.close()
    assert not [one for one in caplog.records if "no events of devices" in one.message]
