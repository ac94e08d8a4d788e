"""Room for what has no unit of its own, within the limits of each provider."""

from dataclasses import replace

import pytest

from drivers.parcels import Demand, Parcel, pack
from reportclient.tree import Inventory

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
