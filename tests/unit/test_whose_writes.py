"""What the laws say of each write on a provider of each owner: the whole table is in tests/laws/writes.txt."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from agent.sync.decide.laws import Given, breaches
from beds.golden import differences
from reportclient.ownership import MANAGED, MARKER, OWNER_NOVA, SET, Names
from reportclient.plan import Delete, Operation, Plan, Rename, Reparent, SetAggregates, SetInventories, SetTraits
from reportclient.renaming import child_uuid
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

ROOT = str(UUID(int=1))
STOCK = {f"CUSTOM_{one}": Inventory(total=4, reserved=1) for one in ("OF_FILE", "OF_RULE", "OF_DRIVER", "ANYBODYS")}
TRAITS = {f"CUSTOM_{one}" for one in ("FILE", "RULE", "DRIVER", "BELOW", "R_1", "B_1", "ANYBODYS", "SET")}
OURS = {MARKER, f"{SET}CUSTOM_SET", *TRAITS}
LEFT = {**STOCK, "CUSTOM_LEFT": Inventory(total=4, reserved=1)}
VGPU, SEV = ({name: Inventory(total=4, reserved=1)} for name in ("VGPU", "MEM_ENCRYPTION_CONTEXT"))
OWNERS: dict[str, tuple[dict[str, Inventory], set[str]]] = {
    "": (LEFT, {"OWNER_CYBORG", "CUSTOM_DEVICE_UNHEALTHY_LEFT_1_CUSTOM_LEFT", *OURS}),
    "_empty": ({}, set()),
    "_empty_with_a_trait": ({}, {"CUSTOM_ANYBODYS"}),
    "_ours": (STOCK, OURS),
    "_ours_unread": (STOCK, OURS),
    "_ours_beside_nova": (STOCK, OURS),
    "_novas": (STOCK, {OWNER_NOVA, *TRAITS}),
    "_novas_device": (STOCK, {MANAGED}),
    "_novas_vgpu": (VGPU, {"CUSTOM_ANYBODYS"}),
    "_novas_sev": (SEV, {"CUSTOM_ANYBODYS"}),
    "_unknown": (STOCK, set()),
    "_unknown_with_traits": (STOCK, TRAITS),
    "_cyborgs": (STOCK, {"OWNER_CYBORG", *OURS}),
    "_owned_by_a_file": (STOCK, {MARKER, "OWNER_FILE"}),
    "_owned_by_a_rule": (STOCK, {MARKER, "CUSTOM_OWNER_RULE"}),
    "_0000:AA:00.0": (STOCK, set()),  # its uuid shows that we made it
}


def seen(number: int, suffix: str) -> ObservedProvider:
    stock, traits = OWNERS[suffix]
    one = Provider(name=f"host{suffix}", parent="host" if suffix else None, inventories=stock, traits=frozenset(traits))
    uuid = child_uuid(ROOT, "host", "host_0000:aa:00.0") if ":" in suffix else str(UUID(int=number + 1))
    return ObservedProvider(
        uuid=uuid, generation=1, provider=replace(one, aggregates=frozenset({"operator's", "another's", "ours"}))
    )


def given(tree: ObservedTree) -> Given:
    by_file = Names(frozenset({"CUSTOM_OF_FILE"}), frozenset({"CUSTOM_FILE", "OWNER_FILE"}))
    by_rule = Names(frozenset({"CUSTOM_OF_RULE"}), frozenset({"CUSTOM_RULE", "CUSTOM_OWNER_RULE"}))
    below = Names(traits=frozenset({"CUSTOM_BELOW"}), prefixes=("CUSTOM_B_",))
    drivers = Names(frozenset({"CUSTOM_OF_DRIVER"}), frozenset({"CUSTOM_DRIVER", MARKER}), ("CUSTOM_R_",), below)
    return Given(
        observed=tree,
        emitted=drivers,
        files={one.name: by_file for one in tree},
        reported={one.name: by_rule for one in tree},
        foreign=frozenset(one.uuid for one in tree if "beside_nova" in one.name),
        rows={one.uuid: () for one in tree if "unread" not in one.name},
        aggregates=frozenset({"ours"}),
    )


def writes(one: ObservedProvider) -> Iterator[tuple[str, Operation]]:
    """One write of each kind, and several of traits and of stock."""
    uuid, name, has, stock = one.uuid, one.name, one.provider.traits, one.provider.inventories
    shown, hidden = frozenset({"CUSTOM_FILE", "CUSTOM_SHOWN"}), frozenset({"CUSTOM_NOT_SHOWN"})
    yield "another name", Rename(uuid, f"{name}_again", name)
    yield "another parent", Reparent(uuid, name, str(UUID(int=2)), "host_empty", "host")
    yield "other aggregates", SetAggregates(uuid, name, frozenset({"another's", "new"}))
    yield "no traits", SetTraits(uuid, name, frozenset(), frozenset(), has)
    yield "more traits", SetTraits(uuid, name, has | shown | hidden, shown - has, frozenset())
    for changes in ({"reserved": 0}, {"reserved": 2}, {"total": 3, "reserved": 0}, {"total": 5, "reserved": 2}):
        yield f"{changes}", SetInventories(uuid, name, {key: replace(each, **changes) for key, each in stock.items()})
    yield "no stock", SetInventories(uuid, name, {})
    yield "one class more", SetInventories(uuid, name, {**stock, "CUSTOM_MORE": Inventory(total=1)})
    yield "deleted", Delete(uuid, name)


def test_the_laws_say_who_may_write_what(request: pytest.FixtureRequest) -> None:
    whole, found = ObservedTree(tuple(seen(number, suffix) for number, suffix in enumerate(OWNERS))), []
    for one in whole:
        for label, step in writes(one):
            told = [f"  {each.law}: {each.text}" for each in breaches(Plan((step,)), given(whole))]
            found += [f"{one.name}, {label}:{'' if told else ' lawful'}", *told]

    expected = Path(__file__).parents[1] / "laws" / "writes.txt"
    assert not differences("\n".join([*found, ""]), expected, update=request.config.getoption("--update-golden"))
