"""Requests for allocation candidates: read as placement reads them, and written as placement takes them."""

from pathlib import Path

import pytest

from agent.errors import ConfigError
from agent.sync.request_file import read_request
from reportclient.request import SAME_SUBTREE, format_request, parse_request

NOVAS = (
    "GET /placement/allocation_candidates?limit=1000&group_policy=isolate&member_of=in%3Aa1%2Ca2&member_of=%21a3&"
    "required=HW_A%2C%21COMPUTE_STATUS_DISABLED&required=in:T1,T2&resources=VCPU%3A2%2CMEMORY_MB%3A512&"
    "resources_P1=VGPU:1&required_P1=!T3&in_tree_P1=u1&required_P2=T4&same_subtree=_P1,_P2&root_required=R1,!R2&unknown=1"
    ' HTTP/1.1" 200'
)
WISHES = [  # so each group is narrow before the next one is looked at: else all combinations of providers are
    "unknown=1",
    "resources=VCPU:2",
    "resources=MEMORY_MB:512",
    "required=HW_A",
    "required=!COMPUTE_STATUS_DISABLED",
    "required=in:T1,T2",
    "member_of=in:a1,a2",
    "member_of=!a3",
    "resources_P1=VGPU:1",
    "required_P1=!T3",
    "in_tree_P1=u1",
    "same_subtree=_P1,_P2",
    "required_P2=T4",
    "root_required=R1",
    "root_required=!R2",
    "group_policy=isolate",
]
SUFFIXED = "resources_A=VGPU:1&resources_B=VF:1&same_subtree=_A,_B&group_policy=isolate"  # all groups have one


@pytest.mark.parametrize(
    ("query", "wishes"),
    [
        pytest.param(NOVAS, WISHES, id="of a line of a log, group by group"),
        pytest.param(
            "resources_P1=VGPU:1&resources=VCPU:1", ["resources_P1=VGPU:1", "resources=VCPU:1"], id="in order"
        ),
        pytest.param("resources=VCPU:1&required=", ["resources=VCPU:1", "required="], id="without a value"),
        pytest.param("resources=VCPU:1&required=A,A", ["resources=VCPU:1", *["required=A"] * 2], id="a trait twice"),
        pytest.param(SUFFIXED, SUFFIXED.split("&"), id="of groups with suffixes alone"),
    ],
)
def test_the_wishes_of_a_query_are_read(query: str, wishes: list[str]) -> None:
    assert [*map(str, parse_request(query))] == wishes


@pytest.mark.parametrize("query", [NOVAS, SUFFIXED])
def test_what_is_written_is_read_back_as_the_same(query: str) -> None:
    assert {*parse_request(format_request(parse_request(query)))} == {*parse_request(query)}


@pytest.mark.parametrize(
    ("wish", "names"),
    [("resources=VCPU:2", {"VCPU"}), ("required=in:T1,T2", {"T1", "T2"}), ("member_of=!in:a1,a2", {"a1", "a2"})],
)
def test_a_wish_names_its_class_or_all_of_which_one_is_enough(wish: str, names: set[str]) -> None:
    found = {
        str(one): one.names for one in parse_request(wish if "resources" in wish else f"resources=MEMORY_MB:1&{wish}")
    }

    assert found[wish] == names


def test_traits_of_which_all_must_be_there_stand_in_one_value() -> None:
    wishes = [one for one in parse_request(NOVAS) if one.kind in ("resources", "required") and one.group != "_P2"]

    assert sorted(format_request(wishes).split("&")) == [
        "group_policy=none",
        "required=HW_A,!COMPUTE_STATUS_DISABLED",
        "required=in:T1,T2",
        "required_P1=!T3",
        "resources=VCPU:2,MEMORY_MB:512",
        "resources_P1=VGPU:1",
    ]


def test_a_group_without_resources_is_left_out_unless_another_must_stand_by_it() -> None:
    whole = parse_request(
        "resources=VCPU:1&resources_A=VGPU:1&required_A=T1&required_B=T2&same_subtree=_A,_B&group_policy=none"
    )
    related = [one for one in whole if one.group != "_A"]
    alone = [one for one in whole if one.kind != SAME_SUBTREE]

    assert format_request(related) == "same_subtree=_B&group_policy=none&resources=VCPU:1&required_B=T2"
    assert "required_B=T2" not in format_request(alone)
    assert format_request(whole[:1]) == "resources=VCPU:1"
    assert (
        format_request([one for one in whole if one.group not in ("_A", "_B")]) == "group_policy=none&resources=VCPU:1"
    )
    assert format_request(whole[2:]) == ""


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("required=HW_A", "asks for no resources: write"),
        ("", "no query of a request is in it: write"),
        ("resources=VCPU:1&required_A=HW_A", "group _A must ask for resources"),
        ("resources_A=VCPU:1&required=HW_A", "group without a suffix must ask for resources"),
        ("resources=VCPU:1&same_subtree=_A", "group _A must ask for resources"),
        ("resources=VCPU:20,VCPU:20", "resources VCPU is given 2 times, and placement takes one"),
        ("resources=VCPU:1&resources=MEMORY_MB:1", "resources is given 2 times, and placement takes one"),
        ("resources=VCPU:1&in_tree=a&in_tree=b", "in_tree is given 2 times"),
        ("resources=VCPU:1&group_policy=none&group_policy=isolate", "group_policy is given 2 times"),
        ("resources1=VCPU:1&resources2=VCPU:1", "add group_policy=none or =isolate"),
        ("https://user:pw@placement/allocation_candidates", "no query of a request is in it"),
        ('{"resources": 1}', "no query of a request is in it"),
        ("resources=VCPU:1.5", "resources=VCPU:1.5 has no whole number of 1 or more: write"),
        ("resources=VCPU:1;required=X", "has no whole number"),
        ("resources=VCPU", "resources=VCPU has no whole number"),
        ("resources=VCPU:0", "has no whole number"),
        ("resources=VCPU:-1", "has no whole number"),
        (f"resources=VCPU:{'9' * 5000}", "9 ... 9.* has no whole number"),
    ],
)
def test_what_placement_would_not_read_whole_is_refused(query: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_request(query)


def test_a_file_that_is_no_text_is_told_as_one(tmp_path: Path) -> None:
    (tmp_path / "request").write_bytes(b"\xff\xfe")

    with pytest.raises(ConfigError, match="request: it is no text"):
        read_request(tmp_path / "request")


def test_a_query_in_place_of_a_file_is_told_what_belongs_there() -> None:
    with pytest.raises(
        ConfigError, match="VCPU:1 cannot be read: No such file or directory: give a file with the query"
    ):
        read_request(Path("resources=VCPU:1"))
