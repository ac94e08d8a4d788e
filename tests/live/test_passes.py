"""Passes of the installed command against a real placement over HTTP: what they cost, and what others do meanwhile."""

import json
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from beds import proxy
from beds.agents import Result, run_agent
from beds.placement import NOAUTH_HEADERS, PlacementServer
from drivers.fake.fleet import generate_fleet

pytestmark = pytest.mark.live

Write = Callable[..., Path]
VERSION = {"OpenStack-API-Version": "placement 1.39"}


class RecordedHost:
    """One recorded host and one placement, and what an operator or another service does there by hand."""

    def __init__(self, server: PlacementServer, folder: Path, write_config: Write) -> None:
        self.url = server.url
        self.archive = generate_fleet(folder / "hosts", 1, seed=uuid.uuid4().int, shape="small")[0].root
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

    def send(self, method: str, path: str, body: object = None) -> Any:
        """A request by hand."""
        answer = requests.request(
            method, f"{self.url}{path}", json=body, headers={**NOAUTH_HEADERS, **VERSION}, timeout=30
        )
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.text else None

    def add_trait(self, trait: str) -> None:
        """Put one trait more on our root."""
        if trait.startswith("CUSTOM_"):
            self.send("PUT", f"/traits/{trait}")
        traits = self.send("GET", f"/resource_providers/{self.uuid}/traits")
        body = traits | {"traits": [*traits["traits"], trait]}
        self.send("PUT", f"/resource_providers/{self.uuid}/traits", body)

    def set_stock(self, **stock: dict[str, Any] | None) -> None:
        """Change classes of our root; None takes one away."""
        path = f"/resource_providers/{self.uuid}/inventories"
        body = self.send("GET", path)
        changed = {**body["inventories"], **stock}
        body["inventories"] = {name: record for name, record in changed.items() if record}
        self.send("PUT", path, body)

    def allocate(self, consumer: str, **resources: int) -> None:
        body = {
            "allocations": {self.uuid: {"resources": resources}},
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        }
        self.send("PUT", f"/allocations/{consumer}", body)


@pytest.fixture
def cloud_of_one(placement_server: PlacementServer, tmp_path: Path, write_config: Write) -> RecordedHost:
    return RecordedHost(placement_server, tmp_path, write_config)


def paths(front: proxy.Proxy) -> list[str]:
    """What was asked since the last call, without queries."""
    seen = [f"{one.method} {one.path.split('?')[0]}" for one in front.seen]
    front.seen.clear()
    return seen


def test_what_passes_cost_in_requests(cloud_of_one: RecordedHost) -> None:
    """First report of a root; then, as each command does, the whole of what stands, also after a change by hand."""
    cloud = cloud_of_one
    base = f"/resource_providers/{cloud.uuid}"
    with proxy.Proxy(cloud.url) as front:
        assert cloud.sync(url=front.url) == "changed"
        assert paths(front) == [
            "GET /resource_providers",
            "GET /traits",
            "POST /resource_providers",
            "PUT /traits/CUSTOM_OWNER_COMPUTE_NODE_AGENT",  # once in the life of a placement
            f"PUT {base}/traits",
            f"PUT {base}/inventories",
        ]
        assert cloud.sync(url=front.url) == "unchanged"
        whole = [f"GET {base}/{aspect}" for aspect in ("aggregates", "inventories", "traits")]
        assert sorted(paths(front)) == ["GET /resource_providers", *whole]

        cloud.add_trait("CUSTOM_BY_HAND")
        assert cloud.sync(url=front.url) == "unchanged"
        assert sorted(paths(front)) == ["GET /resource_providers", *whole]
    assert "CUSTOM_BY_HAND" in cloud.root()["traits"]


def test_the_same_behind_a_caching_proxy(cloud_of_one: RecordedHost) -> None:
    cloud = cloud_of_one
    with proxy.Proxy(cloud.url, hook=proxy.Cache()) as front:
        assert [cloud.sync(url=front.url) for _ in range(2)] == ["changed", "unchanged"]
        front.seen.clear()
        cloud.add_trait("CUSTOM_BY_HAND")
        assert cloud.sync(url=front.url) == "unchanged"
        assert len(paths(front)) == 4
    assert "CUSTOM_BY_HAND" in cloud.root()["traits"]


