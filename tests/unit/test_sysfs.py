"""The kernel's files: what is absent is told from what cannot be read, and nothing unreadable makes a host smaller."""

import errno
import os
import re
import struct
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.errors import DiscoveryError, MalformedFact
from drivers.facts import CpuMap, Devices, NetDevice, PciFunction, SevKernel, Sriov
from drivers.host.archive import MAX_FILE_BYTES, MAX_TABLE_BYTES, KernelFiles
from drivers.host.kernel import hides_tdx, probe_offline, probe_sev, probe_tdx
from drivers.host.pci_functions import complete
from drivers.host.routes import ROUTED, list_routed
from hardware import card, plain

FOLDER = "sys/bus/pci/devices/0000:05:00.0"


def write(root: Path, name: str, data: bytes | str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def probe(root: Path, *functions: PciFunction, live: bool = False) -> tuple[PciFunction, ...]:
    return probe_devices(root, *functions, live=live).functions


def probe_devices(root: Path, *functions: PciFunction, live: bool = False) -> Devices:
    functions = functions or (plain(),)
    files = KernelFiles(root, live=live)
    return complete(files, Devices(functions=functions), {"8086": frozenset({"vendor/kind"})})


def why_odd(root: Path, *, live: bool = False) -> str:
    (odd,) = probe_devices(root, live=live).odd
    return odd.because


def test_without_sys_only_libvirt_tells(tmp_path: Path) -> None:
    pf, *vfs = card()
    assert probe(tmp_path, plain(), pf, *vfs) == (plain(), replace(pf, sriov=Sriov(63)), *vfs)
    assert probe_sev(KernelFiles(tmp_path)) is None


@pytest.mark.parametrize(
    ("offset", "stride", "step"),
    [("384", "2", (384, 2)), ("1", "0", (1, 1)), ("0", "2", (0, 2))],
    ids=lambda one: str(one),
)
def test_where_the_vfs_of_a_pf_are(tmp_path: Path, offset: str, stride: str, step: tuple[int, int] | None) -> None:
    folder = "sys/bus/pci/devices/0000:81:00.0"
    write(tmp_path, f"{folder}/sriov_offset", f"{offset}\n")
    write(tmp_path, f"{folder}/sriov_stride", f"{stride}\n")

    assert probe(tmp_path, card()[0])[0].sriov == Sriov(63, step)


def test_power_state_and_what_the_vendors_driver_tells(tmp_path: Path) -> None:
    write(tmp_path, f"{FOLDER}/power_state", "D3hot\n")
    write(tmp_path, f"{FOLDER}/vendor/kind", "1428\nmore\n")

    (found,) = probe(tmp_path)

    assert (found.power_state, found.attributes) == ("D3hot", (("vendor/kind", "1428"),))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        pytest.param("power_state", b"", id="empty"),
        pytest.param("power_state", b"D", id="truncated"),
        pytest.param("power_state", b"\xff\xfe\x00", id="binary"),
        pytest.param("power_state", b"D0\0", id="zero byte"),
        pytest.param("power_state", b"D0" * MAX_FILE_BYTES, id="endless"),
        pytest.param("vendor/kind", b"\n", id="attribute of nothing"),
        pytest.param("vendor/kind", b"A16-4Q\n", id="attribute that is no number"),
        pytest.param("vendor/kind", b"1" * 10, id="attribute that is too long"),
    ],
)
def test_a_function_with_a_malformed_file_is_odd_and_names_it(tmp_path: Path, name: str, data: bytes) -> None:
    path = write(tmp_path, f"{FOLDER}/{name}", data)

    assert str(path) in why_odd(tmp_path)


def test_a_function_whose_file_cannot_be_read_is_odd_and_the_others_are_not(tmp_path: Path) -> None:
    (tmp_path / FOLDER / "power_state").mkdir(parents=True)  # root may read any file, but nobody reads a folder

    found = probe_devices(tmp_path, plain(), *card())

    assert [str(one.address) for one in found.functions] == ["0000:81:00.0", "0000:81:10.0", "0000:81:10.1"]
    assert re.search(r"cannot read .*0000:05:00\.0/power_state: it is not a regular file", found.odd[0].because)


def test_where_no_function_can_be_read_all_are_odd(tmp_path: Path) -> None:
    for one in ("0000:05:00.0", "0000:06:00.0"):
        (tmp_path / f"sys/bus/pci/devices/{one}/power_state").mkdir(parents=True)

    found = probe_devices(tmp_path, plain(), plain("0000:06:00.0"))

    assert (len(found.functions), len(found.odd)) == (0, 2)


