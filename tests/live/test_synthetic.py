"""Synthetic hosts with a real libvirtd: cells, page sizes, cards, guests on their devices, and what falls ill."""

import json
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from beds.agents import run_agent
from beds.by_hand import ByHand
from beds.golden import HOSTS, LAYOUTS, GoldenHost, beyond_the_machine, discover, write_layout
from beds.guests import METADATA, GuestSpec
from beds.placement import PlacementServer
from beds.process import wait_until
from beds.service import noauth
from beds.synthetic.bed import Host
from beds.synthetic.hosts import FOUR_CELLS, ODD_CELLS, QUEENS_FIRST, QUEENS_SECOND
from beds.synthetic.model import Machine

pytestmark = pytest.mark.live

Start = Callable[[Machine], Host]
Write = Callable[..., Path]
Connect = Callable[..., tuple[object, ...]]
EVERY = "heal: [orphaned, missing, wrong-amount, wrong-provider, doubled]\ngrace_s: 0\nat_once: true\nlimit: 100\n"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
MACHINES = {machine.name: machine for machine in (QUEENS_FIRST, QUEENS_SECOND, FOUR_CELLS, ODD_CELLS)}


def connect(host: Host, write_config: Write, **groups: dict[str, object]) -> Path:
    """A configuration for a synthetic host."""
    return write_config(libvirt={"connection_uri": host.libvirtd.uri, "virt_type": "qemu"}, **groups)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", MACHINES)
