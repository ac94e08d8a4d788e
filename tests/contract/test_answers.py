"""What libvirt is asked for, and what its answers mean."""

import logging
import os
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace

import libvirt
import pytest

from agent.settings.log import QUIET
from beds.function import NAME, xml
from drivers.errors import DiscoveryError, Vanished
from drivers.libvirt.connection import LiveConnection
from drivers.libvirt.nodedev import parse_devices


class Libvirt:
    """An open connection, as libvirt-python has it."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.alive = True
        self.domain = ""  # suffix of the completed host name
        self.states = [1]  # of its domains (virDomainState)
        self.guests: list[Domain] = []  # further ones
        self.broken = ""  # why it has no XML of its device

    def getCapabilities(self) -> str:  # noqa: N802 - libvirt's name
        return "<capabilities/>"

    def getInfo(self) -> list[object]:  # noqa: N802 - libvirt's name
        return ["x86_64", 9000, 4, 2600, 1, 1, 4, 1]

    def getLibVersion(self) -> int:  # noqa: N802 - libvirt's name
        return 9_000_000

    def getHostname(self) -> str:  # noqa: N802 - libvirt's name
        self.asked["name"] += 1
        return os.uname().nodename + self.domain

    def listAllDevices(self, _kinds: int) -> list["Libvirt"]:  # noqa: N802 - libvirt's name
        return [self]

    def name(self) -> str:
        return NAME

    def XMLDesc(self, _flags: int) -> str:  # noqa: N802 - libvirt's name
        if self.broken:
            raise libvirt.libvirtError(self.broken)
        return xml()

    def listAllDomains(self, _flags: int) -> list["Domain"]:  # noqa: N802 - libvirt's name
        return [*(Domain(self.asked, state) for state in self.states), *self.guests]

    def isAlive(self) -> bool:  # noqa: N802 - libvirt's name
        return self.alive


class Domain:
    """A domain in one state, as libvirt-python has it; ``job`` is its operation, or the code of libvirt's refusal."""

    def __init__(self, asked: Counter[str], state: int, reason: int = 0, job: int | None = None, code: int = 0) -> None:
        self._asked, self._state, self._job, self._code = asked, [state, reason], job, code

    def state(self) -> list[int]:
        self._asked["state"] += 1
        return self._state

    def XMLDesc(self, _flags: int) -> str:  # noqa: N802 - libvirt's name
        self._asked["domain"] += 1
        return "<domain/>"

    def jobStats(self) -> dict[str, int]:  # noqa: N802 - libvirt's name
        self._asked["job"] += 1
        if self._code:
            refusal = libvirt.libvirtError("no statistics")
            refusal.err = (self._code, 0, "no statistics")
            raise refusal
        return {} if self._job is None else {libvirt.VIR_DOMAIN_JOB_OPERATION: self._job}

    def UUIDString(self) -> str:  # noqa: N802 - libvirt's name
        return "1"

    def name(self) -> str:
        return "guest"


Live = Callable[..., LiveConnection]


@pytest.fixture
def opened() -> list[Libvirt]:
    """The connections that are opened, in reverse order."""
    return [Libvirt(), Libvirt()]


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch, opened: list[Libvirt]) -> Live:
    """Makes connections of our own, on a host with one VF."""
    monkeypatch.setattr("drivers.libvirt.connection.open_connection", lambda *_, **__: opened.pop())
    return lambda uri="qemu:///system", **more: LiveConnection(uri, **more)


@pytest.mark.parametrize(
    ("uri", "here"),
    [
        ("qemu:///system", True),
        ("qemu+tcp://127.0.0.1:16509/system", True),
        ("qemu+tls://localhost/system?pkipath=/etc/keys", True),
        ("qemu+tcp://[::1]/system", True),
        ("qemu+tcp://root@/system", True),  # libvirt connects to localhost
        ("qemu+tcp://192.0.2.7/system", False),  # of documentation: no machine has it
        ("test:///default", False),
        ("test+tcp://127.0.0.1/default", False),
    ],
)
def test_the_kernels_files_are_those_of_the_host_that_libvirt_manages(live: Live, uri: str, *, here: bool) -> None:
    assert live(uri).files.live is here


