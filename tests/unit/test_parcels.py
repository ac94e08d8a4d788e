"""Parcels: what becomes of pieces of one class when the units of their guest are known, and room for the others."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from drivers.parcels import Demand, Parcel, conversions, deal, pack, relabel
from reportclient.tree import Inventory


def parcel(provider: str, amount: int) -> Parcel:
    return Parcel(consumer="a", provider=provider, resource_class="VGPU", amount=amount, to_class="VGPU")


@pytest.mark.parametrize(
    ("units", "dealt", "left"),
    [
        pytest.param({"one": 3}, {"one": 3}, [], id="all of it stays"),
        pytest.param({"one": 2, "two": 1}, {"one": 2, "two": 1}, [], id="a part of it stays"),
        pytest.param({"one": 2, "two": 5}, {"one": 2, "two": 1}, [], id="no more than there is goes elsewhere"),
        pytest.param({"two": 2}, {"two": 2}, [1], id="none of it stays, and not all has a unit"),
        pytest.param({"one": 1, "two": 1}, {"one": 1, "two": 1}, [1], id="a part stays, and not all has a unit"),
        pytest.param({}, {}, [3], id="no unit at all"),
    ],
)
def test_a_parcel_is_dealt_to_the_units_of_its_guest_and_the_rest_is_told(
    units: dict[str, int], dealt: dict[str, int], left: list[int]
) -> None:
    found, rest = deal([parcel("one", 3)], units, lambda provider: f"unit on {provider}")

    assert {one.to_provider: one.amount for one in found} == dealt
    assert all(one.because == f"unit on {one.to_provider}" for one in found)
    assert [one.amount for one in rest] == left


def test_what_is_left_goes_to_the_unit_that_is_near_first() -> None:
    found, _ = deal([parcel("one", 3)], {"two": 2, "three": 2}, str, lambda _: "two")

    assert {one.to_provider: one.amount for one in found} == {"two": 2, "three": 1}


def cpus(**amounts: int) -> list[Parcel]:
    """VCPU of one consumer, by provider."""
    return [replace(parcel(place, amount), resource_class="VCPU", to_class="VCPU") for place, amount in amounts.items()]


def by_place(parcels: Iterable[Parcel]) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for one in parcels:
        assert one.amount > 0
        found[one.provider, one.to_class] = found.get((one.provider, one.to_class), 0) + one.amount
    return found


@pytest.mark.parametrize(
    ("amount", "units", "pinned"),
    [
        pytest.param(2, {"one": 1, "two": 1}, {"one": 1, "two": 1}, id="as the units are"),
        pytest.param(2, {"two": 2}, {"two": 2}, id="where all units are"),
        pytest.param(3, {"two": 1}, {"two": 2, "one": 1}, id="then what is near, whatever place it is"),
        pytest.param(3, {}, {"two": 2, "one": 1}, id="near first where no unit is known"),
        pytest.param(1, {"one": 2, "two": 2}, {"one": 1}, id="no more than is asked for"),
        pytest.param(4, {"one": 9}, {"one": 2, "two": 2}, id="no more than there is"),
        pytest.param(0, {"one": 2}, {}, id="nothing"),
    ],
)
def test_the_units_of_a_guest_decide_which_parcels_get_another_class(
    amount: int, units: dict[str, int], pinned: dict[str, int]
) -> None:
    found = relabel(cpus(one=2, two=2), "VCPU", "PCPU", amount, units, lambda each: each.provider == "one")

    wanted = {(place, "PCPU"): each for place, each in pinned.items()}
    rest = {(place, "VCPU"): 2 - pinned.get(place, 0) for place in ("one", "two")}
    assert by_place(found) == wanted | {slot: each for slot, each in rest.items() if each}


def test_units_that_are_allocated_as_the_other_class_already_take_no_more() -> None:
    already = [replace(one, to_class="PCPU") for one in cpus(one=1)]

    found = relabel([*cpus(one=2, two=2), *already], "VCPU", "PCPU", 1, {"one": 1, "two": 1}, lambda _: 0)

    assert by_place(found) == {("one", "VCPU"): 2, ("one", "PCPU"): 1, ("two", "VCPU"): 1, ("two", "PCPU"): 1}


@pytest.mark.parametrize(
    ("surplus", "missing", "found"),
    [
        pytest.param({"A": 2}, {"B": 2}, [("A", "B", 2)], id="one into another"),
        pytest.param({"A": 3}, {"B": 1, "C": 2}, [("A", "B", 1), ("A", "C", 2)], id="one into several"),
        pytest.param({"A": 1, "B": 2}, {"C": 3}, [("A", "C", 1), ("B", "C", 2)], id="several into one"),
        pytest.param({"A": 2}, {"B": 1}, [], id="the sums differ"),
        pytest.param({"A": 1, "B": 1}, {"C": 1, "D": 1}, [], id="several into several: nothing tells which"),
        pytest.param({"A": 1}, {"X": 1}, [], id="a class that it may not become"),
        pytest.param({"A": 2, "Z": 1}, {"C": 1, "D": 1}, [], id="one into several, of which another may become one"),
        pytest.param({"A": 1, "Z": 2}, {"C": 9, "D": 3}, [], id="several into one, of which one may become another"),
    ],
)
def test_a_class_becomes_another_only_where_the_sums_allow_one_answer(
    surplus: dict[str, int], missing: dict[str, int], found: list[tuple[str, str, int]]
) -> None:
    assert conversions(surplus, missing, lambda name, other: other != "X" and name + other != "ZC") == found


STEPS, LEAST, MOST = ({name: 3} for name in ("step_size", "min_unit", "max_unit"))


def demand(name: str, amount: int, *places: str) -> Demand:
    """Three of it come from ``h``, the rest from ``g``."""
    whole = Parcel(consumer="a", provider="h", resource_class=name, amount=min(amount, 3), to_class=name)
    parcels = (whole, replace(whole, provider="g", amount=amount - 3)) if amount > 3 else (whole,)
    return Demand(parcels, places, "")


@pytest.mark.parametrize(
    ("load", "limits", "held", "found"),
    [
        pytest.param([demand("A", 2, "x", "y")] * 2, MOST, 0, ["h>x A 2", "h>y A 2"], id="at most three in all"),
        pytest.param([demand("A", 2, "x", "y")], MOST, 1, ["h>x A 2"], id="at most three with what it has"),
        pytest.param([demand("A", 1, "x", "y")], LEAST, 2, ["h>x A 1"], id="at least three with what it has"),
        pytest.param([demand("A", 1, "x", "y")], LEAST, 1, ["h>y A 1"], id="too few for the first"),
        pytest.param([demand("A", 2, "x", "y")], STEPS, 1, ["h>x A 2"], id="three with what it has"),
        pytest.param([demand("A", 4, "x", "y")], STEPS, 1, ["g>y A 1", "h>y A 3"], id="whole where no step hinders"),
        pytest.param([demand("A", 9, "x", "y")], STEPS, 1, ["g>x A 2", "g>y A 4", "h>x A 3"], id="in whole steps"),
        pytest.param([demand("B", 1, "y", "x"), demand("A", 1, "x")], {}, 0, ["h>x A 1", "h>x B 1"], id="together"),
    ],
)
def test_a_consumer_gets_no_more_and_no_less_than_a_provider_gives(
    load: list[Demand], limits: dict[str, int], held: int, found: list[str]
) -> None:
    """Of ``x`` it has some already, and all limits are those of ``x``; both are in one cell."""
    stock = dict.fromkeys((("y", "A"), ("x", "B"), ("y", "B")), Inventory(total=9))
    stock["x", "A"] = Inventory(total=9, **limits)
    parents = {"h": None, "c": "h", "x": "c", "y": "c"}

    parcels, homeless = pack([load], dict.fromkeys(stock, 7), stock, parents, {("a", "x", "A"): held})

    assert sorted(f"{one.provider}>{one.to_provider} {one.resource_class} {one.amount}" for one in parcels) == found
    assert homeless == []
