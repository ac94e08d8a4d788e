"""The limits of docs/security.md, each tried with one more than is allowed: how it ends, memory and time; a table."""

import gzip
import io
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from keystoneauth1.session import Session

from agent.connect.guarded import LIMIT_BYTES, GuardedSession
from agent.nova.client import NovaClient
from agent.sync.case import MAX_MEMBER_BYTES, open_case
from agent.sync.request_file import read_request
from agent.sync.yaml_file import LIMIT_BYTES as YAML_BYTES
from agent.sync.yaml_file import load_once
from beds.costs import cost
from beds.proxy import Answer, Proxy
from drivers.errors import MalformedFact
from drivers.host.archive import MAX_ARCHIVE_BYTES, Document, HostArchive
from drivers.host.unpack import MAX_DEPTH, MAX_MEMBERS, MAX_TOTAL_BYTES, unpack
from drivers.ironic.client import IronicClient
from drivers.libvirt.domains import MOST_PINS, parse_guest
from drivers.libvirt.xml import MOST_PARTS
from reportclient.json_text import MOST_VALUES

pytestmark = pytest.mark.live
Act = Callable[[Path], object]
DOMAIN = "<domain><name>a</name><uuid>00000000-0000-0000-0000-000000000001</uuid><memory>1</memory>"


def answered(body: bytes, *headers: tuple[str, str]) -> Act:
    """A request is answered with this body."""

    def act(_folder: Path) -> object:
        with Proxy("", hook=lambda _request, _forward: Answer(200, headers, body)) as proxy:
            answer = Session(session=GuardedSession(), timeout=60).get(proxy.url, authenticated=False)
            assert answer.content == body
            return body[:1] != b"[" or answer.json()

    return act


class Endless:
    """A service whose listing has a page after each page."""

    def __init__(self, part: str, key: str) -> None:
        self._part, self._key, self._count = part, key, 0

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        self._count += 1
        host = {"hypervisor": {"service": {"host": "h"}}}
        record = {self._key: str(self._count), "status": "ACTIVE", "OS-EXT-SRV-ATTR:host": "h"}
        page = {self._part: [record], "next": f"?marker={self._count}", f"{self._part}_links": [1]}
        return _Answer(json.dumps(host if "hypervisors" in url else page))


class _Answer:
    status_code = 200
    headers: Mapping[str, str] = MappingProxyType({})
    content = b""

    def __init__(self, text: str) -> None:
        self.text = text

    def json(self) -> Any:
        return json.loads(self.text)


def ironic(_folder: Path) -> object:
    return sum(1 for _ in IronicClient(Endless("nodes", "uuid"), "Ironic", shard=None, conductor_group=None).records())


def nova(_folder: Path) -> object:
    raise ValueError(NovaClient(Endless("servers", "id"), "nova").witness("root", ()).silence)


def yaml_of(text: str) -> Act:
    def act(folder: Path) -> object:
        (folder / "a.yaml").write_text(text, encoding="ascii")
        return load_once(folder / "a.yaml", folder / "a.yaml")

    return act


def packed(members: Callable[[], Iterator[tuple[tarfile.TarInfo, bytes]]], *, case: bool = False) -> Act:
    """An archive with these members is unpacked; it is written before that is measured."""

    def act(folder: Path) -> object:
        path = folder / "a.tar.gz"
        if not path.exists():
            with gzip.open(path, "wb", 1) as out, tarfile.open(fileobj=out, mode="w|") as tar:
                for member, data in members():
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
            return None
        if case:
            with open_case(path):
                return None
        (folder / "out").mkdir()
        return unpack(path, folder / "out")

    return act


def files(count: int, size: int, name: str = "{}") -> Callable[[], Iterator[tuple[tarfile.TarInfo, bytes]]]:
    return lambda: ((tarfile.TarInfo(name.format(number)), bytes(size)) for number in range(count))


def header(size: int) -> Act:
    def act(folder: Path) -> object:
        (path := folder / "a.tar.gz").unlink(missing_ok=True)
        member = tarfile.TarInfo("long")
        member.type, member.size = tarfile.GNUTYPE_LONGNAME, size
        with gzip.open(path, "wb", 1) as out:
            out.write(member.tobuf(tarfile.GNU_FORMAT) + bytes(size + 1024))
        (folder / "out").mkdir(exist_ok=True)
        return unpack(path, folder / "out")

    return act


def recorded(name: str, data: bytes) -> Act:
    def act(folder: Path) -> object:
        (folder / name).write_bytes(data)
        host = HostArchive(folder)
        return host.read_json(name) if name.endswith("json") else host.read(name)

    return act


def linked(folder: Path) -> object:
    (folder / "host").mkdir()
    (folder / "host/disk.json").symlink_to(folder / "elsewhere.json")
    return HostArchive(folder / "host").read("disk.json")