def test_what_could_not_be_read_cannot_be_read_in_its_record_either(tmp_path: Path) -> None:
    (tmp_path / FOLDER / "power_state").mkdir(parents=True)
    recorded: dict[str, str] = {}
    complete(KernelFiles(tmp_path, record=recorded), Devices(functions=(plain(),)), {})

    for name, text in recorded.items():
        write(tmp_path / "archive", name, text)

    assert "power_state" in why_odd(tmp_path / "archive")


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    os.mkfifo(tmp_path / FOLDER / "power_state")

    assert "power_state" in why_odd(tmp_path)


def test_a_permission_that_is_missing_is_said() -> None:
    """Root may read everything, so another user looks: at a folder of its own, as pytest's are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        write(Path(folder), f"{FOLDER}/power_state", "D0\n").chmod(0)
        pid = os.fork()
        if pid == 0:
            os.setuid(65534)
            said = why_odd(Path(folder))
            os._exit(0 if "power_state: Permission denied: is this agent run as root?" in said else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_long_table_is_read_to_its_end() -> None:
    """The kernel gives tables of /proc in pieces of a page or less."""
    command = [sys.executable, "-c", "import ssl; print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        table = Path(f"proc/{child.pid}/maps")
        whole = (Path("/") / table).read_text()

        document = KernelFiles(Path("/")).read(str(table))

        assert document is not None
        assert document.text == whole
        assert len(whole) > 4096


def test_the_kernel_tells_representors_from_uplinks(tmp_path: Path) -> None:
    ports = {"ens1f0np0": "p0", "ens1f0npf0vf1": "pf0vf1", "eth2": "c1pf0sf3", "eth3": "1", "eth4": None}
    for name, port in ports.items():
        if port:
            write(tmp_path, f"sys/class/net/{name}/phys_port_name", f"{port}\n")

    (found, *_) = probe(tmp_path, *card(net_devices=tuple(map(NetDevice, ports))))

    assert {net.name: net.represents for net in found.net_devices if net.represents} == {
        "ens1f0npf0vf1": "pf0vf1",
        "eth2": "c1pf0sf3",
    }
    assert [net.name for net in found.links] == ["ens1f0np0", "eth3", "eth4"]


def test_the_interface_of_a_subfunction_is_no_link_of_the_pf_that_libvirt_names_as_its_parent(tmp_path: Path) -> None:
    write(tmp_path, "sys/class/net/enp129s0f0s88/device/sfnum", "88\n")

    (found, *_) = probe(tmp_path, *card(net_devices=(NetDevice("enp129s0f0s88", "up"), NetDevice("ens1", "down"))))

    assert [net.name for net in found.links] == ["ens1"]


def test_a_file_that_the_driver_does_not_serve_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel answers so for phys_port_name of interfaces whose driver has no ports."""

    def refuse(descriptor: int, count: int) -> bytes:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    write(tmp_path, "sys/class/net/eth0/phys_port_name", "")
    monkeypatch.setattr(os, "read", refuse)

    assert KernelFiles(tmp_path).read("sys/class/net/eth0/phys_port_name") is None


def test_a_device_that_went_away_is_odd(tmp_path: Path) -> None:
    assert "went away while the host was read" in why_odd(tmp_path, live=True)


def test_a_live_kernel_that_is_too_old_to_tell_is_no_device_that_went(tmp_path: Path) -> None:
    write(tmp_path, f"{FOLDER}/vendor", "0x8086\n")

    assert probe(tmp_path, live=True)[0].power_state is None