def test_a_cache_that_answers_old_copies_is_refused_and_nothing_is_written(cloud_of_one: RecordedHost) -> None:
    cloud = cloud_of_one
    ages = iter(range(0, 100_000, 60))
    with proxy.Proxy(cloud.url, hook=proxy.Cache(stubborn=True, clock=lambda: float(next(ages)))) as front:
        assert cloud.sync(url=front.url) == "changed"
        before = cloud.root()
        refused = cloud.run("sync", url=front.url)

    assert refused.code == 1
    assert "configure that cache to forward requests with Cache-Control: no-cache" in refused.err
    assert cloud.root() == before


def test_without_its_state_the_agent_reads_the_root_once_and_writes_nothing(
    cloud_of_one: RecordedHost, tmp_path: Path
) -> None:
    cloud = cloud_of_one
    cloud.sync()
    for path in (tmp_path / "state").glob("*.json"):
        path.unlink()
    with proxy.Proxy(cloud.url) as front:
        assert cloud.sync(url=front.url) == "unchanged"
        assert [path.split()[0] for path in paths(front)] == ["GET"] * 4


@pytest.mark.parametrize("end", ["CUSTOM_OWNER_COMPUTE_NODE_AGENT", "resource_providers", "/traits", "/inventories"])
def test_a_pass_that_lost_an_answer_is_finished_by_the_next(cloud_of_one: RecordedHost, end: str) -> None:
    """The write is done, and the connection breaks before its answer."""
    cloud = cloud_of_one

    with proxy.Proxy(cloud.url, hook=losing(end)) as front:
        broken = cloud.run("sync", url=front.url)

    assert broken.code == 1
    assert cloud.sync() == ("unchanged" if end == "/inventories" else "changed")
    assert cloud.root()["inventories"].keys() == {"VCPU", "MEMORY_MB", "DISK_GB"}
    assert cloud.run("plan").code == 0


def test_our_own_half_done_work_is_not_taken_for_another_writers(cloud_of_one: RecordedHost) -> None:
    cloud = cloud_of_one
    cloud.sync()
    cloud.add_trait("OWNER_NOVA")
    cloud.sync()

    with proxy.Proxy(cloud.url, hook=losing("/inventories")) as front:
        broken = cloud.run("sync", url=front.url, DEFAULT={"reserved_host_memory_mb": 700})

    assert broken.code == 1
    assert cloud.sync(DEFAULT={"reserved_host_memory_mb": 700}) == "unchanged"


def losing(end: str) -> proxy.Hook:
    """A hook that carries out a write whose path has this end, and then hangs up."""

    def lose(request: proxy.Request, forward: proxy.Forward) -> proxy.Answer:
        answer = forward(request)
        if request.method != "GET" and request.path.endswith(end):
            raise ConnectionError
        return answer

    return lose


def test_a_race_is_planned_again(cloud_of_one: RecordedHost) -> None:
    """Somebody changes the root between our look and our write: we look again and write on top of it."""
    cloud = cloud_of_one
    cloud.sync()
    todo = ["CUSTOM_RACER"]

    def race(request: proxy.Request, forward: proxy.Forward) -> proxy.Answer:
        if request.method == "PUT" and todo:
            cloud.add_trait(todo.pop())
        return forward(request)

    with proxy.Proxy(cloud.url, hook=race) as front:
        outcome = cloud.sync(url=front.url, DEFAULT={"reserved_host_memory_mb": 700})

    assert outcome == "changed"
    assert cloud.root()["inventories"]["MEMORY_MB"]["reserved"] == 700
    assert "CUSTOM_RACER" in cloud.root()["traits"]


def test_races_without_end_are_given_up_with_a_sentence(cloud_of_one: RecordedHost) -> None:
    cloud = cloud_of_one
    cloud.sync()
    names = (f"CUSTOM_RACER_{number}" for number in range(100))

    def race(request: proxy.Request, forward: proxy.Forward) -> proxy.Answer:
        if request.method == "PUT":
            cloud.add_trait(next(names))
        return forward(request)

    with proxy.Proxy(cloud.url, hook=race) as front:
        refused = cloud.run("sync", url=front.url, DEFAULT={"reserved_host_memory_mb": 700})

    assert refused.code == 1
    assert "5 attempts in a row" in refused.err


# -- what is not ours -------------------------------------------------------------------------------------------------


