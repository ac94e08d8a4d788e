"""Passes of the installed command against a real placement over HTTP: what they cost, and what others do meanwhile."""

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beds import proxy
from beds.agents import Result, run_agent
from beds.by_hand import ByHand
from beds.placement import PlacementServer
from drivers.fake import write_host

pytestmark = pytest.mark.live

Write = Callable[..., Path]


class RecordedHost:
    """One recorded host and one placement, and what an operator or another service does there by hand."""

    def __init__(self, server: PlacementServer, folder: Path, write_config: Write) -> None:
        self.url, self.placement = server.url, ByHand(server.url)
        self.archive = write_host(folder / "hosts", seed=uuid.uuid4().int, shape="small").root
        self.uuid = (self.archive / "compute_id").read_text().strip()
        self.name: str = json.loads((self.archive / "host.json").read_text())["hostname"]
        self._folder, self._write_config = folder, write_config

    def run(self, verb: str, *more: object, url: str = "", **groups: dict[str, object]) -> Result:
        """One verb in a process of its own, state kept from one to the next."""
        agent = {"state_directory": self._folder / "state", **groups.pop("agent", {})}
        config = self._write_config(placement={"auth_type": "none", "endpoint": url or self.url}, agent=agent, **groups)
        return run_agent(verb, "--host", self.archive, "--config-file", config, "--format", "json", *more)

    def sync(self, *more: object, url: str = "", **groups: dict[str, object]) -> str:
        """How a pass ended."""
        outcome: str = self.run("sync", *more, url=url, **groups).json["outcome"]
        return outcome

    def root(self) -> dict[str, Any]:
        """Our root as placement holds it."""
        found: dict[str, Any] = self.run("show").json["providers"][self.name]
        return found

    def add_trait(self, trait: str) -> None:
        """Put one trait more on our root."""
        self.placement.add_traits(self.uuid, trait)

    def set_stock(self, **stock: dict[str, Any]) -> None:
        """Change classes of our root."""
        self.placement.change_stock(self.uuid, **stock)


@pytest.fixture
def new(placement_server: PlacementServer, tmp_path: Path, write_config: Write) -> RecordedHost:
    return RecordedHost(placement_server, tmp_path, write_config)


@pytest.fixture
def cloud(new: RecordedHost) -> RecordedHost:
    """The same after its first pass."""
    assert new.sync() == "changed"
    return new


def paths(front: proxy.Proxy) -> list[str]:
    """What was asked since the last call, without queries."""
    seen = [f"{one.method} {one.path.split('?')[0]}" for one in front.seen]
    front.seen.clear()
    return seen


def test_what_passes_cost_in_requests(new: RecordedHost) -> None:
    """First report of a root; then, as each command does, the whole of what stands, also after a change by hand."""
    base = f"/resource_providers/{new.uuid}"
    with proxy.Proxy(new.url) as front:
        assert new.sync(url=front.url) == "changed"
        assert paths(front) == [
            "GET /resource_providers",
            "GET /traits",
            "POST /resource_providers",
            "PUT /traits/CUSTOM_OWNER_COMPUTE_NODE_AGENT",  # once in the life of a placement
            f"PUT {base}/traits",
            f"PUT {base}/inventories",
        ]
        assert new.sync(url=front.url) == "unchanged"
        whole = [f"GET {base}/{aspect}" for aspect in ("aggregates", "inventories", "traits")]
        assert sorted(paths(front)) == ["GET /resource_providers", *whole]

        new.add_trait("CUSTOM_BY_HAND")
        assert new.sync(url=front.url) == "unchanged"
        assert sorted(paths(front)) == ["GET /resource_providers", *whole]
    assert "CUSTOM_BY_HAND" in new.root()["traits"]


def test_the_same_behind_a_caching_proxy(new: RecordedHost) -> None:
    with proxy.Proxy(new.url, hook=proxy.Cache()) as front:
        assert [new.sync(url=front.url) for _ in range(2)] == ["changed", "unchanged"]
        front.seen.clear()
        new.add_trait("CUSTOM_BY_HAND")
        assert new.sync(url=front.url) == "unchanged"
        assert len(paths(front)) == 4
    assert "CUSTOM_BY_HAND" in new.root()["traits"]


def test_a_cache_that_answers_old_copies_is_refused_and_nothing_is_written(new: RecordedHost) -> None:
    ages = iter(range(0, 100_000, 60))
    with proxy.Proxy(new.url, hook=proxy.Cache(stubborn=True, clock=lambda: float(next(ages)))) as front:
        assert new.sync(url=front.url) == "changed"
        before = new.root()
        refused = new.run("sync", url=front.url)

    assert refused.code == 1
    assert "configure that cache to forward requests with Cache-Control: no-cache" in refused.err
    assert new.root() == before


def racing(cloud: RecordedHost, traits: Iterator[str]) -> proxy.Hook:
    """A hook that puts the next of these traits on our root right before each PUT, until none is left."""

    def race(request: proxy.Request, forward: proxy.Forward) -> proxy.Answer:
        if request.method == "PUT" and (trait := next(traits, "")):
            cloud.add_trait(trait)
        return forward(request)

    return race


