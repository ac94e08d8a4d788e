"""The gate to libvirt, on a real libvirtd: what is heard, what is kept, and what becomes of one that hangs."""

import os
import queue
import signal
import threading
import time
from pathlib import Path

import libvirt
import pytest

from beds import libvirtd
from beds.libvirtd import Libvirtd
from drivers.errors import DiscoveryError
from drivers.events import Event
from drivers.libvirt import opening
from drivers.libvirt.connection import LiveConnection

pytestmark = pytest.mark.live
DOMAIN = "<domain type='qemu'><name>heard</name><memory>4096</memory><os><type>hvm</type></os></domain>"


def test_a_host_that_is_opened_again_and_again_leaves_nothing_open(hypervisor: Libvirtd) -> None:
    """Neither connections nor threads: libvirt keeps what is registered with it until it is taken back."""

    def count() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    for number in range(6):
        connection = LiveConnection(hypervisor.uri)
        with connection.watching(lambda _event: None):
            assert connection.hostname()
        del connection
        if number == 1:  # the first has made what all share
            before = count()
    assert count() == before


def test_what_happens_while_a_host_is_read_is_heard(hypervisor: Libvirtd) -> None:
    heard: queue.SimpleQueue[Event] = queue.SimpleQueue()
    connection = LiveConnection(hypervisor.uri)
    with connection.watching(heard.put):
        for _ in range(2):
            with connection.unheard():
                define_and_forget(hypervisor)
                assert connection.domains() == ()
            assert {heard.get(timeout=5).what for _ in range(2)} == {"domain heard defined", "domain heard undefined"}


def define_and_forget(hypervisor: Libvirtd) -> None:
    other = libvirt.open(hypervisor.uri)
    other.defineXML(DOMAIN).undefine()
    other.close()


def test_a_libvirtd_that_hangs_while_the_host_is_read_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By keep-alive, which libvirt's event loop looks after also while it rests."""
    with libvirtd.serving(tmp_path / "libvirtd") as hypervisor:
        connection = LiveConnection(hypervisor.uri)
        with connection.watching(lambda _event: None), connection.unheard():
            connection.node_devices()
            os.kill(hypervisor.pid, signal.SIGSTOP)
            began = time.monotonic()
            try:
                with pytest.raises(DiscoveryError, match="keepalive"):
                    connection.node_devices()
                monkeypatch.setattr(opening, "OPENING_S", 1.0)
                for _ in range(2):
                    with pytest.raises(DiscoveryError, match="does libvirtd hang"):
                        connection.node_devices()
                assert sum(thread.name == "libvirt-open" for thread in threading.enumerate()) <= 2  # one to listen
            finally:
                os.kill(hypervisor.pid, signal.SIGCONT)
            assert time.monotonic() - began < 60
            monkeypatch.undo()
            assert connection.node_devices()


def test_a_resolver_that_goes_away_gives_the_host_no_other_name(
    hypervisor: Libvirtd, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = LiveConnection(hypervisor.uri)
    name = connection.hostname()
    monkeypatch.setattr(libvirt.virConnect, "getHostname", lambda _self: "short")
    assert connection.hostname() == name

    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "renamed", "", "", "")))
    assert connection.hostname() == "short"
