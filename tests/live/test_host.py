"""This very machine through a real libvirtd: discovered, reported, read back, recorded, and looked at elsewhere."""

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from beds.agents import Result, run_agent
from beds.libvirtd import Libvirtd

pytestmark = pytest.mark.live

Write = Callable[..., Path]
Found = TypeVar("Found")


@pytest.fixture
def config(hypervisor: Libvirtd, write_config: Write, tmp_path: Path) -> Path:
    """A configuration for this machine, whose guests are emulated."""
    libvirt = {"connection_uri": hypervisor.uri, "virt_type": "qemu"}
    return write_config(DEFAULT={"instances_path": tmp_path}, libvirt=libvirt)


def unchanging(look: Callable[[], Result], between: Callable[[], Found]) -> tuple[Result, Found]:
    """
    What a look told, and what was found between two looks that told the same.

    The memory of a virtual machine's cell may grow while it runs: then the host changed, and we look again.
    """
    for _ in range(5):
        before, found, after = look(), between(), look()
        if before.out == after.out:
            return before, found
    raise AssertionError("this host's own facts changed at each of five looks")


def test_a_recorded_host_is_what_the_live_one_is_byte_for_byte(config: Path, tmp_path: Path) -> None:
    count = iter(range(10))

    def record_and_discover() -> Result:
        folder = tmp_path / f"record-{next(count)}"
        recorded = run_agent("record", folder, "--config-file", config)
        assert recorded.code == 0, recorded.err
        return run_agent("discover", "--host", folder, "--config-file", config, "--format", "json")

    live, elsewhere = unchanging(
        lambda: run_agent("discover", "--config-file", config, "--format", "json"), record_and_discover
    )

    assert elsewhere.code == 0, elsewhere.err
    assert elsewhere.out == live.out
    root = next(iter(live.json["providers"].values()))
    assert {"VCPU", "MEMORY_MB", "DISK_GB"} <= root["inventories"].keys()
    assert {"HW_ARCH_X86_64", "COMPUTE_STORAGE_BUS_VIRTIO", "HW_CPU_X86_SSE2"} <= set(root["traits"])


NETWORK = """
ip link set lo up
for name in table first second third fourth global idle; do
    ip link add $name type veth peer name ${name}.peer; ip link set $name up; ip link set ${name}.peer up
done
until ip -6 addr show dev idle | grep -q fe80; do sleep 0.1; done
ip addr add 10.9.0.1/24 dev table noprefixroute; ip route add 10.9.0.0/24 dev table table 100
ip -4 route add default nexthop via inet6 fe80::1 dev first nexthop via inet6 fe80::1 dev second
ip nexthop add id 3 via fe80::1 dev third; ip nexthop add id 4 via fe80::1 dev fourth; ip nexthop add id 34 group 3/4
ip -6 route add default nhid 34; ip addr add 2001:db8::1/64 dev global
exec "$0" -c "from drivers.host.routes import list_routed; print(list_routed(), end='')"
"""


