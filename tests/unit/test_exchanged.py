"""Two cards of a flat host that exchange their classes: no total changes, and what their guests hold does."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.sync.outcome import Status
from beds.one_host import GUEST, RESHAPE, OneHost
from drivers.facts import HostFacts
from drivers.policy import DevicePolicy, Policy
from drivers.rules import parse_rule
from hardware import at, card, guest_with, host

ONE, OTHER = "0000:01:00.0", "0000:81:00.0"
STRANGER = "00000000-0000-0000-0000-0000000000aa"
Start = Callable[..., OneHost]


def classes(one: str, other: str) -> DevicePolicy:
    """The VFs of each card by a rule of its own."""
    rules = [
        parse_rule({"address": f"{address[:-4]}10.*", "resource_class": name}, number)
        for number, (address, name) in enumerate(((ONE, one), (OTHER, other)), 1)
    ]
    return DevicePolicy(report=True, rules=tuple(rules))


def held(*vfs: str, others: int = 2) -> HostFacts:
    """Two cards, and a guest that has these VFs."""
    facts = host(*card(ONE), *card(OTHER, others))
    guest = guest_with(GUEST, pci=frozenset(map(at, vfs)))
    return replace(facts, guests=(guest,) if vfs else ())


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a flat host whose guest has one VF of the first card, and exchanges the classes of the two cards."""

    def begin(facts: HostFacts, rows: dict[str, int], consumer: str = GUEST) -> OneHost:
        one = OneHost(tmp_path, facts, Policy(layout="flat", devices=classes("CUSTOM_A", "CUSTOM_B")))
        assert one.sync().status is Status.CHANGED
        one.claim({"": rows}, consumer)
        one.policy = replace(one.policy, devices=classes("CUSTOM_B", "CUSTOM_A"))
        return one

    return begin


@pytest.mark.parametrize("others", [2, 4])
def test_what_a_guest_holds_of_an_exchanged_class_is_converted(start: Start, others: int) -> None:
    one = start(held("0000:01:10.0", others=others), {"CUSTOM_A": 1, "VCPU": 1})

    assert one.sync().status is Status.RESHAPE_NEEDED
    assert one.sync().status is Status.RESHAPE_NEEDED
    assert one.sync(RESHAPE).status is Status.CHANGED

    assert one.held() == {"host": {"CUSTOM_B": 1, "VCPU": 1}}
    assert one.sync().status is Status.UNCHANGED


def test_a_guest_of_both_cards_holds_what_it_held(start: Start) -> None:
    one = start(held("0000:01:10.0", "0000:81:10.0"), {"CUSTOM_A": 1, "CUSTOM_B": 1})

    assert one.sync().status is Status.UNCHANGED
    assert one.sync().status is Status.UNCHANGED


@pytest.mark.parametrize(
    ("facts", "rows", "consumer"),
    [
        pytest.param(held(), {"CUSTOM_A": 1}, STRANGER, id="a consumer that is no guest here"),
        pytest.param(held("0000:01:10.0"), {"CUSTOM_A": 2}, GUEST, id="another amount than the guest has"),
    ],
)
def test_where_nobody_can_tell_what_is_held_the_exchange_is_refused(
    start: Start, facts: HostFacts, rows: dict[str, int], consumer: str
) -> None:
    one = start(facts, rows, consumer)

    for _ in range(2):
        done = one.sync(RESHAPE)
        assert done.status is Status.UNSAFE
        assert any("Devices that were CUSTOM_A are CUSTOM_B now" in note for note in done.notes)
    assert one.held(consumer) == {"host": rows}

    one.claim({}, consumer)
    assert one.sync(facts=held()).status is Status.UNCHANGED


def test_an_exchange_on_a_host_whose_guests_hold_none_is_no_change(start: Start) -> None:
    one = start(held(), {"VCPU": 1})

    assert one.sync().status is Status.UNCHANGED
