"""A host that nova reports, or may report: on its root nothing is written without a person's word."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beds.agents import Result, run_agent
from beds.by_hand import ByHand
from beds.golden import GoldenHost, write_layout
from beds.libvirtd import Libvirtd
from beds.nova import HOST, FakeNova, failing, serving_nova
from beds.placement import PlacementServer
from beds.service import noauth
from beds.synthetic.bed import Host
from beds.synthetic.hosts import FOUR_CELLS, QUEENS_FIRST
from beds.synthetic.model import Machine
from beds.synthetic.units import units_of_its_own
from beds.trees import lay_down

pytestmark = pytest.mark.live

MARK = "CUSTOM_OWNER_COMPUTE_NODE_AGENT"
Start = Callable[[Machine], Host]
Write = Callable[..., Path]


def test_a_root_that_an_enabled_nova_compute_will_report_is_written_only_on_a_persons_word(
    synthetic: Start, placement_server: PlacementServer, write_config: Write, tmp_path: Path
) -> None:
    host = synthetic(QUEENS_FIRST)
    with units_of_its_own(host) as enable, host.doorway(placement_server.url) as url:
        config = write_config(
            libvirt={"connection_uri": host.libvirtd.uri, "virt_type": "qemu"},
            placement=noauth(url),
            agent={"state_directory": tmp_path / "state"},
        )
        options = ("--config-file", config, "--format", "json")
        cells = (*options, "--config-file", write_layout("numa", tmp_path))
        enable("nova-compute.service")

        refused = host.run("sync", *options)
        assert (refused.code, refused.json["outcome"]) == (4, "contested")
        assert "the unit nova-compute.service is enabled on this host" in refused.json["notes"][0]
        assert not host.run("show", *options).json["providers"]
        assert host.run("check", *options).code == 3

        taken = host.run("sync", *options, "--take-over")
        assert (taken.code, taken.json["outcome"]) == (0, "changed")
        stands = host.run("show", *options).json

        converted = host.run("reshape", *cells, "--apply")
        assert (converted.code, converted.json["outcome"]) == (0, "changed")  # the person's word was remembered

        enable("kolla-nova_compute-container.service")
        again = host.run("reshape", *options, "--apply")
        assert (again.code, again.json["outcome"]) == (4, "contested")
        assert "nova-compute.service is" not in again.json["notes"][0]
        assert host.run("retire", *options).code == 4
        assert len(host.run("show", *options).json["providers"]) > len(stands["providers"])

        assert host.run("reshape", *options, "--apply", "--take-over").code == 0
        assert host.run("show", *options).json["providers"].keys() == stands["providers"].keys()


def test_in_the_role_audit_a_host_is_audited_and_not_written(
    placement_server: PlacementServer, write_config: Write, tmp_path: Path
) -> None:
    golden = GoldenHost(Path(__file__).parents[1] / "hosts" / QUEENS_FIRST.name)
    config = write_config(placement=noauth(placement_server.url), agent={"state_directory": tmp_path / "state"})
    host = ("--host", golden.archive, "--config-file", golden.config)
    sole = (*host, "--config-file", config, "--format", "json")
    assert run_agent("sync", *sole).code == 0
    stands = run_agent("show", *sole).json["providers"]
    role = tmp_path / "role.conf"
    role.write_text("[agent]\nrole = audit\n")
    options = (*sole, "--config-file", role, "--config-file", write_layout("numa", tmp_path))

    for verb in (("sync",), ("sync", "--take-over", "--force"), ("reshape", "--apply"), ("retire",), ("hand-over",)):
        done = run_agent(verb[0], *options, *verb[1:])
        assert done.code == 4, done.out
        assert "[agent] role = audit" in done.json["notes"][0]
    assert run_agent("plan", *options).code == 3
    assert run_agent("check", *options).code == 0
    assert run_agent("audit", *sole, "--config-file", role).code == 0
    assert run_agent("show", *sole).json["providers"] == stands


def lay_down_as_nova(placement: ByHand, golden: GoldenHost) -> dict[str, dict[str, Any]]:
    """The host and its GPUs, as nova 34 makes them; its network cards are Neutron's. Returns nova's rows, by name."""
    providers = golden.read("devices")["providers"]
    made = {name: one for name, one in providers.items() if not any("NET" in kind for kind in one["inventories"])}
    traits = {name: sorted({*one["traits"], "OWNER_NOVA"} - {MARK}) for name, one in made.items()}
    lay_down(placement, {name: {**one, "traits": traits[name]} for name, one in made.items()})
    return placement.providers()


def test_in_the_role_beside_only_what_nova_leaves_out_is_written(
    synthetic: Start, placement_server: PlacementServer, write_config: Write, tmp_path: Path
) -> None:
    golden, placement = GoldenHost(Path(__file__).parents[1] / "hosts" / FOUR_CELLS.name), ByHand(placement_server.url)
    novas = lay_down_as_nova(placement, golden)
    host, name = synthetic(FOUR_CELLS), FOUR_CELLS.name
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "compute_id").write_text(novas[name]["uuid"])
    with units_of_its_own(host) as enable, host.doorway(placement_server.url) as url:
        enable("nova-compute.service")

        def options(**agent: object) -> tuple[object, ...]:
            config = write_config(
                libvirt={"connection_uri": host.libvirtd.uri, "virt_type": "qemu"},
                placement=noauth(url),
                agent={"state_directory": tmp_path / "state", **agent},
            )
            return "--config-file", golden.config, "--config-file", config, "--format", "json"

        unset = host.run("check", *options())
        assert (unset.code, "or role = beside to report what nova leaves out" in unset.out) == (3, True)

        beside = options(role="beside")
        done = host.run("sync", *beside)
        assert (done.code, done.json["outcome"]) == (0, "changed")
        stands = placement.providers()
        assert stands.keys() - novas.keys() == {f"{name}_0000:01:00.0", f"{name}_0000:81:00.0"}
        assert {one: stands[one] for one in novas} == novas
        shown = host.run("show", *beside).json["providers"]
        assert all((MARK in one["traits"]) == (each not in novas) for each, one in shown.items())

        checked = host.run("check", *beside)
        assert (checked.code, "[agent] role = beside" in checked.out) == (0, True), checked.out
        left_to = {one: host.run("explain", one, *beside).json["left_to"] for one in (name, "0000:81:00.0")}
        assert left_to == {name: "nova-compute", "0000:81:00.0": None}
        assert host.run("plan", *beside).code == 0
        assert host.run("audit", *beside).json["findings"] == []
        refused = host.run("reshape", *beside, "--to", "numa", "--apply")
        assert (refused.code, refused.json["error"]["kind"]) == (1, "ConfigError")
        assert "leave out --to numa" in refused.err
        assert host.run("sync", *beside).json["outcome"] == "unchanged"
        assert host.run("retire", *beside).code == 0
    assert placement.providers() == novas


def test_a_hypervisor_that_nova_has_is_left_to_it_until_a_person_says_otherwise(
    hypervisor: Libvirtd, placement_server: PlacementServer, write_config: Write, tmp_path: Path
) -> None:
    nova, placement = FakeNova(), ByHand(placement_server.url)
    with serving_nova(nova) as url:

        def run(verb: str, *more: str, reserved: int = 512) -> Result:
            config = write_config(
                DEFAULT={"reserved_host_memory_mb": reserved},
                libvirt={"connection_uri": hypervisor.uri, "virt_type": "qemu"},
                placement=noauth(placement_server.url),
                nova={"auth_type": "none", "endpoint_override": url},
                agent={"state_directory": tmp_path / "state"},
            )
            return run_agent(verb, "--config-file", config, "--format", "json", *more)

        nova.fault = failing(500)
        unsure = run("sync")
        assert (unsure.code, unsure.json["outcome"], placement.providers()) == (4, "contested", {})
        assert "nova-compute may report" in unsure.json["notes"][0]

        nova.fault = lambda _request: None
        assert run("sync").json["outcome"] == "changed"
        asked = len(nova.asked)
        assert run("sync").json["outcome"] == "unchanged"
        assert len(nova.asked) == asked  # a pass that writes nothing does not ask
        nova.fault = failing(500)
        assert run("sync", reserved=600).json["outcome"] == "changed"  # a nova that is away keeps no host as it was
        nova.fault = lambda _request: None

        ((name, root),) = placement.providers().items()
        nova.hypervisors[root["uuid"]] = HOST
        refused = run("sync", reserved=700)
        assert (refused.code, refused.json["outcome"]) == (4, "contested")
        assert f"nova-compute reports {name}: nova has this hypervisor, of its host {HOST}" in refused.json["notes"][0]
        assert run("check").code == 3

        taken = run("sync", "--take-over", reserved=700)
        assert (taken.code, taken.json["outcome"]) == (0, "changed")
        assert run("sync", reserved=800).json["outcome"] == "changed"  # the person's word was remembered
