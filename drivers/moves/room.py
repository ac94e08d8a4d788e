"""The final check of certain parcels: whether each arrival fits, and the room that is left for the others."""

from collections.abc import Iterable

from drivers.moves.question import Question
from drivers.packing import limit
from drivers.parcels import Parcel, Slot
from reportclient.allocations import usages


def room_after(question: Question, decided: Iterable[Parcel], problems: list[str]) -> dict[Slot, int]:
    """Return what each slot has left after all certain parcels arrived; note what does not fit."""
    used: dict[Slot, int] = {}
    arriving: dict[tuple[str, str, str], int] = {}
    moved: set[tuple[str, str, str]] = set()
    for parcel in decided:
        slot = parcel.to_provider, parcel.to_class
        used[slot] = used.get(slot, 0) + parcel.amount
        key = parcel.consumer, *slot
        arriving[key] = arriving.get(key, 0) + parcel.amount
        if slot != (parcel.provider, parcel.resource_class):
            moved.add(key)
    before = usages(question.observed.allocations)
    for (consumer, provider, name), amount in sorted(arriving.items()):
        stock = question.stock.get((provider, name))
        if stock is None or (consumer, provider, name) not in moved:
            continue
        if used[provider, name] > max(stock.capacity, before.get((provider, name), 0)):
            advice = question.kept.get((provider, name))
            problems.append(
                f"consumer {consumer} has {amount} {name} that belong on {provider}. With this, {used[provider, name]} "
                f"{name} would be used on {provider}, but the capacity is {stock.capacity} ((total {stock.total} - "
                f"reserved {stock.reserved}) * ratio {stock.allocation_ratio:g})"
                + (f". {advice}" if advice else f": make room on {provider}, or lower the reserved amount")
            )
        elif not limit(stock).takes(amount):
            problems.append(
                f"consumer {consumer} has {amount} {name} that belong on {provider}, which gives {stock.min_unit} "
                f"to {stock.max_unit} in steps of {stock.step_size}: resize or move that guest first"
            )
    return {slot: stock.capacity - used.get(slot, 0) for slot, stock in question.stock.items()}
