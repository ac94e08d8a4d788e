"""The role beside on a host of a real nova cloud: each writes nothing of the other's, and guests get what is ours."""

import pytest

from beds.cloud.lab import CARD, NAME, Lab

pytestmark = pytest.mark.live

CHILD = f"{NAME}_{CARD}"
VFS = "CUSTOM_PCI_8086_10ED"


@pytest.fixture(autouse=True)
def its_own_children(lab: Lab) -> None:
    done = lab.agent("sync", role="beside")
    assert done.code == 0, done.out


def test_beside_nova_each_leaves_the_others_providers_alone(lab: Lab) -> None:
    nova, own = lab.of_nova(), lab.own()
    assert own == {CHILD: {VFS: 8}}

    for _ in range(3):
        lab.restart_nova()
        lab.wait_for_nova()
        assert lab.own() == own
        assert lab.agent("sync", role="beside").json["outcome"] == "unchanged"

    assert {name: stock for name, (_, stock) in lab.of_nova().items()} == {
        name: stock for name, (_, stock) in nova.items()
    }


def test_a_server_gets_a_unit_of_our_child_by_its_flavor_and_the_audit_finds_nothing(lab: Lab) -> None:
    lab.cloud.add_flavor("network", {f"resources:{VFS}": "1"})

    uuid = lab.cloud.boot("with-a-unit", "network")
    try:
        held = lab.cloud.allocations(uuid)
        assert held[CHILD] == {VFS: 1}
        assert lab.findings() == []
        lab.cloud.act(uuid, "reboot", {"type": "HARD"}, "ACTIVE")
        assert lab.cloud.allocations(uuid) == held
        assert lab.agent("sync", role="beside").json["outcome"] == "unchanged"
    finally:
        lab.cloud.delete(uuid)
    assert lab.findings() == []
