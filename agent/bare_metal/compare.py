"""What a pass over bare-metal nodes finds before it writes: who is as it should be, who is not, and who is gone."""

import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from agent.bare_metal.left import look_at_left, strays
from agent.settings.read import Settings
from agent.state.clock import Clock, probe_clock
from agent.state.nodes import UNREAD, KnownNode, NodesMemory, read_nodes
from drivers.errors import DiscoveryError
from drivers.ironic.driver import IronicDriver
from drivers.ironic.nodes import Misfit
from drivers.ironic.shape import BARE_METAL, MARKS, Share, why_reserved
from reportclient.client import PlacementClient
from reportclient.plan import Plan
from reportclient.tree import ObservedProvider, Provider

LOG = logging.getLogger(__name__)
_ASKED = 200  # nodes that went out of the listing, and of which Ironic is asked in one pass
FEW = 50  # new nodes of which placement is asked one by one; of more it lists all that it has
_NOTHING = Plan(())
_COLLIDES = "its class would be on offer under another resource class too"


class Fate(Enum):
    """What became of a node in a pass."""

    UNCHANGED = "unchanged"
    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    MISFIT = "misfit"  # it cannot be reported, and what stands for it stays
    FAILED = "failed"  # placement refused it, or others kept writing on it
    CONTESTED = "contested"  # another agent writes on it
    UNFINISHED = "unfinished"  # placement does not answer: the next pass does it
    HELD = "held"  # somebody has allocated what would go
    REFUSED = "refused"  # too many nodes are gone at once
    GOING = "going"  # Ironic does not have it any more: looked at again before its provider goes
    LEFT = "left"  # Ironic has it, and it is not of this agent's share any more
    STRAY = "stray"  # a provider with our mark of which Ironic has no node, and that is not of this agent's share


@dataclass(frozen=True, slots=True)
class NodeOutcome:
    """One node, and why."""

    node: str
    fate: Fate
    why: str = ""
    plan: Plan = _NOTHING
    seen: ObservedProvider | None = None  # what the plan was made from


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesPlanner:
    """Looks at Ironic and at placement, under one configuration."""

    driver: IronicDriver
    client: PlacementClient
    settings: Settings
    where: str  # the placement's name
    workers: int = 8  # nodes that are written at a time
    noted: Clock = field(default_factory=probe_clock)  # by which moments are remembered
    clock: Callable[[], float] | None = None  # another one, of which nothing is known

    def now_s(self) -> float:
        return self.clock() if self.clock else self.noted.now_s()

    def memory(self) -> NodesMemory:
        """What the last pass left about this Ironic and this placement; errors as ``read_nodes``."""
        return read_nodes(self.settings.state_directory, self.where, self.driver.ironic, clock=self.noted)


@dataclass(frozen=True, slots=True)
class Task:
    """A node of which something is new."""

    provider: Provider  # as it should be
    known: KnownNode | None
    seen: ObservedProvider | None  # None: it must be read first, or placement does not have it
    generation: int | None  # None: placement does not have it
    because: str = ""  # why it is reserved
    spelling: str | None = None  # the node's resource class, to be remembered once this is done
    reserves: frozenset[str] = frozenset()  # if any: only these classes are to be reserved, where they stand
    fate: Fate | None = None  # what became of the node; None: the write tells

    @property
    def given(self) -> frozenset[str]:
        """The classes and traits that come from the node."""
        return frozenset(self.provider.inventories) | (self.provider.traits - MARKS)


