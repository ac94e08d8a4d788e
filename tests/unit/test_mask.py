"""Masks: nothing that tells a host is left, the same value has the same mask, and a masked host plans the same."""

import json
import re
from pathlib import Path

import pytest

from agent.bundle.mask import Sort, find_values, mask_files, unmasked
from agent.command.bundle_verb import _sealed_anew
from agent.state.files import checksum, unseal
from beds.golden import HOSTS

KEY = b"k" * 32
FILES = {
    "host/host.json": '{"hostname": "node-7.example.org", "files": ["net_ens1_52_54_00_12_34_56.xml"]}',
    "host/libvirt/nodedevs/net_ens1_52_54_00_12_34_56.xml": "<address>52:54:00:12:34:56</address>",
    "host/libvirt/nodedevs/pci_0000_06_00_0.xml": "<serial_number> MT2101X00042 </serial_number>",
    "host/libvirt/nodedevs/computer.xml": "<uuid>b4693746-0638-44b8-a8e9-36f9abbc746b</uuid>",
    "host/libvirt/domains/1.xml": (
        '<domain><name>instance-00000007</name><ns0:user uuid="u">alice</ns0:user>'
        '<ns0:flavor name="m1.secretive"><ns0:memory>512</ns0:memory></ns0:flavor></domain>'
    ),
    "host/proc/net/if_inet6": "fe80000000000000505400fffe123456 02 40 20 80     ens1\n",
    "journal.txt": (
        "node-7 compute-node-agent: pass node=node-7.example.org_pci_0000_06_00_0 mac=52-54-00-12-34-56 "
        "fe80::5054:ff:fe12:3456 serial=MT2101X00042, 00:00:00:00:00:00, guest instance-00000007."
    ),
}
NAMES = ("node-7", "node-7.example.org")
TELLING = ("node-7", "52:54:00:12:34:56", "52_54_00_12_34_56", "MT2101X00042", "b4693746", "instance-00000007", "alice")


def masked(files: dict[str, str], names: tuple[str, ...] = NAMES, key: bytes = KEY) -> dict[str, str]:
    return mask_files(files, find_values(files, names), key)


def test_nothing_that_tells_the_host_is_left() -> None:
    found = masked(FILES)
    everything = "\n".join((*found, *found.values()))

    assert not [one for one in (*TELLING, "5054:ff:fe12", "505400fffe123456", "m1.secretive") if one in everything]
    assert [*unmasked(FILES, found, find_values(FILES, NAMES))] == []


@pytest.mark.parametrize(
    "text",
    [
        "ssh-node1 says", "node1.internal", "NODE1", "channel/target/domain-1-web-prod/org", "525400123456",
        "5254.0012.3456", "MAC 52:54:00:12:34:56",
    ],
)  # fmt: skip
def test_other_spellings_are_masked_too(text: str) -> None:
    files = {"host/libvirt/nodedevs/net.xml": "<address>52:54:00:12:34:56</address>", "log.txt": text}
    values = find_values(files, ("node1", "web-prod"))

    found = mask_files(files, values, b"key" * 10)["log.txt"]

    assert not re.search("node1|web-prod|525400123456|5254.0012.3456|52:54:00:12:34:56", found, re.IGNORECASE)


def test_the_same_value_has_the_same_mask_everywhere_and_another_key_another() -> None:
    found, other = masked(FILES), masked(FILES, key=b"another" * 5)
    (name,) = [path for path in found if "/net_ens1_" in path]
    mac = name.removesuffix(".xml").rpartition("net_ens1_")[2].replace("_", ":")

    assert mac in found[name]
    assert mac.replace(":", "-") in found["journal.txt"]
    assert mac.startswith("02:")
    serial = re.search("serial-[0-9a-f]{8}", found["host/libvirt/nodedevs/pci_0000_06_00_0.xml"])
    assert serial
    assert serial[0] in found["journal.txt"]
    assert {*found} != {*other}


def test_what_a_guest_address_was_made_of_is_masked_in_the_address_too() -> None:
    found = masked(FILES)
    own = found["host/proc/net/if_inet6"].split()[0]
    mac = next(path for path in found if "/net_ens1_" in path)[-21:-4].replace("_", "")

    assert own[:16] == "fe80000000000000"
    assert own[16:] == f"{int(mac[:2], 16) ^ 2:02x}{mac[2:6]}fffe{mac[6:]}"
    assert f"{own[16:20]}:{own[20:22]}ff:fe{own[26:28]}:{own[28:]}" in found["journal.txt"]


def test_words_and_parts_of_words_stay() -> None:
    files = {"a.txt": "compute-node-agent on compute, recompute, compute.", "host.json": '{"hostname": "localhost"}'}

    assert masked(files, ("compute",))["a.txt"].startswith("compute-node-agent on name-")
    assert ", recompute, name-" in masked(files, ("compute",))["a.txt"]
    assert masked(files, ())["host.json"] == files["host.json"]


def test_what_is_left_is_found() -> None:
    values = {"node-7": Sort.NAME}

    assert [*unmasked({}, {"a": "on node-7", "b": "on node-71"}, values)] == ["a"]
    assert [*unmasked({"x": "52:54:00:12:34:56"}, {"b": "52-54-00-12-34-56"}, {})] == ["b"]


def test_what_had_a_checksum_has_one_that_fits_the_masks() -> None:
    body = {"node": "node-7"}
    files = {"cases/1/state/1.json": json.dumps({"format": 3, "checksum": checksum(body), "body": body})}

    (text,) = _sealed_anew(masked(files)).values()

    assert unseal(text, form=3)["node"].startswith("name-")


@pytest.mark.parametrize("host", sorted(one.name for one in HOSTS.iterdir() if one.is_dir()))
def test_a_recorded_host_has_no_mac_and_no_name_left(host: str) -> None:
    folder = HOSTS / host / "archive"
    files = {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }

    found = masked(files, ())

    assert len(found) == len(files)
    assert [*unmasked(files, found, find_values(files, ()))] == []
    assert json.loads(files["host.json"])["hostname"] not in "\n".join(found.values()).replace(f"{host}_", "")


def test_names_of_guests_are_those_in_the_xml_of_guests() -> None:
    guest = "<domain><name>instance-00000009</name></domain>"

    assert "instance-00000009" in find_values({"host/libvirt/domains/1.xml": guest}, ())
    for path in ("host/libvirt/domains/1.txt", "host/libvirt/nodedevs/1.xml"):
        assert find_values({path: guest}, ()) == {}