def test_foreign_classes_traits_aggregates_and_children_stay(cloud_of_one: RecordedHost) -> None:
    cloud = cloud_of_one
    cloud.sync()
    cloud.send("PUT", "/resource_classes/CUSTOM_LICENCE")
    cloud.set_stock(CUSTOM_LICENCE={"total": 5})
    cloud.add_trait("COMPUTE_STATUS_DISABLED")
    generation = cloud.send("GET", f"/resource_providers/{cloud.uuid}")["generation"]
    aggregate = str(uuid.uuid4())
    cloud.send("PUT", f"/resource_providers/{cloud.uuid}/aggregates",
               {"aggregates": [aggregate], "resource_provider_generation": generation})  # fmt: skip
    child = f"{cloud.name}:agent:br-ex"
    cloud.send("POST", "/resource_providers", {"name": child, "parent_provider_uuid": cloud.uuid})

    assert cloud.sync(DEFAULT={"reserved_host_memory_mb": 600}) == "changed"

    root = cloud.root()
    assert root["inventories"]["CUSTOM_LICENCE"]["total"] == 5
    assert "COMPUTE_STATUS_DISABLED" in root["traits"]
    assert root["aggregates"] == [aggregate]
    assert child in cloud.run("show").json["providers"]


def test_an_allocation_ratio_set_by_hand_stays_where_none_is_configured(cloud_of_one: RecordedHost) -> None:
    cloud = cloud_of_one
    cloud.sync()
    stock = cloud.root()["inventories"]["VCPU"]
    cloud.set_stock(VCPU=stock | {"allocation_ratio": 7.5})

    assert cloud.sync() == "unchanged"
    assert cloud.root()["inventories"]["VCPU"]["allocation_ratio"] == 7.5
    assert cloud.sync(DEFAULT={"cpu_allocation_ratio": 2}) == "changed"
    assert cloud.root()["inventories"]["VCPU"]["allocation_ratio"] == 2


# -- provider.yaml ----------------------------------------------------------------------------------------------------

PROVIDER_YAML = """\
meta: {schema_version: '1.0'}
providers:
  - identification: {uuid: $COMPUTE_NODE}
    inventories: {additional: [%s]}
    traits: {additional: [%s]}
"""


def test_a_provider_yaml_is_applied_changed_and_withdrawn(cloud_of_one: RecordedHost, tmp_path: Path) -> None:
    cloud, folder = cloud_of_one, tmp_path / "provider_config"
    folder.mkdir()
    compute: dict[str, object] = {"provider_config_location": folder}

    def ours() -> tuple[dict[str, int], set[str]]:
        root = cloud.root()
        stock = {name: one["total"] for name, one in root["inventories"].items() if name.startswith("CUSTOM_")}
        return stock, {name for name in root["traits"] if name.startswith("CUSTOM_")} - {
            "CUSTOM_OWNER_COMPUTE_NODE_AGENT"}  # fmt: skip

    file = folder / "local.yaml"
    file.write_text(PROVIDER_YAML % ("{CUSTOM_LICENCE: {total: 3}}, {CUSTOM_SLOT: {total: 9}}", "CUSTOM_A, CUSTOM_B"))
    assert cloud.sync(compute=compute) == "changed"
    assert ours() == ({"CUSTOM_LICENCE": 3, "CUSTOM_SLOT": 9}, {"CUSTOM_A", "CUSTOM_B"})

    file.write_text(PROVIDER_YAML % ("{CUSTOM_LICENCE: {total: 4}}", "CUSTOM_B, CUSTOM_C"))
    assert cloud.sync(compute=compute) == "changed"
    assert ours() == ({"CUSTOM_LICENCE": 4}, {"CUSTOM_B", "CUSTOM_C"})
    assert cloud.sync(compute=compute) == "unchanged"

    file.unlink()
    refused = cloud.run("sync", compute=compute)
    assert refused.code == 1
    assert f"{folder} has no *.yaml file, so all that its files added would be withdrawn" in refused.err
    assert ours() == ({"CUSTOM_LICENCE": 4}, {"CUSTOM_B", "CUSTOM_C"})

    file.write_text("meta: {schema_version: '1.0'}\n")
    assert cloud.sync(compute=compute) == "changed"
    assert ours() == ({}, set())
    file.unlink()
    assert cloud.sync(compute=compute) == "unchanged"


