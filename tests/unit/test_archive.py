"""Host archives from elsewhere: what is no whole one, or leads out of itself, is refused."""

import gzip
import io
import os
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from drivers.errors import DiscoveryError, MalformedFact
from drivers.host.archive import HostArchive, KernelFiles
from drivers.host.unpack import unpack


def pack(path: Path, *members: tuple[str, str | None]) -> Path:
    """A packed archive of (name, link target or None for a file)."""
    with tarfile.open(path, "w:gz") as tar:
        for name, target in members:
            member = tarfile.TarInfo(name)
            if target is None:
                member.size = 4
            else:
                member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member, io.BytesIO(b"evil") if target is None else None)
    return path


@pytest.mark.parametrize(
    "members",
    [
        pytest.param([("../evil", None)], id="up"),
        pytest.param([("/evil", None)], id="absolute"),
        pytest.param([("a", ".."), ("a/evil", None)], id="through a link"),
        pytest.param([("a", "."), ("a/b", ".."), ("a/b/evil", None)], id="through a link made through a link"),
        pytest.param([("l", "p/../evil"), ("p", "."), ("l", None)], id="a link that turns later"),
    ],
)
def test_nothing_is_unpacked_outside_the_folder(tmp_path: Path, members: list[tuple[str, str | None]]) -> None:
    folder = tmp_path / "in" / "folder"
    folder.mkdir(parents=True)

    with pytest.raises((MalformedFact, DiscoveryError), match="leads out of the archive or is not a regular file"):
        unpack(pack(tmp_path / "a.tar.gz", *members), folder)

    assert not list(tmp_path.glob("evil")) + list((tmp_path / "in").glob("evil"))


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE], ids=["long name", "extended header"])
def test_a_header_that_would_fill_the_memory_is_refused_unread(tmp_path: Path, kind: bytes) -> None:
    header = tarfile.TarInfo("long")
    header.type, header.size = kind, 700 << 20
    with gzip.open(tmp_path / "a.tar.gz", "wb", 1) as packed:
        packed.write(header.tobuf(tarfile.GNU_FORMAT) + bytes(8 << 20))
    (tmp_path / "out").mkdir()

    tracemalloc.start()
    with pytest.raises(DiscoveryError, match=r"it has a header of \d+ bytes or more"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "out")
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("of_all", [False, True])
def test_the_headers_of_many_members_do_not_add_up_in_the_memory(tmp_path: Path, *, of_all: bool) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", format=tarfile.PAX_FORMAT, compresslevel=1) as tar:
        for number in range(40):
            long, member = {f"comment{number}": "x" * (1 << 20)}, tarfile.TarInfo(str(number))
            if of_all and number:
                assert tar.fileobj
                tar.fileobj.write(tarfile.TarInfo.create_pax_global_header(long))
            else:
                member.pax_headers = long
            tar.addfile(member)
    (tmp_path / "out").mkdir()

    tracemalloc.start()
    unpack(tmp_path / "a.tar.gz", tmp_path / "out")
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("header", [0, 1 << 20])
def test_a_link_that_cannot_be_made_does_not_shorten_the_archive(tmp_path: Path, header: int) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", format=tarfile.PAX_FORMAT, compresslevel=1) as tar:
        kinds = (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, *[tarfile.REGTYPE] * 40)
        for number, kind in enumerate(kinds):
            member = tarfile.TarInfo("1" if number == 2 else str(number))  # the link has the name of the folder
            member.type, member.linkname = kind, "0" if number == 2 else ""
            member.pax_headers = {"comment": "x" * header}
            tar.addfile(member)
    (tmp_path / "out").mkdir()

    tracemalloc.start()
    with pytest.raises(DiscoveryError, match="cannot unpack"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "out")
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("link", ["libvirt", "libvirt/cpumap.json", "sys", "sys/kernel"])
def test_a_link_of_an_archive_that_is_a_folder_does_not_lead_out_of_it(tmp_path: Path, link: str) -> None:
    (tmp_path / "outside" / "kernel").mkdir(parents=True)
    (tmp_path / "outside" / "cpumap.json").write_text("{}")
    root = tmp_path / "host"
    (root / link).parent.mkdir(parents=True, exist_ok=True)
    (root / link).symlink_to(tmp_path / "outside")

    read = KernelFiles(root).read if link.startswith("sys") else HostArchive(root).read
    with pytest.raises(MalformedFact, match="leads out of the host archive"):
        read("sys/kernel/cpumap.json" if link.startswith("sys") else "libvirt/cpumap.json")