@dataclass(slots=True)
class Look:
    """All that was found."""

    memory: NodesMemory
    nodes: dict[str, KnownNode]  # what is remembered of those that go on as they are
    lacked: frozenset[str]  # standard traits that placement is too old to know
    tasks: list[Task] = field(default_factory=list)
    outcomes: list[NodeOutcome] = field(default_factory=list)
    deletions: list[KnownNode] = field(default_factory=list)
    believed: list[KnownNode] = field(default_factory=list)  # whose memory is of what stands now
    left: Mapping[str, KnownNode] = field(default_factory=dict)  # as ``NodesMemory`` has it
    unchanged: int = 0
    whole: bool = False  # nothing is believed: every provider is read
    behind: frozenset[str] = frozenset()  # nodes with a lower generation than the one remembered

    def current(self, known: KnownNode | None, generation: int | None) -> ObservedProvider | None:
        """A provider as it stands, where that is known without reading it."""
        return known.seen if known and not self.whole and known.seen.generation == generation else None


def look_at_nodes(planner: NodesPlanner, *, force: bool = False) -> Look:
    """
    One listing of Ironic and one of placement against what is remembered; more only of what is new.

    ``force`` lets more nodes go at once than ``[agent] shrink_limit_percent``.

    Raises:
        DiscoveryError: Ironic cannot be read whole. PlacementError: placement cannot.
        StateError: our own file cannot be read.
    """
    memory, client = planner.memory(), planner.client
    client.microversion = memory.microversion or client.microversion
    nodes = planner.driver.survey()
    marked = client.generations(BARE_METAL)
    reported = {uuid: known.spelling for uuid, known in memory.nodes.items() if known.spelling and uuid in marked}
    share = planner.driver.shape(nodes, reported=reported, standing=marked)
    back = {uuid: one for uuid, one in memory.left.items() if uuid in share.providers or uuid in share.misfits}
    memory = replace(memory, nodes={**memory.nodes, **back})
    lacked = memory.lacked - client.known_traits(memory.lacked) if memory.lacked else frozenset()
    look = Look(memory, nodes={}, lacked=lacked)
    _doubt(planner, look, marked)
    look.outcomes += [NodeOutcome(uuid, Fate.MISFIT, one.why) for uuid, one in sorted(share.misfits.items())]
    standing = marked | _generations_of(planner, [uuid for uuid in share.providers if uuid not in marked])
    for uuid, provider in sorted(share.providers.items()):
        because, spelling = share.reserved.get(uuid, ""), share.spellings[uuid]
        _compare(look, provider, standing.get(uuid), uuid in marked, because, spelling)
    for uuid, known in memory.nodes.items():
        if uuid in share.misfits:
            look.nodes[uuid] = replace(known, gone_s=None, may_go=False)
            _reserve_misfit(look, look.nodes[uuid], share.misfits[uuid], marked.get(uuid))
        elif uuid in share.others:
            look.outcomes.append(NodeOutcome(uuid, Fate.LEFT, "it is another agent's now"))
    for uuid, misfit in share.misfits.items():
        if misfit.collides and uuid in marked and uuid not in memory.nodes:
            provider = Provider(name=uuid, traits=MARKS)
            look.tasks.append(
                Task(provider, None, None, marked[uuid], _COLLIDES, reserves=frozenset({misfit.collides}))
            )
    here = share.providers.keys() | share.misfits.keys() | share.others
    _judge_absent(planner, look, {uuid: one for uuid, one in memory.nodes.items() if uuid not in here}, marked, force)
    if planner.driver.sees_all:
        unknown = sorted(marked.keys() - here - memory.nodes.keys())
        look.outcomes += [_stray(uuid, "if it is of no other Ironic") for uuid in unknown]
    else:
        _judge_left(planner, look, marked, share)
    return look


def _doubt(planner: NodesPlanner, look: Look, marked: Mapping[str, int]) -> None:
    """
    Whether every provider is read: once in ``full_audit_interval``, and when placement went back in time.

    A lower generation is of another history. One that is only the same may be too, once claims have brought it up.
    """
    memory = look.memory
    look.behind = frozenset(
        uuid for uuid, known in memory.nodes.items() if marked.get(uuid, known.seen.generation) < known.seen.generation
    )
    went_back = bool(look.behind - memory.behind)
    if went_back:
        LOG.warning("placement went back in time, all nodes are read anew where=%s", planner.where)
    look.whole = went_back or not 0 <= planner.now_s() - memory.whole_s < planner.settings.full_audit_interval_s


