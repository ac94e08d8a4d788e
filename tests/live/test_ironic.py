"""Bare-metal nodes from a real Ironic to a real placement, by the installed command."""

import itertools
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from beds import databases, ironic, placement
from beds.agents import COMMAND, run_agent
from beds.by_hand import ByHand
from beds.faults import Killer
from beds.fixtures import Cloud
from beds.ironic import IronicServer
from beds.keystone import AGENT, PLACEMENT, logged_in, system_token
from beds.nodes import NodesAgent, make_nodes, nodes_agent, read_nodes, uuid_of
from beds.nova import as_json
from beds.placement import KeystoneAuth, PlacementServer
from beds.process import free_port
from beds.proxy import Answer, Forward, Proxy, Request, pass_on, refusing
from drivers.ironic.shape import MARKS, WAS_CRITICAL, given_marks

pytestmark = pytest.mark.live

GOLDEN = Path(__file__).parents[1] / "nodes" / "fifty.json"
MANY = int(os.environ.get("NODES", "60"))


@pytest.fixture(scope="module")
def server(ironic_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IronicServer]:
    """One Ironic for this file: each test has nodes of a shard of its own."""
    with ironic.serving(tmp_path_factory.mktemp("ironic"), ironic_template) as one:
        yield one


def available(server: IronicServer, name: str, count: int, resource_class: str = "gold") -> list[str]:
    """Enroll new nodes that can be deployed in a shard of this name; return their uuids."""
    usual = {"provision_state": "available", "power_state": "power off", "resource_class": resource_class, "traits": []}
    nodes = [{"uuid": uuid_of(number, name), "name": f"{name}-{number}", "shard": name} for number in range(count)]
    ironic.enroll(server, [usual | node for node in nodes])
    return [node["uuid"] for node in nodes]


@dataclass(frozen=True, slots=True)
class Lab:
    """The Ironic of this file with nodes in a shard of a test's own, and the placement of that test."""

    server: IronicServer
    url: str  # of placement
    shard: str
    folder: Path

    @property
    def placement(self) -> ByHand:
        return ByHand(self.url)

    def enroll(self, count: int) -> list[str]:
        """New nodes that can be deployed; their uuids."""
        return available(self.server, self.shard, count)

    def agent(self, placement_url: str = "", nodes_url: str = "", **groups: Mapping[str, Any]) -> NodesAgent:
        """An agent of the shard, by default straight at both services."""
        groups = {"ironic": {"shard": self.shard}, **groups}
        return nodes_agent(self.folder, nodes_url or self.server.url, placement_url or self.url, **groups)

    def reserved(self, node: str) -> dict[str, int]:
        """How much of each class is reserved on a node's provider."""
        return {name: one["reserved"] for name, one in self.placement.stock(node).items()}


@pytest.fixture
def lab(server: IronicServer, placement_server: PlacementServer, tmp_path: Path, request: pytest.FixtureRequest) -> Lab:
    return Lab(server, placement_server.url, re.sub(r"\W+", "-", request.node.name), tmp_path)


# -- the whole path, with tokens and TLS ------------------------------------------------------------------------------