def test_an_address_of_one_link_is_this_machines(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    own = SimpleNamespace(address="fe80::1%lo")
    monkeypatch.setattr("drivers.host.addresses.psutil.net_if_addrs", lambda: {"lo": [own]})

    assert live("qemu+tcp://[fe80::1%25lo]/system").files.live
    assert not live("qemu+tcp://[fe80::2%25lo]/system").files.live


def test_a_host_of_another_name_has_other_files_though_a_tunnel_makes_its_address_ours(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "another", "6.1", "1", "x86_64")))
    connection = live("qemu+tcp://127.0.0.1:16509/system")
    monkeypatch.setattr(Libvirt, "getHostname", lambda _self: "one.example.org")

    assert not connection.files.live


def test_a_name_in_the_uri_that_the_resolver_does_not_know_is_told(live: Live) -> None:
    with pytest.raises(
        DiscoveryError, match=r"cannot resolve nowhere\.invalid, the host in \[libvirt\] connection_uri"
    ):
        _ = live("qemu+tcp://nowhere.invalid/system").files


def test_a_uri_that_libvirt_cannot_take_apart_is_told() -> None:
    with pytest.raises(DiscoveryError, match="Unable to parse URI"):
        _ = LiveConnection("qemu+tcp://[::1/system").files


def test_a_device_without_xml_is_odd_as_long_as_the_connection_lives(live: Live, opened: list[Libvirt]) -> None:
    hypervisor, connection = opened[-1], live()
    hypervisor.broken = "unknown PCI header type '127'"

    ((name, document),) = connection.node_devices()
    assert (name, "<unread>cannot read node device" in document.text) == (NAME, True)
    assert "unknown PCI header type '127'" in parse_devices(((name, document),)).odd[0].because
    hypervisor.broken = ""
    assert "unread" not in connection.node_devices()[0][1].text
    hypervisor.broken, hypervisor.alive = "no answer", False
    with pytest.raises(DiscoveryError, match="no answer"):
        connection.node_devices()


def test_a_connection_that_broke_leaves_the_name_that_libvirt_completed(live: Live, opened: list[Libvirt]) -> None:
    _, first = opened
    first.domain = ".example.org"
    connection = live()
    name = connection.hostname()

    first.alive = False
    assert connection._drop_broken()

    opened.clear()  # libvirtd does not come back
    assert connection.hostname() == name


@pytest.mark.parametrize(
    ("kernels", "domain", "asked"),
    [
        pytest.param("one", ".example.org", 1, id="completed"),
        pytest.param("one.example.org", "", 1, id="whole by itself"),
        pytest.param("one", "", 3, id="short: a resolver may come"),
    ],
)
def test_the_host_s_name_is_asked_for_until_it_is_whole(
    live: Live, opened: list[Libvirt], monkeypatch: pytest.MonkeyPatch, kernels: str, domain: str, asked: int
) -> None:
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", kernels, "", "", "")))
    hypervisor, connection = opened[-1], live()
    hypervisor.domain = domain

    assert {connection.hostname() for _ in range(3)} == {kernels + domain}
    assert hypervisor.asked["name"] == asked


def test_a_domain_takes_three_answers_and_one_that_is_shut_off_two(live: Live, opened: list[Libvirt]) -> None:
    hypervisor, connection = opened[-1], live()
    hypervisor.states = [1, 3, 5]

    assert [one.state for one in connection.domains()] == ["running", "paused", "shutoff"]
    assert hypervisor.asked == {"state": 3, "domain": 3, "job": 2}