def _judge_left(planner: NodesPlanner, look: Look, marked: Mapping[str, int], share: Share) -> None:
    """Nodes of this Ironic that left our share, now or before: those that it does not have any more are told."""
    now_s, before = planner.now_s(), look.memory.left
    ours = share.providers.keys() | share.misfits.keys()
    new = {one.node for one in look.outcomes if one.fate is Fate.LEFT}
    known = {**before, **{uuid: look.memory.nodes[uuid] for uuid in new}}
    standing = {uuid: known[uuid] for uuid in sorted(known.keys() & marked.keys() - ours)}
    look.left = look_at_left(planner.driver, standing, share.others | new, now_s)
    gone = strays(look.left, before, now_s, planner.settings.node_grace_s)
    look.outcomes += [_stray(uuid, "if no other agent deletes it") for uuid in gone]


def _stray(uuid: str, unless: str) -> NodeOutcome:
    why = f"Ironic has no node of this provider: {unless}, openstack resource provider delete {uuid} removes it"
    return NodeOutcome(uuid, Fate.STRAY, why)


def _compare(
    look: Look, provider: Provider, generation: int | None, is_marked: bool, because: str, spelling: str
) -> None:
    """One node that can be reported: as it should be, or a task."""
    known = look.memory.nodes.get(provider.name)
    if known:
        known = look.nodes[provider.name] = replace(known, gone_s=None, may_go=False)
    current = look.current(known, generation) if is_marked else None
    wanted = replace(provider, traits=provider.traits - look.lacked)
    task = Task(wanted, known, current, generation, because, spelling)
    if known and current:
        look.believed.append(known)
    if known and current and known.given == task.given and _has(current, wanted):
        look.unchanged += 1
        look.nodes[provider.name] = replace(known, spelling=spelling)
    else:
        look.tasks.append(replace(task, provider=provider))


def _reserve_misfit(look: Look, known: KnownNode, misfit: Misfit, generation: int | None) -> None:
    """What stands for a node that cannot be reported any more stays, and is not on offer while the node is not."""
    because = why_reserved(misfit.node) if misfit.node else ""
    before = known.seen.provider
    if misfit.collides in before.inventories:
        because = because or _COLLIDES
    stock = {name: replace(one, reserved=1) for name, one in before.inventories.items() if name in known.given}
    current = look.current(known, generation)
    if not because or generation is None or (current and all(one.reserved for one in before.inventories.values())):
        return
    wanted = replace(before, inventories=stock, traits=(before.traits & known.given) | MARKS)
    look.tasks.append(Task(wanted, known, current, generation, because, known.spelling))


def _has(seen: ObservedProvider, wanted: Provider) -> bool:
    """Whether a provider has all that its node gives."""
    return wanted.traits <= seen.provider.traits and all(
        name in seen.provider.inventories and stock.equals(seen.provider.inventories[name])
        for name, stock in wanted.inventories.items()
    )


def _generations_of(planner: NodesPlanner, uuids: list[str]) -> dict[str, int]:
    """Of providers that may be there without our mark, as nova left them."""
    if len(uuids) > FEW:
        everybody = planner.client.generations()
        return {uuid: everybody[uuid] for uuid in uuids if uuid in everybody}
    found: dict[str, int] = {}
    for uuid in uuids:
        found |= planner.client.generations(uuid=uuid)
    return found


