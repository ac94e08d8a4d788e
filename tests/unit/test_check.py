"""The check tells what a pass would be refused for."""

import argparse
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.command.check import (
    Check,
    check_host,
    check_nova,
    check_pass,
    check_state,
    release_of,
    tried,
)
from agent.command.check import check as check_verb
from agent.command.exits import Exit
from agent.command.service_verbs import Code, upgrade
from agent.connect.senders import Trace
from agent.nova.client import NovaClient
from agent.settings.read import Role, keep_in, load_settings
from agent.sync.outcome import Status
from beds.golden import HOSTS
from beds.nova import HOST, Direct, FakeNova, failing
from beds.one_host import OneHost
from configured import changed
from drivers.facts import DiskSpace
from drivers.policy import DevicePolicy, MdevRule, Policy
from hardware import gpu, host, parent
from reportclient.client import PlacementClient

Write = Callable[..., Path]
GPU = "pci_0000_84_00_0"
SETTINGS = load_settings([])
MDEVS = DevicePolicy(report=True, mdevs=(MdevRule(type="a"),))


@pytest.fixture
def one(tmp_path: Path) -> OneHost:
    """A host whose guest holds a unit of a card, after its first pass."""
    found = OneHost(tmp_path, host(gpu(), parents=(parent(gpu(), a=4),)), Policy(layout="devices", devices=MDEVS))
    assert found.sync().status is Status.CHANGED
    found.claim({GPU: {"VGPU": 1}})
    return found


def test_a_folder_that_the_command_line_names_is_not_blamed_on_an_option() -> None:
    full = Path("/proc/compute-node-agent")  # nobody can make a folder there, root included

    [own], [named] = (
        tried("state", check_state(one))
        for one in (changed(SETTINGS, folders={"state": full}), keep_in(SETTINGS, full))
    )

    assert not own.ok
    assert own.detail.endswith("set [agent] state_directory")
    assert named.detail.endswith("set --embedded-dir to another folder")


def check(one: OneHost) -> Check:
    node = one.node
    return next(tried("tree", check_pass(node, node.survey())))


def test_a_host_that_needs_nothing_is_ok(one: OneHost) -> None:
    assert check(one).ok


@pytest.mark.parametrize(
    ("role", "shared", "found"), [("sole", "", [False]), ("audit", "", [True]), ("sole", "nfs", [])]
)
def test_a_missing_folder_of_instances_is_a_finding_where_its_size_is_reported(
    one: OneHost, role: Role, shared: str, found: list[bool]
) -> None:
    one.facts = replace(one.facts, disk=DiskSpace(100 << 30, 0, folder="/", missing="/var/lib/nova/instances"))
    one.policy, one.role = replace(one.policy, disk=replace(one.policy.disk, shared=shared)), role

    assert [each.ok for each in check_pass(one.node, one.node.survey()) if each.check == "storage"] == found


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        pytest.param({"layout": "flat"}, Status.RESHAPE_NEEDED, id="a conversion"),
        pytest.param({"reserved_memory_mib": 1900}, Status.UNSAFE, id="more than is free"),
        pytest.param(
            {"devices": DevicePolicy(report=True, mdevs=(MdevRule(type="a", resource_class="CUSTOM_VGPU"),))},
            Status.RESHAPE_NEEDED,
            id="another class",
        ),
    ],
)
def test_what_a_pass_would_be_refused_for_is_a_finding(
    one: OneHost, changes: dict[str, object], status: Status
) -> None:
    one.claim({GPU: {"VGPU": 1}, "": {"MEMORY_MB": 1000}})
    one.policy = replace(one.policy, **changes)  # type: ignore[arg-type]

    found = check(one)
    done = one.sync()

    assert done.status is status
    assert not found.ok
    assert f"sync would end with {status.value}: " in found.detail
    assert done.notes[0] in found.detail


@pytest.mark.parametrize(
    ("options", "told"),
    [
        pytest.param({"compute": {"layout": "devices"}}, ["this memory counts as MEMORY_MB"], id="devices"),
        pytest.param({"compute": {"layout": "flat"}}, ["this memory counts as MEMORY_MB"], id="flat"),
        pytest.param({"compute": {"layout": "cells"}}, ["this memory is reserved"], id="cells"),
        pytest.param({"agent": {"reserved_cells": "none"}}, [], id="decided"),
        pytest.param({"agent": {"role": "beside"}}, [], id="nova reports the memory"),
    ],
)
def test_memory_of_cells_without_cpus_is_told(
    write_config: Write, options: dict[str, dict[str, object]], told: list[str]
) -> None:
    path = write_config(libvirt={"virt_type": "qemu"}, **options)
    asked = argparse.Namespace(config_file=[path], config_dir=[], host=HOSTS / "gpu-memory/archive")

    found = [one for one in check_host(asked) if one.check == "memory"]

    assert [one.ok for one in found] == [True] * len(told)
    assert [text in one.detail for one, text in zip(found, told, strict=True)] == [True] * len(told)


