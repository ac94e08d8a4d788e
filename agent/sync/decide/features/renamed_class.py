"""Refuse a plan that may offer devices under the old and the new name of their class. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agent.state.memory import NodeState
from agent.sync.decide.feature import Draft, Feature, PassEnd, Refusal
from agent.sync.outcome import Status
from reportclient.hold import device_classes
from reportclient.names import NO_DEVICES
from reportclient.ownership import MARKER
from reportclient.tree import Provider

_BODY = "foreign"  # the classes of the root that are known to be another's


@dataclass(frozen=True, slots=True, kw_only=True)
class RenamedClass(Feature):
    """A class of unknown origin may be the old name of a new class, so that devices would be on offer under both."""

    def refuse(self, draft: Draft) -> Refusal | None:
        why = () if draft.view.wishes.agreed else _unknown_class(draft)
        return Refusal(status=Status.UNSAFE, notes=why, forgets=True) if why else None

    def remember(self, end: PassEnd) -> Mapping[str, Any]:
        if end.refused and end.refused.forgets:  # what it saw is in doubt
            return {}
        return {_BODY: {"classes": sorted(_foreign(end.draft) & _explained(end))}}


def _unknown_class(draft: Draft) -> tuple[str, ...]:
    """
    Return why a class of unknown origin may be the old name of a class that comes; empty: there is none.

    A memory of an earlier moment knows no more of it than none. Where CPUs or memory that it knows went, somebody
    replaced the whole inventory: that is written again.
    """
    root = draft.observed.root
    if root is None or MARKER not in root.provider.traits or draft.view.beside:
        return ()
    below = {name for one in draft.desired if one.parent for name in one.inventories}  # they would be there twice
    unknown, more = sorted(_foreign(draft) - _known(draft.memory) - below), sorted(_more(draft))
    gone = _before(draft.memory) - root.provider.inventories.keys()
    is_replaced = NO_DEVICES & gone & draft.desired.root.inventories.keys()
    if is_replaced or not (unknown and more):
        return ()
    old, new = ", ".join(unknown), ", ".join(more)
    return (
        f"{root.name} has {old}, which this agent does not know: its saved state was lost or is of an earlier moment, "
        f"or somebody has just added {old}. The plan puts more {new} on offer, and {old} may be these devices under an "
        f"earlier class. If it is, put the rules back that gave {old} for one pass, so that the agent records {old} as "
        f"its own, and then change them again; or remove {old} from {root.name} by hand. If {old} stands for something "
        f"else, agree by reshape --apply --digest D with the digest that reshape shows",
    )


def _foreign(draft: Draft) -> frozenset[str]:
    """Return the classes of the root that are not ours."""
    root = draft.observed.root
    return frozenset(root.provider.inventories) - draft.wanted.ours.classes(root) if root else frozenset()


def _explained(end: PassEnd) -> frozenset[str]:
    """
    Return the classes that are another's: known before, come since the last pass, or a person agreed to the plan.

    Without a memory nothing is, however many passes see it, but on a root that was never ours.
    """
    memory, root = end.draft.memory, end.draft.observed.root
    if (end.done and end.draft.view.wishes.agreed) or (root and MARKER not in root.provider.traits):
        return _foreign(end.draft)
    return _known(memory) | (_foreign(end.draft) - _before(memory) if memory.observed else frozenset())


def _known(memory: NodeState) -> frozenset[str]:
    body = memory.bodies.get(_BODY)
    return frozenset(body["classes"]) if body else _before(memory)


def _before(memory: NodeState) -> frozenset[str]:
    """Return the classes that the last pass left on the root; none where it was cut off."""
    left = memory.observed
    return frozenset(left.root.provider.inventories) if left and left.root else frozenset()


def _more(draft: Draft) -> frozenset[str]:
    """
    Return the classes of devices that come, and where the root has devices also those of which more is to be on offer.

    Wherever they stand: a conversion moves them between the root and its children.
    """
    ours = draft.wanted.ours
    stands = _on_offer(seen.provider for seen in draft.observed if seen.provider.parent is None or ours.writes(seen))
    wanted = _on_offer(draft.desired)
    more = {name for name, count in wanted.items() if count > stands.get(name, 0)}
    files = frozenset[str]().union(*(each.classes for each in draft.wanted.added.values()))
    return device_classes(more if draft.stands_in == "flat" else more - stands.keys(), files)


def _on_offer(providers: Iterable[Provider]) -> Counter[str]:
    """Return the units on offer, by class; 0 of a class that stands and is reserved."""
    count = Counter[str]()
    for one in providers:
        for name, stock in one.inventories.items():
            count[name] += stock.total - stock.reserved
    return count