def test_each_interface_with_an_address_or_a_next_hop_of_any_table_is_listed() -> None:
    """/proc/net/route has neither ``table`` nor ``second``, and /proc/net/ipv6_route no ``fourth``."""
    command = ["unshare", "--net", "bash", "-ec", NETWORK, sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert (done.stderr, set(done.stdout.split())) == (
        "",
        {"lo", "table", "first", "second", "third", "fourth", "global"},
    )


def test_a_packed_archive_serves_as_the_folder_does(config: Path, tmp_path: Path) -> None:
    assert run_agent("record", tmp_path / "host", "--config-file", config).code == 0
    with tarfile.open(tmp_path / "host.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "host", "host")

    looks = [
        run_agent("discover", "--host", place, "--config-file", config, "--format", "json").out
        for place in (tmp_path / "host", tmp_path / "host.tar.gz")
    ]

    assert looks[0] == looks[1] != ""


def test_a_recorded_archive_has_the_documented_files(config: Path, tmp_path: Path) -> None:
    assert run_agent("record", tmp_path / "host", "--config-file", config).code == 0

    host = json.loads((tmp_path / "host/host.json").read_text())
    assert host["format"] == 1
    assert {"hostname", "recorded_at", "uname"} <= host.keys()
    for name in ("disk.json", "libvirt/version.json", "libvirt/capabilities.xml", "libvirt/cpumap.json",
                 "libvirt/domains.json", "libvirt/domcapabilities/x86_64-pc-qemu.xml"):  # fmt: skip
        assert (tmp_path / "host" / name).is_file(), name
    assert list((tmp_path / "host/libvirt/nodedevs").glob("*.xml"))


def test_recording_over_an_older_record_is_refused(config: Path, tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host/keep").write_text("")

    refused = run_agent("record", tmp_path / "host", "--config-file", config)

    assert (refused.code, "is not empty" in refused.err) == (1, True)
    assert [path.name for path in (tmp_path / "host").iterdir()] == ["keep"]


def test_the_first_pass_reports_this_host_and_the_second_has_nothing_to_do(config: Path, tmp_path: Path) -> None:
    options = ("--config-file", config, "--embedded-dir", tmp_path / "run", "--format", "json")
    planned = run_agent("plan", *options)
    first = run_agent("sync", *options)

    def pass_and_show() -> tuple[Result, ...]:
        assert run_agent("sync", *options).code == 0
        return tuple(run_agent(verb, *options) for verb in ("sync", "show", "plan"))

    live, (second, shown, nothing) = unchanging(
        lambda: run_agent("discover", "--config-file", config, "--format", "json"), pass_and_show
    )

    assert (planned.code, first.code, first.json["outcome"]) == (3, 0, "changed")
    assert (second.json["outcome"], nothing.code) == ("unchanged", 0)
    assert _without_placements_own(shown.json) == {"providers": live.json["providers"]}


def test_people_see_a_tree_with_stock_and_traits(config: Path) -> None:
    shown = run_agent("discover", "--config-file", config)

    assert "MEMORY_MB" in shown.out
    assert "HW_CPU_X86_…" in shown.out
    assert "\x1b" not in shown.out  # no colours in a pipe


def test_yaml_says_what_json_says(config: Path, tmp_path: Path) -> None:
    import yaml

    assert run_agent("record", tmp_path / "host", "--config-file", config).code == 0
    options = ("discover", "--host", tmp_path / "host", "--config-file", config, "--format")

    assert yaml.safe_load(run_agent(*options, "yaml").out) == run_agent(*options, "json").json


@pytest.mark.parametrize(
    ("mode", "promised", "not_promised"),
    [
        pytest.param({"cpu_mode": "none"}, "HW_CPU_X86_SSE2", "HW_CPU_X86_AVX512F", id="qemu64"),
        pytest.param(
            {"cpu_mode": "custom", "cpu_models": "Haswell,SandyBridge"},
            "HW_CPU_X86_AVX2",
            "HW_CPU_X86_AVX512F",
            id="models",
        ),
    ],
)
def test_cpu_traits_follow_the_cpu_mode_live_and_recorded(
    hypervisor: Libvirtd, write_config: Write, tmp_path: Path, mode: dict[str, Any], promised: str, not_promised: str
) -> None:
    config = write_config(libvirt={"connection_uri": hypervisor.uri, "virt_type": "qemu", **mode})
    assert run_agent("record", tmp_path / "host", "--config-file", config).code == 0

    shown = run_agent("discover", "--host", tmp_path / "host", "--config-file", config, "--format", "json")

    traits = next(iter(shown.json["providers"].values()))["traits"]
    assert promised in traits
    assert not_promised not in traits


def test_check_finds_nothing_wrong_with_this_host(config: Path, tmp_path: Path) -> None:
    checked = run_agent("check", "--config-file", config, "--embedded-dir", tmp_path / "run", "--format", "json")

    assert checked.code == 0, checked.out
    of_the_machine = {"libvirt", "memory"}  # an older libvirt, and huge pages
    assert {one["check"] for one in checked.json["checks"]} - of_the_machine == {
        "configuration", "state", "service", "host", "placement", "clock", "role", "tree"}  # fmt: skip


def test_check_tells_that_the_folder_of_the_instances_does_not_exist_and_whose_size_is_reported(
    hypervisor: Libvirtd, write_config: Write, tmp_path: Path
) -> None:
    libvirt = {"connection_uri": hypervisor.uri, "virt_type": "qemu"}
    config = write_config(DEFAULT={"state_path": tmp_path}, libvirt=libvirt)

    checked = run_agent("check", "--config-file", config, "--embedded-dir", tmp_path / "run", "--format", "json")

    assert checked.code == 3
    (found,) = (one["detail"] for one in checked.json["checks"] if not one["ok"])
    folder = f"{tmp_path}/instances does not exist, so DISK_GB is the size of the file system of {tmp_path}: make"
    assert found.startswith(folder)


def _without_placements_own(tree: dict[str, Any]) -> dict[str, Any]:
    kept = ("parent", "inventories", "traits", "aggregates")
    return {"providers": {name: {key: one[key] for key in kept} for name, one in tree["providers"].items()}}
