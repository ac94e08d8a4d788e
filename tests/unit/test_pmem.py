"""Persistent memory: a unit for each namespace that the operator names, on the root, as nova has it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.sync.outcome import Status
from beds.one_host import FORCE, OneHost
from drivers.errors import DiscoveryError, MalformedFact, PolicyError
from drivers.facts import Devices, Guest, HostFacts, Namespace
from drivers.host.archive import Document, HostArchive
from drivers.host.commands import parse_namespaces, read_namespaces
from drivers.libvirt.domains import parse_guest
from drivers.libvirt.driver import LibvirtDriver
from drivers.libvirt.recorded import RecordedConnection
from drivers.libvirt.shape import shape
from drivers.policy import DevicePolicy, GuestPolicy, InstancesFolder, Layout, Policy
from fakes import FACTS
from hardware import guest_with
from reportclient.reserve import is_reserved_by_us
from reportclient.tree import Inventory, ObservedProvider, ObservedTree

# As ndctl 77 answers, without what nobody reads here.
LISTED: list[dict[str, Any]] = [
    {"dev": "namespace0.0", "mode": "devdax", "name": "ns_0", "daxregion": {"devices": [{"chardev": "dax0.0"}]}},
    {"dev": "namespace0.1", "mode": "devdax", "name": "ns_1", "daxregion": {"devices": [{"chardev": "dax0.1"}]}},
    {"dev": "namespace0.2", "mode": "devdax", "daxregion": {"devices": [{"chardev": "dax0.2"}]}},
    {"dev": "namespace1.0", "mode": "fsdax", "name": "files", "blockdev": "pmem1"},
]
HERE = (Namespace("files", None), Namespace("ns_0", "/dev/dax0.0"), Namespace("ns_1", "/dev/dax0.1"))
SMALL = "CUSTOM_PMEM_NAMESPACE_SMALL"
LAYOUTS: tuple[Layout, ...] = ("flat", "devices", "cells", "numa")


def pmem_of(pmem: Mapping[str, str], layout: Layout = "devices") -> Policy:
    return Policy(layout=layout, devices=DevicePolicy(pmem=pmem))


BOTH = {"ns_0": SMALL, "ns_1": SMALL}


def host_of(*guests: Guest) -> HostFacts:
    return replace(FACTS, devices=Devices(namespaces=HERE), guests=guests)


def test_namespaces_without_a_name_are_none_that_anybody_can_mean() -> None:
    assert parse_namespaces(Document(json.dumps(LISTED), "ndctl")) == HERE
    assert parse_namespaces(Document("\n", "ndctl")) == ()


@pytest.mark.parametrize(
    ("region", "path"),
    [
        pytest.param({"devices": [{"chardev": "dax0.0", "mode": "devdax"}]}, "/dev/dax0.0", id="devdax"),
        pytest.param({"devices": [{"chardev": "dax0.0", "mode": "system-ram"}]}, None, id="memory of the host"),
        pytest.param({"devices": [{"chardev": "dax0.0", "mode": "devdax", "state": "disabled"}]}, None, id="disabled"),
        pytest.param({"devices": [{"size": 1}]}, None, id="a device without a name"),
        pytest.param({"devices": []}, None, id="no device"),
        pytest.param({"id": 1}, None, id="no devices"),
    ],
)
def test_a_namespace_has_a_path_only_while_its_device_is_one_that_guests_can_have(
    region: dict[str, Any], path: str | None
) -> None:
    listed = json.dumps([{"dev": "namespace0.0", "mode": "devdax", "name": "ns", "daxregion": region}])

    assert parse_namespaces(Document(listed, "ndctl")) == (Namespace("ns", path),)


@pytest.mark.parametrize("text", ["{", "[1]", '[{"name": "a", "daxregion": {"devices": [1]}}]', '{"name": "a"}'])
def test_an_answer_in_another_form_is_an_error_that_names_ndctl(text: str) -> None:
    with pytest.raises(MalformedFact, match="ndctl"):
        parse_namespaces(Document(text, "ndctl"))


def test_a_host_without_ndctl_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(DiscoveryError, match="this host has no command ndctl: install ndctl, or remove the option"):
        read_namespaces()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_namespace_is_a_unit_on_the_root_in_every_layout(layout: Layout) -> None:
    tree = shape(host_of(), pmem_of(BOTH, layout), None).tree

    assert tree.root.inventories[SMALL] == Inventory(total=2, max_unit=2)
    assert not any(SMALL in one.inventories for one in tree if one.parent)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_an_operator_reserved_of_them_stays_reserved(layout: Layout) -> None:
    policy = pmem_of(BOTH, layout)
    root = shape(host_of(), policy, None).tree.root
    stock = {**root.inventories, SMALL: Inventory(total=2, max_unit=2, reserved=1)}
    stands = ObservedProvider(uuid="r", generation=1, provider=replace(root, inventories=stock))

    again = shape(host_of(), policy, ObservedTree((stands,))).tree.root

    assert again.inventories[SMALL].reserved == 1
    assert not is_reserved_by_us(again.traits)


LACKS = "[libvirt] pmem_namespaces names {}, and this host has {} for guests (ndctl list --device-dax): {} of that is"
AS_MEMORY = (*HERE[:2], Namespace("ns_1", None))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("theirs", [0, 1], ids=["", "an operator reserved the other"])
@pytest.mark.parametrize("used", [0, 2], ids=["", "guests have both"])
@pytest.mark.parametrize("left", [HERE[:2], AS_MEMORY], ids=["gone", "in another mode"])
def test_a_namespace_that_goes_is_reserved_until_it_is_back(
    tmp_path: Path, layout: Layout, theirs: int, used: int, left: tuple[Namespace, ...]
) -> None:
    one = OneHost(tmp_path, host_of(), pmem_of(BOTH, layout))
    assert one.sync().notes == ()
    if used:
        one.claim({"": {SMALL: used}})
    if theirs:
        one.set_by_hand("", SMALL, reserved=theirs)
    before = one.tree().root

    gone = one.sync(facts=replace(FACTS, devices=Devices(namespaces=left)))
    stock, quiet = one.stock()[SMALL], one.sync()
    back = one.sync(facts=host_of())

    assert gone.status is back.status is Status.CHANGED, gone
    assert gone.notes[0].startswith(LACKS.format("ns_1", "ns_0", SMALL))
    assert stock == (2, 1 + theirs)
    assert (quiet.status, quiet.notes) == (Status.UNCHANGED, gone.notes)
    assert before is not None
    after = one.tree().root
    assert after is not None
    assert after.provider == before.provider
    assert back.notes == ()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_where_no_namespace_is_there_all_are_reserved_also_of_a_new_host(tmp_path: Path, layout: Layout) -> None:
    one = OneHost(tmp_path, replace(FACTS, devices=Devices()), pmem_of({"ns_7": SMALL, "ns_8": "CUSTOM_B"}, layout))

    done = one.sync()

    assert (one.stock()[SMALL], one.stock()["CUSTOM_B"]) == ((1, 1), (1, 1))
    assert done.notes[0].startswith(LACKS.format("ns_8", "none with a name", "CUSTOM_B"))
    assert one.sync().status is Status.UNCHANGED
    one.sync(FORCE, policy=Policy(layout=layout))
    assert (SMALL in one.stock(), one.marks()) == (False, frozenset())


def test_a_namespace_that_goes_is_reserved_beside_a_plan_that_is_refused(tmp_path: Path) -> None:
    one = OneHost(tmp_path, host_of(), pmem_of(BOTH))
    one.sync()
    one.claim({"": {"MEMORY_MB": one.stock()["MEMORY_MB"][0] - 512}})

    done = one.sync(
        facts=replace(FACTS, devices=Devices(namespaces=HERE[:2])), policy=replace(one.policy, reserved_memory_mib=2001)
    )

    assert (done.status, one.stock()[SMALL]) == (Status.UNSAFE, (2, 1))


def test_a_name_that_two_namespaces_have_is_refused() -> None:
    twice = replace(FACTS, devices=Devices(namespaces=(*HERE, Namespace("ns_0", "/dev/dax1.0"))))

    with pytest.raises(PolicyError, match="has 2 of this name"):
        shape(twice, pmem_of(BOTH), None)


def test_a_namespace_that_the_option_does_not_name_makes_its_guest_undecided() -> None:
    guest = guest_with(pmem=frozenset({"/dev/dax9.9"}))

    assert shape(host_of(guest), pmem_of(BOTH), None).holdings.told == {"VCPU", "PCPU", "MEMORY_MB", SMALL}
    assert not shape(host_of(guest), Policy(), None).holdings.undecided


def test_of_a_domain_the_namespaces_are_read_and_files_are_not() -> None:
    devices = "".join(
        f"<memory model='nvdimm' access='shared'><source><path>{path}</path><alignsize>2048</alignsize><pmem/></source>"
        f"<target><size>4192256</size><node>0</node><label><size>2</size></label></target></memory>"
        for path in ("/dev/dax0.0", "/var/lib/nvdimm")
    )
    xml = f"<domain><uuid>g</uuid><memory unit='MiB'>64</memory><devices>{devices}</devices></domain>"

    assert parse_guest(Document(xml, "domain"), "g", "running").devices.pmem == {"/dev/dax0.0"}


def test_a_recorded_host_has_what_ndctl_answered(tmp_path: Path) -> None:
    archive = HostArchive(Path(__file__).parents[1] / "hosts/four-cells/archive")
    policy = Policy(guests=GuestPolicy(virt_type="qemu"), devices=DevicePolicy(pmem={"ns": "CUSTOM_PMEM_NAMESPACE_A"}))
    driver = LibvirtDriver(RecordedConnection(archive), policy, InstancesFolder(instances=tmp_path))

    with pytest.raises(DiscoveryError, match=r"has no ndctl\.json: .* record the host again"):
        driver.survey("four-cells")