def test_what_guests_hold_of_a_provider_yaml_is_not_withdrawn(cloud_of_one: RecordedHost, tmp_path: Path) -> None:
    cloud, folder = cloud_of_one, tmp_path / "provider_config"
    folder.mkdir()
    compute: dict[str, object] = {"provider_config_location": folder}
    (folder / "a.yaml").write_text(PROVIDER_YAML % ("{CUSTOM_LICENCE: {total: 3}}", ""))
    cloud.sync(compute=compute)
    cloud.allocate(str(uuid.uuid4()), CUSTOM_LICENCE=2)
    (folder / "a.yaml").write_text("meta: {schema_version: '1.0'}\n")

    refused = cloud.run("sync", compute=compute)

    assert (refused.code, refused.json["outcome"]) == (4, "unsafe")
    assert "2 CUSTOM_LICENCE on" in refused.json["notes"][0]
    assert cloud.root()["inventories"]["CUSTOM_LICENCE"]["total"] == 3


# -- unsafe -----------------------------------------------------------------------------------------------------------


def shrink(cloud: RecordedHost, online: int) -> None:
    path = cloud.archive / "libvirt/cpumap.json"
    path.write_text(json.dumps({"total": 4, "online": list(range(online))}))


def test_a_host_that_shrank_much_is_believed_at_the_third_pass(cloud_of_one: RecordedHost) -> None:
    cloud = cloud_of_one
    cloud.sync()
    shrink(cloud, 2)

    first = cloud.run("sync")
    assert (first.code, first.json["outcome"]) == (4, "unsafe")
    assert "VCPU would shrink from 4 to 2" in first.json["notes"][0]
    assert cloud.sync() == "unsafe"
    assert cloud.sync() == "changed"
    assert cloud.root()["inventories"]["VCPU"]["total"] == 2


def test_a_host_that_shrank_much_is_believed_at_once_when_forced(cloud_of_one: RecordedHost) -> None:
    cloud = cloud_of_one
    cloud.sync()
    shrink(cloud, 1)

    assert cloud.sync("--force") == "changed"


def test_a_shrink_below_what_guests_use_is_refused(cloud_of_one: RecordedHost) -> None:
    cloud = cloud_of_one
    cloud.sync()
    cloud.allocate(str(uuid.uuid4()), VCPU=4)
    cloud.allocate(str(uuid.uuid4()), VCPU=4)
    cloud.allocate(str(uuid.uuid4()), VCPU=4)
    shrink(cloud, 2)

    planned, refused = cloud.run("plan"), cloud.run("sync")

    assert "sync would refuse this: 12 VCPU on" in planned.err
    assert (refused.code, refused.json["outcome"]) == (4, "unsafe")
    assert "12 VCPU on" in refused.json["notes"][0]
    assert cloud.root()["inventories"]["VCPU"]["total"] == 4


# -- a second writer --------------------------------------------------------------------------------------------------


def test_a_second_writer_is_named_within_two_passes_and_not_fought(cloud_of_one: RecordedHost) -> None:
    """Another service sets our root's memory back after each of our passes."""
    cloud = cloud_of_one
    cloud.sync()
    theirs = cloud.root()["inventories"]["MEMORY_MB"] | {"reserved": 4096}

    cloud.set_stock(MEMORY_MB=theirs)
    checked = cloud.run("check")
    first = cloud.run("sync")
    cloud.set_stock(MEMORY_MB=theirs)
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


def test_the_ratio_of_a_second_writer_does_not_outlast_our_repair(cloud_of_one: RecordedHost) -> None:
    cloud = cloud_of_one
    cloud.sync()
    stock = cloud.root()["inventories"]
    cloud.set_stock(VCPU=stock["VCPU"] | {"allocation_ratio": 16.0}, MEMORY_MB=stock["MEMORY_MB"] | {"reserved": 4096})

    repaired = cloud.run("sync")

    assert (repaired.json["outcome"], cloud.root()["inventories"]) == ("changed", stock)
    assert "reserved 4096" in repaired.json["notes"][0]


def test_what_a_second_writer_does_after_we_stopped_is_told_anew(cloud_of_one: RecordedHost) -> None:
    cloud = cloud_of_one
    cloud.sync()
    cloud.add_trait("OWNER_NOVA")
    stock = cloud.root()["inventories"]["MEMORY_MB"]
    for reserved in (1024, 2048):
        cloud.set_stock(MEMORY_MB=stock | {"reserved": reserved})
        stopped = cloud.run("sync")
        assert stopped.code == 4
        assert f"became total {stock['total']} reserved {reserved}" in stopped.json["notes"][0]


