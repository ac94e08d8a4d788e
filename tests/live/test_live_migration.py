"""Guests migrate live between two real libvirtds."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from beds.migration import Host, migrate, migrating, two_hosts

pytestmark = pytest.mark.live

Hosts = tuple[Host, Host]


@pytest.fixture(scope="module")
def libvirt_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def hosts(tmp_path_factory: pytest.TempPathFactory, libvirt_cache: Path) -> Iterator[Hosts]:
    with two_hosts(tmp_path_factory.mktemp("hosts"), cache=libvirt_cache) as both:
        yield both


@pytest.fixture
def guest(hosts: Hosts) -> str:
    """The uuid of a guest that runs at the source."""
    identity = str(uuid.uuid4())
    hosts[0].start(identity)
    return identity


def test_both_hosts_tell_of_a_guest_that_migrates(hosts: Hosts, guest: str) -> None:
    source, destination = hosts
    before = [host.guests() for host in hosts]
    with migrating(source, destination, guest) as migration:
        between = [host.guests() for host in hosts]
        job = source.virsh("domjobinfo", guest)
        migration.let_go()
    after = [host.guests() for host in hosts]
    migrate(destination, source, guest)

    assert [host.virsh("hostname").strip() for host in hosts] == [source.hostname, destination.hostname]
    assert before == [{guest: "running"}, {}]
    assert between == [{guest: "running"}, {guest: "paused"}]
    assert "Outgoing migration" in job
    assert after == [{}, {guest: "running"}]
    assert [host.guests() for host in hosts] == before


def test_a_guest_whose_destination_dies_runs_on_at_the_source(hosts: Hosts, guest: str) -> None:
    source, destination = hosts
    process = source.process(guest)

    with migrating(source, destination, guest) as migration:
        complaint = migration.kill_destination()

    assert complaint
    assert [host.guests() for host in hosts] == [{guest: "running"}, {}]
    assert source.process(guest) == process
