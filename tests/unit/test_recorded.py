"""libvirt as a host archive recorded it: what is recorded again is the same, and what cannot be true is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from drivers.errors import DiscoveryError, MalformedFact
from drivers.facts import CpuMap
from drivers.fake import write_host
from drivers.host.archive import FORMAT, HostArchive, write_files
from drivers.libvirt.connection import HOST_CPU
from drivers.libvirt.driver import Connection
from drivers.libvirt.recorded import CPU_MAP, MEMORY, MIGRATING, RecordedConnection, expanded_file, recorded_files

GUESTS = {"aa": "running", "bb": "shutoff"}
MORE = {
    "libvirt/nodedevs/net_eth0.xml": "<device><name>net_eth0</name></device>",
    "libvirt/models/x86_64-Skylake.xml": "<cpu><feature name='avx'/></cpu>",
    f"libvirt/models/{HOST_CPU}.xml": "<cpu/>",
    "libvirt/domains/aa.xml": "<domain><name>a</name></domain>",
    "libvirt/domains/bb.xml": "<domain><name>b</name></domain>",
    "libvirt/domains.json": json.dumps(GUESTS),
    MEMORY: json.dumps({"mib": 9000}),
    MIGRATING: json.dumps({"migrating": ["aa"]}),
}


@pytest.fixture
def archive(tmp_path: Path) -> HostArchive:
    """A host with a device, a CPU model, and two guests, one of which migrates."""
    one = write_host(tmp_path / "recorded", seed=1, shape="small")
    return write_files(one.root, MORE)


def asked(one: Connection) -> dict[str, Any]:
    """All that libvirt is asked for, without where it was read."""
    return {
        "versions": (one.versions(), one.versions().type),
        "cpus": one.cpu_map(),
        "memory": one.memory_mib(),
        "capabilities": one.capabilities().text,
        "offers": [(name, document.text) for name, document in one.domain_capabilities("kvm", ())],
        "models": [(name, one.expand(f"x86_64-{name}", "").text) for name in one.cpu_models("x86_64")],
        "cpu": one.expand(HOST_CPU, "<cpu><arch>host</arch></cpu>").text,
        "devices": [(name, document.text) for name, document in one.node_devices()],
        "guests": [(each.uuid, each.state, each.document.text, each.migrating) for each in one.domains()],
    }


def recorded(one: RecordedConnection) -> dict[str, str]:
    names = (HOST_CPU, "x86_64-Skylake")
    answers = one.versions(), one.cpu_map(), one.memory_mib(), one.capabilities(), one.domain_capabilities("kvm", ())
    files = recorded_files(*answers, one.node_devices(), one.domains())
    return files | {expanded_file(name): one.expand(name, "").text for name in names}


def test_what_is_recorded_of_a_recorded_host_is_the_same_host(archive: HostArchive, tmp_path: Path) -> None:
    told = asked(RecordedConnection(archive))
    files = recorded(RecordedConnection(archive))

    assert told == asked(RecordedConnection(write_files(tmp_path / "again", files)))
    assert RecordedConnection(archive).hostname() == archive.root.name
    assert told["guests"] == [
        ("aa", "running", MORE["libvirt/domains/aa.xml"], True),
        ("bb", "shutoff", MORE["libvirt/domains/bb.xml"], False),
    ]
    assert told["models"] == [("Skylake", MORE["libvirt/models/x86_64-Skylake.xml"])]
    assert told["devices"] == [("net_eth0", MORE["libvirt/nodedevs/net_eth0.xml"])]


def test_where_no_guest_migrates_nothing_is_recorded_of_migrations(archive: HostArchive) -> None:
    (archive.root / MIGRATING).unlink()

    assert MIGRATING not in recorded(RecordedConnection(archive))


def test_a_host_cpu_that_was_not_expanded_is_as_its_capabilities_name_it(archive: HostArchive) -> None:
    (archive.root / f"libvirt/models/{HOST_CPU}.xml").unlink()

    assert RecordedConnection(archive).expand(HOST_CPU, "<cpu>as named</cpu>").text == "<cpu>as named</cpu>"


def test_a_host_that_was_recorded_with_another_virt_type_says_which_option_to_set(archive: HostArchive) -> None:
    with pytest.raises(DiscoveryError, match=r"\[libvirt\] virt_type = kvm, and it is qemu here"):
        RecordedConnection(archive).domain_capabilities("qemu", ())


@pytest.mark.parametrize(
    ("record", "message"),
    [
        pytest.param({"total": 4, "online": [0, 4]}, "CPUs beyond 4", id="a CPU too many"),
        pytest.param({"total": 10**9, "online": [0]}, "CPUs beyond", id="more than any host has"),
        pytest.param({"total": 4}, "lacks 'online'", id="half of it"),
        pytest.param({"total": True, "online": [0]}, "'True' is not a whole number", id="a yes"),
        pytest.param({"total": "4", "online": [0]}, "'4' is not a whole number", id="a text"),
        pytest.param({"total": 4, "online": [0.9]}, "'0.9' is not a whole number", id="a part of a CPU"),
        pytest.param({"total": 4, "online": [-1]}, "'-1' is not a whole number", id="a CPU below all"),
        pytest.param({"total": 4, "online": 3}, "of the wrong kind", id="no list"),
    ],
)
def test_a_map_of_cpus_that_cannot_be_is_refused(archive: HostArchive, record: dict[str, Any], message: str) -> None:
    write_files(archive.root, {CPU_MAP: json.dumps(record)})

    with pytest.raises(MalformedFact, match=message):
        RecordedConnection(archive).cpu_map()


def test_the_last_cpu_of_a_map_is_one_of_it(archive: HostArchive) -> None:
    write_files(archive.root, {CPU_MAP: json.dumps({"total": 4, "online": [0, 3]})})

    assert RecordedConnection(archive).cpu_map() == CpuMap(4, frozenset({0, 3}))


@pytest.mark.parametrize(
    ("host", "error", "message"),
    [
        pytest.param({"format": FORMAT + 1}, MalformedFact, f"format is {FORMAT + 1}, this version reads", id="format"),
        *(
            pytest.param({"format": FORMAT, "files": files}, MalformedFact, "files is not a list of names", id=f"{i}")
            for i, files in enumerate(("all", None, [1], ["x" * 5000]))
        ),
        pytest.param(
            {"format": FORMAT, "files": ["lost"]}, DiscoveryError, "lacks lost, which host.json lists", id="lost"
        ),
        pytest.param(
            {"format": FORMAT, "files": [300 * "C"]}, DiscoveryError, "lacks CCC", id="a name longer than a file's"
        ),
        pytest.param([], MalformedFact, "is not a JSON object", id="a list"),
    ],
)
def test_what_is_no_whole_archive_is_refused(
    archive: HostArchive, host: object, error: type[Exception], message: str
) -> None:
    write_files(archive.root, {"host.json": json.dumps(host)})

    with pytest.raises(error, match=message):
        archive.check()


@pytest.mark.parametrize("name", ["", "  ", "a\nb", 5, None, [1], "x" * 201])
def test_a_host_without_a_name_for_its_provider_is_refused(archive: HostArchive, name: object) -> None:
    write_files(archive.root, {"host.json": json.dumps({"format": FORMAT, "hostname": name})})

    with pytest.raises(MalformedFact, match="cannot be used as the name of a provider"):
        archive.hostname()


def test_an_archive_is_told_from_a_file_that_it_lacks(archive: HostArchive) -> None:
    with pytest.raises(DiscoveryError, match=r"has no lost: .* record the host again"):
        archive.read("lost")
    with pytest.raises(DiscoveryError, match=r"has no host.json: give the folder that"):
        HostArchive(archive.root / "nowhere").read("host.json")
    with pytest.raises(DiscoveryError, match=r"there is no folder .*nowhere: give the one"):
        HostArchive(archive.root / "nowhere").check()
    with pytest.raises(DiscoveryError, match="is not a regular file"):
        archive.read("libvirt")
    with pytest.raises(DiscoveryError, match="Not a directory"):
        archive.files.names("host.json")
    write_files(archive.root, {"host.json": json.dumps({"format": FORMAT, "hostname": "a", "files": ["lost"]})})
    with pytest.raises(DiscoveryError, match="lacks lost, which"):
        archive.check()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"\xff", "is not UTF-8 text: invalid start byte at byte 0", id="bytes"),
        pytest.param(b"{", "is not JSON", id="half a text"),
        pytest.param(b"[]", "is not a JSON object", id="a list"),
        pytest.param(b'{"total_bytes": "x"}', "holds a value of the wrong kind: 'x'", id="words for a number"),
        pytest.param(b'{"total_bytes": 1}', "lacks 'free_bytes'", id="half of it"),
    ],
)
def test_a_damaged_file_is_named(archive: HostArchive, data: bytes, message: str) -> None:
    (archive.root / "disk.json").write_bytes(data)

    with pytest.raises(MalformedFact, match=f"disk.json {message}"):
        archive.disk()