def test_a_race_is_planned_again(cloud: RecordedHost) -> None:
    """Somebody changes the root between our look and our write: we look again and write on top of it."""
    with proxy.Proxy(cloud.url, hook=racing(cloud, iter(["CUSTOM_RACER"]))) as front:
        outcome = cloud.sync(url=front.url, DEFAULT={"reserved_host_memory_mb": 700})

    assert outcome == "changed"
    assert cloud.root()["inventories"]["MEMORY_MB"]["reserved"] == 700
    assert "CUSTOM_RACER" in cloud.root()["traits"]


def test_races_without_end_are_given_up_with_a_sentence(cloud: RecordedHost) -> None:
    names = (f"CUSTOM_RACER_{number}" for number in range(100))

    with proxy.Proxy(cloud.url, hook=racing(cloud, names)) as front:
        refused = cloud.run("sync", url=front.url, DEFAULT={"reserved_host_memory_mb": 700})

    assert refused.code == 1
    assert "5 attempts in a row" in refused.err


# -- what is not ours -------------------------------------------------------------------------------------------------


def test_foreign_classes_traits_aggregates_and_children_stay(cloud: RecordedHost) -> None:
    cloud.set_stock(CUSTOM_LICENCE={"total": 5})
    cloud.add_trait("COMPUTE_STATUS_DISABLED")
    aggregate, child = str(uuid.uuid4()), f"{cloud.name}:agent:br-ex"
    cloud.placement.set_aggregates(cloud.uuid, aggregate)
    cloud.placement.add_provider(child, parent=cloud.uuid)

    assert cloud.sync(DEFAULT={"reserved_host_memory_mb": 600}) == "changed"

    root = cloud.root()
    assert root["inventories"]["CUSTOM_LICENCE"]["total"] == 5
    assert "COMPUTE_STATUS_DISABLED" in root["traits"]
    assert root["aggregates"] == [aggregate]
    assert child in cloud.run("show").json["providers"]


# -- provider.yaml ----------------------------------------------------------------------------------------------------

PROVIDER_YAML = """\
meta: {schema_version: '1.0'}
providers:
  - identification: {uuid: $COMPUTE_NODE}
    inventories: {additional: [%s]}
    traits: {additional: [%s]}
"""


def test_a_provider_yaml_is_applied_changed_and_withdrawn(new: RecordedHost, tmp_path: Path) -> None:
    (folder := tmp_path / "provider_config").mkdir()
    compute: dict[str, object] = {"provider_config_location": folder}

    def ours() -> tuple[dict[str, int], set[str]]:
        root = new.root()
        stock = {name: one["total"] for name, one in root["inventories"].items() if name.startswith("CUSTOM_")}
        return stock, {name for name in root["traits"] if name.startswith("CUSTOM_")} - {
            "CUSTOM_OWNER_COMPUTE_NODE_AGENT"}  # fmt: skip

    file = folder / "local.yaml"
    file.write_text(PROVIDER_YAML % ("{CUSTOM_LICENCE: {total: 3}}, {CUSTOM_SLOT: {total: 9}}", "CUSTOM_A, CUSTOM_B"))
    assert new.sync(compute=compute) == "changed"
    assert ours() == ({"CUSTOM_LICENCE": 3, "CUSTOM_SLOT": 9}, {"CUSTOM_A", "CUSTOM_B"})

    file.write_text(PROVIDER_YAML % ("{CUSTOM_LICENCE: {total: 4}}", "CUSTOM_B, CUSTOM_C"))
    assert new.sync(compute=compute) == "changed"
    assert ours() == ({"CUSTOM_LICENCE": 4}, {"CUSTOM_B", "CUSTOM_C"})
    assert new.sync(compute=compute) == "unchanged"

    file.unlink()
    refused = new.run("sync", compute=compute)
    assert refused.code == 1
    assert f"{folder} has no *.yaml file, so all that its files added would be withdrawn" in refused.err
    assert ours() == ({"CUSTOM_LICENCE": 4}, {"CUSTOM_B", "CUSTOM_C"})

    file.write_text("meta: {schema_version: '1.0'}\n")
    assert new.sync(compute=compute) == "changed"
    assert ours() == ({}, set())
    file.unlink()
    assert new.sync(compute=compute) == "unchanged"


# -- unsafe -----------------------------------------------------------------------------------------------------------


def shrink(cloud: RecordedHost, online: int) -> None:
    path = cloud.archive / "libvirt/cpumap.json"
    path.write_text(json.dumps({"total": 4, "online": list(range(online))}))


def test_a_host_that_shrank_much_is_believed_at_the_third_pass(cloud: RecordedHost) -> None:
    shrink(cloud, 2)

    first = cloud.run("sync")
    assert (first.code, first.json["outcome"]) == (4, "unsafe")
    assert "VCPU would shrink from 4 to 2" in first.json["notes"][0]
    assert cloud.sync() == "unsafe"
    assert cloud.sync() == "changed"
    assert cloud.root()["inventories"]["VCPU"]["total"] == 2


