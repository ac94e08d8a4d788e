"""Whether a plan brings back what was before a conversion."""

from dataclasses import replace
from typing import Any

import pytest

from agent.sync.decide.undoing import DONE, Conversion, not_as_before
from agent.sync.json_form import Form, encode_observed_tree
from reportclient.allocations import Allocation
from reportclient.ownership import MARKER
from reportclient.plan import Create, Plan, SetAggregates, SetInventories, SetTraits
from reportclient.reserve import HOLD, RESERVED
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider


def tree(**stock: int) -> ObservedTree:
    """A root with these totals of VCPU by provider; the root is called host."""
    found = [
        ObservedProvider(
            uuid=name,
            generation=1,
            provider=Provider(
                name=name,
                parent=None if name == "host" else "host",
                inventories={"VCPU": Inventory(total=total, max_unit=total)} if total else {},
            ),
        )
        for name, total in stock.items()
    ]
    return ObservedTree(tuple(found))


def row(consumer: str, provider: str) -> Allocation:
    return Allocation(consumer, provider, "VCPU", 1)


def moved(consumer: str, source: str, target: str) -> Form:
    return {
        "consumer": consumer,
        "from_resource_provider": source,
        "to_resource_provider": target,
        "moved_resources": {"VCPU": 1},
        "because": "",
    }


def conversion(before: Form, after: Form, *moves: Form) -> Conversion:
    return Conversion(
        path="entry.json",
        node="host",
        began="",
        outcome=DONE,
        digest="",
        layout="devices",
        target="numa",
        before=before,
        after=after,
        moves=moves,
    )


BEFORE = encode_observed_tree(tree(host=8), [row("one", "host"), row("two", "host"), row("ended", "host")])
AFTER = encode_observed_tree(tree(host=0, cell=8), [row("one", "cell"), row("two", "cell")])
UNDONE = conversion(BEFORE, AFTER, moved("one", "host", "cell"), moved("two", "host", "cell"))


def told(now: ObservedTree, held: list[Allocation], after: list[Allocation]) -> str:
    return " ".join(not_as_before(UNDONE, Plan(()), now, held, after))


HELD = [row("one", "cell"), row("two", "cell")]
BACK = [row("one", "host"), row("two", "host")]


@pytest.mark.parametrize(
    ("held", "after"),
    [
        pytest.param(HELD, BACK, id="all as before"),
        pytest.param([*HELD, row("new", "cell")], [*BACK, row("new", "host")], id="one came since"),
        pytest.param(HELD[:1], BACK[:1], id="one is gone"),
        pytest.param([row("one", "other"), HELD[1]], [row("one", "other"), BACK[1]], id="one moved since"),
    ],
)
def test_what_was_before_comes_back(held: list[Allocation], after: list[Allocation]) -> None:
    assert told(tree(host=8), held, after) == ""


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (tree(host=9), "total of VCPU on host 8 -> 9"),
        (tree(host=8, card=1), "provider card is new"),
        (tree(host=0), "VCPU on host is gone"),
        (ObservedTree(), "provider host is gone"),
    ],
)
def test_a_tree_that_would_be_another_one_is_told(now: ObservedTree, words: str) -> None:
    assert words in told(now, HELD, BACK)
    assert "more differences" not in told(now, HELD, BACK)
    assert "reshape --to devices" in told(now, HELD, BACK)


def test_a_guest_that_would_not_get_back_what_it_had_is_told() -> None:
    assert "consumer two would not get back what it had" in told(tree(host=8), HELD, [BACK[0], HELD[1]])


@pytest.mark.parametrize(("count", "more"), [(4, ": compute-node-agent"), (6, ", and 2 more differences:")])
def test_many_differences_are_counted(count: int, more: str) -> None:
    cards: dict[str, Any] = {f"card{number}": 1 for number in range(count)}

    assert f"provider card3 is new{more}" in told(tree(host=8, **cards), HELD, BACK)


def test_what_came_from_one_place_goes_back_there_first() -> None:
    several = conversion(BEFORE, AFTER, moved("one", "a", "cell"), moved("one", "b", "cell"), moved("two", "c", "cell"))

    assert several.former == {("two", "cell", "VCPU"): "c"}


def test_what_others_had_set_on_a_provider_that_is_made_again_is_told() -> None:
    card = replace(tree(host=8, card=1).providers[1], uuid="card")
    traits = frozenset({"CUSTOM_BY_HAND", "HW_KEPT", MARKER, RESERVED})
    named = replace(card.provider, traits=traits, aggregates=frozenset({"rack", "zone"}))
    root = tree(host=8).providers[0]
    before = encode_observed_tree(ObservedTree((root, replace(card, provider=named))), [])
    made = Plan(
        (
            Create("card", "card", "host"),
            SetTraits("card", "card", frozenset({"HW_KEPT"}), frozenset({"HW_KEPT"}), frozenset()),
            SetAggregates("card", "card", frozenset({"zone"})),
            SetInventories("card", "card", dict(named.inventories)),
            Create("other", "other", "host"),
        )
    )

    (why,) = not_as_before(conversion(before, before), made, ObservedTree((root,)), [], [])

    assert (
        "conversion entry: provider other is new; trait CUSTOM_BY_HAND, which this agent does not set, on card is "
        "gone; aggregate rack, which this agent does not set, on card is gone: "
    ) in why


def test_what_others_changed_on_a_provider_that_stood_all_the_time_is_theirs() -> None:
    root = tree(host=8).providers[0]
    named = replace(root, provider=replace(root.provider, traits=frozenset({"CUSTOM_BY_HAND"})))
    before = encode_observed_tree(ObservedTree((named,)), [])

    assert not_as_before(conversion(before, before), Plan(()), ObservedTree((root,)), [], []) == ()


@pytest.mark.parametrize(
    ("traits", "words"),
    [(frozenset[str](), "reserved of VCPU on host 0 -> 2"), (frozenset({f"{HOLD}HOST"}), "")],
    ids=["an operator", "a person who holds it"],
)
def test_what_is_reserved_since_is_a_difference_but_for_what_a_person_holds(traits: frozenset[str], words: str) -> None:
    root = tree(host=8).providers[0]
    stock = {"VCPU": Inventory(total=8, max_unit=8, reserved=2)}
    now = ObservedTree((root.changed(inventories=stock, traits=traits),))

    assert words in told(now, BACK, BACK)
    assert bool(told(now, BACK, BACK)) is bool(words)