def _judge_absent(
    planner: NodesPlanner, look: Look, absent: Mapping[str, KnownNode], marked: Mapping[str, int], force: bool
) -> None:
    """Of nodes that are not listed any more: Ironic has them for somebody else, or twice says that it has them not."""
    now = planner.now_s()
    asked, elsewhere = _ask_ironic(planner, look, absent)
    going = [uuid for uuid in asked if uuid not in elsewhere and uuid in marked]
    look.outcomes += [
        NodeOutcome(uuid, Fate.LEFT, "Ironic has it, and it is not of this agent's share") for uuid in sorted(elsewhere)
    ]
    look.nodes |= {uuid: known for uuid, known in absent.items() if uuid not in asked}
    leftovers = {uuid for uuid, known in absent.items() if known.may_go} - elsewhere
    missing, whole = len(absent) - len(elsewhere | leftovers), len(look.memory.nodes) - len(leftovers)
    limit = whole if force else max(1.0, whole * planner.settings.shrink_fraction) if missing < whole else 0
    refused = 0
    for uuid in sorted(going):
        known = replace(absent[uuid], gone_s=min(absent[uuid].gone_s or now, now))  # a clock may have been ahead
        look.nodes[uuid] = known
        gone_s = now - (known.gone_s or now)
        if absent[uuid].gone_s is None or gone_s < planner.settings.node_grace_s:
            why = _patience(planner, gone_s)
            too_many = missing > limit and not known.may_go
            if too_many or not _take_off_offer(look, known, marked[uuid], why):
                look.outcomes.append(NodeOutcome(uuid, Fate.GOING, why))
        elif missing > limit and not known.may_go:
            refused += 1
        else:
            look.nodes[uuid] = replace(known, may_go=True)
            look.deletions.append(known)
    if refused:
        why = (
            f"{missing} of {whole} nodes are not in Ironic any more at once, more than "
            f"{planner.settings.shrink_fraction:.0%} ([agent] shrink_limit_percent) or all of them: is it the right "
            f"Ironic, whole, and may this user see all nodes? sync --force lets them go"
        )
        look.outcomes.append(NodeOutcome(f"{refused} nodes", Fate.REFUSED, why))
    if len(absent) > len(asked):
        rest = "are not listed either, and Ironic is asked of them in the next passes"
        look.outcomes.append(NodeOutcome(f"{len(absent) - len(asked)} nodes", Fate.GOING, rest))


def _ask_ironic(planner: NodesPlanner, look: Look, absent: Mapping[str, KnownNode]) -> tuple[list[str], set[str]]:
    """Of which absent nodes Ironic told anything, new ones first; and which of them it has."""
    new_first = sorted(absent, key=lambda uuid: (absent[uuid].gone_s is not None, random.random()))
    asked, there = new_first[:_ASKED], set()
    for uuid in asked[:]:
        try:
            if planner.driver.is_there(uuid):
                there.add(uuid)
        except DiscoveryError as error:
            asked.remove(uuid)
            look.outcomes.append(NodeOutcome(uuid, Fate.FAILED, f"whether Ironic has it cannot be told: {error}"))
    return asked, there


def _take_off_offer(look: Look, known: KnownNode, generation: int, why: str) -> bool:
    """Whether what stands for a node that is gone is still to be reserved, as far as can be told; then it is a task."""
    uuid, stock = known.seen.uuid, known.seen.provider.inventories
    current = look.current(known, generation)
    if current and all(one.reserved == one.total for name, one in stock.items() if name in known.given):
        return False
    provider = Provider(name=uuid)
    look.tasks.append(Task(provider, known, current, generation, why, reserves=known.given, fate=Fate.GOING))
    return True


def _patience(planner: NodesPlanner, gone_s: float) -> str:
    return (
        f"Ironic has it not, for {gone_s:.0f} s; it is asked again, and the provider goes after "
        f"{planner.settings.node_grace_s} s"
    )


def unread(uuid: str, given: frozenset[str]) -> KnownNode:
    """What is remembered of a node whose provider was never seen: what we are about to give it."""
    return KnownNode(ObservedProvider(uuid=uuid, generation=UNREAD, provider=Provider(name=uuid)), given)
