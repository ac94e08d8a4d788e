"""What is said, reserved and written for random changes of small trees is as it was: see tests/changes."""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from random import Random

import pytest

from beds.golden import differences
from reportclient.allocations import Consumer, Move
from reportclient.diff import adopted, diff
from reportclient.errors import PlacementError
from reportclient.hold import is_used_up
from reportclient.names import BANDWIDTH, HUGE, ONE_TIME
from reportclient.ownership import MARKER, OWNER_NOVA, Names, Ownership
from reportclient.plan import Operation, Reshape, SetInventories
from reportclient.renaming import child_uuid
from reportclient.reserve import (
    HELD,
    KEEP,
    LEFT,
    UNHEALTHY,
    given_back,
    reserved_again,
    reserved_by_operator,
    used_up,
    with_least,
    with_left,
    with_marks_of,
    with_reservations,
    without_classes,
)
from reportclient.settings import lost_settings, set_back, with_limits
from reportclient.tree import MAX_INT, Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

CHANGES = Path(__file__).parents[1] / "changes"
ROOT_UUID = "9a1f6a0c-4d3c-4b7e-8b9a-2f6b7a1c0d42"
CLASSES = ("VF", "GPU", "CUSTOM_X", "VCPU", "MEMORY_MB", *sorted(BANDWIDTH))
MARKS = (UNHEALTHY, HELD, f"{KEEP}1_VF", f"{KEEP}3_VF", f"{KEEP}2_GPU", f"{LEFT}2_VF", f"{LEFT}4_GPU")
TRAITS = (
    *MARKS,
    *(MARKER,) * 3,
    *(ONE_TIME,) * 2,
    HUGE,
    OWNER_NOVA,
    "CUSTOM_OWNER_ANOTHER",
    "CUSTOM_T",
    "HW_T",
    "HW_U",
)


def some_stock(chance: Random) -> Inventory:
    total = chance.choice((1, 4, 8))
    return Inventory(
        total=total,
        reserved=chance.choice((0, 0, 1, total)),
        max_unit=chance.choice((1, total, total, MAX_INT)),
        allocation_ratio=chance.choice((1.0, 1.0, 1.0, 0.5, 2.0, 0.999999)),
    )


def some_tree(chance: Random, *more: str) -> ProviderTree:
    """A root with up to three providers, each below any other."""
    found: list[Provider] = []
    classes = chance.choice((CLASSES, CLASSES[:3]))
    for name in ("host", *chance.sample(("host_a", "host_b", "host_c", *more), chance.randrange(4))):
        stock = {one: some_stock(chance) for one in sorted(chance.sample(classes, chance.choice((0, 1, 1, 2, 3))))}
        traits = frozenset(chance.sample(TRAITS, chance.choice((0, 1, 2, 4))))
        parent = chance.choice(found).name if found else None
        groups = frozenset(chance.sample(("own", "theirs"), chance.choice((0, 0, 1))))
        found.append(Provider(name=name, parent=parent, inventories=stock, traits=traits, aggregates=groups))
    return ProviderTree(tuple(found))


def changed(chance: Random, tree: ProviderTree) -> ProviderTree:
    """This tree without a provider; or another one, where half of what stood on this one goes, or stays."""
    if chance.random() < 0.2:
        return ProviderTree(tree.providers[:-1] or tree.providers)
    after = {one.name: one for one in some_tree(chance, "host_d")}
    for name, stock in [pair for one in tree for pair in one.inventories.items() if chance.random() < 0.5]:
        one = after[chance.choice([*after])]
        grown = replace(stock, total=stock.total * chance.choice((1, 1, 2)))
        after[one.name] = replace(one, inventories={**one.inventories, name: grown})
    return ProviderTree(tuple(after.values()))


def as_observed(chance: Random, tree: ProviderTree) -> ObservedTree:
    def uuid(one: Provider) -> str:
        if one.parent is None:
            return ROOT_UUID
        called = chance.choice((one.name, one.name, "host_d" if one.name == "host_a" else one.name))
        return chance.choice((child_uuid(ROOT_UUID, "host", called), f"uuid-of-{one.name}"))

    return ObservedTree(
        tuple(ObservedProvider(uuid=uuid(one), generation=chance.choice((1, 2, 3)), provider=one) for one in tree)
    )


def some(chance: Random, *names: str) -> tuple[str, ...]:
    return tuple(chance.sample(names, chance.randrange(len(names) + 1)))


def said(chance: Random) -> Iterator[str]:
    """The sentences on what a change loses of an operator's, and the limits that stay."""
    before = some_tree(chance)
    after = changed(chance, before)
    seen = as_observed(chance, before) if chance.random() < 0.95 else ObservedTree()
    names = tuple(one.name for one in before)
    apart = {name: some(chance, "CUSTOM_X", "GPU") for name in some(chance, *names)}
    free, elsewhere, away = some(chance, "VCPU", "MEMORY_MB"), some(chance, *names)[:1], some(chance, "VF", "GPU")[:1]
    yield from lost_settings(seen, after, free, elsewhere=elsewhere, away=away, apart=apart)
    yield from set_back(seen, after)
    for one, limited in zip(after, with_limits(after, seen), strict=True):
        yield from told("limits", one, limited)