def test_nova_is_known_by_its_trait_at_the_first_pass(cloud_of_one: RecordedHost) -> None:
    cloud = cloud_of_one
    cloud.sync()
    cloud.add_trait("CUSTOM_X")  # any foreign change is none of ours
    assert cloud.sync() == "unchanged"
    cloud.set_stock(VCPU=cloud.root()["inventories"]["VCPU"] | {"reserved": 1})
    cloud.add_trait("OWNER_NOVA")

    stopped = cloud.run("sync")

    assert (stopped.code, stopped.json["outcome"]) == (4, "contested")
    assert "nova-compute" in stopped.json["notes"][0]
    assert cloud.root()["inventories"]["VCPU"]["reserved"] == 1


def test_a_trait_that_nova_left_behind_makes_no_hand_edit_novas(cloud_of_one: RecordedHost) -> None:
    cloud = cloud_of_one
    cloud.sync()
    cloud.add_trait("OWNER_NOVA")
    assert cloud.sync("--take-over") == "unchanged"
    cloud.set_stock(VCPU=cloud.root()["inventories"]["VCPU"] | {"reserved": 1})

    assert cloud.sync() == "changed"


def test_a_second_writer_that_skips_passes_is_noticed_too(cloud_of_one: RecordedHost) -> None:
    cloud = cloud_of_one
    cloud.sync()
    theirs = cloud.root()["inventories"]["MEMORY_MB"] | {"reserved": 4096}
    outcomes = []
    for _ in range(2):
        cloud.set_stock(MEMORY_MB=theirs)
        outcomes += [cloud.sync(), cloud.sync()]

    assert outcomes == ["changed", "unchanged", "contested", "contested"]


def test_a_second_writer_that_also_wins_a_race_is_noticed(cloud_of_one: RecordedHost) -> None:
    """It changes our stock before a pass and writes once more between our look and our write."""
    cloud = cloud_of_one
    cloud.sync()
    theirs = cloud.root()["inventories"]["MEMORY_MB"] | {"reserved": 4096}
    todo: list[str] = []

    def race(request: proxy.Request, forward: proxy.Forward) -> proxy.Answer:
        if request.method == "PUT" and todo:
            cloud.add_trait(todo.pop())
        return forward(request)

    outcomes = []
    with proxy.Proxy(cloud.url, hook=race) as front:
        cloud.sync(url=front.url)
        for number in range(2):
            cloud.set_stock(MEMORY_MB=theirs)
            todo.append(f"CUSTOM_RACER_{number}")
            outcomes.append(cloud.sync(url=front.url))

    assert outcomes == ["changed", "contested"]


# -- what placement forgot, or never knew -----------------------------------------------------------------------------


def test_a_placement_that_lost_everything_is_filled_again_at_the_third_pass(cloud_of_one: RecordedHost) -> None:
    cloud = cloud_of_one
    cloud.sync()
    cloud.send("DELETE", f"/resource_providers/{cloud.uuid}")
    cloud.send("DELETE", "/traits/CUSTOM_OWNER_COMPUTE_NODE_AGENT")

    assert [cloud.sync() for _ in range(4)] == ["unsafe", "unsafe", "changed", "unchanged"]


def test_a_placement_that_lost_everything_is_filled_again_on_a_persons_word(cloud_of_one: RecordedHost) -> None:
    cloud = cloud_of_one
    cloud.sync()
    cloud.send("DELETE", f"/resource_providers/{cloud.uuid}")

    assert cloud.sync("--force") == "changed"


def test_a_trait_that_was_named_withdrawn_deleted_and_named_again(cloud_of_one: RecordedHost) -> None:
    cloud = cloud_of_one
    listed: dict[str, object] = {"root_traits": "CUSTOM_OURS,COMPUTE_RESCUE_BFV"}
    assert cloud.sync(agent=listed) == "changed"
    assert {"CUSTOM_OURS", "COMPUTE_RESCUE_BFV"} <= set(cloud.root()["traits"])

    assert cloud.sync() == "changed"
    assert not {"CUSTOM_OURS", "COMPUTE_RESCUE_BFV"} & set(cloud.root()["traits"])
    cloud.send("DELETE", "/traits/CUSTOM_OURS")

    assert cloud.sync(agent=listed) == "changed"


def test_what_nobody_can_explain_any_more_is_kept_and_named(cloud_of_one: RecordedHost, tmp_path: Path) -> None:
    cloud = cloud_of_one
    cloud.sync(agent={"root_traits": "CUSTOM_OURS"})
    for path in (tmp_path / "state").glob("*.json"):
        path.unlink()

    looked = cloud.run("sync")

    assert looked.json["outcome"] == "unchanged"
    assert "CUSTOM_OURS" in looked.json["notes"][0]
    assert "CUSTOM_OURS" in cloud.root()["traits"]


