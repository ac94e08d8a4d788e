"""Brings the providers of bare-metal nodes to what they should be, several at a time; what fails keeps nobody back."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from agent.bare_metal.compare import Fate, Look, NodeOutcome, NodesPlanner, Task
from agent.state.nodes import UNREAD, KnownNode
from drivers.errors import DiscoveryError
from drivers.ironic.shape import MARKS
from reportclient.diff import diff
from reportclient.errors import Conflict, PlacementError, Rejected, Unavailable
from reportclient.names import is_custom
from reportclient.ownership import MARKER, OWNER_NOVA, Names, Ownership, others_marks
from reportclient.plan import Delete, EnsureClasses, EnsureTraits, Plan, SetInventories
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

SILENCES = 5  # nodes of which placement says nothing that can be understood, until it is taken to be down
_TRIES = 3  # at a node on whose provider others write

Progress = Callable[[int, int], None]  # (done, of)
Result = tuple[NodeOutcome, KnownNode | None]


def lacked_traits(planner: NodesPlanner, look: Look, *, make: bool) -> frozenset[str]:
    """
    The standard traits that this placement is too old to know.

    With ``make`` the custom classes and traits that tasks need are there afterwards: asked for once, and not by node.
    Only a memory of what stands now tells what is there: placement may have been made anew.
    """
    seen = [known.seen.provider for known in look.believed]
    wanted = frozenset().union(*(task.provider.traits for task in look.tasks))
    wanted -= frozenset().union(*(one.traits for one in seen))
    known_traits = planner.client.known_traits(wanted) if wanted else frozenset()
    if make:
        classes = {name for task in look.tasks for name in task.provider.inventories}
        classes -= {name for one in seen for name in one.inventories}
        custom = {name for name in wanted - known_traits if is_custom(name)}
        steps = [EnsureClasses(tuple(sorted(classes)))] if classes else []
        plan = Plan((*steps, *([EnsureTraits(tuple(sorted(custom)))] if custom else [])))
        planner.client.execute(plan, ObservedTree())
    return look.lacked | {name for name in wanted - known_traits if not is_custom(name)}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWishes:
    """What a person said with this pass."""

    force: bool = False  # let many nodes go at once, and take stock for ours that we do not remember
    take_over: bool = False  # write also where another agent took our mark away


class Contested(Exception):
    """Somebody else writes on a provider, or has on it what we cannot tell to be ours; the message says what."""


def foresee(planner: NodesPlanner, task: Task, lacked: frozenset[str], wishes: NodeWishes) -> Result:
    """What ``settle`` would do."""
    try:
        seen = _read(planner, task)
        plan = _plan(task, seen, lacked, wishes)
    except Contested as error:
        return NodeOutcome(task.provider.name, Fate.CONTESTED, str(error)), None
    except (Conflict, Rejected) as error:
        return NodeOutcome(task.provider.name, Fate.FAILED, str(error)), None
    return NodeOutcome(task.provider.name, _fate(task, seen, plan), _note(task, lacked), plan, seen), None


def settle(planner: NodesPlanner, task: Task, lacked: frozenset[str], wishes: NodeWishes) -> Result:
    """One node to its end, read and planned again where others write on it too; and what to remember of it."""
    uuid, refusal = task.provider.name, ""
    for _ in range(_TRIES):
        try:
            seen = _read(planner, task)
            plan = _plan(task, seen, lacked, wishes)
            stands = planner.client.execute(plan, ObservedTree((seen,) if seen else ())).root
        except Contested as error:
            return NodeOutcome(uuid, Fate.CONTESTED, str(error)), task.known
        except Conflict as error:
            refusal = str(error)
            try:
                task = replace(task, seen=None, generation=planner.client.generations(uuid=uuid).get(uuid))
            except Rejected as other:
                return NodeOutcome(uuid, Fate.FAILED, str(other)), task.known
            continue
        except Rejected as error:
            return NodeOutcome(uuid, Fate.FAILED, str(error)), task.known
        if stands is None:
            return NodeOutcome(uuid, Fate.FAILED, "its provider is gone"), None
        return NodeOutcome(uuid, _fate(task, seen, plan), _note(task, lacked), plan, seen), _known(task, stands, lacked)
    return _held(planner, task, wishes) or (NodeOutcome(uuid, Fate.FAILED, refusal), task.known)


def _fate(task: Task, seen: ObservedProvider | None, plan: Plan) -> Fate:
    """What becomes of a node by a plan that was made from what was ``seen``."""
    if task.fate:
        return task.fate
    return Fate.CREATED if seen is None else Fate.CHANGED if plan.operations else Fate.UNCHANGED


def _known(task: Task, stands: ObservedProvider, lacked: frozenset[str]) -> KnownNode:
    """What is remembered of a node that was written, or found as it should be."""
    if task.known and task.reserves:
        return replace(task.known, seen=stands)
    given = task.given | task.reserves & stands.provider.inventories.keys()
    return KnownNode(stands, given - lacked, spelling=task.spelling)


def delete(planner: NodesPlanner, known: KnownNode) -> NodeOutcome:
    """The provider of a node that is gone, if it still carries our marks, and nobody holds anything of it."""
    uuid = known.seen.uuid
    plan = Plan((Delete(uuid, known.seen.name),))
    try:
        if planner.driver.is_there(uuid):  # it came back while this pass was writing
            return NodeOutcome(uuid, Fate.LEFT, "Ironic has it again")
    except DiscoveryError as error:
        return NodeOutcome(uuid, Fate.UNFINISHED, str(error), plan)
    try:
        root = planner.client.observe(uuid).root
        if root is None:
            return NodeOutcome(uuid, Fate.DELETED, "it was gone already")
        if not root.provider.traits >= MARKS:
            return NodeOutcome(uuid, Fate.CONTESTED, "its node is gone, and somebody took our mark off its provider")
        if marks := others_marks(root) - known.given:
            return NodeOutcome(uuid, Fate.CONTESTED, f"its node is gone, and {_claimed(marks)}")
        planner.client.execute(plan, ObservedTree())
    except (Conflict, Rejected) as error:
        held = _held(planner, Task(Provider(name=uuid), known, None, None), NodeWishes())
        return held[0] if held else NodeOutcome(uuid, Fate.FAILED, str(error), plan)
    except PlacementError as error:
        return NodeOutcome(uuid, Fate.UNFINISHED, str(error), plan)
    return NodeOutcome(uuid, Fate.DELETED, "", plan)


def for_each(
    planner: NodesPlanner, tasks: list[Task], act: Callable[[Task], Result], progress: Progress
) -> list[Result]:
    """All tasks, some at a time; once placement does not answer, what was not begun is left to the next pass."""
    down = threading.Event()
    counted = threading.Lock()
    done = silences = 0

    def guarded(task: Task) -> Result:
        nonlocal done, silences
        uuid = task.provider.name
        if down.is_set():
            return NodeOutcome(uuid, Fate.UNFINISHED, "placement does not answer"), task.known
        try:
            return act(task)
        except Unavailable as error:
            with counted:
                silences += 1
            if silences < SILENCES and _answers(planner, uuid):
                return NodeOutcome(uuid, Fate.FAILED, str(error)), task.known
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


def _answers(planner: NodesPlanner, uuid: str) -> bool:
    """Whether placement is there after all, so that what it said is about one node only."""
    try:
        planner.client.generations(uuid=uuid)
    except PlacementError:
        return False
    return True


def _plan(task: Task, seen: ObservedProvider | None, lacked: frozenset[str], wishes: NodeWishes) -> Plan:
    if task.reserves:
        return _reserve(task, seen)
    wanted = replace(task.provider, traits=task.provider.traits - lacked)
    before = task.known.given if task.known else frozenset()
    if seen:
        before |= _adopted(task, seen, wishes)
    names = before | task.given | MARKS
    ours = Ownership(emitted=Names(classes=names, traits=names))
    tree = ObservedTree((seen,)) if seen else ObservedTree()
    plan = diff(tree, ProviderTree((wanted,)), ours, root_uuid=wanted.name, known_traits=wanted.traits)
    return Plan(tuple(step for step in plan.operations if not isinstance(step, EnsureClasses | EnsureTraits)))


def _reserve(task: Task, seen: ObservedProvider | None) -> Plan:
    """Take classes off offer, where they stand on a provider that is ours alone."""
    given = task.given | (task.known.given if task.known else frozenset())
    if seen is None or others_marks(seen) - given:
        return Plan(())
    return _reserve_whole(seen, task.reserves)


def _reserve_whole(seen: ObservedProvider, names: frozenset[str]) -> Plan:
    """Take these classes off offer, where they stand."""
    stock = seen.provider.inventories
    free = {name for name in names & stock.keys() if stock[name].reserved != stock[name].total}
    after = {**stock, **{name: replace(stock[name], reserved=stock[name].total) for name in free}}
    return Plan((SetInventories(seen.uuid, seen.name, after),) if free else ())


def _adopted(task: Task, seen: ObservedProvider, wishes: NodeWishes) -> frozenset[str]:
    """
    The classes on a provider that are ours although we do not remember them.

    These are nova's, where it was nova's alone, and under our marks those in the form in which we report a node: a node
    has one class only, so they are of a former one.

    Raises:
        Contested: another agent writes there, or stock stands there that would be the node's a second time.
    """
    is_ours, is_novas = MARKER in seen.provider.traits, OWNER_NOVA in seen.provider.traits
    written = task.known is not None and task.known.seen.generation != UNREAD
    if written and not is_ours and not wishes.take_over:
        raise Contested(
            "somebody took our mark off its provider: stop that agent (nova-compute?), then sync --take-over"
        )
    wanted, given = task.provider.inventories.keys(), task.known.given if task.known else frozenset()
    if marks := others_marks(seen) - task.given - given:
        raise Contested(_claimed(marks))
    others = frozenset(
        name
        for name, stock in seen.provider.inventories.items()
        if is_custom(name) and stock.total == 1 and name not in wanted and name not in given
    )
    if others and (is_novas or not is_ours):
        if (wanted | given) & seen.provider.inventories.keys():
            return frozenset()  # nova reports one class of a node, so the others are somebody else's
        return _novas_class(seen, others, wanted, force=wishes.force)
    if wishes.force or written:
        return others if wishes.force else frozenset()
    former = {name for name in others if _is_node_stock(seen.provider.inventories[name])}
    if strange := others - former:
        raise Contested(
            f"its provider has {', '.join(sorted(strange))} too, which this agent does not remember to have put there: "
            f"take it away by hand, or sync --force"
        )
    return others


def _novas_class(
    seen: ObservedProvider, others: frozenset[str], wanted: Iterable[str], *, force: bool
) -> frozenset[str]:
    """
    The class that nova reported of a node before, where nova owns the provider and no class of the node stands there.

    Raises:
        Contested: it cannot be told from what others put there, and ``force`` does not say that all may go.
    """
    if force or (len(others) == 1 and all(_is_node_stock(seen.provider.inventories[name]) for name in others)):
        return others
    raise Contested(
        f"nova made its provider, which has {', '.join(sorted(others))} and not {', '.join(wanted)}: the class that "
        f"nova reported before cannot be told from what others put there: remove that class by hand, or sync --force "
        f"to remove them all"
    )


def _is_node_stock(stock: Inventory) -> bool:
    """Whether a stock is in the form in which this agent and nova's Ironic driver report a node."""
    return replace(stock, reserved=0).equals(Inventory(total=1, max_unit=1))