def told(what: str, before: Provider, after: Provider) -> Iterator[str]:
    """What differs of two providers."""
    traits = [f"+{one}" for one in sorted(after.traits - before.traits)]
    traits += [f"-{one}" for one in sorted(before.traits - after.traits)]
    stock = [
        f"{name} {one.total} of which {one.reserved} reserved, each {one.max_unit}, times {one.allocation_ratio:g}"
        for name, one in sorted(after.inventories.items())
        if one != before.inventories.get(name)
    ]
    gone = [f"no {name}" for name in sorted(before.inventories.keys() - after.inventories.keys())]
    if traits or stock or gone:
        yield f"{what} {before.name}: {', '.join((*traits, *stock, *gone))}"


def reserved(chance: Random) -> Iterator[str]:
    """What each function that reserves or gives back changes of a provider."""
    tree, other = some_tree(chance), some_tree(chance)
    seen, left = as_observed(chance, tree), as_observed(chance, other)
    besides = {one.name: some(chance, "CUSTOM_X", "GPU") for one in tree}
    least = {(one.name, name): chance.randrange(9) for one in tree for name in one.inventories if chance.random() < 0.5}
    trees = {
        "reservations": with_reservations(seen, besides),
        "marks": with_marks_of(seen, chance.choice((left, left, left, None))),
    }
    for what, found in trees.items():
        for stood, after in zip(seen, found, strict=True):
            yield from told(what, stood.provider, after.provider)
    for one, reserving in zip(tree, with_least(tree, least, besides), strict=True):
        yield from told("least", one, reserving)
    for at, one in zip(seen, tree, strict=True):
        apart = besides[one.name]
        said_by = sorted(reserved_by_operator(one).items())
        yield f"{one.name} by an operator: {said_by}, used up: {is_used_up(at, apart)}"
        yield from told("left", one, with_left(one, apart))
        yield from told("without", one, without_classes(one, apart))
        yield from told("given back", one, replace(one, inventories=given_back(at, apart)))
        yield from told("used up", one, used_up(one))
        yield from told("again", one, reserved_again(one, other.root))


def written(chance: Random) -> Iterator[str]:
    """The operations of a plan, or why there is none."""
    before = some_tree(chance)
    after = changed(chance, before)
    seen = as_observed(chance, before) if chance.random() < 0.95 else ObservedTree()
    ours = Ownership(
        emitted=Names(frozenset({"VF", "VCPU"}), frozenset({MARKER, "HW_T"}), (KEEP, LEFT, UNHEALTHY)),
        configured={"host_a": Names(frozenset({"CUSTOM_X"}), frozenset({"CUSTOM_T"}))} if chance.random() < 0.5 else {},
        adopted=adopted(seen, [one.name for one in after]),
        aggregates=frozenset({"own"}),
    )
    slots = [(one.uuid, one.name, name) for one in seen for name in one.provider.inventories]
    moves = [
        Move(consumer=f"g{n}", from_provider=name, to_provider=to, moved_resources={kind: 1 + n // 2}, because="")
        for n, (_, name, kind) in enumerate(slots)
        if chance.random() < 0.3 and (to := chance.choice(("abroad", *(one.name for one in after)))) != name
    ]
    consumers = [
        Consumer(uuid=f"g{n}", generation=1, project="p", user="u", kind=None, slots={uuid: {kind: 2}})
        for n, (uuid, _, kind) in enumerate(slots)
        if chance.random() < 0.95
    ]
    known = chance.choice((None, frozenset({MARKER, "HW_T", "CUSTOM_T"})))
    theirs = [one.provider for one in seen if "CUSTOM_OWNER_ANOTHER" in one.provider.traits and one.provider.parent]
    others = {one.name: chance.choice((one, some_tree(chance).root)) for one in theirs}
    name = "host" if moves else chance.choice(("host", "new"))
    renamed = (
        replace(one, name=one.name.replace("host", name), parent=one.parent and one.parent.replace("host", name))
        for one in after
    )
    try:
        plan = diff(
            seen,
            ProviderTree(tuple(renamed)),
            ours,
            root_uuid=ROOT_UUID,
            known_traits=known,
            rename=chance.random() < 0.9,
            formerly=chance.choice((None, "old", "host")),
            moves=tuple(moves),
            consumers=consumers,
            others=others if chance.random() < 0.5 else {},
            outside={"abroad": "uuid-abroad"},
        )
    except PlacementError as error:
        yield f"{type(error).__name__}: {error}"
        return
    yield from map(in_words, plan.operations)


def in_words(step: Operation) -> str:
    if isinstance(step, Reshape):
        rewrites = [f"{one.consumer} has {one.after}" for one in step.rewrites]
        return "; ".join(["Reshape", *map(in_words, step.inventories), *rewrites])
    if isinstance(step, SetInventories):
        stock = [f"{one.total} {name}, {one.reserved} reserved" for name, one in sorted(step.inventories.items())]
        return f"SetInventories {step.name}: {'; '.join(stock)}"
    values = (getattr(step, each.name) for each in fields(step))
    return " ".join([type(step).__name__, *(str(sorted(one) if isinstance(one, frozenset) else one) for one in values)])


@pytest.mark.parametrize(("what", "count"), [(said, 700), (reserved, 150), (written, 400)])
def test_random_changes_are_as_before(
    what: Callable[[Random], Iterator[str]], count: int, request: pytest.FixtureRequest
) -> None:
    lines = [f"{number} {line}\n" for number in range(count) for line in what(Random(number))]

    expected = CHANGES / f"{what.__name__}.txt"
    assert not differences("".join(lines), expected, update=request.config.getoption("--update-golden"))
