"""What a host lacks for a request: the parts that placement is asked for, and the reasons; placement is in contract."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from agent.command.candidacy import Givers, bind, combinations, is_sure, missing
from reportclient.request import Wish, parse_request
from reportclient.tree import Inventory, ObservedProvider, Provider

AVX, SSD, ZONE, OTHER_ZONE = "HW_CPU_X86_AVX", "STORAGE_DISK_SSD", "zone-1", "zone-2"
A_AVX = f"required_A={AVX}"
LUN = "CUSTOM_LUN"  # a class, and a trait


def seen(name: str, stock: dict[str, Inventory], *, parent: str | None = None, traits: str = "") -> ObservedProvider:
    provider = Provider(
        name=name,
        parent=parent,
        inventories=stock,
        traits=frozenset(traits.split()),
        aggregates=frozenset({ZONE}),
    )
    return ObservedProvider(uuid=f"uuid-of-{name}", generation=1, provider=provider)


HOST = seen(
    "host", {"VCPU": Inventory(total=8, reserved=2), "MEMORY_MB": Inventory(total=512, max_unit=256)}, traits=AVX
)
CARDS = [
    seen(f"card {number}", {"VGPU": Inventory(total=4, min_unit=2, step_size=2)}, parent="host") for number in range(6)
]
POOL = seen("pool", {"DISK_GB": Inventory(total=100), LUN: Inventory(total=9)}, traits=SSD)
GIVERS = Givers(tree=(HOST, *CARDS), sharing=(POOL,), used={("host", "VCPU"): 4})
ALONE = Givers(tree=GIVERS.tree, sharing=(), used=GIVERS.used)


def lacks(query: str, *impossible: str, givers: Givers = GIVERS) -> dict[str, str]:
    """What is missing, with its reason, where placement finds no candidate for a part that has one of these wishes."""

    def ask(part: Sequence[Wish]) -> str | None:
        return None if {str(one) for one in part}.isdisjoint(impossible) else ""

    return {str(one.wish): one.why for one in missing(ask, givers, parse_request(query))}


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        ("resources=VCPU:3", "host has 2 VCPU free (total 8, reserved 2, used 4)"),
        ("resources=VCPU:2", "host cannot give it beside the rest of the request"),
        ("resources=MEMORY_MB:256", "host cannot give it beside the rest of the request"),
        ("resources=MEMORY_MB:300", "host gives at most 256 MEMORY_MB to one consumer (max_unit)"),
        ("resources=MEMORY_MB:2000", "host has 512 MEMORY_MB free (total 512, used 0)"),
        ("resources=FPGA:1", "no provider of this host has FPGA"),
        ("resources=DISK_GB:200", "pool has 100 DISK_GB free (total 100, used 0)"),
    ],
)
def test_an_amount_that_is_missing_is_told_with_what_there_is(wish: str, why: str) -> None:
    assert lacks(wish, wish) == {wish: why}


@pytest.mark.parametrize(
    ("amount", "cards", "why"),
    [
        (1, 6, "card 0, card 1, card 2, card 3 and 2 more gives at least 2 VGPU to one consumer (min_unit)"),
        (2, 6, "card 0, card 1, card 2, card 3 and 2 more cannot give it beside the rest of the request"),
        (3, 4, "card 0, card 1, card 2, card 3 gives VGPU in multiples of 2 (step_size)"),
    ],
)
def test_several_providers_with_one_reason_are_told_once(amount: int, cards: int, why: str) -> None:
    wish, givers = f"resources=VGPU:{amount}", replace(GIVERS, tree=(HOST, *CARDS[:cards]))

    assert lacks(wish, wish, givers=givers) == {wish: f"each of {why}"}


def test_a_class_of_which_more_is_used_than_there_is_has_none_free() -> None:
    overfull = replace(GIVERS, used={("host", "VCPU"): 9})

    assert lacks("resources=VCPU:1", "resources=VCPU:1", givers=overfull) == {
        "resources=VCPU:1": "host has 0 VCPU free (total 8, reserved 2, used 9)"
    }


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        (f"required={SSD}", "pool has it, but cannot give it beside the rest of the request"),
        (f"required=!{AVX}", "host has it"),
        ("required=HW_CPU_X86_SSE", "no provider of this host has it"),
        ("required=in:HW_CPU_X86_SSE,HW_CPU_X86_SSE2", "no provider of this host has any of them"),
        (f"member_of=in:{OTHER_ZONE},x", "no provider of this host is in any of them"),
        (f"member_of=!{ZONE}", "each of host, card 0, card 1, card 2 and 4 more is in it"),
        ("in_tree=uuid-of-pool", "pool is it, but cannot give it beside the rest of the request"),
        ("group_policy=isolate", "the groups find no providers of their own: at least two need the same one"),
    ],
)
def test_a_trait_or_an_aggregate_is_told_with_who_has_it(wish: str, why: str) -> None:
    assert lacks(f"resources=VCPU:1&{wish}", wish) == {wish: why}


def test_what_names_another_provider_or_root_is_missing_without_a_question() -> None:
    asked = [f"root_required={SSD}", f"root_required=!{AVX}", "in_tree=uuid-of-another"]

    assert lacks(f"resources=VCPU:1&root_required={AVX}&{'&'.join(asked)}") == {
        asked[0]: "host, the root, does not have it",
        asked[1]: "host, the root, has it",
        asked[2]: "no provider of this host is it",
    }


@pytest.mark.parametrize(
    ("query", "wish", "why"),
    [
        (f"resources_A=VGPU:2&{A_AVX}", A_AVX, "but has no VGPU"),
        (
            f"resources_A=VCPU:1&required_A=!HW_CPU_X86_SSE&resources=VGPU:2&{A_AVX}",
            A_AVX,
            "but cannot give it beside the rest",
        ),
        ("resources_A=VCPU:1,VGPU:2", "resources_A=VGPU:2", "card 3 and 2 more has no VCPU"),
    ],
)
def test_a_group_with_a_suffix_is_told_what_its_provider_lacks_beside_a_wish(query: str, wish: str, why: str) -> None:
    assert why in lacks(query, wish)[wish]


def test_a_wish_that_fits_only_beside_others_is_not_missing() -> None:
    stock, zone, host = wishes = parse_request(f"resources=VCPU:1&member_of={ZONE}&{TREE}")
    fitting = [{stock}, {stock, host}, {stock, host, zone}]

    assert missing(lambda part: None if set(part) in fitting else "", GIVERS, wishes) == ()


def test_groups_that_need_one_subtree_are_told_as_such() -> None:
    wish = "same_subtree=_A,_B"
    query = f"resources_A=VCPU:1&resources_B=VGPU:2&group_policy=none&{wish}"

    assert lacks(query, wish) == {wish: "no provider that one of the groups gets is above those of the others"}


def test_a_part_that_placement_refuses_is_told_in_its_words() -> None:
    (wish,) = parse_request("resources=VCPU:1")

    (found,) = missing(lambda _: "no such class", GIVERS, [wish])

    assert found.why == "no such class"


def bound(query: str, givers: Givers = GIVERS) -> list[str]:
    return ["&".join(map(str, one)) for one in bind(parse_request(query), givers)]


TREE = "in_tree=uuid-of-host"


@pytest.mark.parametrize(
    ("query", "requests"),
    [
        pytest.param(
            "resources_A=VCPU:1", ["resources_A=VCPU:1&in_tree_A=uuid-of-host"], id="one group names the tree"
        ),
        pytest.param(f"resources=VCPU:1&{TREE}", [f"resources=VCPU:1&{TREE}"], id="named already"),
        pytest.param(
            "resources=VCPU:1&resources_A=DISK_GB:5&in_tree_A=uuid-of-pool",
            [f"resources=VCPU:1&resources_A=DISK_GB:5&in_tree_A=uuid-of-pool&{TREE}"],
            id="another tree is named by a group",
        ),
        pytest.param(
            "resources=VCPU:1,DISK_GB:5&resources_A=VCPU:1",
            ["resources=VCPU:1&resources=DISK_GB:5&resources_A=VCPU:1&in_tree_A=uuid-of-host"],
            id="by a group with a suffix",
        ),
        pytest.param(
            f"resources=VCPU:1,DISK_GB:5&member_of={ZONE}&required={LUN},!{SSD}&resources_A=DISK_GB:5&"
            f"member_of_A={ZONE}&root_required=!{SSD}",
            [
                f"resources=VCPU:1&required={LUN}&required=!{SSD}&member_of={ZONE}&"
                f"resources_A=DISK_GB:5&member_of_A={ZONE}&root_required=!{SSD}&{TREE}&"
                f"resources991=DISK_GB:5&required991=!{SSD}&member_of991={ZONE}"
            ],
            id="what others share in a group of its own, with what holds of all",
        ),
        pytest.param(
            "resources=DISK_GB:5",
            [f"resources=DISK_GB:5&{TREE}", "resources=DISK_GB:5&in_tree=uuid-of-pool"],
            id="each that can give a shared class has a request of its own",
        ),
    ],
)
def test_a_request_is_bound_to_the_tree_of_a_host(query: str, requests: list[str]) -> None:
    assert bound(query) == requests


def test_a_request_without_resources_is_bound_to_no_tree() -> None:
    assert bind([Wish("group_policy", "", "none")], GIVERS) == [[Wish("group_policy", "", "none")]]


@pytest.mark.parametrize(
    ("query", "givers", "sure"),
    [
        ("resources=VCPU:1", GIVERS, True),
        (f"resources=VCPU:1&required={SSD}", ALONE, True),
        ("resources=VCPU:1,DISK_GB:5", GIVERS, True),
        (f"resources=VCPU:1,DISK_GB:5&required={AVX}", GIVERS, True),
        (f"resources=VCPU:1,DISK_GB:5&required={SSD}", GIVERS, False),
        (f"resources=VCPU:1,DISK_GB:5&root_required=!{SSD}", GIVERS, True),
        (f"resources=VCPU:1,DISK_GB:5&required={SSD}&in_tree=uuid-of-host", GIVERS, True),
        (f"resources=VCPU:1,DISK_GB:5&resources_A=DISK_GB:5&required_A={SSD}", GIVERS, False),
        ("resources=VCPU:1,DISK_GB:5&resources_A=DISK_GB:5&in_tree_A=uuid-of-pool", GIVERS, False),
        (f"resources=VCPU:1,DISK_GB:5&required_A={SSD}&same_subtree=_A", GIVERS, True),
        ("resources=VCPU:1,DISK_GB:5", replace(GIVERS, tree=(HOST, POOL)), False),
        ("resources=DISK_GB:5", GIVERS, True),
        ("resources=DISK_GB:5&resources_A=DISK_GB:5&group_policy=none", GIVERS, False),
        (f"resources=DISK_GB:5&resources_A=DISK_GB:5&group_policy=none&root_required={SSD}", GIVERS, True),
    ],
)
def test_that_a_host_is_none_is_sure_where_nothing_shared_may_give_a_trait(
    query: str, givers: Givers, sure: bool
) -> None:
    assert is_sure(parse_request(query), givers) is sure


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("resources=VGPU:2&resources_A=VGPU:2&resources_B=VCPU:1&group_policy=none", 6 * 1),
        ("resources_A=VGPU:2&in_tree_A=uuid-of-host", 6),
        (f"resources_A=VGPU:2&required_A={AVX}", 0),
        (f"resources_A=VCPU:1&required_A={AVX}", 1),
        (f"resources_A=VGPU:2&required_A=!{AVX}", 6),
        (f"resources_A=VGPU:2&member_of_A={ZONE}", 6),
        (f"resources_A=VGPU:2&member_of_A=!{ZONE}", 0),
        (f"resources_A=VGPU:2&required_B=!{AVX}&same_subtree=_A,_B&group_policy=none", 6),
    ],
)
def test_combinations_are_those_of_the_groups_with_a_suffix(query: str, count: int) -> None:
    assert combinations(parse_request(query), GIVERS) == count


def test_a_trait_that_placement_does_not_know_is_not_the_reason_of_a_class() -> None:
    """A trait alone is not asked for, so it is kept at first, and placement refuses each part with both."""
    stock, trait = parse_request("resources=PCPU:4&required=CUSTOM_UNKNOWN")

    def ask(part: Sequence[Wish]) -> str | None:
        kinds = {one.kind for one in part}
        return None if "resources" not in kinds else ("No such trait(s): CUSTOM_UNKNOWN" if "required" in kinds else "")

    assert {one.wish: one.why for one in missing(ask, GIVERS, [stock, trait])} == {
        stock: "no provider of this host has PCPU",
        trait: "no provider of this host has it",
    }
