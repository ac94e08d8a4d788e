"""What ``upgrade check --nova`` says of nova's next start; ``tests/inside`` has the same beside nova's own code."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.command.novas_start import CHANGE, START, foretell
from agent.command.service_verbs import Code, upgrade
from beds.golden import HOSTS
from beds.memory import MemoryPlacement
from beds.one_host import ROOT
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


def reported(placement: MemoryPlacement, stock: dict[str, Any], *traits: str, name: str = "full-guest") -> None:
    """A root of this name with such totals and traits, and a consumer with a unit of each class of devices."""

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
    if held := {one: 1 for one in stock if one != "VCPU"}:
        body = {"allocations": {ROOT: {"resources": held}}, "project_id": "p", "user_id": "u"}
        send("PUT", f"/allocations/{GONE}", body | {"consumer_generation": None, "consumer_type": "INSTANCE"})


def told(path: Path) -> list[tuple[str, bool, str]]:
    asked = argparse.Namespace(config_file=[path], config_dir=[], host=HOSTS / "full-guest/archive")
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
            {"MEM_ENCRYPTION_CONTEXT": 4}, (), START, False, f"no amd_sev, and {GONE} has a context", id="encryption"
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
    asked = argparse.Namespace(config_file=[path], config_dir=[], host=HOSTS / "full-guest/archive", nova="34")

    assert upgrade(asked).exit == Code.FAILURE
    asked.nova = None
    assert upgrade(asked).exit == Code.SUCCESS


def test_a_host_that_placement_does_not_have_may_start(placement: MemoryPlacement, write_config: Write) -> None:
    ((check, ok, text),) = told(write_config(libvirt={"virt_type": "qemu"}))

    assert (check, ok, text) == (START, True, "nothing that was looked for stops nova-compute 34 on full-guest")


def test_a_configuration_that_cannot_be_read_foretells_nothing(write_config: Write) -> None:
    assert told(write_config(libvirt={"virt_type": "what"})) == []
