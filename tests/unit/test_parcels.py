"""Parcels: what becomes of pieces of one class when the units of their guest are known."""

import pytest

from drivers.parcels import Parcel, deal


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
