"""Bare-metal nodes from a real Ironic to a real placement, by the installed command."""

import itertools
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
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
from beds.proxy import Answer, Forward, Proxy, Request, losing, pass_on, refusing, slowly
from drivers.ironic.shape import MARKS, given_marks

pytestmark = pytest.mark.live

GOLDEN = Path(__file__).parents[1] / "nodes" / "fifty.json"
MANY = int(os.environ.get("NODES", "120"))


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

    def apart(self, shard: str) -> "Lab":
        """The same with another shard, whose agent has a folder of its own."""
        return replace(self, shard=shard, folder=self.folder / shard)

    def set_traits(self, node: str, *names: str) -> None:
        """What an operator says of a node in Ironic."""
        self.server.send("PUT", f"/v1/nodes/{node}/traits", {"traits": [*names]})

    def maintain(self, node: str) -> None:
        self.server.send("PUT", f"/v1/nodes/{node}/maintenance", {"reason": "test"})

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
        for uuid in uuids[:100]:
            server.update(uuid, instance_uuid=uuid_of(0, uuid))
        changed = cost("100 changed")
    pages = MANY // 1000 + 1  # a last page that is full is followed by an empty one

    others = 1  # a class that is not in placement yet may be that of another shard's node
    assert first[:2] == ({"created": MANY}, pages + others)
    assert first[2] <= 3 * MANY + 10
    assert quiet == ({"unchanged": MANY}, pages, 1)
    assert changed == ({"unchanged": MANY - 100, "changed": 100}, pages, 101)


def test_a_plan_for_nodes_is_made_again_from_its_case(lab: Lab) -> None:
    lab.enroll(3)
    case = lab.folder / "case.tar.gz"

    first = lab.agent().run("plan", "--save", case)

    assert (first.code, first.json["summary"]) == (3, {"created": 3})
    again = run_agent("plan", "--replay", case, "--format", "json")
    assert (again.code, again.out, again.err) == (first.code, first.out, first.err)


def test_a_listing_of_several_pages_stays_within_its_shard(
    ironic_template: Path, placement_server: PlacementServer, tmp_path: Path
) -> None:
    """Ironic's own link to the next page lacks the shard."""
    with ironic.serving(tmp_path / "ironic", ironic_template, page=3) as own:
        for name in ("one", "two"):
            available(own, name, 7)
        agents = [
            nodes_agent(tmp_path / name, own.url, placement_server.url, ironic={"shard": name})
            for name in ("one", "two")
        ]

        assert [agent.sums() for agent in agents] == [{"created": 7}] * 2
        assert [agent.sums() for agent in agents] == [{"unchanged": 7}] * 2


# -- what is ours -----------------------------------------------------------------------------------------------------


def test_a_trait_is_ours_only_if_its_node_gave_it(lab: Lab) -> None:
    (node,) = lab.enroll(1)
    agent = lab.agent()
    lab.set_traits(node, "CUSTOM_MINE", "CUSTOM_BOTH")
    agent.run("sync")
    lab.placement.add_traits(node, "CUSTOM_OPERATORS")

    lab.set_traits(node, "CUSTOM_BOTH")
    assert agent.sums() == {"changed": 1}

    marks = MARKS | given_marks({"CUSTOM_BOTH"})
    assert lab.placement.traits(node) == {"CUSTOM_BOTH", "CUSTOM_OPERATORS"} | marks


def test_an_endpoint_override_serves_without_keystone_as_in_novas_configuration(lab: Lab) -> None:
    ours = {"endpoint": None, "endpoint_override": lab.server.url, "shard": lab.shard}
    placed = {"endpoint": None, "endpoint_override": lab.url}

    done = lab.agent(ironic=ours, placement=placed).run("check")

    assert "needs endpoint" not in done.err
    assert [one["ok"] for one in done.json["checks"] if one["check"] == "placement"] == [True]