# -- a second writer --------------------------------------------------------------------------------------------------


def test_a_second_writer_is_named_within_two_passes_and_not_fought(cloud: RecordedHost) -> None:
    """Another service sets our root's memory back after each of our passes."""
    cloud.set_stock(MEMORY_MB={"reserved": 4096})
    checked = cloud.run("check")
    first = cloud.run("sync")
    cloud.set_stock(MEMORY_MB={"reserved": 4096})
    second = cloud.run("sync")
    third = cloud.run("sync")

    assert checked.code == 3
    assert any("second writer" in one["detail"] for one in checked.json["checks"])
    assert (first.code, first.json["outcome"]) == (0, "changed")
    assert "MEMORY_MB" in first.json["notes"][0]
    for stopped in (second, third):
        assert (stopped.code, stopped.json["outcome"]) == (4, "contested")
        assert "another service writes on" in stopped.json["notes"][0]
    assert cloud.root()["inventories"]["MEMORY_MB"]["reserved"] == 4096
    assert cloud.run("check").code == 3
    assert cloud.sync("--take-over") == "changed"
    assert cloud.sync() == "unchanged"


# -- what placement forgot, or never knew -----------------------------------------------------------------------------


def test_a_trait_that_was_named_withdrawn_deleted_and_named_again(new: RecordedHost) -> None:
    listed: dict[str, object] = {"root_traits": "CUSTOM_OURS,COMPUTE_RESCUE_BFV"}
    assert new.sync(agent=listed) == "changed"
    assert {"CUSTOM_OURS", "COMPUTE_RESCUE_BFV"} <= set(new.root()["traits"])

    assert new.sync() == "changed"
    assert not {"CUSTOM_OURS", "COMPUTE_RESCUE_BFV"} & set(new.root()["traits"])
    new.placement.send("DELETE", "/traits/CUSTOM_OURS")

    assert new.sync(agent=listed) == "changed"


def test_a_foreign_class_with_a_ratio_of_zero_is_carried_along(cloud: RecordedHost) -> None:
    cloud.set_stock(CUSTOM_LICENCE={"total": 5, "allocation_ratio": 0.0})

    assert cloud.sync(DEFAULT={"reserved_host_memory_mb": 600}) == "changed"
    assert cloud.root()["inventories"]["CUSTOM_LICENCE"]["allocation_ratio"] == 0


# -- the fake driver --------------------------------------------------------------------------------------------------


def test_a_host_from_a_seed_is_reported(placement_server: PlacementServer, write_config: Write, tmp_path: Path) -> None:
    config = write_config(
        DEFAULT={"compute_driver": "fake.FakeDriver"},
        fake={"seed": 42, "shape": "medium"},
        placement={"auth_type": "none", "endpoint": placement_server.url},
        agent={"state_directory": tmp_path / "state"},
    )
    options = ("--config-file", config, "--format", "json")

    first, second = run_agent("sync", *options), run_agent("sync", *options)
    shown = run_agent("show", *options)

    assert (first.json["outcome"], second.json["outcome"]) == ("changed", "unchanged")
    assert shown.json["providers"].keys() == {"fake-42-medium"}
    assert run_agent("discover", *options).out == run_agent("discover", *options).out


# -- what is loaded ---------------------------------------------------------------------------------------------------


def test_discover_loads_neither_placement_nor_the_sdk(new: RecordedHost) -> None:
    code = (
        "import sys; from agent.command.arguments import main; "
        f"main(['discover', '--host', {str(new.archive)!r}, '--format', 'json']); "
        "heavy = {'placement', 'openstack', 'sqlalchemy'}; print(heavy & set(sys.modules), file=sys.stderr)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr.strip() == "set()"


# -- recorded hosts ---------------------------------------------------------------------------------------------------


def test_a_recorded_host_without_an_identity_is_the_root_of_its_name(new: RecordedHost) -> None:
    assert new.sync() == "changed"
    (new.archive / "compute_id").unlink()
    host = json.loads((new.archive / "host.json").read_text())
    (new.archive / "host.json").write_text(json.dumps(host | {"files": []}))

    assert new.sync() == "unchanged"


def test_a_recorded_host_never_takes_the_identity_of_the_machine_that_looks_at_it(
    new: RecordedHost, tmp_path: Path
) -> None:
    """The embedded folder holds the identity of this machine; a host recorded without one gets another."""
    (folder := tmp_path / "embedded").mkdir()
    (folder / "compute_id").write_text(str(uuid.uuid4()))
    (new.archive / "compute_id").unlink()
    host = json.loads((new.archive / "host.json").read_text())
    (new.archive / "host.json").write_text(json.dumps(host | {"files": []}))

    options = ("--host", new.archive, "--embedded-dir", folder)
    assert run_agent("sync", *options).code == 0
    shown = run_agent("show", *options, "--format", "json")

    assert shown.json["providers"][new.name]["uuid"] != (folder / "compute_id").read_text()