def test_a_live_synthetic_host_has_the_tree_of_its_record(
    name: str, layout: str, synthetic: Start, write_config: Write, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    host = synthetic(MACHINES[name])
    golden = GoldenHost(HOSTS / name)
    connection = connect(host, write_config)
    if request.config.getoption("--update-golden") and layout == LAYOUTS[0]:
        shutil.rmtree(golden.archive, ignore_errors=True)
        assert host.run("record", golden.archive, "--config-file", connection).code == 0
        for each in LAYOUTS:
            golden.write(each, discover(golden, each, tmp_path))

    files = (golden.config, connection, write_layout(layout, tmp_path))
    options = [option for file in files for option in ("--config-file", file)]
    shown = host.run("discover", *options, "--format", "json")

    assert shown.code == 0, shown.err
    assert beyond_the_machine(shown.json) == beyond_the_machine(golden.read(layout))


def test_a_card_that_is_configured_whole_and_divided_is_found_by_check(write_config: Write, tmp_path: Path) -> None:
    golden = GoldenHost(HOSTS / FOUR_CELLS.name)
    rule = {"address": "0000:86:00.0", "resource_class": "CUSTOM_GPU"}
    both = write_config(pci={"report_in_placement": True, "device_spec": json.dumps(rule)})
    options = ("--host", golden.archive, "--config-file", golden.config, "--config-file", both)

    checked = run_agent("check", *options, "--embedded-dir", tmp_path / "placement", "--format", "json")

    assert checked.code == 3
    assert "offers 0000:86:00.0 as a whole, but [devices] enabled_mdev_types has nvidia-231" in checked.out


def test_a_host_goes_through_all_layouts_and_back_in_one_placement(
    placement_server: PlacementServer, write_config: Write, tmp_path: Path
) -> None:
    golden = GoldenHost(HOSTS / FOUR_CELLS.name)
    config = write_config(placement=noauth(placement_server.url), agent={"state_directory": tmp_path / "state"})
    options = ("--host", golden.archive, "--config-file", golden.config, "--config-file", config)

    for layout in ("flat", "devices", "numa", "cells", "flat"):
        chosen = (*options, "--config-file", write_layout(layout, tmp_path), "--format", "json")
        synced = run_agent("sync", *chosen)
        shown = run_agent("show", *chosen)

        assert synced.code == 0, synced.out + synced.err
        found = {
            name: {key: provider[key] for key in ("parent", "inventories", "traits", "aggregates")}
            for name, provider in shown.json["providers"].items()
        }
        assert found == golden.read(layout)["providers"], layout
        assert run_agent("plan", *chosen).code == 0


@pytest.fixture
def writing(placement_server: PlacementServer, write_config: Write, tmp_path: Path) -> Iterator[Connect]:
    """Configures a synthetic host with a placement: the options of a verb."""
    with ExitStack() as stack:

        def options(host: Host, **groups: dict[str, object]) -> tuple[object, ...]:
            placement = noauth(stack.enter_context(host.doorway(placement_server.url)))
            own: dict[str, object] = {"state_directory": tmp_path / "state", **groups.pop("agent", {})}
            config = connect(host, write_config, placement=placement, agent=own, **groups)
            return "--config-file", config, "--format", "json"

        yield options


def test_a_one_time_card_is_reserved_once_a_guest_has_it_and_stays_so(synthetic: Start, writing: Connect) -> None:
    host = synthetic(QUEENS_SECOND)
    rule = {"address": "0000:01:00.0", "one_time_use": "true", "resource_class": "CUSTOM_NIC"}
    options = writing(host, pci={"device_spec": json.dumps(rule), "report_in_placement": True})
    name = f"{host.machine.name}_0000:01:00.0"

    def reserved() -> int:
        assert host.run("sync", *options).code == 0
        stock = host.run("show", *options).json["providers"][name]["inventories"]["CUSTOM_NIC"]
        return int(stock["reserved"])

    assert reserved() == 0
    with host.running(GuestSpec(vfs=("0000:01:00.0",))):
        assert reserved() == 1
    assert reserved() == 1


def test_guests_on_a_vf_and_on_a_vgpu_leave_the_stock_as_it_is(synthetic: Start, write_config: Write) -> None:
    host = synthetic(FOUR_CELLS)
    config = connect(host, write_config, pci={"discover": "all"}, devices={"enabled_mdev_types": "nvidia-231"})
    before = host.run("discover", "--config-file", config, "--format", "json")
    mdev = "1b20d080-1b54-4048-85b3-a6a62d165c01"

    with host.running(GuestSpec(vfs=("0000:81:10.0",), mdevs=(mdev,))):
        during = host.run("discover", "--config-file", config, "--format", "json")
        folder = config.parent / "record"
        assert host.run("record", folder, "--config-file", config).code == 0

    assert (during.code, during.out) == (0, before.out)
    (domain,) = (folder / "libvirt/domains").glob("*.xml")
    assert mdev in domain.read_text()
    assert json.loads((folder / "libvirt/domains.json").read_text()) == {domain.stem: "running"}


@pytest.mark.parametrize(
    ("types", "classes"), [("nvidia-222", []), ("nvidia-222,nvidia-231", ["VGPU"])], ids=["Cyborg's", "of both"]
)
@pytest.mark.parametrize("layout", ["flat", "devices"])
def test_a_mediated_device_that_nova_made_for_cyborg_is_never_allocated_or_moved(
    layout: str,
    types: str,
    classes: list[str],
    synthetic: Start,
    writing: Connect,
    placement_server: PlacementServer,
    tmp_path: Path,
) -> None:
    """The request of the type MDEV is on Cyborg's provider, which it names by the address of the card."""
    host, hand, policy = synthetic(FOUR_CELLS), ByHand(placement_server.url), tmp_path / "policy.yaml"
    policy.write_text(EVERY)
    options = writing(
        host,
        compute={"layout": layout},
        devices={"enabled_mdev_types": types},
        **{"mdev_nvidia-222": {"device_addresses": "0000:06:00.0"}},
        agent={"audit_grace": 0},
    )
    assert host.run("sync", *options).code == 0
    root = hand.providers()[host.machine.name]["uuid"]
    cyborgs = hand.add_child(root, f"{host.machine.name}_0000:86:00.0", "VGPU", 8, "OWNER_CYBORG")
    owner = METADATA.format(memory_mib=32, vcpus=1, user="u", project="p")
    with host.running(GuestSpec(mdevs=("1b20d080-1b54-4048-85b3-a6a62d165c01",), metadata=owner)) as guest:
        hand.claim(guest, {root: {"VCPU": 1, "MEMORY_MB": 32}, cyborgs: {"VGPU": 1}}, "INSTANCE")
        before = hand.send("GET", f"/allocations/{guest}")

        found = host.run("audit", *options).json["findings"]
        healed = host.run("audit", "--heal", "--policy", policy, *options)

        assert [one["resource_class"] for one in found if one["consumer"]] == classes
        assert all("which Cyborg reports" in one["seen"] for one in found if one["consumer"])
        assert {one["kind"] for one in found if not one["consumer"]} == ({"duplicate-provider"} if classes else set())
        assert healed.code == (3 if found else 0)
        assert hand.send("GET", f"/allocations/{guest}") == before


def test_the_class_of_vfs_comes_from_a_file_of_their_driver_live_and_recorded(
    synthetic: Start, write_config: Write, tmp_path: Path
) -> None:
    """As NVIDIA's driver shows vGPUs on VFs; one rule for all of them."""
    host = synthetic(QUEENS_FIRST)
    card = host.machine.nics[0]
    rule = {"vendor_id": "8086", "product_id": "10ed", "resource_class_attribute": "nvidia/current_vgpu_type"}
    config = connect(host, write_config, pci={"device_spec": json.dumps(rule), "report_in_placement": True})
    folders = [host.files.device(card.vf(number)) / "nvidia" for number in range(card.vfs)]
    kinds = ["1428", "1428", "1414", *["0"] * (card.vfs - 3)]
    try:
        for folder, kind in zip(folders, kinds, strict=True):
            folder.mkdir()
            (folder / "current_vgpu_type").write_text(f"{kind}\n")
        live = host.run("discover", "--config-file", config, "--format", "json")
        assert host.run("record", tmp_path / "record", "--config-file", config).code == 0
    finally:
        for folder in folders:
            shutil.rmtree(folder)

    stock = live.json["providers"][f"{host.machine.name}_{card.address}"]["inventories"]
    assert {name: one["total"] for name, one in stock.items()} == {"CUSTOM_NVIDIA_1414": 1, "CUSTOM_NVIDIA_1428": 2}
    again = run_agent("discover", "--host", tmp_path / "record", "--config-file", config, "--format", "json")
    assert again.json == live.json


def test_vfs_of_a_card_without_a_link_are_reserved_explained_and_given_back(synthetic: Start, writing: Connect) -> None:
    host = synthetic(FOUR_CELLS)
    options = writing(host, pci={"discover": "all"})
    name = f"{host.machine.name}_0000:81:00.0"

    def stock() -> tuple[int, int, bool]:
        assert host.run("sync", *options).code == 0
        provider = host.run("show", *options).json["providers"][name]
        held = provider["inventories"]["SRIOV_NET_VF"]
        return held["total"], held["reserved"], "CUSTOM_DEVICE_UNHEALTHY" in provider["traits"]

    def set_link(state: str) -> None:
        host.announce("change", [host.files.set_link(host.machine.nics[1], state)])
        wait_until(lambda: f"state='{state}'" in card(), 30, card)

    def card() -> str:
        name = next(line for line in host.libvirtd.virsh("nodedev-list", "net").split() if line.startswith("net_ens2_"))
        return host.libvirtd.virsh("nodedev-dumpxml", name)

    assert stock() == (8, 0, False)
    set_link("down")
    try:
        assert stock() == (8, 8, True)
        why = host.run("explain", name, "SRIOV_NET_VF", *options)
        assert "8 of them unhealthy" in why.json["reasons"][0]["fact"]
        why = host.run("explain", "0000:81:00.0", "CUSTOM_DEVICE_UNHEALTHY", *options)
        assert "the link of its PF is down (ens2)" in why.json["reasons"][0]["fact"]
    finally:
        set_link("up")
    assert stock() == (8, 0, False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["nobody"], "this host reports no provider nobody: it reports four-cells", id="no such provider"),
        pytest.param(["four-cells", "VGPU"], "four-cells has no VGPU", id="no such class"),
    ],
)
def test_what_is_not_there_cannot_be_explained(arguments: list[str], message: str) -> None:
    golden = GoldenHost(HOSTS / FOUR_CELLS.name)

    refused = run_agent("explain", *arguments, "--host", golden.archive, "--config-file", golden.config)

    assert (refused.code, len(refused.err.splitlines())) == (1, 1)
    assert message in refused.err


