"""``explain --request --all`` on placement's own application: each host, and the smallest change, as placement says."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from agent.command.whole_cloud import COMMON, HAVE, NONE, SILENT, Remedy, ask_all
from beds.givers import AGGREGATES, SHARES, TRAITS, Giver, World, empty, givers, requests
from reportclient.request import RESOURCES, Wish, format_request, parse_request
from reportclient.tree import Inventory

pytestmark = pytest.mark.contract

EXAMPLES = int(os.environ.get("REQUESTS", "25"))


@pytest.fixture(scope="module", autouse=True)
def _nobody_else(placement_sender: Any) -> None:
    """All hosts are asked about: those that other tests left are none of these."""
    empty(placement_sender)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_placement_says_of_each_host_and_of_the_change_what_is_told(placement_sender: Any, data: st.DataObject) -> None:
    vcpus = st.sampled_from((1, 64))
    hosts = [named(data.draw(givers()), number, data.draw(vcpus)) for number in range(data.draw(st.integers(1, 4)))]
    wishes = parse_request(format_request(data.draw(st.permutations(data.draw(requests(hosts[0]))))))
    world = World(placement_sender)
    shared = {name for host in hosts for one in host if SHARES in one.traits for name in one.stock}

    with world.holding([one for host in hosts for one in host]):
        told = ask_all(world.client, wishes)
        own = {host[0].name: {one.uuid for one in host if SHARES not in one.traits} for host in hosts}
        giving = cache(world.giving)

        def of_hosts(left: Sequence[Wish]) -> set[str]:
            """The groups that ask for what is not shared."""
            return {one.group for one in left if one.kind == RESOURCES and one.names.isdisjoint(shared)}

        def can_give(left: Sequence[Wish]) -> set[str]:
            """The names of the hosts that placement has candidates of; all for wishes that ask nothing of a host."""
            found = giving(tuple(left)) if of_hosts(left) else ()
            return {name for name, uuids in own.items() if not of_hosts(left) or uuids & {*found}}

        assert told.hosts == len(hosts)
        assert told.candidates is not None
        assert not of_hosts(wishes) or {*told.candidates} == can_give(wishes)
        for lacks, names in told.groups.items():
            lacking = [wish for wish, _ in lacks]
            assert can_give(without(wishes, lacking)) >= {*names}
            for one in lacking:
                left = without(wishes, [each for each in lacking if each != one])
                judged = one.group in of_hosts(left)
                assert not judged or can_give(left).isdisjoint(names), one
        if told.change:
            assert {*told.change.hosts} == can_give(changed(wishes, told.change))
            for size in range(1, len(told.change.without) if told.change.smallest else 1):
                for less in combinations(wishes, size):
                    left = without(wishes, less)
                    assert not of_hosts(left) or not can_give(left), less
        event(f"without {len(told.change.without)}, smallest: {told.change.smallest}" if told.change else "no change")
    event(f"{len(told.candidates or ())} candidates, {len(told.groups)} groups")


@pytest.mark.parametrize(("most", "wanted", "less"), [(1, 2, 1), (64, 110, 64), (5, 9, 5)])
def test_an_amount_that_is_too_much_for_one_guest_becomes_the_most_that_one_can_have(
    placement_sender: Any, most: int, wanted: int, less: int
) -> None:
    world = World(placement_sender)
    host = Giver(
        name="limited", stock={"VCPU": (Inventory(total=128, max_unit=most), 0), "MEMORY_MB": (Inventory(total=9), 0)}
    )

    with world.holding([host]):
        for more in ("", ",MEMORY_MB:1"):
            change = ask_all(world.client, parse_request(f"resources=VCPU:{wanted}{more}")).change

            assert change, more
            assert [*map(str, change.instead.values())] == [f"resources=VCPU:{less}"]


@pytest.mark.parametrize("reserved", [True, False], ids=["reserved", "allocated"])
def test_of_a_host_with_nothing_left_only_what_it_lacks_is_told(placement_sender: Any, *, reserved: bool) -> None:
    world = World(placement_sender)
    full = {name: (Inventory(total=8, reserved=8 * reserved), 8 * (not reserved)) for name in COMMON}
    host = Giver(name="full", stock=full, traits=frozenset({AVX, DISABLED}))

    with world.holding([host]):
        told = ask_all(
            world.client,
            parse_request(f"resources=MEMORY_MB:4,VCPU:1&required={AVX},{AVX2}&root_required=!{DISABLED},{AVX}"),
        )

    (lacks,) = told.groups
    assert {str(wish): why for wish, why in lacks} == {
        "resources=MEMORY_MB:4": SILENT,
        "resources=VCPU:1": SILENT,
        f"required={AVX2}": NONE,
        f"root_required=!{DISABLED}": HAVE,
    }


def named(tree: Sequence[Giver], number: int, vcpus: int) -> tuple[Giver, ...]:
    """The tree, its root with a name of its own, and so many CPUs."""
    root = replace(tree[0], name=f"host-{number}", stock={**tree[0].stock, "VCPU": (Inventory(total=vcpus), 0)})
    return root, *tree[1:]


def changed(wishes: Sequence[Wish], change: Remedy) -> list[Wish]:
    return [*without(wishes, change.without), *change.instead.values()]


def without(wishes: Sequence[Wish], dropped: Sequence[Wish]) -> list[Wish]:
    return [one for one in wishes if one not in dropped]


def asks(wishes: Sequence[Wish]) -> set[str]:
    return {one.group for one in wishes if one.kind == RESOURCES}


HOSTS = int(os.environ.get("HOSTS", "20"))
AVX, AVX2, SSD = TRAITS
DISABLED, ZONE = "COMPUTE_STATUS_DISABLED", AGGREGATES[0]
BASE = {"VCPU": 64, "MEMORY_MB": 262_144, "DISK_GB": 2000}
KINDS: tuple[Mapping[str, Any], ...] = (
    {},
    {"traits": {DISABLED}},
    {"traits": {AVX, AVX2, SSD}},
    {"aggregates": {ZONE}},
    {"stock": BASE | {"PCPU": 16}},
    {"used": {"VCPU": 63, "MEMORY_MB": 260_000}},
    {"stock": {"DISK_GB": 2000}, "below": [{"VCPU": 32, "MEMORY_MB": 131_072}] * 2},
    {"below": [{"VGPU": 4}] * 4, "of_each": {"CUSTOM_A40", "CUSTOM_PHYSNET_B"}},
    {"below": [{"SRIOV_NET_VF": 8}] * 2, "of_each": {"CUSTOM_PHYSNET_A"}, "traits": {AVX}},
    {"stock": {"CUSTOM_BAREMETAL_GOLD": 1}},
)
PLAIN = "resources=VCPU:8,MEMORY_MB:16384,DISK_GB:40"
REQUESTS = tuple(
    f"{start}&{more}&group_policy=none"
    for start in (
        PLAIN,
        PLAIN.replace("8,", "40,"),
        "resources=PCPU:8,MEMORY_MB:300000",
        "resources=CUSTOM_BAREMETAL_GOLD:1",
    )
    for more in (
        "",
        f"required=!{DISABLED}",
        f"required={AVX},{SSD}",
        f"member_of={ZONE}",
        f"member_of={ZONE}&required={AVX}",
        "resources_A=VGPU:1&required_A=CUSTOM_A40",
        "resources_A=VGPU:8&resources_B=VGPU:1",
        "resources_A=SRIOV_NET_VF:1&required_A=CUSTOM_PHYSNET_B",
        f"resources_A=SRIOV_NET_VF:2&required=!{DISABLED}&resources_B=VGPU:1",
        "required=HW_NO_SUCH",
    )
)


def host_of(kind: Mapping[str, Any], name: str) -> tuple[Giver, ...]:
    used = kind.get("used", {})
    stock = {one: (Inventory(total=total), used.get(one, 0)) for one, total in kind.get("stock", BASE).items()}
    traits, aggregates = (frozenset(kind.get(one, ())) for one in ("traits", "aggregates"))
    root = Giver(name=name, traits=traits, aggregates=aggregates, stock=stock)
    below = [{one: (Inventory(total=total), 0) for one, total in each.items()} for each in kind.get("below", ())]
    return root, *(Giver(parent=root.uuid, traits=frozenset(kind.get("of_each", ())), stock=one) for one in below)


@pytest.fixture(scope="module")
def fleet(placement_sender: Any) -> Iterator[tuple[World, dict[str, frozenset[str]]]]:
    """Hosts of ten kinds in equal numbers, each with the uuids of its providers, and a trait that nobody has."""
    hosts = [host_of(KINDS[number % len(KINDS)], f"host-{number:03}") for number in range(HOSTS)]
    world = World(placement_sender)
    with world.holding([one for host in hosts for one in host]):
        yield world, {host[0].name: frozenset(one.uuid for one in host) for host in hosts}


@pytest.mark.parametrize("query", REQUESTS)
def test_a_fleet_of_ten_kinds_is_told_as_placement_has_it(
    fleet: tuple[World, dict[str, frozenset[str]]], query: str
) -> None:
    world, hosts = fleet
    wishes = parse_request(query)

    told = ask_all(world.client, wishes)

    unknown = "HW_NO_SUCH" in query

    def giving(left: Sequence[Wish]) -> set[str]:
        found = world.giving(left) if asks(left) and not (unknown and "HW_NO_SUCH" in str(left)) else frozenset[str]()
        return {name for name, uuids in hosts.items() if uuids & found}

    assert told.candidates is not None
    assert {*told.candidates} == giving(wishes)
    assert sorted([*told.candidates, *(name for names in told.groups.values() for name in names)]) == [*hosts]
    assert bool(told.refusal) is unknown
    for lacks, names in told.groups.items():
        left = without(wishes, [wish for wish, _ in lacks])
        assert not asks(left) or giving(left) >= {*names}
    if told.change:
        assert {*told.change.hosts} == giving(changed(wishes, told.change))
        for size in range(1, len(told.change.without)):
            assert not any(giving(without(wishes, few)) for few in combinations(wishes, size))