@pytest.mark.parametrize(
    ("layout", "kept_mib", "doubt", "told"),
    [
        pytest.param("flat", 512, False, "guests without huge pages can have 237056 MiB", id="flat"),
        pytest.param("devices", 512, False, "guests without huge pages can have 237056 MiB", id="devices"),
        pytest.param("cells", 512, False, "", id="cells has providers of huge pages"),
        pytest.param("numa", 512, False, "", id="numa has providers of pages"),
        pytest.param("devices", 240_000, True, "the host is to keep 240000 MiB", id="less than the host keeps"),
    ],
)
@pytest.mark.parametrize("role", ["sole", "beside"])
def test_what_huge_pages_leave_is_told(
    write_config: Write, layout: str, kept_mib: int, doubt: bool, told: str, role: str
) -> None:
    if role == "beside" and layout != "devices":  # which is nova's layout
        return
    kept, agent = {"reserved_host_memory_mb": kept_mib}, {"role": role}
    path = write_config(libvirt={"virt_type": "qemu"}, compute={"layout": layout}, DEFAULT=kept, agent=agent)
    asked = argparse.Namespace(config_file=[path], config_dir=[], host=HOSTS / "four-cells/archive")

    found = [one for one in check_host(asked) if one.check == "memory"]
    assert [(one.ok, one.doubt, told in one.detail) for one in found] == ([(True, doubt, True)] if told else [])