def test_a_provider_that_nova_left_is_taken_over_and_keeps_what_others_added(lab: Lab) -> None:
    (node,) = lab.enroll(1)
    lab.placement.send("PUT", "/resource_classes/CUSTOM_GOLD")
    novas(lab, node, ["OWNER_NOVA", "HW_GPU_API_VULKAN"], CUSTOM_OLD={})
    agent = lab.agent()

    assert agent.sums("plan") == {"changed": 1}
    assert agent.sums() == {"changed": 1}

    assert lab.reserved(node) == {"CUSTOM_GOLD": 0}
    assert lab.placement.traits(node) == {"OWNER_NOVA", "HW_GPU_API_VULKAN", *MARKS}


def novas(lab: Lab, node: str, traits: list[str], **classes: dict[str, Any]) -> None:
    """Make a node's provider with one unit of these classes, unless given."""
    one = {"total": 1, "max_unit": 1}
    lab.placement.add_provider(node, node, stock={name: one | more for name, more in classes.items()})
    lab.placement.add_traits(node, *traits)


def test_a_provider_with_another_owners_mark_is_not_taken_over(lab: Lab) -> None:
    (node,) = lab.enroll(1)
    novas(lab, node, ["OWNER_NOVA", "CUSTOM_OWNER_SOMEBODY"], CUSTOM_OLD={})
    before = lab.placement.providers(), lab.placement.stock(node)

    done = lab.agent().run("sync")

    assert (done.code, done.json["summary"]) == (4, {"contested": 1})
    assert "CUSTOM_OWNER_SOMEBODY" in done.out
    assert (lab.placement.providers(), lab.placement.stock(node)) == before


def test_only_novas_own_class_goes_from_a_provider_that_nova_owns(lab: Lab) -> None:
    current, old, several, strange = lab.enroll(4)
    novas(lab, current, ["OWNER_NOVA"], CUSTOM_GOLD={}, CUSTOM_LICENCE={})
    novas(lab, old, ["OWNER_NOVA"], CUSTOM_OLD={})
    novas(lab, several, ["OWNER_NOVA"], CUSTOM_OLD={}, CUSTOM_LICENCE={})
    novas(lab, strange, ["OWNER_NOVA"], CUSTOM_LICENCE={"allocation_ratio": 4})
    agent = lab.agent()

    done = agent.run("sync")

    assert (done.code, done.json["summary"]) == (4, {"changed": 2, "contested": 2})
    assert "CUSTOM_LICENCE, CUSTOM_OLD" in done.out
    assert "sync --force" in done.out
    found = [set(lab.reserved(node)) for node in (current, old, several, strange)]
    assert found == [{"CUSTOM_GOLD", "CUSTOM_LICENCE"}, {"CUSTOM_GOLD"}, {"CUSTOM_OLD", "CUSTOM_LICENCE"},
                     {"CUSTOM_LICENCE"}]  # fmt: skip

    lab.server.update(current, resource_class="silver")
    assert agent.sums()["contested"] == 3
    agent.run("sync", "--force")

    assert set(lab.reserved(current)) == {"CUSTOM_SILVER"}
    assert set(lab.reserved(several)) == {"CUSTOM_GOLD"}


def test_a_class_that_a_consumer_holds_stays_and_its_node_is_named(lab: Lab) -> None:
    first, second = lab.enroll(2)
    agent = lab.agent()
    agent.run("sync")
    lab.placement.allocate(first, "CUSTOM_GOLD", 1)
    lab.server.update(first, resource_class="silver")
    lab.server.update(second, resource_class="silver")

    done = agent.run("sync")

    assert (done.code, done.json["summary"]) == (3, {"held": 1, "changed": 1})
    assert lab.reserved(first) == {"CUSTOM_GOLD": 1}  # free, it would be on offer under a wrong class
    assert lab.reserved(second) == {"CUSTOM_SILVER": 0}