def _claimed(marks: frozenset[str]) -> str:
    """Why nothing is written on a provider that carries these marks of others."""
    return (
        f"its provider carries {', '.join(sorted(marks))}, the mark of another service: nothing is written there until "
        f"that trait is removed from the provider (openstack resource provider trait list)"
    )


def _held(planner: NodesPlanner, task: Task, wishes: NodeWishes) -> Result | None:
    """That a node is allocated, if it is: then its class stays, reserved whole where it is not the node's any more."""
    uuid = task.provider.name
    try:
        root = planner.client.observe(uuid).root
        holders = planner.client.allocations((root,)) if root else ()
        if root is None or not holders:
            return None
        held = {one.resource_class for one in holders}
        ours = task.given | (task.known.given if task.known else frozenset()) | _adopted(task, root, wishes)
        plan = _reserve_whole(root, ours) if held & ours - task.given else Plan(())
        stands = planner.client.execute(plan, ObservedTree((root,))).root
    except (PlacementError, Contested):
        return None  # then what placement said at first is what is told
    why = f"consumer {holders[0].consumer} holds {holders[0].resource_class}, which stays until it is released"
    known = replace(task.known, seen=stands, given=task.known.given | ours) if task.known and stands else task.known
    return NodeOutcome(uuid, Fate.HELD, why, plan, root), known


def _read(planner: NodesPlanner, task: Task) -> ObservedProvider | None:
    if task.seen or task.generation is None:
        return task.seen
    return planner.client.read(task.provider.name, task.provider.name, task.generation)


def _note(task: Task, lacked: frozenset[str]) -> str:
    missing = sorted(task.provider.traits & lacked)
    old = f"this placement is too old to know {', '.join(missing)}" if missing else ""
    return "; ".join(filter(None, (f"reserved: {task.because}" if task.because else "", old)))
