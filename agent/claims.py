"""Whether a request fits the cells, pages and devices that a host really has, said before placement is asked."""

from collections.abc import Iterable, Mapping

from reportclient.allocations import Allocation, Holding, Slots, usages
from reportclient.tree import Inventory, ProviderTree


def misfits(
    request: Slots,
    names: Mapping[str, str],
    tree: ProviderTree,
    allocations: Iterable[Allocation],
    units: Iterable[Holding],
) -> tuple[str, ...]:
    """
    Why a request does not fit: one sentence each, none when it does as far as this host can tell.

    ``names`` gives the names of this host's providers by uuid; what a request asks of others is theirs to judge.
    ``tree`` is what the host has now, ``allocations`` what placement says is taken of it, and ``units`` what guests
    really have: of the two what takes more counts.
    """
    booked = usages(allocations)
    held: dict[tuple[str, str], int] = {}
    for unit in units:
        slot = unit.provider, unit.resource_class
        held[slot] = held.get(slot, 0) + unit.amount
    stocks = {(one.name, name): stock for one in tree for name, stock in one.inventories.items()}
    reasons = []
    for uuid, resources in request.items():
        provider = names.get(uuid)
        if provider is None:
            continue
        for name, amount in resources.items():
            slot = provider, name
            if slot not in stocks:
                reasons.append(f"{provider} has no {name} on this host now")
            else:
                reasons += _misfits(slot, amount, stocks[slot], booked.get(slot, 0), held.get(slot, 0))
    return tuple(reasons)


def _misfits(slot: tuple[str, str], amount: int, stock: Inventory, booked: int, held: int) -> list[str]:
    provider, name = slot
    wanted = f"{provider} gives {name}"
    found = []
    if amount < stock.min_unit or amount > stock.max_unit:
        found.append(f"{wanted} from {stock.min_unit} to {stock.max_unit} at a time, and {amount} are asked for")
    if amount % stock.step_size:
        found.append(f"{wanted} in steps of {stock.step_size}, and {amount} are asked for")
    free = stock.capacity - max(booked, held)
    if amount > free:
        taken = f"guests really have {held}" if held > booked else f"{booked} are allocated"
        found.append(f"{provider} can give {stock.capacity} {name}, of which {taken}: {amount} are asked for")
    return found
