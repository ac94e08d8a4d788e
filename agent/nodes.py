"""
One pass over all bare-metal nodes of this agent: each is a root of its own, and most of them need nothing.

A quiet pass is one listing of Ironic's and one of placement's. Only nodes of which either tells something new are
planned and written, several at a time; one that fails does not keep the others from theirs.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import Enum

from agent.config import Settings
from agent.nodes_state import KnownNode, NodesMemory, read_nodes, write_nodes
from drivers.ironic.driver import IronicDriver
from drivers.ironic.shape import BARE_METAL, MARKS
from reportclient.client import PlacementClient
from reportclient.diff import diff
from reportclient.errors import Conflict, Rejected, Unavailable
from reportclient.names import is_custom
from reportclient.ownership import Names, Ownership
from reportclient.plan import Delete, EnsureClasses, EnsureTraits, Plan
from reportclient.tree import ObservedProvider, ObservedTree, Provider, ProviderTree

LOG = logging.getLogger(__name__)
TRIES = 3  # at a node on whose provider others write
ASKED = 200  # nodes that went out of the listing, and of which Ironic is asked in one pass
FEW = 50  # new nodes of which placement is asked one by one; of more it lists all that it has
NOTHING = Plan(())

Progress = Callable[[int, int], None]  # (done, of)


class Fate(Enum):
    """What became of a node in a pass."""

    UNCHANGED = "unchanged"
    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    MISFIT = "misfit"  # it cannot be reported, and what stands for it stays
    FAILED = "failed"  # placement refused it, or others kept writing on it
    UNFINISHED = "unfinished"  # placement does not answer: the next pass does it
    GOING = "going"  # Ironic does not have it any more: looked at again before its provider goes
    LEFT = "left"  # Ironic has it, and it is not of this agent's share any more


@dataclass(frozen=True, slots=True)
class NodeOutcome:
    """One node, and why."""

    node: str
    fate: Fate
    why: str = ""
    plan: Plan = NOTHING
    seen: ObservedProvider | None = None  # what the plan was made from


@dataclass(frozen=True, slots=True)
class NodesOutcome:
    """A pass: of nodes that are unchanged only the count."""

    outcomes: tuple[NodeOutcome, ...]
    unchanged: int

    def count(self, fate: Fate) -> int:
        return self.unchanged if fate is Fate.UNCHANGED else sum(one.fate is fate for one in self.outcomes)

    @classmethod
    def of(cls, outcomes: Iterable[NodeOutcome], unchanged: int) -> "NodesOutcome":
        """With the nodes that were looked at, and found as they should be, among the unchanged."""
        everybody = tuple(outcomes)
        told = tuple(one for one in everybody if one.fate is not Fate.UNCHANGED)
        return cls(told, unchanged + len(everybody) - len(told))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesPlanner:
    """Looks at Ironic and at placement, under one configuration."""

    driver: IronicDriver
    client: PlacementClient
    settings: Settings
    where: str  # the placement's name
    workers: int = 8  # nodes that are written at a time
    clock: Callable[[], float] = time.time

    def memory(self) -> NodesMemory:
        """What the last pass left; errors as ``read_nodes``."""
        return read_nodes(self.settings.state_directory, self.where)


@dataclass(frozen=True, slots=True)
class _Task:
    """A node of which something is new."""

    provider: Provider
    known: KnownNode | None
    seen: ObservedProvider | None  # None: placement does not have it
    generation: int | None  # of a provider that must be read first

    @property
    def given(self) -> frozenset[str]:
        return frozenset(self.provider.inventories) | (self.provider.traits - MARKS)


@dataclass(slots=True)
class _Look:
    """What a pass found before it writes."""

    memory: NodesMemory
    nodes: dict[str, KnownNode]  # what is remembered of those that go on as they are
    tasks: list[_Task] = field(default_factory=list)
    outcomes: list[NodeOutcome] = field(default_factory=list)
    deletions: list[KnownNode] = field(default_factory=list)
    unchanged: int = 0


def foresee_nodes(planner: NodesPlanner, progress: Progress = lambda done, of: None) -> NodesOutcome:
    """
    What a pass would do; writes nothing anywhere.

    Raises:
        DiscoveryError: Ironic cannot be read whole. PlacementError: placement cannot.
        StateError: our own file cannot be read.
    """
    look = _look(planner)
    lacked = _lacked_traits(planner, look, make=False)
    outcomes = _for_each(planner, look.tasks, lambda task: _foresee(planner, task, lacked), progress)
    gone = [
        NodeOutcome(one.seen.uuid, Fate.DELETED, "", Plan((Delete(one.seen.uuid, one.seen.name),)))
        for one in look.deletions
    ]
    return NodesOutcome.of((*look.outcomes, *(one for one, _ in outcomes), *gone), look.unchanged)


def run_nodes(
    planner: NodesPlanner, *, force: bool = False, progress: Progress = lambda done, of: None
) -> NodesOutcome:
    """
    One pass; what it did is remembered even when placement goes away in its middle.

    ``force`` lets more nodes go at once than ``[agent] shrink_limit_percent``.

    Raises:
        DiscoveryError: Ironic cannot be read whole, and nothing was written. PlacementError, StateError: as
        ``foresee_nodes``.
    """
    look = _look(planner)
    lacked = _lacked_traits(planner, look, make=True)
    results = _for_each(planner, look.tasks, lambda task: _settle(planner, task, lacked), progress)
    nodes = dict(look.nodes)
    for outcome, known in results:
        if known:
            nodes[outcome.node] = known
    outcomes = [*look.outcomes, *(outcome for outcome, _ in results)]
    for outcome in _delete(planner, look, force):
        outcomes.append(outcome)
        if outcome.fate is Fate.DELETED:
            del nodes[outcome.node]
    after = NodesMemory(where=planner.where, microversion=planner.client.microversion, nodes=nodes)
    if after != look.memory:
        write_nodes(planner.settings.state_directory, after)
    return NodesOutcome.of(outcomes, look.unchanged)


def _look(planner: NodesPlanner) -> _Look:
    memory = planner.memory()
    client = planner.client
    client.microversion = memory.microversion or client.microversion
    share = planner.driver.shape(planner.driver.survey())
    marked = client.generations(BARE_METAL)
    look = _Look(memory, nodes={})
    look.outcomes += [NodeOutcome(uuid, Fate.MISFIT, one.why) for uuid, one in sorted(share.misfits.items())]
    unmarked = [uuid for uuid in share.providers if uuid not in marked]
    standing = marked | _generations_of(planner, unmarked)
    for uuid, provider in sorted(share.providers.items()):
        known, generation = memory.nodes.get(uuid), standing.get(uuid)
        if known and known.gone_s is not None:
            known = replace(known, gone_s=None)
        if known:
            look.nodes[uuid] = known
        current = known.seen if known and known.seen.generation == generation else None
        task = _Task(provider, known, current, generation)
        if known and current and _is_so(current, known, task):
            look.unchanged += 1
        else:
            look.tasks.append(task)
    here = share.providers.keys() | share.misfits.keys()
    look.nodes |= {uuid: known for uuid, known in memory.nodes.items() if uuid in share.misfits}
    _judge_absent(planner, look, {uuid: one for uuid, one in memory.nodes.items() if uuid not in here}, marked)
    if planner.driver.sees_all:
        strays = marked.keys() - here - memory.nodes.keys()
        _judge_absent(planner, look, {uuid: _stray(uuid, marked[uuid]) for uuid in sorted(strays)}, marked)
    return look


def _is_so(seen: ObservedProvider, known: KnownNode, task: _Task) -> bool:
    """Whether a provider that nobody wrote on since has all that its node gives, and nothing that it gave before."""
    wanted = task.provider
    return (
        known.given == task.given
        and wanted.traits <= seen.provider.traits
        and all(
            name in seen.provider.inventories and stock.equals(seen.provider.inventories[name])
            for name, stock in wanted.inventories.items()
        )
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


def _stray(uuid: str, generation: int) -> KnownNode:
    return KnownNode(ObservedProvider(uuid=uuid, generation=generation, provider=Provider(name=uuid)), frozenset())


def _judge_absent(
    planner: NodesPlanner, look: _Look, absent: Mapping[str, KnownNode], marked: Mapping[str, int]
) -> None:
    """Of nodes that are not listed any more: Ironic has them for somebody else, or twice says that it has them not."""
    now = planner.clock()
    for number, (uuid, known) in enumerate(sorted(absent.items())):
        if number >= ASKED:
            look.nodes[uuid] = known
        elif planner.driver.is_there(uuid):
            look.outcomes.append(NodeOutcome(uuid, Fate.LEFT, "Ironic has it, and it is not of this agent's share"))
        elif uuid not in marked:
            continue  # nothing of ours is left of it
        elif known.gone_s is None:
            look.nodes[uuid] = replace(known, gone_s=now)
            why = f"Ironic has it not; asked again after {planner.settings.node_grace_s} s, then its provider goes"
            look.outcomes.append(NodeOutcome(uuid, Fate.GOING, why))
        elif now - known.gone_s < planner.settings.node_grace_s:
            look.nodes[uuid] = known
            why = f"Ironic has it not for {now - known.gone_s:.0f} s; its provider goes after "
            look.outcomes.append(NodeOutcome(uuid, Fate.GOING, f"{why}{planner.settings.node_grace_s} s"))
        else:
            look.nodes[uuid] = known
            look.deletions.append(known)


def _delete(planner: NodesPlanner, look: _Look, force: bool) -> Iterable[NodeOutcome]:
    """Providers whose nodes are gone, unless that are too many at once: a user who sees no node is told of none."""
    count, whole = len(look.deletions), len(look.nodes)
    if not force and count > (max(1, whole * planner.settings.shrink_fraction) if count < whole else 0):
        why = (
            f"{count} of {whole} nodes are gone from Ironic at once, more than [agent] shrink_limit_percent: is it the "
            f"right Ironic, whole, and may this user see all nodes? sync --force lets them go"
        )
        return [NodeOutcome(one.seen.uuid, Fate.GOING, why) for one in look.deletions]
    return [_delete_one(planner, one) for one in look.deletions]


def _delete_one(planner: NodesPlanner, known: KnownNode) -> NodeOutcome:
    uuid = known.seen.uuid
    plan = Plan((Delete(uuid, known.seen.name),))
    try:
        planner.client.execute(plan, ObservedTree())
    except (Conflict, Rejected) as error:
        return NodeOutcome(
            uuid, Fate.FAILED, f"its node is gone from Ironic, and somebody holds it still: {error}", plan
        )
    except Unavailable as error:
        return NodeOutcome(uuid, Fate.UNFINISHED, str(error), plan)
    return NodeOutcome(uuid, Fate.DELETED, "", plan)


def _lacked_traits(planner: NodesPlanner, look: _Look, *, make: bool) -> frozenset[str]:
    """
    The standard traits that this placement is too old to know, of those that tasks need.

    With ``make`` the custom classes and traits that they need are there afterwards: asked for once, and not by node.
    """
    seen = [known.seen.provider for known in look.memory.nodes.values()]
    there = frozenset().union(*(one.traits for one in seen))
    wanted = frozenset().union(*(task.provider.traits for task in look.tasks)) - there
    known_traits = planner.client.known_traits(wanted) if wanted else frozenset()
    if make:
        classes = {name for task in look.tasks for name in task.provider.inventories}
        classes -= {name for one in seen for name in one.inventories}
        custom = {name for name in wanted - known_traits if is_custom(name)}
        steps = [EnsureClasses(tuple(sorted(classes)))] if classes else []
        plan = Plan((*steps, *([EnsureTraits(tuple(sorted(custom)))] if custom else [])))
        planner.client.execute(plan, ObservedTree())
    return frozenset(name for name in wanted - known_traits if not is_custom(name))


def _plan(task: _Task, seen: ObservedProvider | None, lacked: frozenset[str]) -> Plan:
    wanted = replace(task.provider, traits=task.provider.traits - lacked)
    before = task.known.given if task.known else _supposed(seen)
    names = before | task.given | MARKS
    ours = Ownership(emitted=Names(classes=names, traits=names))
    tree = ObservedTree((seen,)) if seen else ObservedTree()
    plan = diff(tree, ProviderTree((wanted,)), ours, root_uuid=wanted.name, known_traits=wanted.traits)
    steps = (step for step in plan.operations if not isinstance(step, EnsureClasses | EnsureTraits))
    return Plan(tuple(steps))


def _supposed(seen: ObservedProvider | None) -> frozenset[str]:
    """The classes of a node that is not remembered: one unit, as nova and we report it, so that none is there twice."""
    if seen is None:
        return frozenset()
    return frozenset(name for name, stock in seen.provider.inventories.items() if is_custom(name) and stock.total == 1)


def _read(planner: NodesPlanner, task: _Task) -> ObservedProvider | None:
    if task.seen or task.generation is None:
        return task.seen
    return planner.client.read(task.provider.name, task.provider.name, task.generation)


def _foresee(planner: NodesPlanner, task: _Task, lacked: frozenset[str]) -> tuple[NodeOutcome, None]:
    seen = _read(planner, task)
    try:
        plan = _plan(task, seen, lacked)
    except Rejected as error:
        return NodeOutcome(task.provider.name, Fate.FAILED, str(error)), None
    fate = Fate.CHANGED if plan.operations else Fate.UNCHANGED
    return NodeOutcome(task.provider.name, fate if seen else Fate.CREATED, "", plan, seen), None


def _settle(planner: NodesPlanner, task: _Task, lacked: frozenset[str]) -> tuple[NodeOutcome, KnownNode | None]:
    """One node to its end, read and planned again where others write on it too."""
    uuid, refusal = task.provider.name, ""
    for _ in range(TRIES):
        try:
            seen = _read(planner, task)
            plan = _plan(task, seen, lacked)
            stands = planner.client.execute(plan, ObservedTree((seen,) if seen else ())).root
        except Conflict as error:
            refusal = str(error)
            task = replace(task, seen=None, generation=planner.client.generations(uuid=uuid).get(uuid))
            continue
        except Rejected as error:
            return NodeOutcome(uuid, Fate.FAILED, str(error)), task.known
        if stands is None:
            return NodeOutcome(uuid, Fate.FAILED, "its provider is gone"), None
        fate = Fate.CREATED if seen is None else Fate.CHANGED if plan.operations else Fate.UNCHANGED
        return NodeOutcome(uuid, fate, "", plan, seen), KnownNode(stands, task.given - lacked)
    return NodeOutcome(uuid, Fate.FAILED, refusal), task.known


Result = tuple[NodeOutcome, KnownNode | None]


def _for_each(
    planner: NodesPlanner, tasks: list[_Task], act: Callable[[_Task], Result], progress: Progress
) -> list[Result]:
    """All tasks, some at a time; once placement does not answer, what was not begun is left to the next pass."""
    down = threading.Event()
    counted = threading.Lock()
    done = 0

    def guarded(task: _Task) -> Result:
        nonlocal done
        uuid = task.provider.name
        if down.is_set():
            return NodeOutcome(uuid, Fate.UNFINISHED, "placement does not answer"), task.known
        try:
            return act(task)
        except Unavailable as error:
            down.set()
            return NodeOutcome(uuid, Fate.UNFINISHED, str(error)), task.known
        finally:
            with counted:
                done += 1
                progress(done, len(tasks))

    if not tasks:
        return []
    with ThreadPoolExecutor(max_workers=planner.workers) as pool:
        return list(pool.map(guarded, tasks))