@given(st.binary(max_size=40))
def test_whatever_a_file_holds_it_is_a_fact_an_odd_device_or_an_error_and_never_fewer_devices(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in (f"{FOLDER}/power_state", f"{FOLDER}/vendor/kind", "proc/net/route", "proc/net/if_inet6"):
            write(root, name, data)
        said = ""
        found = Devices()
        try:
            found = probe_devices(root, plain(), *card())
        except DiscoveryError as error:
            said = str(error)
        assert len(found.functions) + len(found.odd) == 4 or folder in said


@pytest.mark.parametrize("data", [b"Y N", b"", b"\xff", b"2"])
def test_a_switch_of_kvm_amd_that_is_none_is_an_error(tmp_path: Path, data: bytes) -> None:
    write(tmp_path, "sys/module/kvm_amd/parameters/sev", data)

    with pytest.raises(MalformedFact, match="parameters/sev"):
        probe_sev(KernelFiles(tmp_path))


def test_kvm_amd_tells_what_it_was_loaded_with(tmp_path: Path) -> None:
    write(tmp_path, "sys/module/kvm_amd/parameters/sev", "Y\n")
    write(tmp_path, "sys/module/kvm_amd/parameters/sev_es", "0\n")

    assert probe_sev(KernelFiles(tmp_path)) == SevKernel(sev=True, sev_es=False, sev_snp=False)


def test_interfaces_with_routes_or_addresses_or_in_a_bond_carry_the_hosts_own_traffic(tmp_path: Path) -> None:
    write(tmp_path, "proc/net/route", "Iface\tDestination\tGateway\nens1\t00000000\t0100000A\n")
    inet6 = "fe80000000000000 03 40 20 80 ens2\n20010db800000000 04 40 00 80 ens3\n"
    write(tmp_path, "proc/net/if_inet6", inet6)
    write(tmp_path, "sys/class/net/ens4/master/ifindex", "7\n")
    function = plain(net_devices=tuple(NetDevice(f"ens{n}") for n in range(1, 6)))

    (found,) = probe(tmp_path, function)

    assert [net.name for net in found.net_devices if net.carries_host_traffic] == ["ens1", "ens3", "ens4"]


def test_an_interface_below_one_that_has_the_hosts_routes_carries_that_traffic_too_and_a_record_keeps_it(
    tmp_path: Path,
) -> None:
    """A VLAN, as the kernel links it; it has no ``master``."""
    write(tmp_path, "proc/net/route", "Iface\tDestination\tGateway\nens1.100\t00000000\t0100000A\n")
    above = "sys/class/net/ens1/upper_ens1.100/ifindex"
    write(tmp_path, above, "9\n")
    write(tmp_path, "sys/class/net/ens2/upper_macvtap0/ifindex", "10\n")  # a guest's, without an address of the host
    function = plain(net_devices=(NetDevice("ens1"), NetDevice("ens2")))
    kept: dict[str, str] = {}

    complete(KernelFiles(tmp_path, record=kept), Devices(functions=(function,)), {})
    (found,) = probe(tmp_path, function)

    assert [net.name for net in found.net_devices if net.carries_host_traffic] == ["ens1"]
    for name, text in kept.items():
        write(tmp_path / "archive", name, text)
    assert above in kept
    assert probe(tmp_path / "archive", function) == (found,)


def test_an_archive_has_the_interfaces_of_all_tables_and_next_hops(tmp_path: Path) -> None:
    write(tmp_path, ROUTED, "ens1\nens3\n")
    (tmp_path / "proc/net/route").mkdir(parents=True)  # not needed, whatever it is
    function = plain(net_devices=tuple(NetDevice(f"ens{n}") for n in range(1, 4)))

    (found,) = probe(tmp_path, function)

    assert [net.carries_host_traffic for net in found.net_devices] == [True, False, True]


def done(error: int = 0, flags: int = 0) -> bytes:
    """The end of an answer of the kernel's, as linux/netlink.h has it."""
    return struct.pack("=IHHIIi", 20, 3, flags, 0, 0, -error)


def test_a_part_of_the_kernels_routes_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a change made incomplete is listed again, five times at most."""
    changed = done(flags=0x10)
    for answers, words in (
        ([changed] * 5, "routes change"),
        ([done(errno.EMSGSIZE)], "too long"),
        ([changed, done()], ""),
    ):
        with monkeypatch.context() as patched:
            patched.setattr("socket.socket.recv", lambda *_, left=iter(answers): next(left), raising=False)
            with pytest.raises(OSError, match=words) if words else nullcontext():
                assert list_routed() == ""


def test_the_live_kernel_lists_interfaces_with_addresses_and_a_record_keeps_them(tmp_path: Path) -> None:
    """``lo`` has an address wherever tests run; proc/net/route of this root does not exist."""
    function = plain("0000:06:00.0", net_devices=(NetDevice("lo"), NetDevice("ens9")))
    write(tmp_path, "sys/bus/pci/devices/0000:06:00.0/vendor", "0x8086\n")
    kept: dict[str, str] = {}

    (found,) = complete(KernelFiles(tmp_path, live=True, record=kept), Devices(functions=(function,)), {}).functions

    assert [net.carries_host_traffic for net in found.net_devices] == [True, False]
    write(tmp_path / "archive", ROUTED, kept[ROUTED])
    assert probe(tmp_path / "archive", function) == (found,)


def test_a_kernel_that_does_not_answer_is_recorded_as_one_that_cannot_be_read(tmp_path: Path) -> None:
    def refuse() -> str:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    kept: dict[str, str] = {}
    with pytest.raises(DiscoveryError, match=f"does not answer for {ROUTED}: .*not permitted"):
        KernelFiles(tmp_path, live=True, record=kept).ask(ROUTED, refuse)
    write(tmp_path, ROUTED, kept[ROUTED])

    (found,) = probe(tmp_path, plain(net_devices=(NetDevice("ens1"),)))

    assert [net.carries_host_traffic for net in found.net_devices] == [None]


@pytest.mark.parametrize("name", ["route", "if_inet6"])
@pytest.mark.parametrize("text", [None, "garbage\n", "a b\n", "\n"])
def test_tables_that_cannot_be_read_leave_only_open_whether_an_interface_is_the_hosts(
    tmp_path: Path, name: str, text: str | None
) -> None:
    if text is None:
        (tmp_path / "proc/net" / name).mkdir(parents=True)
    else:
        write(tmp_path, f"proc/net/{name}", text)
    write(tmp_path, "sys/class/net/ens1/master/ifindex", "7\n")

    found, quiet = probe(tmp_path, plain(net_devices=(NetDevice("ens1"), NetDevice("ens2"))), plain("0000:06:00.0"))

    assert [net.carries_host_traffic for net in found.net_devices] == [True, None]
    assert quiet == plain("0000:06:00.0")


def test_tables_of_thousands_of_routes_and_addresses_are_read_up_to_a_limit(tmp_path: Path) -> None:
    """The kernel pads each route to 128 bytes; hosts with BGP or Calico have thousands."""
    write(tmp_path, "proc/net/route", "Iface".ljust(127) + "\n" + ("ens1\t0A000000".ljust(127) + "\n") * 5000)
    write(tmp_path, "proc/net/if_inet6", "20010db800000000 04 40 00 80 ens3\n" * 5000)
    function = plain(net_devices=tuple(NetDevice(f"ens{n}") for n in range(1, 4)))

    assert [net.carries_host_traffic for net in probe(tmp_path, function)[0].net_devices] == [True, False, True]

    write(tmp_path, "proc/net/route", b"Iface\n" + b"\n" * MAX_TABLE_BYTES)
    assert {net.carries_host_traffic for net in probe(tmp_path, function)[0].net_devices} == {None}


def test_the_kernel_tells_the_cell_of_a_cpu_that_is_off(tmp_path: Path) -> None:
    (tmp_path / "sys/devices/system/node").mkdir(parents=True)
    for cpu, cell in ((1, 0), (2, 3), (3, 3)):
        write(tmp_path, f"sys/devices/system/node/node{cell}/distance", "10 20")
        (tmp_path / f"sys/devices/system/cpu/cpu{cpu}").mkdir(parents=True)
        (tmp_path / f"sys/devices/system/cpu/cpu{cpu}/node{cell}").symlink_to(f"../../node/node{cell}")
    cpu_map = CpuMap(5, frozenset({0, 1}))
    recorded: dict[str, str] = {}

    found = probe_offline(KernelFiles(tmp_path, record=recorded), cpu_map, (0, 3))

    assert found == ((2, 3), (3, 3))
    for name, text in recorded.items():
        write(tmp_path / "archive", name, text)
    assert probe_offline(KernelFiles(tmp_path / "archive"), cpu_map, (0, 3)) == found


@pytest.mark.parametrize(
    ("text", "count"), [("tdx 31\n", 31), ("sev 100\nsev_es 15\ntdx 31\n", 31), ("sev 100\n", None), ("", None)]
)
def test_how_many_guests_can_have_tdx_is_in_the_misc_controller(tmp_path: Path, text: str, count: int | None) -> None:
    assert probe_tdx(KernelFiles(tmp_path)) is None
    write(tmp_path, "sys/fs/cgroup/misc.capacity", text)

    assert probe_tdx(KernelFiles(tmp_path)) == count


@pytest.mark.parametrize("text", ["tdx\n", "tdx many\n", "tdx -1\n"])
def test_a_number_of_tdx_guests_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    write(tmp_path, "sys/fs/cgroup/misc.capacity", text)

    with pytest.raises(MalformedFact, match=r"misc\.capacity"):
        probe_tdx(KernelFiles(tmp_path))


@pytest.mark.parametrize(
    ("there", "hidden"),
    [
        ((), True),
        (("cgroup.controllers",), False),
        (("misc.capacity",), False),
        (("cgroup.controllers", "misc.capacity", "cgroup.type"), True),
    ],
    ids=["no control groups", "no controller misc", "an archive of before", "control groups of a container"],
)
def test_the_number_of_tdx_guests_is_hidden_where_the_root_of_control_groups_is(
    tmp_path: Path, there: tuple[str, ...], *, hidden: bool
) -> None:
    for name in there:
        write(tmp_path, f"sys/fs/cgroup/{name}", "")

    assert hides_tdx(KernelFiles(tmp_path)) is hidden