def guest(text: str) -> Act:
    def act(_folder: Path) -> None:
        """A guest that is not understood is no error of the look."""
        found = parse_guest(Document(DOMAIN + text + "</domain>", "guest.xml"), "uuid", "running")
        if found.unread:
            raise MalformedFact(found.unread)

    return act


def pins(count: int, cpus: int) -> str:
    """Pins of vCPUs to all different sets of so many CPUs."""
    sets = (f"<vcpupin vcpu='{index}' cpuset='0-{cpus - 2},{cpus + index}'/>" for index in range(count))
    return f"<vcpu>{count}</vcpu><cputune>{''.join(sets)}</cputune>"


def requested(size: int) -> Act:
    def act(folder: Path) -> object:
        (folder / "request").write_bytes(b" " * size + b"x")
        return read_request(folder / "request")

    return act


LIMITS: dict[str, tuple[Act, str]] = {
    "answer, 32 MiB": (answered(bytes(LIMIT_BYTES + 1)), "more than 32 MiB"),
    "answer, unpacked": (
        answered(gzip.compress(bytes(1 << 30), 1), ("Content-Encoding", "gzip")),
        "more than 32 MiB",
    ),
    "answer, values": (answered(b"[" + b"{}," * (MOST_VALUES // 2) + b"{}]"), f"more than {MOST_VALUES} values"),
    "pages of Ironic, 10,000": (ironic, "lists nodes without an end"),
    "pages of nova, 1,000": (nova, "lists servers without an end"),
    "YAML, 128 KiB": (yaml_of("a: " + "b" * YAML_BYTES), "larger than 128 KiB"),
    "YAML, a long number": (yaml_of("a: 1" + ":1" * 60_000), "a number has 120001 letters"),
    "YAML, no alias": (yaml_of("a: &a [1]\nb: *a\n"), "repeats what stands elsewhere"),
    "request file": (requested(1 << 20), "more than 1 MiB"),
    "file of an archive": (recorded("a.xml", bytes(MAX_ARCHIVE_BYTES + 1)), "longer than 16384 KiB"),
    "JSON of an archive, values": (
        recorded("a.json", b'{"a":[' + b"[]," * (MOST_VALUES // 2) + b"[]]}"),
        f"more than {MOST_VALUES} values",
    ),
    "link of an archive": (linked, "leads out of the host archive"),
    "packed file": (packed(files(1, MAX_ARCHIVE_BYTES + 1)), "too many or too large files"),
    "packed file of a case": (packed(files(1, MAX_MEMBER_BYTES + 1), case=True), "too many or too large files"),
    "packed files together": (packed(files(MAX_TOTAL_BYTES // MAX_ARCHIVE_BYTES + 1, MAX_ARCHIVE_BYTES)), "too many"),
    "packed files, 25,000": (packed(files(MAX_MEMBERS + 1, 0)), "too many or too large files"),
    "packed folders, 50": (packed(files(1, 0, "a/" * (MAX_DEPTH + 1) + "{}")), "more than 50 nested folders"),
    "header in an archive": (header((2 << 20) + 1), "it has a header of"),
    "XML, tags and attributes": (guest("<a/>" * MOST_PARTS), f"more than {MOST_PARTS} tags"),
    "CPUs of a guest's pins": (guest(pins(MOST_PINS // 4096 + 1, 4096)), f"more than {MOST_PINS} CPUs"),
}
ALLOWED: dict[str, Act] = {
    "answer, 32 MiB": answered(bytes(LIMIT_BYTES)),
    "answer, values": answered(b"[" + b'{"":0},' * (MOST_VALUES // 2 - 1) + b"0]"),
    "YAML, 128 KiB": yaml_of("[" + "a," * (YAML_BYTES // 2 - 1) + "]"),
    "JSON of an archive, values": recorded("a.json", b'{"a":[' + b'{"":[]},' * (MOST_VALUES // 3 - 1) + b"0]}"),
    "XML, tags and attributes": guest('<a b=""/>' * (MOST_PARTS // 2 - 20)),
    "CPUs of a guest's pins": guest(pins(MOST_PINS // 4096 - 1, 4096)),
}


@pytest.mark.parametrize("name", LIMITS)
def test_one_more_than_the_limit_is_refused_at_once_and_the_limit_costs_little(name: str, tmp_path: Path) -> None:
    act, told = LIMITS[name]
    if name.startswith("packed"):
        act(tmp_path)

    beyond = cost(lambda: act(tmp_path))
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    within = cost(lambda: ALLOWED[name](tmp_path) and None) if name in ALLOWED else None

    print(
        f"\n{name:28} {beyond.mib:4.0f} MiB {beyond.seconds:5.2f} s  {' '.join(str(beyond.ending).split())[-90:]}",
        end="",
    )
    if within:
        print(f"\n{'  as much as is allowed':28} {within.mib:4.0f} MiB {within.seconds:5.2f} s", end="")
    assert isinstance(beyond.ending, Exception)
    assert told in str(beyond.ending)
    assert within is None or within.ending is None, within
    assert max(one.mib for one in (beyond, within) if one) < 200
