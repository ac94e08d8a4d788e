"""How operations become requests, where the order matters."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from reportclient.errors import Absent, Conflict, Forbidden, Rejected
from reportclient.plan import Delete, EnsureClasses, Reshape, SetInventories
from reportclient.transport import Transport
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider
from reportclient.writer import Writer


class NoReshaper:
    """A placement whose role does not allow the reshaper; remembers the providers that were written."""

    request_id = ""

    def __init__(self) -> None:
        self.written: list[str] = []

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None, **_: object) -> dict[str, int]:
        if path == "/reshaper":
            raise Forbidden("no")
        self.written.append(path.split("/")[2])
        return {"resource_provider_generation": 2}


def test_without_the_reshaper_stock_is_taken_away_before_it_is_given_elsewhere() -> None:
    stock = {"VGPU": Inventory(total=8)}
    root = ObservedProvider(uuid="r", generation=1, provider=Provider(name="host"))
    card = ObservedProvider(uuid="c", generation=1, provider=Provider(name="card", parent="host", inventories=stock))
    placement = NoReshaper()
    writer = Writer(cast(Transport, placement), ObservedTree((root, card)))

    writer.write(Reshape((SetInventories("r", "host", stock), SetInventories("c", "card", {}))))

    assert placement.written == ["c", "r"]


def test_without_the_reshaper_a_provider_that_loses_and_gains_is_written_twice() -> None:
    """Written once, whichever goes first, one of the two classes would be on offer on both for a moment."""
    one, other = {"A": Inventory(total=8)}, {"B": Inventory(total=8)}
    root = ObservedProvider(uuid="r", generation=1, provider=Provider(name="host", inventories=one))
    card = ObservedProvider(uuid="c", generation=1, provider=Provider(name="card", parent="host", inventories=other))
    placement = NoReshaper()
    writer = Writer(cast(Transport, placement), ObservedTree((root, card)))

    writer.write(Reshape((SetInventories("r", "host", other), SetInventories("c", "card", one))))

    assert placement.written == ["r", "c", "r", "c"]


class Gone:
    """A placement that deleted a provider already, when it was asked for the first time and its answer was lost."""

    request_id = ""

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None, **_: object) -> None:
        raise Absent("404")


def test_a_provider_that_is_gone_when_it_is_to_be_deleted_is_deleted() -> None:
    card = ObservedProvider(uuid="c", generation=1, provider=Provider(name="card"))
    writer = Writer(cast(Transport, Gone()), ObservedTree((card,), "Sun, 22 Nov 2026 08:00:00 GMT"))

    writer.write(Delete("c", "card"))

    assert writer.outcome == ObservedTree()  # and no date: that of the next listing may be earlier, which says nothing


class LosesAClass:
    """A placement that answers that it has a class, and has not: another one was made at the same moment."""

    request_id = ""

    def __init__(self) -> None:
        self.classes: set[str] = set()
        self.loses = True

    def get(self, path: str) -> tuple[dict[str, Any], str]:
        if path.rpartition("/")[2] not in self.classes:
            raise Absent("404")
        return {}, ""

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None, **_: object) -> dict[str, int]:
        if path.startswith("/resource_classes/") and not self.loses:
            self.classes.add(path.rpartition("/")[2])
        if path.endswith("/inventories") and "CUSTOM_GOLD" not in self.classes:
            raise Rejected("No such resource class CUSTOM_GOLD")
        self.loses = self.loses and path.startswith("/resource_classes/") and method != "PUT"
        return {"resource_provider_generation": 2}


def carry_out(placement: LosesAClass, made: str = "CUSTOM_GOLD") -> None:
    root = ObservedProvider(uuid="r", generation=1, provider=Provider(name="host"))
    writer = Writer(cast(Transport, placement), ObservedTree((root,)))
    writer.write(EnsureClasses((made,)))
    writer.write(SetInventories("r", "host", {"CUSTOM_GOLD": Inventory(total=1)}))


def test_a_class_that_placement_lost_is_made_again() -> None:
    placement = LosesAClass()

    with pytest.raises(Conflict, match="placement lost CUSTOM_GOLD"):
        carry_out(placement)

    assert placement.classes == {"CUSTOM_GOLD"}
    carry_out(placement)


def test_what_placement_refuses_for_another_reason_is_refused() -> None:
    placement = LosesAClass()
    placement.loses = False

    with pytest.raises(Rejected, match="No such resource class"):
        carry_out(placement, "CUSTOM_IRON")
