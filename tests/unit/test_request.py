"""Requests for allocation candidates: read as placement reads them, and written as placement takes them."""

import pytest

from reportclient.request import Criterion, Wish, format_request, groups_of, parse_request

NOVAS = (
    "GET /placement/allocation_candidates?limit=1000&group_policy=isolate&member_of=in%3Aa1%2Ca2&member_of=%21a3&"
    "required=HW_A%2C%21COMPUTE_STATUS_DISABLED&required=in:T1,T2&resources=VCPU%3A2%2CMEMORY_MB%3A512&"
    "resources_P1=VGPU:1&required_P1=!T3&in_tree_P1=u1&required_P2=T4&same_subtree=_P1,_P2&root_required=R1,!R2"
    ' HTTP/1.1" 200'
)
WISHES = {
    Wish(Criterion.RESOURCES, "", ("VCPU",), 2),
    Wish(Criterion.RESOURCES, "", ("MEMORY_MB",), 512),
    Wish(Criterion.RESOURCES, "_P1", ("VGPU",), 1),
    Wish(Criterion.SAME_SUBTREE, "", ("_P1", "_P2")),
    Wish(Criterion.REQUIRED, "", ("HW_A",)),
    Wish(Criterion.REQUIRED, "", ("T1", "T2")),
    Wish(Criterion.REQUIRED, "_P2", ("T4",)),
    Wish(Criterion.FORBIDDEN, "", ("COMPUTE_STATUS_DISABLED",)),
    Wish(Criterion.FORBIDDEN, "_P1", ("T3",)),
    Wish(Criterion.MEMBER_OF, "", ("a1", "a2")),
    Wish(Criterion.NOT_MEMBER_OF, "", ("a3",)),
    Wish(Criterion.IN_TREE, "_P1", ("u1",)),
    Wish(Criterion.ROOT_REQUIRED, "", ("R1",)),
    Wish(Criterion.ROOT_FORBIDDEN, "", ("R2",)),
    Wish(Criterion.ISOLATE, "", ()),
}


def test_a_line_of_a_log_is_read_resources_first() -> None:
    found = parse_request(NOVAS)

    assert {*found} == WISHES
    assert [one.kind for one in found[:4]] == [*[Criterion.RESOURCES] * 3, Criterion.SAME_SUBTREE]
    assert groups_of(found) == {"", "_P1", "_P2"}


def test_what_is_written_is_read_back_as_the_same() -> None:
    assert {*parse_request(format_request(WISHES))} == WISHES


def test_traits_of_which_all_must_be_there_stand_in_one_value() -> None:
    query = format_request(
        [one for one in WISHES if one.kind in (Criterion.RESOURCES, Criterion.REQUIRED, Criterion.FORBIDDEN)]
    )

    assert sorted(query.split("&")) == [
        "group_policy=none",
        "required=HW_A,!COMPUTE_STATUS_DISABLED"
        if "required=HW_A" in query
        else "required=!COMPUTE_STATUS_DISABLED,HW_A",
        "required=in:T1,T2",
        "required_P1=!T3",
        "required_P2=T4",
        "resources=MEMORY_MB:512,VCPU:2" if "=MEMORY" in query else "resources=VCPU:2,MEMORY_MB:512",
        "resources_P1=VGPU:1",
    ]


def test_each_group_is_bound_to_a_tree_unless_it_names_one() -> None:
    wishes = parse_request("resources=VCPU:1&resources_A=VGPU:1&in_tree_A=other")

    assert format_request(wishes, "root").split("&")[:2] == ["in_tree_A=other", "in_tree=root"]


def test_placements_greatest_amount_can_be_asked_for() -> None:
    assert parse_request("resources=VCPU:2147483647")[0].amount == 2**31 - 1


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("resorces=VCPU:1", "resorces is no parameter"),
        ("resources=VCPU", "resources must be CLASS:AMOUNT,..., and has VCPU"),
        ("resources=VCPU:0", "and has VCPU:0"),
        ("resources=VCPU:one", "and has VCPU:one"),
        ("required=HW_A", "asks for no resources: write"),
        ("", "no query of a request is in it: write"),
        ("resources=VCPU:1&required_A=HW_A", "group _A asks for no resources, and no same_subtree names it"),
        ("resources_A=VCPU:1&required=HW_A", "group without a suffix asks for no resources"),
        ("resources=VCPU:1&same_subtree=_A", "same_subtree names _A, which is no group"),
        ("resources=VCPU:1&group_policy=some", "group_policy must be none or isolate, and is some"),
        ("resources=VCPU:1&required=", "required= has an empty name"),
        ("resources=VCPU:20,VCPU:20", "resources has VCPU 2 times, of which placement takes the last"),
        ("resources=VCPU:1&resources=MEMORY_MB:1", "resources is given 2 times"),
        ("resources=VCPU:1&in_tree=a&in_tree=b", "in_tree is given 2 times"),
        ("resources=VCPU:1&root_required=A&root_required=B", "root_required is given 2 times"),
        ("resources=VCPU:1&group_policy=none&group_policy=isolate", "group_policy is given 2 times"),
        ("resources1=VCPU:1&resources2=VCPU:1", "add group_policy=none or =isolate"),
        ("resources=VCPU:1&root_required=in:A", "root_required takes no in:"),
        ("resources=VCPU:1&required=in:!A", "required has ! within in:"),
        ("resources=VCPU:1&member_of=in:!a", "member_of has ! within in:"),
        ("resources=VCPU:1&limit=abc", "limit must be a whole number from 1 on, and is abc"),
        ("resources=VCPU:1&limit=0", "and is 0"),
        ("resources=VCPU:2147483648", "placement's greatest amount is 2147483647"),
        ("https://user:pw@placement/allocation_candidates", "no query of a request is in it"),
        ('{"resources": 1}', "no query of a request is in it"),
    ],
)
def test_what_placement_refuses_is_refused_in_plain_words(query: str, why: str) -> None:
    with pytest.raises(ValueError, match=why.replace("(", r"\(")):
        parse_request(query)
