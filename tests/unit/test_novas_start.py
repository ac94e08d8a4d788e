"""What ``upgrade check --nova`` says of nova's next start; ``tests/inside`` has the scenes beside nova's own code."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from agent.command.novas_start import CHANGE, FORECAST, START, _of_release, foretell
from agent.command.service_verbs import Code, upgrade
from beds.memory import MemoryPlacement
from beds.nova_starts import (
    GUEST,
    RECORDED,
    ROOT,
    SCENES,
    Scene,
    archive_of,
    config_of,
    foretold,
    placement_of,
)
from drivers import INSIDE, IRONIC
from reportclient.client import PlacementClient
from reportclient.ownership import MARKER, OWNER_NOVA
from reportclient.transport import Transport

Write = Callable[..., Path]
GONE = "6f1f6a0c-4d3c-4b7e-8b9a-2f6b7a1c0d42"


@pytest.fixture
def placement(monkeypatch: pytest.MonkeyPatch) -> MemoryPlacement:
    """The placement that the command reads, empty at first."""
    found = MemoryPlacement()
    client = PlacementClient(Transport(found, where="placement"))
    monkeypatch.setattr("agent.command.novas_start.open_client", lambda *_: (client, "placement"))
    return found


def reported(
    placement: MemoryPlacement, stock: dict[str, Any], *traits: str, name: str = "full-guest", held: bool = True
) -> None:
    """A root of this name with such totals and traits; ``held``: a consumer has a unit of each class of devices."""

    def send(method: str, path: str, body: Any = None) -> None:
        answer = placement.request(path, method, json=body, microversion="1.39")
        assert answer.status_code < 300, answer.text

    send("POST", "/resource_providers", {"name": name, "uuid": ROOT})
    inventories = {one: {"total": total} for one, total in stock.items()}
    send(
        "PUT",
        f"/resource_providers/{ROOT}/inventories",
        {"inventories": inventories, "resource_provider_generation": 0},
    )
    for one in traits:
        if one.startswith("CUSTOM_"):
            send("PUT", f"/traits/{one}")
    send("PUT", f"/resource_providers/{ROOT}/traits", {"traits": list(traits), "resource_provider_generation": 1})
    units = {one: 1 for one in stock if one != "VCPU"}
    if units and held:
        body = {"allocations": {ROOT: {"resources": units}}, "project_id": "p", "user_id": "u"}
        send("PUT", f"/allocations/{GONE}", body | {"consumer_generation": None, "consumer_type": "INSTANCE"})


def told(path: Path, archive: Path = RECORDED / "archive") -> list[tuple[str, bool, str]]:
    asked = argparse.Namespace(config_file=[path], config_dir=[], host=archive)
    return [(one.check, one.ok, one.detail) for one in foretell(asked)]


def test_a_host_that_lost_its_compute_id_is_told(placement: MemoryPlacement, write_config: Write) -> None:
    reported(placement, {"VCPU": 8}, OWNER_NOVA)

    ((check, ok, text),) = told(write_config(libvirt={"virt_type": "qemu"}))

    assert (check, ok) == (START, False)
    assert "nova finds no compute_id" in text


@pytest.mark.parametrize(
    ("stock", "traits", "check", "ok", "text"),
    [
        pytest.param({"VCPU": 8}, (), CHANGE, True, "gets OWNER_NOVA", id="an older nova's"),
        pytest.param({"VCPU": 8}, (MARKER,), CHANGE, False, "run hand-over first", id="ours"),
        pytest.param({"VGPU": 4}, (), START, False, f"{GONE} has no mediated device here", id="vGPUs of nobody here"),
        pytest.param(
            {"MEM_ENCRYPTION_CONTEXT": 4},
            (),
            START,
            False,
            f"room for 0 below it, and {GONE} has some",
            id="encryption",
        ),
    ],
)
def test_what_nova_would_change_is_told(
    placement: MemoryPlacement,
    write_config: Write,
    stock: dict[str, Any],
    traits: tuple[str, ...],
    check: str,
    ok: bool,
    text: str,
) -> None:
    reported(placement, stock, *traits)

    found = told(write_config(libvirt={"virt_type": "qemu"}, devices={"enabled_mdev_types": "mtty-1"}))

    assert [each for each in found if each[:2] == (check, ok) and text in each[2]]


def test_a_host_that_nova_would_not_start_on_fails_the_check(
    placement: MemoryPlacement, write_config: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported(placement, {"VCPU": 8}, name="full-guest")
    monkeypatch.setattr("agent.command.service_verbs.check_host", lambda _: [])
    path = write_config(libvirt={"virt_type": "qemu"})
    asked = argparse.Namespace(config_file=[path], config_dir=[], host=RECORDED / "archive", nova="34")

    assert upgrade(asked).exit == Code.FAILURE
    asked.nova = None
    assert upgrade(asked).exit == Code.SUCCESS


@pytest.mark.parametrize("scene", [pytest.param(scene, id=name) for name, scene in SCENES.items()])
def test_what_stops_nova_is_foretold(scene: Scene, tmp_path: Path) -> None:
    stops = foretold(placement_of(scene), archive_of(scene, tmp_path), config_of(scene, tmp_path))

    assert bool(stops) == bool(scene.refusal), stops


def test_what_nova_makes_of_tdx_is_not_known_where_control_groups_are_hidden(tmp_path: Path) -> None:
    scene = Scene(below="intel_tdx MEM_ENCRYPTION_CONTEXT")
    archive, config = archive_of(scene, tmp_path), config_of(scene, tmp_path)
    client = PlacementClient(Transport(placement_of(scene), where="placement"))

    with mock.patch("agent.command.novas_start.open_client", return_value=(client, "placement")):
        found = told(config, archive)

    assert [text for check, ok, text in found if (check, ok) == (START, False)] == []
    assert ["intel_tdx: give this agent the host's /sys/fs/cgroup" in text for check, ok, text in found if not ok] == [
        True
    ]


def test_what_is_free_goes_from_the_root(placement: MemoryPlacement, write_config: Write) -> None:
    reported(placement, {"VGPU": 4}, held=False)

    found = told(write_config(libvirt={"virt_type": "qemu"}))

    assert (CHANGE, True, "nova 34 takes VGPU from full-guest") in found


def test_vgpus_do_not_move_to_cards_with_a_class_of_their_own(placement: MemoryPlacement, write_config: Write) -> None:
    reported(placement, {"VGPU": 4})
    types = {"devices": {"enabled_mdev_types": "mtty-1"}, "mdev_mtty-1": {"mdev_class": "CUSTOM_X"}}

    found = told(write_config(libvirt={"virt_type": "qemu"}, **types))

    assert any(not ok and "the cards have another class by [mdev_TYPE] mdev_class" in text for _, ok, text in found)


def test_vcpu_that_may_become_pcpu_is_not_foretold(placement: MemoryPlacement, write_config: Write) -> None:
    reported(placement, {"VCPU": 8})

    found = told(write_config(libvirt={"virt_type": "qemu"}, compute={"cpu_dedicated_set": "0-1"}))

    assert not any("VCPU" in text for _, _, text in found)


def test_a_guest_that_is_not_understood_is_no_guest_that_may_start(
    placement: MemoryPlacement, write_config: Write, tmp_path: Path
) -> None:
    archive = archive_of(Scene(guest="<cputune><vcpupin vcpu='0' cpuset='x'/></cputune>"), tmp_path)
    config = write_config(libvirt={"virt_type": "qemu"})

    ((check, ok, text), *more) = told(config, archive)

    assert (check, ok, more) == (FORECAST, False, [])
    assert f"guest {GUEST} is not understood" in text


def test_without_placement_the_host_alone_is_told(write_config: Write, tmp_path: Path) -> None:
    archive = archive_of(SCENES["an old QEMU"], tmp_path)
    nobody = {"auth_type": "none", "endpoint_override": "http://127.0.0.1:9"}

    found = told(write_config(libvirt={"virt_type": "qemu"}, placement=nobody), archive)

    assert [(check, ok) for check, ok, _ in found] == [(START, False), (FORECAST, False)]
    assert "QEMU is 6.1.0" in found[0][2]
    assert "no connection" in found[1][2]


def test_nothing_is_foretold_of_a_nova_that_runs_our_driver(write_config: Write) -> None:
    path = write_config(DEFAULT={"compute_driver": INSIDE}, libvirt={"virt_type": "qemu"}, agent={"role": "audit"})

    ((check, ok, text),) = told(path)

    assert (check, ok, "runs this agent's driver" in text) == (FORECAST, True, True)


def test_a_host_that_placement_does_not_have_may_start(placement: MemoryPlacement, write_config: Write) -> None:
    ((check, ok, text),) = told(write_config(libvirt={"virt_type": "qemu"}))

    assert (check, ok, text) == (START, True, "nothing that was looked for stops nova-compute 34 here")


def test_nothing_is_foretold_of_bare_metal_nodes(write_config: Write) -> None:
    ((check, ok, text),) = told(write_config(DEFAULT={"compute_driver": IRONIC}))

    assert (check, ok, "bare-metal nodes" in text) == (FORECAST, True, True)


def test_a_configuration_that_cannot_be_read_foretells_nothing(write_config: Write) -> None:
    assert told(write_config(libvirt={"virt_type": "what"})) == []


@pytest.mark.parametrize(
    ("installed", "ok", "told"),
    [
        ("34.0.1", True, "nova-compute 34.0.1 is installed here: the forecast is of its next start"),
        ("32.2.1", True, "the forecast is of its first start after an upgrade to 34"),
        ("35.0.0", False, "nova-compute 35.0.0 is installed here, and the forecast is of 34"),
        (None, True, "which one is installed here is not known: this host has no command nova-compute"),
        ("what", True, "which one is installed here is not known: nova-compute --version prints none"),
        ("9" * 5000, True, "nova-compute --version prints none"),
        ("a warning\n34.1.0", True, "nova-compute 34.1.0 is installed here"),
    ],
)
def test_the_forecast_says_of_which_start_it_is(
    installed: str | None, ok: bool, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if installed:
        command = tmp_path / "nova-compute"
        command.write_text(f"#!/bin/sh\nprintf '{installed}\n'\n")
        command.chmod(0o755)

    found = _of_release()

    assert (found.check, found.ok, told in found.detail) == (FORECAST, ok, True), found.detail