def test_a_foreign_class_with_a_ratio_of_zero_is_carried_along(cloud_of_one: RecordedHost) -> None:
    cloud = cloud_of_one
    cloud.sync()
    cloud.send("PUT", "/resource_classes/CUSTOM_LICENCE")
    cloud.set_stock(CUSTOM_LICENCE={"total": 5, "allocation_ratio": 0.0})

    assert cloud.sync(DEFAULT={"reserved_host_memory_mb": 600}) == "changed"
    assert cloud.root()["inventories"]["CUSTOM_LICENCE"]["allocation_ratio"] == 0


# -- the fake driver --------------------------------------------------------------------------------------------------


def test_a_fleet_from_a_seed_is_reported_by_one_agent(placement_server: PlacementServer, write_config: Write,
                                                      tmp_path: Path) -> None:  # fmt: skip
    config = write_config(
        DEFAULT={"compute_driver": "fake.FakeDriver"},
        fake={"hosts": 5, "seed": 42, "shape": "medium"},
        placement={"auth_type": "none", "endpoint": placement_server.url},
        agent={"state_directory": tmp_path / "state"},
    )
    options = ("--config-file", config, "--format", "json")

    first, second = run_agent("sync", *options), run_agent("sync", *options)
    shown = run_agent("show", *options)

    assert [node["outcome"] for node in first.json["nodes"]] == ["changed"] * 5
    assert [node["outcome"] for node in second.json["nodes"]] == ["unchanged"] * 5
    assert len(shown.json["providers"]) == 5
    assert run_agent("discover", *options).out == run_agent("discover", *options).out


# -- what is loaded ---------------------------------------------------------------------------------------------------


def test_discover_loads_neither_placement_nor_the_sdk(cloud_of_one: RecordedHost) -> None:
    code = (
        "import sys; from agent.command.arguments import main; "
        f"main(['discover', '--host', {str(cloud_of_one.archive)!r}, '--format', 'json']); "
        "heavy = {'placement', 'openstack', 'sqlalchemy'}; print(heavy & set(sys.modules), file=sys.stderr)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr.strip() == "set()"


# -- recorded hosts ---------------------------------------------------------------------------------------------------


def test_a_recorded_host_without_an_identity_is_the_root_of_its_name(cloud_of_one: RecordedHost) -> None:
    cloud = cloud_of_one
    assert cloud.sync() == "changed"
    (cloud.archive / "compute_id").unlink()
    host = json.loads((cloud.archive / "host.json").read_text())
    (cloud.archive / "host.json").write_text(json.dumps(host | {"files": []}))

    assert cloud.sync() == "unchanged"


def test_a_recorded_host_never_takes_the_identity_of_the_machine_that_looks_at_it(
    cloud_of_one: RecordedHost, tmp_path: Path
) -> None:
    """The embedded folder holds the identity of this machine; a host recorded without one gets another."""
    cloud, folder = cloud_of_one, tmp_path / "embedded"
    folder.mkdir()
    (folder / "compute_id").write_text(str(uuid.uuid4()))
    (cloud.archive / "compute_id").unlink()
    host = json.loads((cloud.archive / "host.json").read_text())
    (cloud.archive / "host.json").write_text(json.dumps(host | {"files": []}))

    options = ("--host", cloud.archive, "--embedded-dir", folder)
    assert run_agent("sync", *options).code == 0
    shown = run_agent("show", *options, "--format", "json")

    assert shown.json["providers"][cloud.name]["uuid"] != (folder / "compute_id").read_text()


def test_one_node_that_fails_does_not_keep_the_others_from_theirs(
    placement_server: PlacementServer, write_config: Write, tmp_path: Path
) -> None:
    config = write_config(
        DEFAULT={"compute_driver": "fake.FakeDriver"},
        fake={"hosts": 3, "seed": 7},
        placement={"auth_type": "none", "endpoint": placement_server.url},
        agent={"state_directory": tmp_path / "state"},
    )
    taken = {"name": "fake-7-small-0001", "uuid": str(uuid.uuid4())}
    requests.post(
        f"{placement_server.url}/resource_providers", json=taken, headers={**NOAUTH_HEADERS, **VERSION}, timeout=30
    )

    passed = run_agent("sync", "--config-file", config, "--format", "json")

    assert passed.code == 1
    assert [node["outcome"] for node in passed.json["nodes"]] == ["changed", "failed", "changed"]
    assert taken["uuid"] in passed.json["nodes"][1]["notes"][0]
