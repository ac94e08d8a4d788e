"""The tree that stands once a plan was carried out."""

import pytest

from reportclient.forecast import forecast
from reportclient.plan import Delete, Operation, Plan, Rename, Reparent, SetAggregates, SetTraits
from reportclient.tree import ObservedProvider, ObservedTree, Provider

PROVIDERS = (
    Provider(name="host"),
    Provider(name="host_cell", parent="host"),
    Provider(name="host_card", parent="host_cell"),
)
TREE = ObservedTree(tuple(ObservedProvider(uuid=one.name, generation=1, provider=one) for one in PROVIDERS))


def after(*operations: Operation) -> dict[str, Provider]:
    return {seen.uuid: seen.provider for seen in forecast(Plan(operations), TREE)}


def test_a_provider_that_is_renamed_stays_the_parent_of_its_children() -> None:
    stands = after(Rename("host_cell", "new_cell", "host_cell"))

    assert (stands["host_cell"].name, stands["host_card"].parent) == ("new_cell", "new_cell")
    assert stands["host"] == PROVIDERS[0]


def test_a_provider_that_gets_another_parent_stands_below_it() -> None:
    assert after(Reparent("host_card", "host_card", "host", "host", "host_cell"))["host_card"].parent == "host"


def test_parents_come_before_children_in_whatever_order_they_were_written() -> None:
    """A card comes under a cell that stands behind it in the listing."""
    listed = ObservedTree((TREE.providers[0], TREE.providers[2], TREE.providers[1]))

    assert [seen.name for seen in forecast(Plan(), listed)] == ["host", "host_cell", "host_card"]


def test_traits_and_aggregates_are_replaced_whole() -> None:
    stands = after(
        SetTraits("host", "host", frozenset("a"), frozenset("a"), frozenset()),
        SetAggregates("host", "host", frozenset("x")),
        SetAggregates("host", "host", frozenset("y")),
    )

    assert (stands["host"].traits, stands["host"].aggregates) == (frozenset("a"), frozenset("y"))


def test_what_is_deleted_cannot_be_changed_after_that() -> None:
    with pytest.raises(KeyError, match="host_card"):
        after(Delete("host_card", "host_card"), Rename("host_card", "new", "host_card"))
