"""``explain --request`` on placement's own application: its answer for one tree, and what is missing there."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from agent.command import explain as explaining
from agent.command.explain import ExplainedRequest, explain_request
from beds.givers import AGGREGATES, SHARES, TRAITS, Giver, World, givers, requests
from reportclient.client import PlacementClient
from reportclient.request import RESOURCES, Wish, parse_request
from reportclient.transport import Transport
from reportclient.tree import Inventory

pytestmark = pytest.mark.contract

EXAMPLES = int(os.environ.get("REQUESTS", "25"))


def nobody_has(tree: Sequence[Giver], wish: Wish) -> bool:
    return all(wish.names.isdisjoint(one.traits | one.aggregates) for one in tree)


def explain(world: World, tree: Sequence[Giver], wishes: Sequence[Wish]) -> ExplainedRequest:
    return explain_request(world.client, tree[0].name or tree[0].uuid, tuple(wishes))


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_placement_has_the_tree_among_all_candidates_and_misses_what_is_missing(
    placement_sender: Any, data: st.DataObject
) -> None:
    tree = data.draw(givers())
    wishes = data.draw(requests(tree))
    world = World(placement_sender)

    with world.holding(tree):
        found = explain(world, tree, wishes)
        missing = [one.wish for one in found.missing]

        if found.candidate is not None:
            assert world.offers(tree, wishes) is found.candidate
            assert bool(missing) is not found.candidate
        if missing and found.candidate is not None:
            left = [one for one in wishes if one not in missing]
            assert world.offers(tree, left)
            for one in (each.wish for each in found.missing if each.why != explaining.UNTOLD):
                beside = [each for each in wishes if each in left or each == one]
                unjudged = one.group not in {each.group for each in beside if each.kind == RESOURCES}
                assert (unjudged and nobody_has(tree, one)) or not world.offers(tree, beside), one
    event(f"{found.candidate}, missing: {', '.join(sorted({one.kind for one in missing})) or 'nothing'}")


ROOT = Giver(
    name="host-1",
    traits=frozenset({"COMPUTE_NODE"}),
    aggregates=frozenset(AGGREGATES[:1]),
    stock={
        "VCPU": (Inventory(total=16, reserved=4, max_unit=8), 8),
        "MEMORY_MB": (Inventory(total=1000), 0),
    },
)
PORTS = tuple(
    Giver(
        name=f"port-{number}",
        parent=ROOT.uuid,
        traits=frozenset({TRAITS[number - 1]}),
        stock={"SRIOV_NET_VF": (Inventory(total=2), 0)},
    )
    for number in (1, 2)
)
POOL = Giver(
    name="pool",
    traits=frozenset({SHARES}),
    aggregates=frozenset(AGGREGATES[:1]),
    stock={"DISK_GB": (Inventory(total=100, step_size=10, min_unit=20, max_unit=50), 0)},
)
NET1, NET2, SSD = TRAITS
A1, A2, A3 = AGGREGATES


@pytest.fixture(scope="module")
def ask(placement_sender: Any) -> Iterator[Any]:
    """Explains a query on a host with two ports and a pool that it shares with others."""
    world, tree = World(placement_sender), (ROOT, *PORTS, POOL)
    with world.holding(tree):
        yield lambda query: explain(world, tree, parse_request(query))


def test_what_each_provider_gives_is_told(ask: Any) -> None:
    found = ask(f"resources=VCPU:2,DISK_GB:20&required=!{NET1}&resources_A=SRIOV_NET_VF:1&required_A={NET2}")

    assert found.candidate
    assert found.gives == {"host-1": {"VCPU": 2}, "pool": {"DISK_GB": 20}, "port-2": {"SRIOV_NET_VF": 1}}
    assert found.missing == ()


def test_a_request_that_placement_refuses_is_told_in_its_words(ask: Any) -> None:
    found = ask("resources=VCPU:1&required=HW_NO_SUCH")

    assert found.candidate is False
    assert "HW_NO_SUCH" in found.refusal


def test_each_name_that_placement_does_not_know_is_told_and_what_else_is_missing(ask: Any) -> None:
    found = ask("resources=VCPU:1,CUSTOM_NO_CLASS:1&required=HW_NO_SUCH,CUSTOM_NOBODYS&resources1=CUSTOM_NO_OTHER:1")

    whys = {str(one.wish): one.why for one in found.missing}
    for name in ("CUSTOM_NO_CLASS", "HW_NO_SUCH", "CUSTOM_NOBODYS", "CUSTOM_NO_OTHER"):
        assert [name in why for wish, why in whys.items() if name in wish] == [True], whys


class WithoutInTree:
    """Placement of before microversion 1.31: it refuses in_tree among candidates."""

    def __init__(self, sender: Any) -> None:
        self._sender = sender

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        refused = url.startswith("/allocation_candidates") and "in_tree" in url
        return self._sender.request(f"{url}&strange=1" if refused else url, method, **kwargs)


@pytest.mark.usefixtures("ask")
def test_a_placement_that_cannot_be_asked_about_one_host_gives_no_answer(placement_sender: Any) -> None:
    old = PlacementClient(Transport(WithoutInTree(placement_sender), where="an old placement"))

    found = explain_request(old, ROOT.name, parse_request("resources=VCPU:1"))

    assert found.candidate is None
    assert found.refusal


def test_a_part_that_placement_refuses_is_missing_in_its_words(ask: Any) -> None:
    """Placement may find that nobody is in an aggregate before it looks at traits."""
    found = ask(f"resources=VCPU:1&member_of={A3}&required=!CUSTOM_NOBODYS")

    assert found.candidate is False
    whys = {str(one.wish): one.why for one in found.missing}
    assert whys.keys() == {f"member_of={A3}", "required=!CUSTOM_NOBODYS"}
    assert whys["required=!CUSTOM_NOBODYS"].startswith("placement refuses it: ")
    assert "CUSTOM_NOBODYS" in whys["required=!CUSTOM_NOBODYS"]


def test_a_wish_that_a_pool_may_fulfil_is_not_called_missing_for_certain(ask: Any) -> None:
    assert ask(f"resources=VCPU:1,DISK_GB:20&required={SHARES}").candidate is None


def test_a_pool_gives_a_group_with_a_suffix_that_names_it(ask: Any) -> None:
    assert ask(f"resources=VCPU:1&resources_D=DISK_GB:20&in_tree_D={POOL.uuid}").candidate
    assert ask("resources=DISK_GB:20").candidate


@pytest.mark.usefixtures("ask")
def test_any_pool_gives_to_a_full_host_and_another_hosts_root_does_not_count(placement_sender: Any) -> None:
    shared = frozenset({A1})
    full = Giver(name="full", traits=frozenset({NET1}), aggregates=shared, stock={"VCPU": (Inventory(total=4), 4)})
    spent = Giver(
        name="spent", traits=frozenset({SHARES}), aggregates=shared, stock={"DISK_GB": (Inventory(total=9), 9)}
    )
    world, wishes = World(placement_sender), parse_request(f"resources=DISK_GB:20,VCPU:1&root_required=!{NET1}")

    with world.holding((full, spent)):
        assert [one.wish for one in explain(world, (full,), wishes).missing] == [*wishes[1:]]
        assert explain(world, (full,), wishes[:1]).gives == {POOL.name: {"DISK_GB": 20}}


def test_what_placement_would_search_for_long_is_not_asked(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each group could be given by both ports, as none has what it requires beside the resource."""
    monkeypatch.setattr(explaining, "_MOST_OF_ONE", 4)
    groups = "&".join(f"resources_{one}=SRIOV_NET_VF:1&required_{one}={SSD}" for one in "ABC")

    found = ask(f"{groups}&group_policy=none")

    whys = {str(one.wish): one.why for one in found.missing}
    assert whys.keys() == {*(f"required_{one}={SSD}" for one in "ABC"), "resources_C=SRIOV_NET_VF:1"}
    assert "not asked for it with the rest: it would compare 8 comb" in whys["resources_C=SRIOV_NET_VF:1"]


