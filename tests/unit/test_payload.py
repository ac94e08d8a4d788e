"""Placement's JSON: what each operation sends, and what of an answer is understood."""

import json
from dataclasses import replace
from typing import Any

import pytest

from reportclient.allocations import AllocationRequest
from reportclient.payload import (
    decode_allocations,
    decode_candidates,
    decode_inventories,
    decode_listing,
    decode_names,
    decode_request,
    decode_usages,
    encode_inventories,
    encode_rewrite,
    encode_rewrites,
    requests_of,
)
from reportclient.plan import (
    Create,
    Delete,
    EnsureClasses,
    EnsureTraits,
    Operation,
    Rename,
    Reparent,
    Reshape,
    Rewrite,
    SetAggregates,
    SetInventories,
    SetTraits,
)
from reportclient.tree import Summary

NOTHING: frozenset[str] = frozenset()
OFFERED = {"allocations": {"r": {"resources": {"VCPU": 1}}}, "mappings": {"": ["r"]}}
CLAIM = Rewrite(
    consumer="guest",
    generation=None,
    project="p",
    user="u",
    kind="INSTANCE",
    before={},
    after={"r": {"VCPU": 1}},
)
OFFER = AllocationRequest(json.dumps(OFFERED))


def rewrite(consumer: str) -> Rewrite:
    return Rewrite(
        consumer=consumer,
        generation=3,
        project="p",
        user="u",
        kind="INSTANCE",
        before={},
        after={"r": {"VCPU": 2}},
    )


@pytest.mark.parametrize(
    ("operation", "requests"),
    [
        (EnsureClasses(("CUSTOM_A", "CUSTOM_B")), ["PUT /resource_classes/CUSTOM_A", "PUT /resource_classes/CUSTOM_B"]),
        (EnsureTraits(("CUSTOM_T",)), ["PUT /traits/CUSTOM_T"]),
        (Create("c", "host_c", "r"), ["POST /resource_providers"]),
        (Rename("c", "new_c", "host_c"), ["PUT /resource_providers/c"]),
        (Reparent("c", "host_c", "r", "host", "cell"), ["PUT /resource_providers/c"]),
        (SetTraits("c", "host_c", NOTHING, NOTHING, NOTHING), ["PUT /resource_providers/c/traits"]),
        (SetAggregates("c", "host_c", NOTHING), ["PUT /resource_providers/c/aggregates"]),
        (SetInventories("c", "host_c", {}), ["PUT /resource_providers/c/inventories"]),
        (Reshape(()), ["POST /reshaper"]),
        (Delete("c", "host_c"), ["DELETE /resource_providers/c"]),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else "",
)
def test_an_operation_tells_the_requests_that_it_is(operation: Operation, requests: list[str]) -> None:
    assert [" ".join(request) for request in requests_of(operation)] == requests


@pytest.mark.parametrize(
    ("microversion", "kind"), [((1, 37), {}), ((1, 38), {"consumer_type": "INSTANCE"})], ids=["1.37", "1.38"]
)
def test_a_claim_sends_what_was_offered_and_whose_it_is(microversion: tuple[int, int], kind: dict[str, str]) -> None:
    """Its mappings are placement's own, and go back to it unread."""
    whose = {"project_id": "p", "user_id": "u", "consumer_generation": None}

    assert encode_rewrite(CLAIM, microversion, OFFER) == OFFERED | whose | kind


@pytest.mark.parametrize(
    ("microversion", "kind"), [((1, 28), {}), ((1, 38), {"consumer_type": "INSTANCE"})], ids=["1.28", "1.38"]
)
def test_several_consumers_are_written_by_their_uuid(microversion: tuple[int, int], kind: dict[str, str]) -> None:
    body = {
        "allocations": {"r": {"resources": {"VCPU": 2}}},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": 3,
        **kind,
    }

    assert encode_rewrites((rewrite("one"), rewrite("two")), microversion) == {"one": body, "two": body}


def test_an_allocation_request_asks_for_amounts_of_classes() -> None:
    assert decode_request(OFFER) == {"r": {"VCPU": 1}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("{}", "one element of allocation_requests", id="no allocations"),
        pytest.param("[]", "one element of allocation_requests", id="a list"),
        pytest.param('{"allocations": []}', "one element of allocation_requests", id="a list of them"),
        pytest.param("[" * 10**5, "one element of allocation_requests", id="too deep"),
        pytest.param('{"allocations": {"r": {"VCPU": 1}}}', "one element of allocation_requests", id="no resources"),
        pytest.param('{"allocations": {}}', "asks for nothing", id="of no provider"),
        pytest.param('{"allocations": {"r": {"resources": {}}}}', "asks for nothing", id="of no class"),
        pytest.param(
            '{"allocations": {"r": {"resources": {}}, "s": {"resources": {"VCPU": 1}}}}',
            "asks for nothing",
            id="of one",
        ),
        pytest.param(
            '{"allocations": {"r": {"resources": {"VCPU": 0, "VGPU": 1}}, "s": {"resources": {"VGPU": 1}}}}',
            "less than 1 of a class",
            id="an amount of 0",
        ),
        pytest.param('{"allocations": {"r": {"resources": {"VCPU": 1.5}}}}', "1.5 is no whole number", id="a part"),
        pytest.param('{"allocations": {"r": {"resources": {"VCPU": true}}}}', "True is no whole number", id="a yes"),
        pytest.param("{", "Expecting property name", id="no JSON"),
    ],
)
def test_what_is_no_allocation_request_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode_request(AllocationRequest(text))