def test_check_names_rules_that_nothing_answers_to_and_slips_of_the_pen(write_config: Write, tmp_path: Path) -> None:
    groups: dict[str, dict[str, object]] = {
        "pci": {"device_spec": '{"product_id": "ffff", "adress": "*"}', "discovr": "all"},
        "devices": {"enabled_mdev_types": "nvidia-999"},
        "mdev_nvidia-999": {"max_instance": 1},
        "mdev_nvidia-99": {"max_instances": 1},
        "libvirt": {"virt_type": "qemu"},
    }
    host = ("--host", HOSTS / "queens-first/archive", "--config-file", write_config(**groups))
    options = (*host, "--embedded-dir", tmp_path / "placement", "--format", "json")

    checked = run_agent("check", *options)

    details = " ".join(one["detail"] for one in checked.json["checks"] if not one["ok"])
    assert checked.code == 3
    for text in ("discovr is not read: is discover meant?", "rule 1 applies to no device",
                 "has no effect without report_in_placement", "nvidia-999, which no card",
                 "max_instance is not read: is max_instances meant?",
                 "has adress, which is not read: is address meant?",
                 "is [mdev_nvidia-999] meant?"):  # fmt: skip
        assert text in details


@contextmanager
def booted(host: Host, folder: Path) -> Iterator[None]:
    """The host shows another boot id."""
    file = folder / "boot_id"
    file.write_text(f"{uuid.uuid4()}\n")
    subprocess.run([*host.inside, "mount", "--bind", file, BOOT_ID], check=True)
    try:
        yield
    finally:
        subprocess.run([*host.inside, "umount", BOOT_ID], check=True)


def test_vfs_that_a_boot_took_away_are_reserved_and_given_back_one_by_one(
    synthetic: Start, writing: Connect, tmp_path: Path
) -> None:
    host = synthetic(FOUR_CELLS)
    options = writing(host, pci={"discover": "all"})
    nic = host.machine.nics[1]
    name = f"{host.machine.name}_{nic.address}"

    def stock() -> tuple[int, int]:
        assert host.run("sync", *options).code == 0
        held = host.run("show", *options).json["providers"][name]["inventories"]["SRIOV_NET_VF"]
        return held["total"], held["reserved"]

    def set_vfs(count: int) -> None:
        came, gone = host.files.set_vfs(nic, count)
        host.announce("add", came) if came else host.announce("remove", gone)

    def wait_for(wanted: tuple[int, int]) -> None:
        wait_until(lambda: stock() == wanted, 30, stock)  # libvirt lists a VF once it has udev's event

    assert stock() == (8, 0)
    try:
        set_vfs(0)
        with booted(host, tmp_path):
            wait_for((8, 8))
            assert f"{name} had 8 SRIOV_NET_VF before this host was booted" in host.run("check", *options).out
            set_vfs(3)
            wait_for((8, 5))
            set_vfs(8)
            wait_for((8, 0))
            assert host.run("audit", *options).code == 0
    finally:
        set_vfs(8)