def test_an_archive_in_a_folder_of_its_own_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()

    top = unpack(pack(tmp_path / "a.tar.gz", ("host/host.json", None), ("host/sys/link", "../host.json")), folder)

    assert top == folder / "host"
    assert (top / "sys/link").read_text() == "evil"


def test_an_archive_with_its_own_folder_as_a_member_is_unpacked(tmp_path: Path) -> None:
    recorded, folder = tmp_path / "recorded", tmp_path / "out"
    (recorded / "sys").mkdir(parents=True)
    (recorded / "host.json").write_text("{}")
    folder.mkdir()
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        tar.add(recorded, ".")  # as tar -C recorded -czf a.tar.gz . does

    top = unpack(tmp_path / "a.tar.gz", folder)

    assert (top, (top / "host.json").read_text()) == (folder, "{}")


def test_a_file_that_is_not_packed_or_not_there_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("no archive")

    with pytest.raises(DiscoveryError, match=r"plain\.txt: it is not a gzip file: give a folder"):
        unpack(tmp_path / "plain.txt", tmp_path / "out")
    with pytest.raises(DiscoveryError, match=r"cannot unpack \S+nothing: .*No such file"):
        unpack(tmp_path / "nothing", tmp_path / "out")


def test_an_archive_that_is_cut_or_damaged_anywhere_is_refused(tmp_path: Path) -> None:
    packed = pack(tmp_path / "a.tar.gz", *((f"host/{number}", None) for number in range(40))).read_bytes()
    for end in range(0, len(packed), 16):  # the last of them lacks only the checksum at the end
        (tmp_path / "cut.tar.gz").write_bytes(packed[:end])
        with pytest.raises(DiscoveryError, match=r"cut\.tar\.gz"):
            unpack(tmp_path / "cut.tar.gz", tmp_path / "cut")
    for at in range(0, len(packed), 16):
        (tmp_path / "bad.tar.gz").write_bytes(packed[:at] + b"\xff" * 16 + packed[at + 16 :])
        with pytest.raises(DiscoveryError, match=r"bad\.tar\.gz"):
            unpack(tmp_path / "bad.tar.gz", tmp_path / "bad")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param("host/a\0b", "null (byte|character)", id="NUL"),
        pytest.param("host/" + "a/" * 900 + "b", "nested folders", id="deep"),
        pytest.param("host/" + "a" * 300, "too long", id="long"),
    ],
)
def test_a_name_that_no_host_has_is_refused(tmp_path: Path, name: str, words: str) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("host/odd")
        member.pax_headers = {"path": name}
        tar.addfile(member)

    with pytest.raises(DiscoveryError, match=words):
        unpack(tmp_path / "a.tar.gz", tmp_path / "out")


def test_what_goes_on_after_its_last_file_is_refused(tmp_path: Path) -> None:
    path = pack(tmp_path / "a.tar.gz", ("host/host.json", None))
    with gzip.open(path, "ab") as file:
        file.write(bytes(2 << 20))

    with pytest.raises(MalformedFact, match="goes on after its last file"):
        unpack(path, tmp_path / "out")


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "host.json")

    with pytest.raises(DiscoveryError, match="is not a regular file"):
        HostArchive(tmp_path).read("host.json")
