"""
Wait for devices that a unit of the host sets up again after a boot: VFs, types of vGPUs, MIG instances. Pure.

Until they are back, or the wait is over, their inventory stays in placement with its provider, reserved.
"""

from dataclasses import dataclass, replace

from agent.state.memory import NodeState
from agent.sync.decide.feature import Draft, Feature, Refusal
from agent.sync.decide.shaped import Shaped, Sides, missing_of, sides_of, unexplained, with_stock
from agent.sync.decide.view import Shaper, View
from agent.sync.outcome import Condition, Status
from reportclient.json_text import decode_as, encode
from reportclient.names import BANDWIDTH, NO_DEVICES
from reportclient.ownership import Names
from reportclient.tree import ProviderTree

AWAITED = "awaited"  # kind of its conditions
_BODY = "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Inventory that a boot of the host took away, and that is expected back."""

    boot: str = ""  # the kernel's boot id at the last pass; empty: not known
    since_s: float = 0.0  # seconds from that boot to the first pass after it
    seen: bool = False  # whether this agent saw the boot, and so knows what stood before it
    stock: tuple[tuple[str, str, int], ...] = ()  # provider, class, and the total that stood
    unexplained: tuple[str, ...] = ()  # classes of the root that no memory of before this wait explains


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot(Feature):
    """Devices that a boot took away stay, reserved, for ``[agent] expect_timeout``."""

    awaits: tuple[Condition, ...] = ()  # one on each inventory that is awaited
    unknown: tuple[str, ...] = ()  # classes of what the root may await, and of which no memory tells the devices
    links: tuple[str, ...] = ()  # bandwidth that the root awaits without devices: no memory tells their class

    def shape(self, view: View, shaper: Shaper, shaped: Shaped) -> tuple["Boot", Shaped]:
        standing, boot = shaped.standing, view.survey.facts.boot
        remembered = awaited(standing.memory)
        stock = ((standing.new_name(name), one, total) for name, one, total in remembered.stock)
        before = replace(remembered, stock=tuple(stock))
        sides = replace(sides_of(shaped), forced=view.wishes.force)
        sides = replace(sides, unexplained=unexplained(sides, before.unexplained))
        if not sides.forced:  # whose a total of the root is is known by memory alone, which may go with a boot
            sides = replace(sides, kinds={})
        waiting = _wait(before, boot, view.terms.uptime_s, view.changes.expect_timeout_s, sides)
        kept = replace(shaped, memory=shaped.memory.with_bodies({_BODY: encode(waiting)}))
        known = BANDWIDTH.union(*standing.memory.kinds.values())
        of_root = {each for name, each, _ in waiting.stock if name == view.node}
        found = Boot(
            awaits=_awaits(waiting, shaped.tree),
            unknown=tuple(sorted((of_root - known).union(waiting.unexplained))),
            links=tuple(sorted(of_root)) if of_root <= BANDWIDTH else (),
        )
        return found, with_stock(kept, {(name, each): total for name, each, total in waiting.stock})

    def refuse(self, draft: Draft) -> Refusal | None:
        if draft.view.wishes.force or draft.view.beside:
            return None
        why = self._other_form(draft)
        stands = draft.observed.root.provider.inventories if draft.observed.root else {}
        to_cells = "MEMORY_MB" in stands.keys() - draft.desired.root.inventories.keys()  # whatever layout it may be
        if (to_cells or draft.stands_in != draft.layout) and (self.awaits or self.links or self.unknown):
            why = (
                f"devices are awaited since this host was booted, and a conversion to {draft.layout} would forget "
                f"them: start what sets them up, or wait until [agent] expect_timeout is over (0: no wait). What is "
                f"missing is reserved meanwhile"
            )
        return Refusal(status=Status.UNSAFE, notes=(why,)) if why else None

    def _other_form(self, draft: Draft) -> str:
        """Return why devices that the root awaits may be there in another class; empty: nothing shows that."""
        stands = draft.observed.root.provider.inventories.keys() if draft.observed.root else frozenset[str]()
        files = draft.wanted.added.get(draft.desired.root.name, Names()).classes
        came = sorted(draft.desired.root.inventories.keys() - stands - NO_DEVICES - BANDWIDTH - files)
        if self.links:
            what = f"{', '.join(self.links)} may be of devices that the root had before this host was booted"
        elif came and self.unknown:
            what = (
                f"{', '.join(came)} may be the devices that were {', '.join(self.unknown)} before this host was booted"
            )
        else:
            return ""
        return (
            f"{what}, as this agent does not remember which these were: start what sets them up, or wait until [agent] "
            f"expect_timeout is over, or run sync --force if they are others"
        )

    def conditions(self, draft: Draft) -> tuple[Condition, ...]:
        return self.awaits


def awaited(memory: NodeState) -> Waiting:
    """Return what the last pass awaited, by the names of then."""
    return decode_as(Waiting, memory.bodies.get(_BODY, {}))


def _wait(before: Waiting, boot: str | None, uptime_s: float, timeout_s: float, sides: Sides) -> Waiting:
    """
    Return what is awaited now.

    Whatever goes in the ``timeout_s`` seconds from the first pass after a boot is awaited until it is back, or until
    they are over: units load drivers and set up devices in any order. An agent without a memory that begins in these
    seconds waits too: its state may go with each boot. One that begins later awaits nothing. ``boot`` is the kernel's
    boot id; where it is not known, it is taken for the last one that was, and where none was, ``uptime_s`` tells alone,
    which counts from the boot.
    """
    boot = boot or before.boot
    if not timeout_s:
        return replace(before, stock=(), unexplained=())
    if boot != before.boot:
        before = Waiting(boot=boot, since_s=uptime_s, seen=bool(before.boot) or uptime_s < timeout_s)
    elif uptime_s - before.since_s >= timeout_s:
        return replace(before, stock=(), unexplained=(), seen=False)
    if boot and not before.seen:
        return replace(before, stock=(), unexplained=())
    missing = sorted((*slot, total) for slot, total in missing_of(sides))
    doubted = () if sides.forced else sorted(sides.unexplained)  # a person says that they are others
    return replace(before, stock=tuple(missing), unexplained=tuple(doubted))


def _awaits(waiting: Waiting, desired: ProviderTree) -> tuple[Condition, ...]:
    """Return a condition for each inventory that is awaited; ``desired`` is the tree without it."""
    providers = {one.name: one for one in desired}
    found = []
    for name, resource_class, total in waiting.stock:
        if resource_class in BANDWIDTH:  # of a link whose devices have a sentence
            continue
        stock = providers[name].inventories.get(resource_class) if name in providers else None
        force = ", or take the rest away by sync --force" if stock else ""
        text = (
            f"{name} had {total} {resource_class} before this host was booted, and shows {stock.total if stock else 0} "
            f"now: the rest stays, reserved: start what sets up its VFs, vGPU types or MIG instances{force}"
        )
        found.append(Condition(kind=AWAITED, text=text, provider=name))
    return tuple(found)
