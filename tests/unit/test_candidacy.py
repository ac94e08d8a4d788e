"""What a host lacks for a request, in words; that placement agrees is shown on placement's own application."""

from dataclasses import replace

import pytest

from agent.command.candidacy import Candidacy, candidacy
from reportclient.candidates import Giver, Offered, Unsearched, find_candidate
from reportclient.request import parse_request
from reportclient.tree import Inventory

ROOT = Giver(
    uuid="root",
    name="host-1",
    parent=None,
    traits=frozenset({"COMPUTE_NODE"}),
    aggregates=frozenset({"a1"}),
    stock={
        "VCPU": Offered(Inventory(total=16, reserved=4, max_unit=8), 8),
        "MEMORY_MB": Offered(Inventory(total=1000), 0),
    },
)
VF = Offered(Inventory(total=2, min_unit=1), 0)
PORT = Giver(uuid="p1", name="port-1", parent="root", traits=frozenset({"CUSTOM_NET1"}), stock={"SRIOV_NET_VF": VF})
OTHER = replace(PORT, uuid="p2", name="port-2", traits=frozenset({"CUSTOM_NET2"}))
POOL = Giver(
    uuid="s",
    name="pool",
    parent=None,
    shares=True,
    aggregates=frozenset({"a1"}),
    stock={"DISK_GB": Offered(Inventory(total=100, step_size=10, min_unit=20, max_unit=50), 0)},
)
TREE = (ROOT, PORT, OTHER, POOL)


def asked(query: str) -> Candidacy:
    return candidacy(TREE, parse_request(query))


def told(query: str) -> list[str]:
    return [f"{one.wish}: {one.why}" for one in asked(query).missing]


def test_who_gives_what_is_told() -> None:
    found = asked("resources=VCPU:2,DISK_GB:20&resources_A=SRIOV_NET_VF:1&required_A=CUSTOM_NET2")

    assert found.gives
    assert {(part.amounts[0][0], giver.name) for part, giver in found.gives} == {
        ("VCPU", "host-1"),
        ("DISK_GB", "pool"),
        ("SRIOV_NET_VF", "port-2"),
    }
    assert found.missing == ()


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("resources=VCPU:5", "resources=VCPU:5: host-1 has 4 of 12 VCPU free, 4 are reserved"),
        ("resources=VGPU:1", "resources=VGPU:1: no provider of this host has VGPU"),
        ("resources=DISK_GB:60", "resources=DISK_GB:60: pool gives at most 50 DISK_GB to one consumer (max_unit)"),
        ("resources=DISK_GB:10", "resources=DISK_GB:10: pool gives at least 20 DISK_GB to one consumer (min_unit)"),
        ("resources=DISK_GB:25", "resources=DISK_GB:25: pool gives DISK_GB in multiples of 10 (step_size)"),
        (
            "resources_A=SRIOV_NET_VF:3",
            "resources_A=SRIOV_NET_VF:3: each of port-1, port-2 has 2 of 2 SRIOV_NET_VF free",
        ),
        ("resources=VCPU:1&required=HW_A", "required=HW_A: no provider of this host has it"),
        ("resources=VCPU:1&required=in:HW_A,HW_B", "required=in:HW_A,HW_B: no provider of this host has any of them"),
        (
            "resources=VCPU:1&required=CUSTOM_NET1",
            "required=CUSTOM_NET1: port-1 has it, but gives none of the classes of the group",
        ),
        (
            "resources_A=VCPU:1&required_A=CUSTOM_NET1",
            "required_A=CUSTOM_NET1: port-1 has it, but has no VCPU",
        ),
        (
            "resources_A=SRIOV_NET_VF:1&required_A=CUSTOM_NET1&required_A=CUSTOM_NET2",
            "required_A=CUSTOM_NET2: port-2 has it, but does not fulfil required_A=CUSTOM_NET1",
        ),
        (
            "resources_A=SRIOV_NET_VF:2&resources_B=SRIOV_NET_VF:2&required_A=CUSTOM_NET1&required_B=CUSTOM_NET1&group_policy=none",
            "required_B=CUSTOM_NET1: port-1 has it, but is needed for another part of the request, or stands elsewhere "
            "in the tree than that",
        ),
        ("resources=VCPU:1&required=!COMPUTE_NODE", "required=!COMPUTE_NODE: host-1 has it"),
        ("resources=VCPU:1&member_of=a2", "member_of=a2: no provider that could give the rest is in it"),
        (
            "resources=VCPU:1&member_of=in:a2,a3",
            "member_of=in:a2,a3: no provider that could give the rest is in one of them",
        ),
        ("resources=VCPU:1&member_of=!a1", "member_of=!a1: each of host-1, pool is in it"),
        ("resources=VCPU:1&in_tree=elsewhere", "in_tree=elsewhere: this is no provider of this host"),
        ("resources=VCPU:1&root_required=HW_A", "root_required=HW_A: host-1, the root, does not have it"),
        ("resources=VCPU:1&root_required=!COMPUTE_NODE", "root_required=!COMPUTE_NODE: host-1, the root, has it"),
        (
            "resources_A=SRIOV_NET_VF:2&resources_B=SRIOV_NET_VF:2&same_subtree=_A,_B&group_policy=none",
            "same_subtree=_A,_B: the groups find no providers of which one is above the others",
        ),
        (
            "resources_A=SRIOV_NET_VF:1&required_A=CUSTOM_NET1&resources_B=SRIOV_NET_VF:1&required_B=CUSTOM_NET1"
            "&group_policy=isolate",
            "group_policy=isolate: the groups find no providers of their own: at least two need the same one",
        ),
    ],
)
def test_what_is_missing_is_told_with_the_providers_that_come_near(query: str, why: str) -> None:
    assert told(query) == [why]