def test_fifty_nodes_are_reported_and_followed_with_tokens_over_tls(
    cloud: Cloud, ironic_template: Path, tmp_path: Path
) -> None:
    user, keystone, login = PLACEMENT, cloud.keystone, cloud.login
    auth = KeystoneAuth(keystone.url, user.username, user.password, user.project, keystone.cafile)
    with (
        logged_in(keystone, AGENT) as session,
        ironic.serving(tmp_path / "ironic", ironic_template, auth=auth, tls=cloud.certificates) as started,
    ):
        server = ironic.as_user(started, system_token(keystone))
        ironic.enroll(server, make_nodes(50))
        agent = nodes_agent(
            tmp_path / "agent",
            "",
            "",
            ironic={**login, "endpoint": None, "endpoint_override": server.url},
            placement={**login, "endpoint": None, "endpoint_override": cloud.placement.url},
        )

        def send(method: str, path: str) -> Any:
            version = {"OpenStack-API-Version": "placement 1.39"}
            answer = session.request(f"{cloud.placement.url}{path}", method, headers=version, raise_exc=False)
            return answer.json()

        def reserved(uuid: str) -> dict[str, int]:
            stock = send("GET", f"/resource_providers/{uuid}/inventories")["inventories"]
            return {name: one["reserved"] for name, one in stock.items()}

        first = agent.run("sync")
        assert (first.code, first.json["summary"]) == (3, {"created": 49, "misfit": 1}), first.err
        uuids = [uuid_of(number) for number in range(50)]
        found = read_nodes(send, [uuid for uuid in uuids if uuid != uuids[39]])
        if os.environ.get("WRITE_GOLDEN"):
            GOLDEN.parent.mkdir(exist_ok=True)
            GOLDEN.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        assert found == json.loads(GOLDEN.read_text(encoding="utf-8"))
        assert agent.sums() == {"unchanged": 49, "misfit": 1}

        deployed, ill, painted, deleted = uuids[0], uuids[1], uuids[2], uuids[3]
        server.update(
            deployed, instance_uuid=uuid_of(1, "instance"), **{"instance_info/image_source": "http://127.0.0.1/i"}
        )
        server.bring(deployed, "active")
        server.send("PUT", f"/v1/nodes/{ill}/maintenance", {"reason": "test"})
        server.send("PUT", f"/v1/nodes/{painted}/traits", {"traits": ["CUSTOM_RED"]})
        server.send("PUT", f"/v1/nodes/{deleted}/maintenance", {"reason": "test"})
        server.send("DELETE", f"/v1/nodes/{deleted}")
        server.update(uuids[39], resource_class="late")

        assert agent.sums() == {"unchanged": 45, "changed": 3, "created": 1, "going": 1}
        assert reserved(deployed) == {"CUSTOM_BAREMETAL": 1}
        assert reserved(ill) == {"CUSTOM_GOLD": 1}
        traits = set(send("GET", f"/resource_providers/{painted}/traits")["traits"])
        assert traits == {"CUSTOM_RED"} | MARKS | given_marks({"CUSTOM_RED"})
        assert set(reserved(uuids[39])) == {"CUSTOM_LATE"}
        assert agent.sums() == {"unchanged": 49, "deleted": 1}
        assert send("GET", f"/resource_providers/{deleted}").get("errors")
        assert agent.sums() == {"unchanged": 49}


# -- what it costs ----------------------------------------------------------------------------------------------------


@pytest.fixture
def roomy(tmp_path: Path, placement_template: Path) -> Iterator[str]:
    """A placement on PostgreSQL with several workers, for many nodes at a time."""
    with (
        databases.postgresql(tmp_path / "database") as url,
        placement.serving_on(databases.with_driver(url), tmp_path / "placement") as one,
    ):
        yield one.url


def test_a_quiet_pass_is_one_listing_of_each(server: IronicServer, roomy: str, tmp_path: Path) -> None:
    """The soak test runs this with ``NODES=10000``."""
    uuids = available(server, "quiet", MANY)
    with Proxy(server.url) as nodes, Proxy(roomy) as providers:
        agent = nodes_agent(
            tmp_path / "a", nodes.url, providers.url, agent={"node_workers": 8}, ironic={"shard": "quiet"}
        )

        def cost(what: str) -> tuple[dict[str, int], int, int]:
            nodes.seen.clear()
            providers.seen.clear()
            measured = agent.measured("sync")
            told = [one for one in nodes.seen if one.status == 200]  # a database that is locked is asked again
            sums, asked = measured.json["summary"], (len(told), len(providers.seen))
            print(
                f"{MANY} nodes, {what}: {sums}, requests {asked[0]} to Ironic, {asked[1]} to placement, "
                f"{measured.wall_s:.1f} s, peak {measured.peak_mib} MiB",
                flush=True,
            )
            return sums, *asked

        first, quiet = cost("first"), cost("quiet")
        some = uuids[:100] if MANY > 100 else uuids[:10]
        for uuid in some:
            server.update(uuid, instance_uuid=uuid_of(0, uuid))
        changed = cost(f"{len(some)} changed")
    pages = MANY // 1000 + 1  # a last page that is full is followed by an empty one

    others = pages  # a class that is not in placement yet may be that of another shard's node: all nodes are listed
    assert first[:2] == ({"created": MANY}, pages + others)
    assert first[2] <= 3 * MANY + 10
    assert quiet == ({"unchanged": MANY}, pages, 1)
    assert changed == ({"unchanged": MANY - len(some), "changed": len(some)}, pages, len(some) + 1)