@pytest.mark.parametrize(
    ("usages", "decoded"),
    [
        pytest.param({}, {}, id="nothing is used"),
        pytest.param({"VCPU": 2}, {"": {"VCPU": 2}}, id="before 1.38, without types"),
        pytest.param(
            {"INSTANCE": {"VCPU": 2, "consumer_count": 1}, "unknown": {"consumer_count": 1}},
            {"INSTANCE": {"VCPU": 2}, "unknown": {}},
            id="by type, without the count of consumers",
        ),
    ],
)
def test_usages_are_told_by_consumer_type(usages: dict[str, Any], decoded: dict[str, dict[str, int]]) -> None:
    assert decode_usages({"usages": usages}) == decoded


@pytest.mark.parametrize("amount", ["8", 1.5, None, True, [1]])
def test_an_amount_that_is_no_whole_number_is_no_amount(amount: object) -> None:
    """It would be counted, or end a decision later."""
    with pytest.raises(ValueError, match="is no whole number"):
        decode_inventories({"inventories": {"VCPU": {"total": amount}}})
    with pytest.raises(ValueError, match="is no whole number"):
        decode_allocations({"allocations": {"guest": {"resources": {"VCPU": amount}}}}, "host")
    if amount != 1.5:
        with pytest.raises(ValueError, match="is no number"):
            decode_inventories({"inventories": {"VCPU": {"total": 8, "allocation_ratio": amount}}})


@pytest.mark.parametrize("ratio", [2, 1.5])
def test_an_inventory_is_read_with_the_defaults_of_placement_and_sent_with_all_keys(ratio: float) -> None:
    read = decode_inventories({"inventories": {"VCPU": {"total": 8.0, "allocation_ratio": ratio}}})

    assert encode_inventories(read, 7) == {
        "resource_provider_generation": 7,
        "inventories": {
            "VCPU": {
                "total": 8,
                "reserved": 0,
                "min_unit": 1,
                "max_unit": 0x7FFFFFFF,
                "step_size": 1,
                "allocation_ratio": ratio,
            }
        },
    }


@pytest.mark.parametrize("again", [{"uuid": "1", "name": "b"}, {"uuid": "2", "name": "a"}], ids=["uuid", "name"])
def test_a_provider_that_is_listed_twice_is_no_answer(again: dict[str, str]) -> None:
    rest = {"parent_provider_uuid": None, "generation": 1}
    with pytest.raises(ValueError, match="twice"):
        decode_listing({"resource_providers": [{"uuid": "1", "name": "a", **rest}, {**again, **rest}]})


def test_a_claim_for_a_consumer_without_a_type_sends_none() -> None:
    assert "consumer_type" not in encode_rewrite(replace(CLAIM, kind=None), (1, 38), OFFER)


def test_a_parent_that_is_no_uuid_is_none_that_is_listed() -> None:
    row = {"uuid": "1", "name": "a", "generation": 1, "parent_provider_uuid": []}

    [(_, _, parent, _)] = decode_listing({"resource_providers": [row]})

    assert isinstance(parent, str)


def test_names_that_are_no_list_are_no_answer() -> None:
    with pytest.raises(TypeError, match="traits is no list"):
        decode_names({"traits": "HW_A"}, "traits")


def test_candidates_have_the_trees_that_they_take_from_and_what_is_free_there() -> None:
    def summary(root: str, capacity: int, used: int, *traits: str) -> dict[str, Any]:
        resources = {"DISK_GB": {"capacity": capacity, "used": used}}
        return {"root_provider_uuid": root, "resources": resources, "traits": list(traits)}

    summaries = {
        "host": summary("host", 8, 3),
        "cell": summary("host", 4, 4, "HW_NUMA_ROOT"),
        "pool": summary("pool", 9, 1),
    }
    requests: list[dict[str, Any]] = [{"allocations": {"cell": {}, "pool": {}}}, {"allocations": {"host": {}}}]

    candidates, trees = decode_candidates({"provider_summaries": summaries, "allocation_requests": requests})

    assert candidates == [{"host", "pool"}, {"host"}]
    assert trees == {
        "host": {
            "host": Summary({"DISK_GB": 5}, NOTHING),
            "cell": Summary({"DISK_GB": 0}, frozenset({"HW_NUMA_ROOT"})),
        },
        "pool": {"pool": Summary({"DISK_GB": 8}, NOTHING)},
    }
