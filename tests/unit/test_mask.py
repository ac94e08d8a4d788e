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
    "host/libvirt/capabilities.xml": "<uuid>0a1b2c3d-0638-44b8-a8e9-36f9abbc746b</uuid>",
    "host/ironic.jsonl": '{"name": "metal-3"}',
    "host/nova.jsonl": '{\\"host\\": \\"node-9\\"}',
    "host/libvirt/domains/1.xml": (
        '<domain><name>instance-00000007</name><ns0:user uuid="u">alice</ns0:user>'
        '<ns0:flavor name="m1.secretive"><ns0:memory>512</ns0:memory></ns0:flavor></domain>'
    ),
    "host/proc/net/if_inet6": "fe80000000000000505400fffe123456 02 40 20 80     ens1\n",
    "journal.txt": (
        "node-7 compute-node-agent: pass node=node-7.example.org_pci_0000_06_00_0 mac=52-54-00-12-34-56 "
        "fe80::5054:ff:fe12:3456 serial=MT2101X00042, 00:00:00:00:00:00, guest instance-00000007, "
        "mac 5254.0012.3456 or 525400123456, 000000000000, nodes metal-3 and node-9."
    ),
}
MASKED = {
    "host/host.json": '{"hostname": "name-53d4aa3e", "files": ["net_ens1_02_53_da_8a_16_2b.xml"]}',
    "host/libvirt/nodedevs/net_ens1_02_53_da_8a_16_2b.xml": "<address>02:53:da:8a:16:2b</address>",
    "host/libvirt/nodedevs/pci_0000_06_00_0.xml": "<serial_number> serial-32a0a69a </serial_number>",
    "host/libvirt/nodedevs/computer.xml": "<uuid>b9414387-9a69-4ea6-89cb-1232ee0de31e</uuid>",
    "host/libvirt/capabilities.xml": "<uuid>80b65c69-bcc4-43c1-8a86-5719cfb029f0</uuid>",
    "host/ironic.jsonl": '{"name": "name-d6587c10"}',
    "host/nova.jsonl": '{\\"host\\": \\"name-48ee1c8f\\"}',
    "host/libvirt/domains/1.xml": (
        '<domain><name>name-51d124d2</name><ns0:user uuid="u">name-87cd38ad</ns0:user>'
        '<ns0:flavor name="name-6813c39d"><ns0:memory>512</ns0:memory></ns0:flavor></domain>'
    ),
    "host/proc/net/if_inet6": "fe800000000000000053dafffe8a162b 02 40 20 80     ens1\n",
    "journal.txt": (
        "name-1516eb1d compute-node-agent: pass node=name-53d4aa3e_pci_0000_06_00_0 mac=02-53-da-8a-16-2b "
        "fe80::0053:daff:fe8a:162b serial=serial-32a0a69a, 00:00:00:00:00:00, guest name-51d124d2, "
        "mac 0253.da8a.162b or 0253da8a162b, 000000000000, nodes name-d6587c10 and name-48ee1c8f."
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
    """The MAC address also as a part of an IPv6 address, with its seventh bit the other way round."""
    found = masked(FILES)

    assert found == MASKED
    assert {*found.values()}.isdisjoint(masked(FILES, key=b"another" * 5).values())


def test_words_and_parts_of_words_stay() -> None:
    files = {"a.txt": "compute-node-agent on compute, recompute, compute.", "host.json": '{"hostname": "localhost"}'}

    assert masked(files, ("compute",))["a.txt"].startswith("compute-node-agent on name-")
    assert ", recompute, name-" in masked(files, ("compute",))["a.txt"]
    assert masked(files, ())["host.json"] == files["host.json"]
    assert mask_files({"a.txt": "of no-abc"}, {"abc": Sort.SERIAL}, KEY)["a.txt"].startswith("of no-serial-")
    assert find_values({}, ("n", "n7")) == {"n7": Sort.NAME}
    assert re.fullmatch("name-[0-9a-f]{8}", masked({"a.txt": "NODE1-7"}, ("node1", "NODE1-7"))["a.txt"])


@pytest.mark.parametrize(
    ("files", "left", "values"),
    [
        pytest.param({}, {"a": "on node-7", "b": "on node-71"}, {"node-7": Sort.NAME}, id="a name in a text"),
        pytest.param({}, {"node-7/a": "", "b": ""}, {"node-7": Sort.NAME}, id="a name in a path"),
        pytest.param({"x": "52:54:00:12:34:56"}, {"a": "52-54-00-12-34-56", "b": ""}, {}, id="a MAC address in a text"),
        pytest.param(
            {"52:54:00:12:34:56": ""}, {"net-52-54-00-12-34-56": "", "b": ""}, {}, id="one of a path, in a path"
        ),
    ],
)
def test_what_is_left_is_found(files: dict[str, str], left: dict[str, str], values: dict[str, Sort]) -> None:
    assert [*unmasked(files, left, values)] == [next(iter(left))]


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
    guest = '<name>instance-00000009</name><uuid>4a5f7e9c-0d27-4e43-8f6f-2a3b1c9d8e70</uuid>{"name": "metal-3"}'

    assert find_values({"host/libvirt/domains/1.xml": guest}, ()) == {"instance-00000009": Sort.NAME}
    for path in ("host/libvirt/domains/1.txt", "host/libvirt/nodedevs/1.xml"):
        assert find_values({path: guest}, ()) == {}