def test_a_trait_that_nobody_has_is_missing_beside_a_class_that_nobody_has(ask: Any) -> None:
    found = ask(
        f"resources=VCPU:1&resources_A=FPGA:1&required_A={SSD}&required_B={NET1}&resources_B=VGPU:1&group_policy=none"
    )

    assert [f"{one.wish}: {one.why}" for one in found.missing] == [
        "resources_A=FPGA:1: no provider of this host has FPGA",
        f"required_A={SSD}: no provider of this host has it",
        "resources_B=VGPU:1: no provider of this host has VGPU",
    ]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (
            f"resources=VCPU:1&member_of=in:{A2},{A3}",
            f"member_of=in:{A2},{A3}: no provider of this host is in any of them",
        ),
        (
            "resources_A=SRIOV_NET_VF:2&resources_B=SRIOV_NET_VF:2&same_subtree=_A,_B&group_policy=none",
            "same_subtree=_A,_B: no provider that one of the groups gets is above those of the others",
        ),
        (
            f"resources_A=SRIOV_NET_VF:1&required_A={NET1}&resources_B=SRIOV_NET_VF:1&required_B={NET1}"
            "&group_policy=isolate",
            "group_policy=isolate: the groups find no providers of their own: at least two need the same one",
        ),
    ],
)
def test_what_is_missing_is_told_with_the_providers_that_come_near(ask: Any, query: str, why: str) -> None:
    found = ask(query)

    assert found.candidate is False
    assert [f"{one.wish}: {one.why}" for one in found.missing] == [why]