def test_a_pass_that_is_cut_off_leaves_no_class_that_the_next_pass_does_not_know(lab: Lab) -> None:
    """The agent remembers what it gives a node before it writes, so the next pass knows both classes as its own."""
    (node,) = lab.enroll(1)

    with Proxy(lab.url) as providers:
        agent = lab.agent(providers.url)
        agent.run("sync")
        lab.server.update(node, resource_class="silver")
        providers.hook = losing("/inventories")
        agent.run("sync")
        providers.hook = pass_on
        lab.server.update(node, resource_class="bronze")

        agent.run("sync")

    assert lab.reserved(node) == {"CUSTOM_BRONZE": 0}


def test_the_provider_of_a_misfit_is_reserved_with_its_node(lab: Lab) -> None:
    (node,) = lab.enroll(1)
    agent = lab.agent()
    agent.run("sync")
    lab.server.update(node, resource_class=None)
    agent.run("sync")
    assert lab.reserved(node) == {"CUSTOM_GOLD": 0}

    lab.maintain(node)
    agent.run("sync")

    assert lab.reserved(node) == {"CUSTOM_GOLD": 1}


def test_a_provider_that_lost_our_mark_is_another_agents(lab: Lab) -> None:
    (node,) = lab.enroll(1)
    agent = lab.agent()
    agent.run("sync")
    lab.placement.remove_traits(node, *lab.placement.traits(node))
    lab.placement.add_traits(node, "OWNER_NOVA")

    done = agent.run("sync")

    assert (done.code, done.json["summary"]) == (4, {"contested": 1})
    assert lab.placement.traits(node) == {"OWNER_NOVA"}
    assert agent.sums("sync", "--take-over") == {"changed": 1}


def test_a_placement_that_was_made_anew_gets_everything_again(lab: Lab, placement_template: Path) -> None:
    (node,) = lab.enroll(1)
    lab.set_traits(node, "CUSTOM_MINE")
    port = free_port()
    for number in range(2):
        with placement.serving(lab.folder / f"placement-{number}", placement_template, port=port) as one:
            agent = lab.agent(one.url)
            if number:
                assert agent.sums() == {"refused": 1}
            assert agent.sums("sync", *(["--force"] if number else [])) == {"created": 1}
            assert replace(lab, url=one.url).reserved(node) == {"CUSTOM_GOLD": 0}


# -- what goes away ---------------------------------------------------------------------------------------------------


def test_a_node_of_another_shard_now_is_not_deleted(lab: Lab) -> None:
    first, second = lab.enroll(2)
    agent = lab.agent()
    agent.run("sync")

    lab.server.update(second, shard="another")

    assert agent.sums() == {"unchanged": 1, "left": 1}
    assert agent.sums() == {"unchanged": 1}
    assert lab.reserved(first) == lab.reserved(second) == {"CUSTOM_GOLD": 0}


def test_many_nodes_gone_at_once_are_not_believed(lab: Lab) -> None:
    """Ironic's database may have been restored, or its user may no longer see all nodes."""
    uuids = lab.enroll(8)
    hidden = as_json(404, {"error_message": {"faultstring": "not found"}})

    def hook(request: Request, forward: Forward) -> Answer:
        return as_json(200, {"nodes": []}) if "limit=" in request.path else hidden

    with Proxy(lab.server.url) as nodes:
        agent = lab.agent(nodes_url=nodes.url)
        agent.run("sync")
        nodes.hook = hook
        assert agent.sums() == {"going": 8}
        for verb in ("plan", "sync", "sync"):
            done = agent.run(verb)
            assert (done.code, done.json["summary"]) == (4, {"refused": 1})
        assert "Check that this is the right Ironic" in done.json["nodes"][0]["notes"][0]
        assert all(map(lab.reserved, uuids))
        assert agent.sums("sync", "--force") == {"deleted": 8}
        nodes.hook = pass_on

        assert agent.sums() == {"created": 8}