@pytest.mark.parametrize(
    ("guest", "migrating"),
    [
        pytest.param({"state": 1}, False, id="runs"),
        pytest.param({"state": 3, "reason": libvirt.VIR_DOMAIN_PAUSED_MIGRATION}, True, id="waits for its memory"),
        pytest.param({"state": 3, "reason": libvirt.VIR_DOMAIN_PAUSED_USER}, False, id="paused by a person"),
        pytest.param({"state": 1, "job": libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT}, True, id="leaves"),
        pytest.param({"state": 1, "job": libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_IN}, True, id="comes"),
        pytest.param({"state": 1, "job": libvirt.VIR_DOMAIN_JOB_OPERATION_BACKUP}, False, id="is backed up"),
        pytest.param({"state": 1, "code": libvirt.VIR_ERR_OPERATION_INVALID}, False, id="ended this moment"),
        pytest.param({"state": 1, "code": libvirt.VIR_ERR_NO_SUPPORT}, False, id="a hypervisor without jobs"),
        pytest.param({"state": 5, "code": libvirt.VIR_ERR_INTERNAL_ERROR}, False, id="shut off: not asked"),
    ],
)
def test_a_guest_migrates_as_its_state_or_its_job_says(
    live: Live, opened: list[Libvirt], guest: dict[str, int], migrating: bool
) -> None:
    hypervisor, connection = opened[-1], live()
    hypervisor.states, hypervisor.guests = [], [Domain(hypervisor.asked, **guest)]

    assert [one.migrating for one in connection.domains()] == [migrating]


def test_a_job_that_cannot_be_read_is_an_error(live: Live, opened: list[Libvirt]) -> None:
    hypervisor, connection = opened[-1], live()
    hypervisor.guests = [Domain(hypervisor.asked, 1, code=libvirt.VIR_ERR_INTERNAL_ERROR)]

    with pytest.raises(DiscoveryError, match="no statistics"):
        connection.domains()


def test_the_service_logs_no_answer_of_libvirt(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    """There are many in each pass; the verbs show them with -v."""
    caplog.set_level(logging.INFO, "drivers")
    live().capabilities()
    names = {record.name for record in caplog.records}

    assert names
    assert names <= set(QUIET)


def test_the_memory_of_a_host_without_cells_is_what_libvirt_tells_nova(live: Live) -> None:
    assert live().memory_mib() == 9000


GPU = "<device><name>gpu</name><capability type='pci'><capability type='mdev_types'/></capability></device>"


class Named:
    """A node device, as libvirt-python has it."""

    def __init__(self, name: str, text: str = "<device/>") -> None:
        self._name, self._text = name, text

    def name(self) -> str:
        return self._name

    def XMLDesc(self, _flags: int) -> str:  # noqa: N802 - libvirt's name
        return self._text


@pytest.mark.parametrize(("before", "after"), [({"mdev_1"}, set()), (set(), {"mdev_1"}), ({"mdev_1"}, {"mdev_2"})])
def test_a_mediated_device_that_comes_or_goes_while_devices_are_read_means_another_look(
    live: Live, opened: list[Libvirt], monkeypatch: pytest.MonkeyPatch, before: set[str], after: set[str]
) -> None:
    """It would count beside the free instances of its card, which may count it too."""
    lists = [[Named("gpu", GPU), *map(Named, names)] for names in (after, after, after, before)]
    monkeypatch.setattr(opened[-1], "listAllDevices", lambda _kinds: lists.pop())
    connection = live()

    with pytest.raises(Vanished, match="mdev_"):
        connection.node_devices()
    assert {name for name, _ in connection.node_devices()} == {"gpu", *after}


def test_an_interface_that_goes_while_devices_are_read_means_no_other_look(
    live: Live, opened: list[Libvirt], monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = [[Named("gpu", GPU)], [Named("gpu", GPU), Named("net_vnet0_fe_54_00_00_00_01")]]
    monkeypatch.setattr(opened[-1], "listAllDevices", lambda _kinds: lists.pop())

    assert len(live().node_devices()) == 2
