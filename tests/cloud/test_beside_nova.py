"""The role beside on a host of a real nova cloud: each writes nothing of the other's, and guests get what is ours."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from beds.cloud.lab import CARD, NAME, Lab

pytestmark = pytest.mark.live

CHILD = f"{NAME}_{CARD}"
VFS = "CUSTOM_PCI_8086_10ED"
RESTARTS = int(os.environ.get("RESTARTS", "3"))
PERIODICS = int(os.environ.get("PERIODICS", "10"))  # nova-compute writes once a minute, if it is not told otherwise
QUICK = {"update_resources_interval": 2, "debug": True}


@pytest.fixture(autouse=True)
def its_own_children(lab: Lab) -> None:
    done = lab.agent("sync", role="beside")
    assert done.code == 0, done.out


@pytest.fixture(scope="module")
def server(lab: Lab) -> Iterator[str]:
    """A server with a unit of our child, by its flavor."""
    assert lab.agent("sync", role="beside").code == 0
    lab.cloud.add_flavor("network", {f"resources:{VFS}": "1"})
    uuid = lab.cloud.boot("with-a-unit", "network")
    yield uuid
    lab.cloud.delete(uuid)
    assert lab.findings() == []


def test_a_server_gets_a_unit_of_our_child_by_its_flavor_and_the_audit_finds_nothing(lab: Lab, server: str) -> None:
    held = lab.cloud.allocations(server)
    assert held[CHILD] == {VFS: 1}
    assert lab.findings() == []

    lab.cloud.act(server, "reboot", {"type": "HARD"}, "ACTIVE")

    assert lab.cloud.allocations(server) == held
    assert lab.agent("sync", role="beside").json["outcome"] == "unchanged"


def test_explain_asks_for_a_flavor_and_an_image_what_nova_asks(lab: Lab, server: str) -> None:
    assert server
    told = lab.agent("explain", "--flavor", "network", "--image", lab.cloud.image, role="beside")
    every = lab.agent("explain", "--flavor", lab.cloud.flavors["network"], "--all", role="beside")

    assert (told.code, every.code) == (0, 0), told.err + every.err
    assert told.json["query"] == (
        f"resources={VFS}:1,DISK_GB:1,MEMORY_MB:64,VCPU:1&root_required=!COMPUTE_STATUS_DISABLED"
    )
    assert told.json["candidate"]
    assert told.json["slots"] > 0
    assert every.json["candidates"] == [NAME]
    assert lab.agent("explain", "--flavor", "none-such", role="beside").code == 1


def test_beside_nova_each_leaves_the_others_providers_alone(lab: Lab, server: str) -> None:
    assert lab.own() == {CHILD: {VFS: 8}}
    nova, held, stood = stocks(lab.of_nova()), lab.cloud.allocations(server), lab.generations()[CHILD]

    for _ in range(RESTARTS):
        lab.restart_nova(more=QUICK)
        lab.wait_for_periodics(1)
        assert lab.agent("sync", role="beside").json["outcome"] == "unchanged"  # else we wrote
        assert lab.generations()[CHILD] == stood  # else nova did
    before = lab.generations()
    with lab.service(role="beside") as status:
        lab.wait_for_periodics(PERIODICS)
        record = json.loads(status.read_text(encoding="utf-8"))

    print(f"\n{RESTARTS} restarts and {PERIODICS} periodics of nova-compute, {record['passes']} passes of ours")
    assert set(record["outcomes"].values()) == {"unchanged"}
    assert lab.generations() == before
    assert stocks(lab.of_nova()) == nova
    assert lab.cloud.allocations(server) == held


def test_a_device_of_ours_is_held_beside_nova_and_what_nova_reports_is_novas_to_hold(lab: Lab, server: str) -> None:
    before, held = lab.cloud.stocks(), lab.cloud.allocations(server)
    why = ("--reason", "RMA 4711")

    done = lab.agent("hold", CARD, *why, role="beside")
    lab.restart_nova(more=QUICK)
    lab.wait_for_periodics(1)

    assert (done.code, lab.agent("sync", role="beside").json["outcome"]) == (0, "unchanged"), done.out + done.err
    assert (lab.cloud.stocks()[CHILD][VFS]["reserved"], lab.cloud.allocations(server)) == (7, held)
    assert not lab.agent("explain", "--flavor", "network", role="beside").json["candidate"]
    assert lab.findings() == []
    for what, role in (("host", "beside"), ("host", "audit"), (CARD, "audit")):
        refused = lab.agent("hold", what, *why, role=role)
        assert refused.code == 1
        said = "[agent] role = audit leaves" if role == "audit" else "nova-compute reports"
        assert said in refused.err, refused.err
    assert lab.agent("release-hold", CARD, role="beside").code == 0
    assert lab.cloud.stocks() == before
    assert lab.agent("explain", "--flavor", "network", role="beside").json["candidate"]


def stocks(found: dict[str, tuple[int, Any]]) -> dict[str, Any]:
    """What providers offer, by name."""
    return {name: stock for name, (_, stock) in found.items()}