def test_a_plan_for_nodes_is_made_again_from_its_case(lab: Lab) -> None:
    lab.enroll(3)
    case = lab.folder / "case.tar.gz"

    first = lab.agent().run("plan", "--save", case)

    assert (first.code, first.json["summary"]) == (3, {"created": 3})
    again = run_agent("plan", "--replay", case, "--format", "json")
    assert (again.code, again.out, again.err) == (first.code, first.out, first.err)


@pytest.fixture(scope="module")
def paged(ironic_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IronicServer]:
    """An Ironic that lists three nodes at a time."""
    with ironic.serving(tmp_path_factory.mktemp("paged"), ironic_template, page=3) as one:
        yield one


def test_a_listing_of_several_pages_stays_within_its_shard(
    paged: IronicServer, placement_server: PlacementServer, tmp_path: Path
) -> None:
    """Ironic's own link to the next page lacks the shard."""
    names = ("one", "two")
    for name in names:
        available(paged, name, 4)
    agents = [nodes_agent(tmp_path / name, paged.url, placement_server.url, ironic={"shard": name}) for name in names]

    assert [agent.sums() for agent in agents] == [{"created": 4}] * 2
    assert [agent.sums() for agent in agents] == [{"unchanged": 4}] * 2


def test_a_node_whose_hardware_is_critical_is_reserved_where_the_operator_wants_that(lab: Lab) -> None:
    ill, _ = lab.enroll(2)
    lab.server.set_health(ill, "Critical")

    assert lab.agent().sums() == {"created": 2}
    assert lab.reserved(ill) == {"CUSTOM_GOLD": 0}
    watching = lab.agent(agent={"reserve_critical_nodes": "true"})
    assert watching.sums() == {"changed": 1, "unchanged": 1}
    assert lab.reserved(ill) == {"CUSTOM_GOLD": 1}
    lab.server.set_health(ill, None)  # its BMC does not answer any more
    assert watching.sums() == {"unchanged": 2}
    anew = replace(lab, folder=lab.folder / "anew").agent(agent={"reserve_critical_nodes": "true"})
    assert anew.sums()["unchanged"] == 2
    assert lab.reserved(ill) == {"CUSTOM_GOLD": 1}
    lab.server.set_health(ill, "OK")
    assert watching.sums() == {"changed": 1, "unchanged": 1}
    assert lab.reserved(ill) == {"CUSTOM_GOLD": 0}
    assert WAS_CRITICAL not in lab.placement.traits(ill)


def test_an_endpoint_override_serves_without_keystone_as_in_novas_configuration(lab: Lab) -> None:
    ours = {"endpoint": None, "endpoint_override": lab.server.url, "shard": lab.shard}
    placed = {"endpoint": None, "endpoint_override": lab.url}

    done = lab.agent(ironic=ours, placement=placed).run("check")

    assert "needs endpoint" not in done.err
    assert [one["ok"] for one in done.json["checks"] if one["check"] == "placement"] == [True]


