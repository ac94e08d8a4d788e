"""Keep what stands of odd devices, reserved: nothing shows whether it is still there. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.sync.decide.feature import Draft, Feature, Refusal
from agent.sync.decide.shaped import Shaped, missing_of, sides_of, with_stock
from agent.sync.decide.view import Shaper, View
from agent.sync.outcome import Condition, Status
from reportclient.names import BANDWIDTH


@dataclass(frozen=True, slots=True, kw_only=True)
class OddDevices(Feature):
    """Devices of which something cannot be read or understood, and what hangs on them, stay as they stand, reserved."""

    odd: Mapping[str, str] = field(default_factory=dict)  # a sentence on each odd device, by its name

    def shape(self, view: View, shaper: Shaper, shaped: Shaped) -> tuple["OddDevices", Shaped]:
        odd = shaped.holdings.backing.odd
        feature = OddDevices(odd=odd.sentences)
        if view.wishes.force:
            return feature, shaped
        lost = odd.most.keys() | {view.node}
        sides = sides_of(shaped)
        sides = replace(sides, lost=lambda name: name in lost, undecided=odd.slots, shown={}, once=True)
        gave = frozenset[str]().union(*(sides.kinds.get(name, ()) for name in odd.most))
        most = {**odd.most, view.node: sum(odd.most.values())}
        desired = {one.name: one.inventories for one in shaped.tree}
        stock = {}
        for slot, total in missing_of(sides):
            name, resource_class = slot
            now = desired.get(name, {}).get(resource_class)
            if slot in odd.slots and (name != view.node or not sides.kinds or resource_class in gave):
                there = now.total if now else 0
                stock[slot] = total if resource_class in BANDWIDTH else min(total, there + most[name])
        return feature, with_stock(shaped, stock)

    def refuse(self, draft: Draft) -> Refusal | None:
        """Refuse to divide a total on the root: what odd devices are of it has no place below the root."""
        if (
            draft.view.wishes.force
            or draft.view.beside
            or not self.odd
            or draft.layout == "flat"
            or draft.stands_in != "flat"
        ):
            return None
        why = (
            f"devices are undecided, and a conversion from flat to {draft.layout} would forget them: repair or reset "
            f"them first ({'; '.join(self.odd.values())}), or take them away by --force"
        )
        return Refusal(status=Status.UNSAFE, notes=(why,))

    def conditions(self, draft: Draft) -> tuple[Condition, ...]:
        stands = draft.observed.by_name
        return tuple(
            Condition(kind="odd", text=text, provider=name if name in stands else "") for name, text in self.odd.items()
        )
