"""Whether a guest that runs on this host uses what a consumer has here: without it, that is on offer a second time."""

from collections import Counter
from collections.abc import Mapping, Sequence

from agent.allocations.decide.sets import MIGRATION
from reportclient.allocations import Consumer, Holdings, Slots
from reportclient.names import CPUS


def in_use(consumer: Consumer, names: Mapping[str, str], running: Mapping[str, Consumer | None]) -> str:
    """
    Return which guest uses what of the consumer's allocations on this host, as a sentence; empty: none does.

    ``names`` are those of this host's providers, by uuid. ``running`` are the guests that run here, by uuid, with their
    own consumers. A guest without allocations here may have left them to its migration, which has its owner.
    """
    return _twice(_user(consumer, names, running), _parts(_rows(consumer.slots, names)))


def uncovered(guest: str, before: Slots, after: Slots, names: Mapping[str, str], holdings: Holdings) -> str:
    """
    Return what a running guest uses and has allocated on this host before and not after, as a sentence; or empty.

    What the hypervisor does not tell of the guest counts as used. ``names`` is as for ``in_use``.
    """
    state = holdings.known.get(guest)
    if state is None or not state.active:
        return ""
    had, left = _rows(before, names), _rows(after, names)
    told = holdings.told - state.untold
    uses = Counter[tuple[str, str]]()
    for unit in holdings.units:
        uses[unit.provider, unit.resource_class] += unit.amount if unit.consumer == guest else 0
    for one in holdings.floats:
        uses["", one.resource_class] += one.amount if one.consumer == guest else 0  # without a place of its own
    parts: list[str] = []
    for kind in sorted({CPUS if name in CPUS else frozenset({name}) for _, name in had}, key=sorted):
        mine = {slot: amount for slot, amount in had.items() if slot[1] in kind}
        needed = {slot: min(amount, uses[slot]) if kind <= told else amount for slot, amount in mine.items()}
        short = {slot: amount - left.get(slot, 0) for slot, amount in needed.items() if amount > left.get(slot, 0)}
        parts += _parts(short)
        used = sum(amount for (_, name), amount in uses.items() if name in kind)
        lack = min(sum(mine.values()), used) - sum(amount for (_, name), amount in left.items() if name in kind)
        parts += [f"{lack} {' or '.join(sorted(kind))}"] if not short and lack > 0 else []
    return _twice(f"guest {guest}", parts)


def _rows(slots: Slots, names: Mapping[str, str]) -> dict[tuple[str, str], int]:
    """Return what is allocated on this host, by provider's name and class."""
    return {
        (names[uuid], name): amount
        for uuid, several in slots.items()
        for name, amount in several.items()
        if uuid in names
    }


def _parts(rows: Mapping[tuple[str, str], int]) -> list[str]:
    return [f"{amount} {name} on {provider}" for (provider, name), amount in rows.items()]


def _twice(user: str, parts: Sequence[str]) -> str:
    if not user or not parts:
        return ""
    return f"{user} runs on this host: without these allocations, placement offers {', '.join(parts)} a second time"


def _user(consumer: Consumer, names: Mapping[str, str], running: Mapping[str, Consumer | None]) -> str:
    if consumer.uuid in running:
        return f"guest {consumer.uuid}"
    if consumer.kind not in (None, MIGRATION):
        return ""
    for guest, own in running.items():
        if own and (own.project, own.user) == (consumer.project, consumer.user) and names.keys().isdisjoint(own.slots):
            return f"guest {guest}, whose allocations here {consumer.uuid} may keep,"
    return ""