def sync_until_killed(agent: NodesAgent, proxy: Proxy, *, write: int) -> None:
    """Run a pass that SIGKILL ends before its write of this number, from 1, is done."""
    killer = Killer(write, after=False)

    def hook(request: Request, forward: Forward) -> Answer:
        return (pass_on if request.method == "GET" else killer)(request, forward)

    proxy.hook = hook
    command = [str(COMMAND), "sync", "--config-file", str(agent.config)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        killer.victim = process.pid
    proxy.hook = pass_on
    assert process.returncode == -signal.SIGKILL


# -- what fails -------------------------------------------------------------------------------------------------------


def kill_server(port: int) -> None:
    """Kill all processes of the server that listens on this port, at once."""
    listening = [
        one for one in psutil.net_connections("tcp") if one.laddr and one.laddr.port == port and one.status == "LISTEN"
    ]
    assert listening[0].pid is not None
    os.killpg(os.getpgid(listening[0].pid), signal.SIGKILL)


def test_placement_that_is_killed_in_a_first_pass_has_everything_after_the_next(
    lab: Lab, placement_template: Path
) -> None:
    uuids = lab.enroll(20)
    port = free_port()
    with placement.serving(lab.folder / "killed", placement_template, port=port) as one:
        writing = itertools.count(1)

        def kill_in_the_middle(request: Request, forward: Forward) -> Answer:
            if request.method != "GET" and next(writing) == 20:
                kill_server(port)
            return forward(request)

        with Proxy(one.url, hook=kill_in_the_middle) as proxy:
            halted = lab.agent(proxy.url).run("sync")
    assert halted.code == 1
    assert halted.json["summary"]["unfinished"] + halted.json["summary"].get("failed", 0) > 5
    with placement.serving(lab.folder / "killed", placement_template, port=port) as again:
        agent = lab.agent(again.url)
        assert agent.run("sync").code == 0
        assert all(replace(lab, url=again.url).reserved(uuid) == {"CUSTOM_GOLD": 0} for uuid in uuids)
        assert agent.sums() == {"unchanged": 20}


def test_a_node_that_is_deleted_between_two_pages_does_not_change_the_others(
    paged: IronicServer, placement_server: PlacementServer, tmp_path: Path
) -> None:
    with Proxy(paged.url) as nodes:
        uuids = available(paged, "paged", 8)
        deleted: list[str] = []

        def delete_marker(request: Request, forward: Forward) -> Answer:
            marker = request.path.partition("marker=")[2]
            if marker and not deleted:
                deleted.append(marker)
                paged.send("PUT", f"/v1/nodes/{marker}/maintenance", {"reason": "test"})
                paged.send("DELETE", f"/v1/nodes/{marker}")
            return forward(request)

        nodes.hook = delete_marker
        agent = nodes_agent(tmp_path, nodes.url, placement_server.url, ironic={"shard": "paged"})

        assert agent.sums() == {"created": 7}
        assert set(deleted) < set(uuids)
        assert agent.sums() == {"unchanged": 7}


def test_an_agent_that_is_killed_in_its_first_pass_goes_on_from_there(lab: Lab) -> None:
    uuids = lab.enroll(12)
    with Proxy(lab.url) as proxy:
        agent = lab.agent(proxy.url)
        sync_until_killed(agent, proxy, write=12)
        assert agent.run("sync").code == 0
        assert agent.sums() == {"unchanged": 12}
    assert all(lab.reserved(uuid) == {"CUSTOM_GOLD": 0} for uuid in uuids)


def test_an_ironic_that_cannot_be_read_whole_changes_nothing(lab: Lab) -> None:
    locked = refusing("limit=", as_json(500, {"error_message": "database is locked"}))
    with Proxy(lab.server.url, hook=locked) as nodes, Proxy(lab.url) as providers:
        done = lab.agent(providers.url, nodes.url).run("sync")

    assert (done.code, done.json["error"]["kind"]) == (1, "DiscoveryError")
    assert "database is locked" in done.err
    assert "(5 tries)" in done.err
    assert not providers.seen


@pytest.mark.parametrize(
    ("groups", "line"),
    [
        ({"ironic": {"auth_type": None, "endpoint": None}}, "no Ironic is configured"),
        ({"ironic": {"endpoint": "http://127.0.0.1:1"}}, "no connection"),
        ({"ironic": {"endpoint": "placement"}}, "does the endpoint lead to Ironic"),
    ],
)
def test_an_error_that_a_person_can_correct_is_one_line(
    groups: dict[str, dict[str, Any]], line: str, placement_server: PlacementServer, tmp_path: Path
) -> None:
    own = {key: placement_server.url if value == "placement" else value for key, value in groups["ironic"].items()}
    agent = nodes_agent(tmp_path, "http://127.0.0.1:1", placement_server.url, ironic=own)

    done = agent.run("sync")

    assert (done.code, len(done.err.splitlines())) == (1, 1)
    assert line in done.err
    assert "is for bare-metal nodes, but this command needs a hypervisor" in agent.run("audit").err
