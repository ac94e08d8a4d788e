"""
Say what differs between two plans for one host: the plan that a person read, as it was kept, and the plan of now.

Each difference is the smallest that explains it: a field of a class on a provider, a trait, the target of a move.
Operations are compared only where nothing smaller differs.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from agent.sync.json_form import MoveForm, OperationForm, PlanForm, ProviderForm
from reportclient.payload import InventoryForm

_Aspect = Literal["parent", "inventories", "traits", "aggregates"]
_Field = Literal["total", "reserved", "allocation_ratio", "min_unit", "max_unit", "step_size"]
_FIELDS: tuple[_Field, ...] = ("total", "reserved", "allocation_ratio", "min_unit", "max_unit", "step_size")
_ASPECTS: Mapping[str, tuple[_Aspect, ...]] = {
    "set-traits": ("traits",),
    "set-aggregates": ("aggregates",),
    "set-inventories": ("inventories",),
}
_WHOLE: tuple[_Aspect, ...] = ("parent", "inventories", "traits", "aggregates")  # of all other operations
NOT_KEPT = "further differences are not known: an older release saved that plan without its providers"


def plan_changes(read: PlanForm, now: PlanForm) -> tuple[str, ...]:
    """
    Return a sentence for each difference, differences of providers first; empty where the kept plans show none.

    Raises:
        KeyError, TypeError, AttributeError: ``read`` is not a kept plan.
    """
    if "after" not in read:
        return (*_of_moves(read, now), NOT_KEPT)
    touched = _touched(read) | _touched(now)
    wanted = _of_trees(read["after"], now["after"], touched)
    stood = [] if wanted else [f"in placement {one}" for one in _of_trees(read["before"], now["before"], touched)]
    found = [*wanted, *stood, *_of_moves(read, now)]
    return tuple(found or _of_allocations(read, now) or _of_steps(read, now))


def stock_changes(was: Mapping[str, ProviderForm], now: Mapping[str, ProviderForm]) -> tuple[str, ...]:
    """Return a sentence for each provider and each class that two trees do not have alike, and for each parent."""
    aspects: tuple[_Aspect, ...] = ("parent", "inventories")
    return tuple(_of_trees(was, now, ((name, aspect) for name in was.keys() | now.keys() for aspect in aspects)))


def _steps(plan: PlanForm) -> Iterator[OperationForm]:
    """Iterate over the operations of a plan, and over those inside a reshape."""
    for step in plan["operations"]:
        yield step
        if step["operation"] == "reshape":
            yield from step["inventories"]


def _touched(plan: PlanForm) -> frozenset[tuple[str, _Aspect]]:
    """Return each (provider, aspect) that a plan writes; a digest covers nothing else."""
    return frozenset(
        (step["provider"], aspect)
        for step in _steps(plan)
        if "provider" in step
        for aspect in _ASPECTS.get(step["operation"], _WHOLE)
    )


def _of_trees(
    was: Mapping[str, ProviderForm], now: Mapping[str, ProviderForm], touched: Iterable[tuple[str, _Aspect]]
) -> list[str]:
    """Return how two trees differ in the ``touched`` aspects."""
    found: dict[str, None] = {}  # in order, once each
    for name, aspect in sorted(touched):
        if name not in was or name not in now:
            one_sided = [f"provider {name} is {'new' if name in now else 'gone'}"] if name in was or name in now else []
            found |= dict.fromkeys(one_sided)
        elif aspect == "inventories":
            found |= dict.fromkeys(_of_stock(name, was[name][aspect], now[name][aspect]))
        elif aspect == "parent":
            if was[name][aspect] != now[name][aspect]:
                found[f"parent of {name} {was[name][aspect]} -> {now[name][aspect]}"] = None
        else:
            found |= dict.fromkeys(_of_names(aspect.removesuffix("s"), name, was[name][aspect], now[name][aspect]))
    return list(found)


def _of_stock(provider: str, was: Mapping[str, InventoryForm], now: Mapping[str, InventoryForm]) -> Iterator[str]:
    for name in sorted(was.keys() | now.keys()):
        if name not in now:
            yield f"{name} on {provider} is gone"
        elif name not in was:
            yield f"{name} on {provider} is new, total {now[name]['total']}"
        else:
            yield from _of_inventory(f"{name} on {provider}", was[name], now[name])


def _of_inventory(what: str, was: InventoryForm, now: InventoryForm) -> Iterator[str]:
    follows = was["max_unit"] == was["total"] and now["max_unit"] == now["total"]
    for key in _FIELDS:
        if was[key] != now[key] and not (key == "max_unit" and follows):
            yield f"{key} of {what} {was[key]} -> {now[key]}"


def _of_names(noun: str, provider: str, was: Iterable[str], now: Iterable[str]) -> Iterator[str]:
    before, after = set(was), set(now)
    yield from (f"{noun} {name} on {provider} is new" for name in sorted(after - before))
    yield from (f"{noun} {name} on {provider} is gone" for name in sorted(before - after))


def _of_moves(read: PlanForm, now: PlanForm) -> list[str]:
    """Return moves with another target, and moves that only one plan has."""
    was, goes = ([_unexplained(one) for one in plan["moves"]] for plan in (read, now))
    gone, new = [one for one in was if one not in goes], [one for one in goes if one not in was]
    found = []
    for move in list(gone):
        same = [other for other in new if _route(other) == _route(move)]
        if len(same) == 1 and sum(_route(other) == _route(move) for other in gone) == 1:
            gone.remove(move)
            new.remove(same[0])
            target, instead = same[0]["to_resource_provider"], move["to_resource_provider"]
            found.append(f"{_what(move)} go to {target} instead of {instead}")
    found += [f"the move of {_what(move)} to {move['to_resource_provider']} is gone" for move in gone]
    return found + [f"the move of {_what(move)} to {move['to_resource_provider']} is new" for move in new]


def _unexplained(move: MoveForm) -> MoveForm:
    """Drop the reason of a move, which a digest does not cover."""
    return {**move, "because": ""}


def _route(move: MoveForm) -> tuple[object, ...]:
    """Return a move without its target."""
    # A kept plan may be damaged: .get says None where the key is missing.
    return (
        move.get("consumer"),
        move.get("from_resource_provider"),
        move.get("moved_resources"),
        move.get("to_resources"),
    )


def _what(move: MoveForm) -> str:
    resources = ", ".join(f"{amount} {name}" for name, amount in move["moved_resources"].items())
    return f"{resources} of {move['consumer']}"


def _of_allocations(read: PlanForm, now: PlanForm) -> list[str]:
    """Return amounts that differ after the plans, of consumers that move, on this host's providers or on others."""
    names = {one["uuid"]: name for providers in (read["after"], now["after"]) for name, one in providers.items()}
    before, after = _rows(read), _rows(now)
    return [
        f"{kind} of {consumer} on {names.get(uuid, uuid)} {before.get(row, 0)} -> {after.get(row, 0)}"
        for row in sorted(before.keys() | after.keys())
        if before.get(row) != after.get(row)
        for consumer, uuid, kind in [row]
    ]


def _rows(plan: PlanForm) -> dict[tuple[str, str, str], int]:
    return {
        (consumer, uuid, kind): amount
        for step in plan["operations"]
        if step["operation"] == "reshape"
        for consumer, slots in step["allocations"].items()
        for uuid, resources in slots.items()
        for kind, amount in resources.items()
    }


def _of_steps(read: PlanForm, now: PlanForm) -> list[str]:
    was, does = read["operations"], now["operations"]
    gone, new = [one for one in was if one not in does], [one for one in does if one not in was]
    return [f"the operation {_step(one)} is gone" for one in gone] + [
        f"the operation {_step(one)} is new" for one in new
    ]


def _step(step: OperationForm) -> str:
    return f"{step['operation']} {step.get('provider', '')}".strip()