def test_an_agent_of_another_ironic_deletes_no_provider_of_the_first(lab: Lab, ironic_template: Path) -> None:
    uuids = lab.enroll(3)
    lab.agent().run("sync")
    with ironic.serving(lab.folder / "other", ironic_template) as other:
        available(other, "second-ironic", 2)
        agent = lab.agent(nodes_url=other.url, ironic={})
        for _ in range(3):
            done = agent.run("sync", "--force")
            assert done.json["summary"]["stray"] == 3

    assert all(map(lab.reserved, uuids))


# -- several agents ---------------------------------------------------------------------------------------------------


def owners(agents: list[NodesAgent]) -> list[set[str]]:
    """Return the nodes that each agent remembers as its own."""
    found = []
    for agent in agents:
        lines = (agent.config.parent / "state" / "nodes.json").read_text(encoding="utf-8").splitlines()[1:]
        found.append({json.loads(line)[0] for line in lines})
    return found


def writes(proxy: Proxy) -> list[str]:
    return [f"{seen.method} {seen.path}" for seen in proxy.seen if seen.method != "GET"]


def test_three_agents_have_each_a_shard(lab: Lab) -> None:
    labs = [lab.apart(f"third-{number}") for number in range(3)]
    uuids = [set(one.enroll(10)) for one in labs]
    agents = [one.agent() for one in labs]

    assert [agent.sums() for agent in agents] == [{"created": 10}] * 3
    assert owners(agents) == uuids
    assert [agent.sums() for agent in agents] == [{"unchanged": 10}] * 3


def test_resource_classes_of_two_shards_that_placement_cannot_tell_apart_are_not_mixed(lab: Lab) -> None:
    texts = {"dashed": "thin-x", "dotted": "thin.x"}
    nodes = {name: available(lab.server, name, 2, text) for name, text in texts.items()}
    agents = [lab.apart(name).agent() for name in nodes]

    assert [agent.sums() for agent in agents] == [{"created": 2}, {"misfit": 2}]
    assert [agent.sums() for agent in agents] == [{"unchanged": 2}, {"misfit": 2}]
    offering = lab.placement.send("GET", "/resource_providers?resources=CUSTOM_THIN_X:1")["resource_providers"]
    assert {one["uuid"] for one in offering} == set(nodes["dashed"])


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


def refusing_after(count: int, path: str, answer: Answer | None) -> Callable[[Request, Forward], Answer]:
    """Return a hook that lets so many requests to a path pass; then it hangs up, or gives this answer."""
    passed = [0]

    def hook(request: Request, forward: Forward) -> Answer:
        if path not in request.path or request.method == "GET":
            return forward(request)
        passed[0] += 1
        if passed[0] <= count:
            return forward(request)
        if answer is None:
            raise ConnectionError("down")
        return answer

    return hook


@pytest.mark.parametrize("answer", [None, Answer(503, (), b"no"), Answer(500, (), b"oops")], ids=["down", "503", "500"])
def test_writes_that_placement_refused_in_one_pass_are_done_in_the_next_and_no_others(
    answer: Answer | None, lab: Lab
) -> None:
    uuids = lab.enroll(20)
    with Proxy(lab.url) as providers:
        agent = lab.agent(providers.url)
        providers.hook = refusing_after(31, "/resource_providers", answer)
        halted = agent.run("sync")
        assert halted.code == 1
        left = 20 - 31 // 3  # each node takes three of these requests: its provider, its traits, its stock
        assert halted.json["summary"]["unfinished"] + halted.json["summary"].get("failed", 0) >= left
        assert halted.json["summary"].get("failed", 0) < 5
        providers.hook = pass_on
        providers.seen.clear()

        done = agent.run("sync")

        assert (done.code, done.json["summary"].get("unfinished")) == (0, None)
        created = [seen for seen in providers.seen if seen.method == "POST"]
        assert len(created) <= 20 - halted.json["summary"].get("created", 0)
    assert all(lab.reserved(uuid) == {"CUSTOM_GOLD": 0} for uuid in uuids)