def test_odd_numbers_of_huge_pages_are_no_fault_of_a_layout_that_does_not_need_them(
    write_config: Write, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    shutil.copytree(HOSTS / "four-cells/archive", archive)
    path = archive / "libvirt/capabilities.xml"
    path.write_text(path.read_text().replace("size='1048576'>4<", "size='1048576'>4000<"))
    asked = argparse.Namespace(config_file=[write_config(libvirt={"virt_type": "qemu"})], config_dir=[], host=archive)

    (found,) = (one for one in check_host(asked) if one.check == "memory")

    assert found.ok
    assert "is not known: libvirt reports more huge pages in cell 0 than the cell has memory" in found.detail


@pytest.mark.parametrize(
    ("option", "told"),
    [
        pytest.param({"cpu_dedicated_set": "8-16"}, "cpu_dedicated_set names CPU 16, off", id="dedicated"),
        pytest.param({"cpu_shared_set": "8-17"}, "cpu_shared_set names CPU 16-17, off", id="shared"),
        pytest.param({"cpu_shared_set": "8-15"}, "", id="all online"),
    ],
)
def test_a_cpu_of_a_set_that_is_off_is_a_finding(write_config: Write, option: dict[str, object], told: str) -> None:
    path = write_config(libvirt={"virt_type": "qemu"}, compute=option)
    asked = argparse.Namespace(config_file=[path], config_dir=[], host=HOSTS / "gpu-memory/archive")

    wrong = [one.detail for one in check_host(asked) if one.check == "host" and not one.ok]

    assert len(wrong) == bool(told)
    assert all(told in each for each in wrong)


@pytest.mark.parametrize(
    ("sets", "told"),
    [
        pytest.param({"cpu_dedicated_set": "0-15"}, ["[compute] cpu_shared_set is not: no CPU is shared"], id="none"),
        pytest.param({"cpu_dedicated_set": "0-7", "cpu_shared_set": "8-15"}, [], id="both sets"),
    ],
)
def test_a_host_without_vcpu_is_told(write_config: Write, sets: dict[str, str], told: list[str]) -> None:
    path = write_config(libvirt={"virt_type": "qemu"}, compute=sets)
    asked = argparse.Namespace(config_file=[path], config_dir=[], host=HOSTS / "gpu-memory/archive")

    found = [one for one in check_host(asked) if one.check == "cpus"]

    assert [(one.ok, one.doubt) for one in found] == [(True, True)] * len(told)
    assert all(text in one.detail for text, one in zip(told, found, strict=True))


@pytest.mark.parametrize(
    ("option", "name", "check"),
    [
        ({"reserved_host_cpus": 32}, "VCPU", "cpus"),
        ({"cpu_allocation_ratio": 0.01}, "VCPU", "cpus"),
        ({"reserved_host_memory_mb": 349_768}, "MEMORY_MB", "memory"),
    ],
)
def test_a_class_of_which_nothing_is_left_for_guests_is_a_doubt(
    write_config: Write, option: dict[str, object], name: str, check: str
) -> None:
    path = write_config(libvirt={"virt_type": "qemu"}, DEFAULT=option, compute={"layout": "flat"})
    asked = argparse.Namespace(config_file=[path], config_dir=[], host=HOSTS / "gpu-memory/archive")

    (told,) = (one.detail for one in check_host(asked) if one.doubt and one.check == check)

    assert told == f"no guest gets {name} here: all of it is reserved, or its ratio leaves nothing"


@pytest.mark.parametrize(
    ("checks", "strict", "code"),
    [
        ([Check("host", True, "x")], True, Exit.DONE),
        ([Check("host", True, "x", doubt=True)], False, Exit.DONE),
        ([Check("host", True, "x", doubt=True)], True, Exit.DIFFERENCES),
        ([Check("host", False, "x")], False, Exit.DIFFERENCES),
    ],
    ids=["fine", "a doubt", "a doubt where it counts", "a finding"],
)
def test_a_doubt_counts_where_one_asks_for_that(
    monkeypatch: pytest.MonkeyPatch, checks: list[Check], code: Exit, *, strict: bool
) -> None:
    monkeypatch.setattr("agent.command.check.check_host", lambda _options: iter(checks))

    told = check_verb(argparse.Namespace(strict=strict))

    assert told.exit == code
    assert [" ".join(str(line).split()).split()[1] for line in told.lines][1:] == [checks[0].result]


def test_a_doubt_of_memory_is_a_warning_of_the_upgrade_check(monkeypatch: pytest.MonkeyPatch) -> None:
    for doubtful, code in (("memory", Code.WARNING), ("libvirt", Code.SUCCESS)):
        checks = [Check(doubtful, True, "x", doubt=True)]
        monkeypatch.setattr("agent.command.service_verbs.check_host", lambda _options, found=checks: iter(found))
        monkeypatch.setattr("agent.command.service_verbs._running", lambda _options: [])

        assert upgrade(argparse.Namespace(nova=None)).exit == code


@pytest.mark.parametrize("layout", ["flat", "devices", "cells", "numa"])
def test_a_host_is_told_with_the_sums_of_its_tree_although_the_state_directory_is_below_a_file(
    layout: str, write_config: Write, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    agent, compute = {"state_directory": tmp_path / "file/state"}, {"layout": layout}
    path = write_config(libvirt={"virt_type": "qemu"}, agent=agent, compute=compute)
    asked = argparse.Namespace(config_file=[path], config_dir=[], host=HOSTS / "four-cells/archive")

    checks = [*check_host(asked)]

    assert {one.check for one in checks if not one.ok} >= {"state", "approval"}
    assert "32 VCPU, 262144 MEMORY_MB" in next(one.detail for one in checks if one.check == "host")
    (leak,) = (one for one in checks if one.check == "libvirt")
    assert (leak.ok, leak.doubt) == (True, False)  # else no host of Debian 12 would be without one
    assert "may leak memory in queries about devices, which 10.5.0 does not" in leak.detail


def test_a_wrong_login_to_nova_is_a_finding_beside_the_tree_and_the_host_is_named_once(
    write_config: Write, one: OneHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its password may be the service's alone: what asks nova nothing needs none."""
    agent, nova = {"state_directory": tmp_path}, {"auth_type": "password", "auth_url": "http://127.0.0.1:9/"}
    path = write_config(libvirt={"virt_type": "qemu"}, agent=agent, nova=nova)
    monkeypatch.setattr("agent.command.check.open_client", lambda *_: (one.node.client, "placement"))
    asked = argparse.Namespace(config_file=[path], config_dir=[], host=HOSTS / "gpu-memory/archive", trace=Trace())

    found = {each.check: each for each in check_host(asked)}

    assert found["tree"].ok
    assert not found["nova"].ok
    assert "[nova] auth_type = password needs password" in found["nova"].detail
    assert len(asked.trace.nodes) == 1


def test_nova_is_asked_what_an_audit_asks(one: OneHost) -> None:
    nova = FakeNova()
    node = replace(one.node, nova=lambda: NovaClient(Direct(nova), "nova at X"))
    survey = node.driver.survey(node.name)
    root_uuid = node.known_uuid(survey)
    assert root_uuid

    def found() -> Check:
        return next(tried("nova", check_nova(node, survey)))

    unknown = found()
    nova.hypervisors[root_uuid] = HOST
    nova.add_server("s")
    known = found()
    nova.fault = failing(403)
    barred = found()

    assert (unknown.ok, known.ok, barred.ok) == (False, True, False)
    assert "no hypervisor with the uuid of this host's root provider" in unknown.detail
    assert known.detail == f"nova at X knows 1 servers and 0 migrations of this host, which it calls {HOST}"
    assert "docs/allocations.md" in barred.detail


@pytest.mark.parametrize(
    ("traits", "microversion", "told"),
    [
        (("HW_CPU_X86_INTEL_TDX", "HW_CPU_X86_AMXINT8"), (1, 39), "traits of 2026.2"),
        (("COMPUTE_NET_VIRTIO_PACKED",), (1, 39), "traits of 2023.2"),
        ((), (1, 37), "traits of 2023.1 or before; it cannot tell servers from migrations by the type of a consumer"),
        ((), (1, 36), "before; it cannot move a provider below another one, as some conversions need, and cannot tell"),
    ],
)
def test_the_release_of_placement_is_told_with_what_it_cannot_do(
    one: OneHost, traits: tuple[str, ...], microversion: tuple[int, int], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlacementClient, "known_traits", lambda _, names: frozenset(traits) & frozenset(names))
    client = one.node.client
    client.transport.microversion = microversion

    assert told in release_of(client)
