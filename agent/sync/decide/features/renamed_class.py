"""Refuse a plan that may offer devices under the old and the new name of their class. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from agent.sync.decide.feature import Draft, Feature, Refusal
from agent.sync.outcome import Status
from reportclient.names import NO_DEVICES
from reportclient.ownership import MARKER
from reportclient.tree import Inventory


@dataclass(frozen=True, slots=True, kw_only=True)
class RenamedClass(Feature):
    """A class of unknown origin may be the old name of a new class, so that devices would be on offer under both."""

    def refuse(self, draft: Draft) -> Refusal | None:
        why = _unknown_class(draft)
        return Refusal(status=Status.UNSAFE, notes=why, forgets=True) if why else None


def _unknown_class(draft: Draft) -> tuple[str, ...]:
    """
    Return why a class of unknown origin may be the old name of a new class; empty: there is none.

    A memory of an earlier moment knows no more of it than none. Where CPUs or memory that it knows went, somebody
    replaced the whole inventory: that is written again.
    """
    root, left = draft.observed.root, draft.memory.observed
    if root is None or MARKER not in root.provider.traits or draft.view.beside:
        return ()
    stands = {name for seen in draft.observed for name in seen.provider.inventories}
    new = {name for one in draft.desired for name in one.inventories} - stands
    came = (new | _grown(root.provider.inventories, draft.desired.root.inventories)) - NO_DEVICES
    before = left.root.provider.inventories.keys() if left and left.root else set()
    below = {name for one in draft.desired if one.parent for name in one.inventories}  # they would be there twice
    carried = sorted(root.provider.inventories.keys() - draft.wanted.ours.classes(root) - before - below)
    if not (came and carried) or (before - root.provider.inventories.keys()) & NO_DEVICES:
        return ()
    old, now = ", ".join(carried), ", ".join(sorted(came))
    return (
        f"the saved state of this agent was lost, or is of an earlier moment, and {root.name} has {old}, which may be "
        f"the old name of {now}. Write {old} instead of {now} into the configuration for one pass, so that the agent "
        f"records {old} as its own. Then write {now} again. Or, if you are sure that {old} and {now} stand for the "
        f"same devices, remove {old} from {root.name} by hand",
    )


def _grown(stands: Mapping[str, Inventory], wanted: Mapping[str, Inventory]) -> set[str]:
    """Return the classes of which more is to be on offer than stands so; a class that does not stand is none."""
    before = {name: one.total - one.reserved for name, one in stands.items()}
    return {name for name, one in wanted.items() if one.total - one.reserved > before.get(name, one.total)}