def kill_server(port: int) -> None:
    """Kill all processes of the server that listens on this port, at once."""
    listening = [
        one for one in psutil.net_connections("tcp") if one.laddr and one.laddr.port == port and one.status == "LISTEN"
    ]
    assert listening[0].pid is not None
    os.killpg(os.getpgid(listening[0].pid), signal.SIGKILL)


def test_placement_that_is_slow_is_waited_for(lab: Lab) -> None:
    lab.enroll(5)

    with Proxy(lab.url, hook=slowly(0.4)) as providers:
        assert lab.agent(providers.url, agent={"node_workers": 4}).sums() == {"created": 5}


def test_placement_that_is_killed_in_a_first_pass_has_everything_after_the_next(
    lab: Lab, placement_template: Path
) -> None:
    uuids = lab.enroll(40)
    port = free_port()
    with placement.serving(lab.folder / "killed", placement_template, port=port) as one:
        writing = itertools.count(1)

        def kill_in_the_middle(request: Request, forward: Forward) -> Answer:
            if request.method != "GET" and next(writing) == 40:
                kill_server(port)
            return forward(request)

        with Proxy(one.url, hook=kill_in_the_middle) as proxy:
            halted = lab.agent(proxy.url).run("sync")
    assert halted.code == 1
    assert halted.json["summary"]["unfinished"] + halted.json["summary"].get("failed", 0) > 10
    with placement.serving(lab.folder / "killed", placement_template, port=port) as again:
        agent = lab.agent(again.url)
        assert agent.run("sync").code == 0
        assert all(replace(lab, url=again.url).reserved(uuid) == {"CUSTOM_GOLD": 0} for uuid in uuids)
        assert agent.sums() == {"unchanged": 40}


def test_a_node_that_is_deleted_between_two_pages_does_not_change_the_others(
    ironic_template: Path, placement_server: PlacementServer, tmp_path: Path
) -> None:
    with ironic.serving(tmp_path / "ironic", ironic_template, page=3) as own, Proxy(own.url) as nodes:
        uuids = available(own, "paged", 8)
        deleted: list[str] = []

        def delete_marker(request: Request, forward: Forward) -> Answer:
            marker = request.path.partition("marker=")[2]
            if marker and not deleted:
                deleted.append(marker)
                own.send("PUT", f"/v1/nodes/{marker}/maintenance", {"reason": "test"})
                own.send("DELETE", f"/v1/nodes/{marker}")
            return forward(request)

        nodes.hook = delete_marker
        agent = nodes_agent(tmp_path, nodes.url, placement_server.url)

        assert agent.sums() == {"created": 7}
        assert set(deleted) < set(uuids)
        assert agent.sums() == {"unchanged": 7}


def test_an_agent_that_is_killed_in_its_first_pass_goes_on_from_there(lab: Lab) -> None:
    uuids = lab.enroll(30)
    with Proxy(lab.url) as proxy:
        agent = lab.agent(proxy.url)
        sync_until_killed(agent, proxy, write=30)
        assert agent.run("sync").code == 0
        assert agent.sums() == {"unchanged": 30}
    assert all(lab.reserved(uuid) == {"CUSTOM_GOLD": 0} for uuid in uuids)


def test_without_its_memory_an_agent_takes_nothing_away(lab: Lab) -> None:
    lab.enroll(5)
    agent = lab.agent()
    agent.run("sync")
    (lab.folder / "state" / "nodes.json").write_text("torn", encoding="utf-8")

    assert agent.sums() == {"unchanged": 5}


def test_an_ironic_that_cannot_be_read_whole_changes_nothing(lab: Lab) -> None:
    lab.enroll(5)

    with Proxy(lab.server.url) as nodes, Proxy(lab.url) as providers:
        agent = lab.agent(providers.url, nodes.url)
        agent.run("sync")
        nodes.hook = refusing("limit=", as_json(500, {"error_message": "database is locked"}))
        providers.seen.clear()

        done = agent.run("sync")

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
    assert "audit works only on a hypervisor" in agent.run("audit").err
