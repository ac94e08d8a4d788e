"""Pure: which operations of a plan may be carried out side by side."""

from collections.abc import Collection, Iterable, Mapping

from reportclient.plan import Create, Delete, Operation, SetAggregates, SetTraits

Lane = tuple[Operation, ...]  # operations on one provider, one after the other
Wave = tuple[Lane, ...]  # lanes that do not depend on each other


def waves(operations: Iterable[Operation], parents: Mapping[str, str | None]) -> tuple[Wave, ...]:
    """
    Return the operations of a plan, in its order, as waves: a wave begins when all lanes of the one before are done.

    Side by side are only operations on providers that hold nothing: new siblings, their traits and aggregates, and
    emptied providers that go. The order of these is seen by nobody, so any subset of them is a state that the next pass
    goes on from. All other operations are a wave each.

    ``parents`` has the parent's uuid of each provider that stands, None for a root.
    """
    steps = tuple(operations)
    new = frozenset(step.uuid for step in steps if isinstance(step, Create))
    found: list[dict[str, list[Operation]]] = []
    kind: str | None = None
    for step in steps:
        before, kind = kind, _kind(step, new)
        lane = step.uuid if isinstance(step, Create | SetTraits | SetAggregates | Delete) else ""
        if kind is None or kind != before or _waits(step, lane, found[-1].keys(), parents):
            found.append({})
        found[-1].setdefault(lane, []).append(step)
    return tuple(tuple(map(tuple, wave.values())) for wave in found)


def _kind(step: Operation, new: frozenset[str]) -> str | None:
    """Return what an operation has in common with those beside which it may stand; None: it stands alone."""
    match step:
        case Create():
            return "create"
        case SetTraits(uuid=uuid) | SetAggregates(uuid=uuid):
            return "describe" if uuid in new else None
        case Delete():
            return "delete"
        case _:
            return None


def _waits(step: Operation, lane: str, wave: Collection[str], parents: Mapping[str, str | None]) -> bool:
    """Return whether an operation needs one of this wave to be done: a parent is made first, and goes last."""
    if isinstance(step, Create):
        return step.parent_uuid in wave
    return any(parents.get(child) == lane for child in wave)
