"""What a host lacks for a request: the parts that placement is asked for, and the reasons; placement is in contract."""

from collections.abc import Sequence

import pytest

from agent.command.candidacy import Givers, bind, combinations, is_sure, missing
from reportclient.request import Wish, parse_request
from reportclient.tree import Inventory, ObservedProvider, Provider

AVX, SSD, ZONE, OTHER_ZONE = "HW_CPU_X86_AVX", "STORAGE_DISK_SSD", "zone-1", "zone-2"


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
POOL = seen("pool", {"DISK_GB": Inventory(total=100)}, traits=SSD)
GIVERS = Givers(tree=(HOST, *CARDS), sharing=(POOL,), used={("host", "VCPU"): 4})
ALONE = Givers(tree=GIVERS.tree, sharing=(), used=GIVERS.used)


def lacks(query: str, *impossible: str) -> dict[str, str]:
    """What is missing, with its reason, where placement finds no candidate for a part that has one of these wishes."""

    def ask(part: Sequence[Wish]) -> str | None:
        return None if {str(one) for one in part}.isdisjoint(impossible) else ""

    return {str(one.wish): one.why for one in missing(ask, GIVERS, parse_request(query))}


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        ("resources=VCPU:3", "host has 2 of 6 VCPU free, 2 are reserved"),
        ("resources=MEMORY_MB:300", "host gives at most 256 MEMORY_MB to one consumer (max_unit)"),
        ("resources=MEMORY_MB:2000", "host has 512 of 512 MEMORY_MB free"),
        ("resources=VCPU:1", "host cannot give it beside the rest of the request"),
        ("resources=FPGA:1", "no provider of this host has FPGA"),
        ("resources=DISK_GB:200", "pool has 100 of 100 DISK_GB free"),
    ],
)
def test_an_amount_that_is_missing_is_told_with_what_there_is(wish: str, why: str) -> None:
    assert lacks(wish, wish) == {wish: why}


@pytest.mark.parametrize(
    ("amount", "bound"), [(1, "at least 2 VGPU to one consumer (min_unit)"), (3, "multiples of 2")]
)
def test_several_providers_with_one_reason_are_told_once(amount: int, bound: str) -> None:
    (why,) = lacks(f"resources=VGPU:{amount}", f"resources=VGPU:{amount}").values()

    assert why.startswith("each of card 0, card 1, card 2, card 3 and 2 more gives")
    assert bound in why


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        (f"required={SSD}", "pool has it, but cannot give it beside the rest of the request"),
        (f"required=!{AVX}", "host has it"),
        ("required=HW_CPU_X86_SSE", "no provider of this host has it"),
        ("required=in:HW_CPU_X86_SSE,HW_CPU_X86_SSE2", "no provider of this host has any of them"),
        (f"member_of={OTHER_ZONE}", "no provider of this host is in it"),
        ("group_policy=isolate", "the groups find no providers of their own: at least two need the same one"),
    ],
)
def test_a_trait_or_an_aggregate_is_told_with_who_has_it(wish: str, why: str) -> None:
    assert lacks(f"resources=VCPU:1&{wish}", wish) == {wish: why}


def test_what_names_another_provider_or_root_is_missing_without_a_question() -> None:
    asked = [f"root_required={SSD}", f"root_required=!{AVX}", "in_tree=uuid-of-another"]

    assert lacks(f"resources=VCPU:1&{'&'.join(asked)}") == {
        asked[0]: "host, the root, does not have it",
        asked[1]: "host, the root, has it",
        asked[2]: "no provider of this host is it",
    }


def test_a_group_with_a_suffix_is_told_what_its_provider_lacks_beside_its_trait() -> None:
    wish = f"required_A={AVX}"

    assert lacks(f"resources_A=VGPU:2&{wish}", wish) == {wish: "host has it, but has no VGPU"}


def test_groups_that_need_one_subtree_are_told_as_such() -> None:
    wish = "same_subtree=_A,_B"
    query = f"resources_A=VCPU:1&resources_B=VGPU:2&group_policy=none&{wish}"

    assert lacks(query, wish) == {wish: "the groups find no providers of which one is above the others"}


def test_a_part_that_placement_refuses_is_told_in_its_words() -> None:
    (wish,) = parse_request("resources=VCPU:1")

    (found,) = missing(lambda _: "no such class", GIVERS, [wish])

    assert found.why == "no such class"


def bound(query: str, givers: Givers = GIVERS) -> list[str]:
    return ["&".join(map(str, one)) for one in bind(parse_request(query), givers)]


def test_one_group_names_the_tree_of_a_request() -> None:
    tree = "in_tree_A=uuid-of-host"

    assert bound("resources_A=VCPU:1") == [f"resources_A=VCPU:1&{tree}"]
    assert bound(f"resources_A=VCPU:1&{tree}") == [f"resources_A=VCPU:1&{tree}"]
    assert bind([Wish("group_policy", "", "none")], GIVERS) == [[Wish("group_policy", "", "none")]]


def test_what_others_share_is_asked_for_in_a_group_of_its_own_with_what_holds_of_all() -> None:
    (found,) = bound(f"resources=VCPU:1,DISK_GB:5&member_of={ZONE}&required=!{AVX}")

    assert found.endswith(f"in_tree=uuid-of-host&resources991=DISK_GB:5&required991=!{AVX}&member_of991={ZONE}")
    assert "resources=DISK_GB" not in found


def test_each_that_can_give_a_shared_class_has_a_request_of_its_own() -> None:
    assert bound("resources=DISK_GB:5") == [
        "resources=DISK_GB:5&in_tree=uuid-of-host",
        "resources=DISK_GB:5&in_tree=uuid-of-pool",
    ]


@pytest.mark.parametrize(
    ("query", "givers", "sure"),
    [
        ("resources=VCPU:1", GIVERS, True),
        (f"resources=VCPU:1&required={SSD}", ALONE, True),
        ("resources=VCPU:1,DISK_GB:5", GIVERS, True),
        (f"resources=VCPU:1,DISK_GB:5&required={SSD}", GIVERS, False),
        ("resources=DISK_GB:5", GIVERS, True),
        ("resources=DISK_GB:5&resources_A=DISK_GB:5&group_policy=none", GIVERS, False),
        (f"resources=DISK_GB:5&root_required={SSD}", GIVERS, True),
    ],
)
def test_that_a_host_is_none_is_sure_where_nothing_shared_may_give_a_trait(
    query: str, givers: Givers, sure: bool
) -> None:
    assert is_sure(parse_request(query), givers) is sure


def test_combinations_are_those_of_the_groups_with_a_suffix() -> None:
    several = parse_request("resources=VCPU:1&resources_A=VGPU:2&resources_B=VGPU:2&group_policy=none")

    assert combinations(several, GIVERS) == 36
    assert combinations(parse_request(f"resources_A=VGPU:2&required_A={AVX}"), GIVERS) == 0
    assert combinations(parse_request(f"resources_A=VGPU:2&required_A=!{AVX}"), GIVERS) == 6