def test_a_group_without_resources_finds_a_place_in_the_subtree() -> None:
    query = "resources_A=SRIOV_NET_VF:1&required_ROOT=COMPUTE_NODE&same_subtree=_A,_ROOT&group_policy=none"

    assert {giver.name for _, giver in asked(query).gives or ()} == {"host-1", "port-1"}
    assert asked(query.replace("required_ROOT=COMPUTE_NODE", "member_of_ROOT=a1")).gives
    assert told(query.replace("COMPUTE_NODE", "HW_A")) == ["required_ROOT=HW_A: no provider of this host has it"]


def test_a_pool_gives_a_group_with_a_suffix_that_names_it() -> None:
    assert asked("resources=VCPU:1&resources_D=DISK_GB:20&in_tree_D=s").gives
    assert told("resources=VCPU:1,DISK_GB:20&in_tree=root") == [
        "in_tree=root: part of the group is given by what others share"
    ]


def test_many_alike_providers_are_searched_once_each_kind() -> None:
    vfs = tuple(
        Giver(uuid=f"v{n}", name=f"v{n}", parent="root", stock={"SRIOV_NET_VF": Offered(Inventory(total=1), 0)})
        for n in range(512)
    )
    groups = "&".join(f"resources_{n}=SRIOV_NET_VF:1" for n in range(9))

    assert find_candidate((ROOT, *vfs), parse_request(f"{groups}&group_policy=isolate"))
    assert find_candidate((ROOT, *vfs[:8]), parse_request(f"{groups}&group_policy=isolate")) is None


def test_a_search_without_an_end_is_not_known() -> None:
    different = tuple(
        Giver(
            uuid=f"d{n}",
            name=f"d{n}",
            parent="root",
            traits=frozenset({f"CUSTOM_T{n}"}),
            stock={"SRIOV_NET_VF": Offered(Inventory(total=1), 0)},
        )
        for n in range(24)
    )
    groups = "&".join(f"resources_{n}=SRIOV_NET_VF:1" for n in range(25))

    with pytest.raises(Unsearched):
        find_candidate((ROOT, *different), parse_request(f"{groups}&group_policy=none"))
