"""
Bring the providers of bare-metal nodes to what they should be, several at a time.

A node that fails does not stop the others. Once placement does not answer, the nodes that are left wait for the next
pass.
"""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from agent.bare_metal.context import BareMetalNodes, Look, Task, node_outcome
from agent.state.node_records import KnownNode
from agent.sync.attempts import repeat_on_conflict
from agent.sync.batches import still_answers
from agent.sync.decide.laws import Given, lawful
from agent.sync.decide.view import Wishes
from agent.sync.outcome import Outcome, Status
from drivers.errors import DiscoveryError
from drivers.ironic.shape import MARKS, given_traits, node_classes, on_offer, single_classes
from reportclient.diff import diff
from reportclient.errors import Conflict, PlacementError, Rejected, Unavailable, Unlawful
from reportclient.names import is_custom, unknown_standard
from reportclient.ownership import MARKER, OWNER_NOVA, Names, Ownership, others_marks
from reportclient.plan import Delete, EnsureClasses, EnsureTraits, Plan, SetInventories
from reportclient.tree import ObservedProvider, ObservedTree, Provider, ProviderTree

SILENCES = 5  # nodes without an answer of placement's, after which placement is taken to be down
_ATTEMPTS = 3  # at one node whose provider others write too

Progress = Callable[[int, int], None]  # gets how many nodes are done, and of how many
R = TypeVar("R")
Settled = tuple[Outcome, KnownNode | None]  # how a node's pass ended, and what to remember of it (None: nothing)


class Contested(Exception):
    """Another agent writes on a provider, or it has something that may not be ours; the message says what."""


def learn_names(bare_metal: BareMetalNodes, look: Look, *, make: bool) -> frozenset[str]:
    """
    Return the standard traits that this placement is too old to know.

    With ``make`` it also has the custom classes and traits of all tasks afterwards: one request for all nodes.
    Names that stand on a provider as remembered need no request; other memory may be of a placement before this one.
    """
    seen = [known.seen.provider for known in look.believed]
    wanted = frozenset[str]().union(*(task.provider.traits for task in look.tasks))
    wanted -= frozenset[str]().union(*(one.traits for one in seen))
    known_traits = bare_metal.client.known_traits(wanted) if wanted else frozenset[str]()
    if make:
        classes = {name for task in look.tasks for name in task.provider.inventories}
        classes -= {name for one in seen for name in one.inventories}
        custom = {name for name in wanted - known_traits if is_custom(name)}
        steps = [EnsureClasses(tuple(sorted(classes)))] if classes else []
        plan = Plan((*steps, *([EnsureTraits(tuple(sorted(custom)))] if custom else [])))
        bare_metal.client.execute(plan, ObservedTree())
    return look.lacked | unknown_standard(wanted, known_traits)


def plan_task(bare_metal: BareMetalNodes, task: Task, lacked: frozenset[str], wishes: Wishes) -> Settled:
    """Return what ``settle`` would do; writes nothing."""
    uuid = task.provider.name
    try:
        seen = _read(bare_metal, task)
        plan = plan_node(task, seen, lacked, wishes)
    except Contested as error:
        return node_outcome(uuid, Status.CONTESTED, str(error)), None
    except (Conflict, Rejected) as error:
        return node_outcome(uuid, Status.FAILED, str(error)), None
    except Unlawful as error:
        return replace(node_outcome(uuid, Status.UNSAFE, str(error)), broken=error.laws), None
    return node_outcome(uuid, _status(task, seen, plan), note_on(task, lacked), plan, seen), None


def settle(bare_metal: BareMetalNodes, task: Task, lacked: frozenset[str], wishes: Wishes) -> Settled:
    """Write one node; read it and plan again where others write on it too."""
    uuid = task.provider.name

    def attempt() -> Settled:
        seen = _read(bare_metal, task)
        plan = plan_node(task, seen, lacked, wishes)
        stands = bare_metal.client.execute(plan, ObservedTree((seen,) if seen else ())).root
        if stands is None:
            return node_outcome(uuid, Status.FAILED, "its provider is gone"), None
        outcome = node_outcome(uuid, _status(task, seen, plan), note_on(task, lacked), plan, seen)
        known = known_after(task, stands)
        if task.status is Status.GOING and plan.operations:  # it was on offer, so the node may have been back
            known = replace(known, gone_s=bare_metal.now_s(), may_go=False)
        return outcome, known

    def forget_seen(_conflict: Conflict, _attempt: int) -> None:
        nonlocal task
        task = replace(task, seen=None, generation=bare_metal.client.generations(uuid=uuid).get(uuid))

    try:
        return repeat_on_conflict(_ATTEMPTS, attempt, forget_seen)
    except Contested as error:
        return node_outcome(uuid, Status.CONTESTED, str(error)), task.known
    except Conflict as error:
        held = _held(bare_metal, task, wishes)
        return held or (node_outcome(uuid, Status.FAILED, str(error)), task.known)
    except Rejected as error:
        return node_outcome(uuid, Status.FAILED, str(error)), task.known
    except Unlawful as error:
        return replace(node_outcome(uuid, Status.UNSAFE, str(error)), broken=error.laws), task.known


def delete(bare_metal: BareMetalNodes, known: KnownNode) -> Outcome:
    """Delete the provider of a node that is gone, if it still has our marks and no allocations."""
    uuid = known.seen.uuid
    plan = Plan((Delete(uuid, known.seen.name),))
    try:
        if bare_metal.driver.is_there(uuid):  # it came back while this pass was writing
            return node_outcome(uuid, Status.LEFT, "Ironic has it again")
    except DiscoveryError as error:
        return node_outcome(uuid, Status.UNFINISHED, str(error), plan)
    try:
        root = bare_metal.client.observe(uuid).root
        if root is None:
            return node_outcome(uuid, Status.DELETED, "its provider was gone already")
        if not root.provider.traits >= MARKS:
            why = "its node is gone, and another agent removed our mark from its provider"
            return node_outcome(uuid, Status.CONTESTED, why)
        if marks := others_marks(root) - given_traits(root.provider.traits):
            return node_outcome(uuid, Status.CONTESTED, f"its node is gone, and {_claimed(marks)}")
        read = Given(observed=ObservedTree((root,)), emitted=Names(), ends=True)
        bare_metal.client.execute(lawful(plan, read), ObservedTree())
    except (Conflict, Rejected) as error:
        held = _held(bare_metal, Task(Provider(name=uuid), known, None, None), Wishes())
        return held[0] if held else node_outcome(uuid, Status.FAILED, str(error), plan)
    except Unlawful as error:
        return replace(node_outcome(uuid, Status.UNSAFE, str(error), plan), broken=error.laws)
    except PlacementError as error:
        return node_outcome(uuid, Status.UNFINISHED, str(error), plan)
    return node_outcome(uuid, Status.DELETED, "", plan)


def for_each(
    bare_metal: BareMetalNodes, tasks: list[Task], act: Callable[[Task], R], progress: Progress
) -> list[R | Settled]:
    """Carry out all tasks, ``workers`` at a time; those not begun when placement stops answering are unfinished."""
    down = threading.Event()
    counted = threading.Lock()
    done = silences = 0

    def guarded(task: Task) -> R | Settled:
        nonlocal done, silences
        uuid = task.provider.name
        if down.is_set():
            return node_outcome(uuid, Status.UNFINISHED, "placement does not answer"), task.known
        try:
            return act(task)
        except Unavailable as error:
            with counted:
                silences += 1
            if silences < SILENCES and still_answers(bare_metal.client, uuid):
                return node_outcome(uuid, Status.FAILED, str(error)), task.known
            down.set()
            return node_outcome(uuid, Status.UNFINISHED, str(error)), task.known
        finally:
            with counted:
                done += 1
                progress(done, len(tasks))

    if not tasks:
        return []
    with ThreadPoolExecutor(max_workers=bare_metal.workers) as pool:
        return list(pool.map(guarded, tasks))


def _status(task: Task, seen: ObservedProvider | None, plan: Plan) -> Status:
    """Return how a node's pass ends by a plan that was made from ``seen``."""
    if task.status:
        return task.status
    return Status.CREATED if seen is None else Status.CHANGED if plan.operations else Status.UNCHANGED


def known_after(task: Task, stands: ObservedProvider) -> KnownNode:
    """Return what to remember of a node that was written, or found as it should be."""
    if task.known and task.reserves:
        return replace(task.known, seen=stands)
    return KnownNode(stands, spelling=task.spelling)


def plan_node(task: Task, seen: ObservedProvider | None, lacked: frozenset[str], wishes: Wishes) -> Plan:
    """
    Plan what the task wants of its provider, ``seen`` before (None: not in placement); errors as ``_former``.

    Classes and traits themselves are not part of the plan: ``learn_names`` made them for all nodes.

    Raises:
        Unlawful: the plan breaks a law; placement itself guards what consumers hold.
    """
    if task.reserves:
        return _reserve(seen, task.only)
    wanted = replace(task.provider, traits=task.provider.traits - lacked)
    classes, traits = frozenset(wanted.inventories), wanted.traits
    if seen:
        classes |= _former(task, seen, wishes)
        traits |= given_traits(seen.provider.traits)
    names = Names(classes=classes, traits=traits)
    tree = ObservedTree((seen,)) if seen else ObservedTree()
    ours = Ownership(emitted=names)
    plan = diff(tree, ProviderTree((wanted,)), ours, root_uuid=wanted.name, known_traits=wanted.traits)
    plan = Plan(tuple(step for step in plan.operations if not isinstance(step, EnsureClasses | EnsureTraits)))
    return lawful(plan, Given(observed=tree, emitted=names))


def _reserve(seen: ObservedProvider | None, only: str = "") -> Plan:
    """Plan to take a node off offer, unless its provider has another service's mark; ``only`` as in ``Task``."""
    if seen is None or others_marks(seen) - given_traits(seen.provider.traits):
        return Plan(())
    stock = seen.provider.inventories
    names = on_offer(seen.provider) & ({only} if only else stock.keys())
    after = {**stock, **{name: replace(stock[name], reserved=stock[name].total) for name in names}}
    plan = Plan((SetInventories(seen.uuid, seen.name, after),) if names else ())
    return lawful(plan, Given(observed=ObservedTree((seen,)), emitted=Names(classes=names)))


def _former(task: Task, seen: ObservedProvider, wishes: Wishes) -> frozenset[str]:
    """
    Return the classes on a provider that its node had before.

    On a provider that nova made: the class that nova reported. Under our marks: the classes in the form in which this
    agent reports a node, as a node has one class only.

    Raises:
        Contested: another agent writes there, or other stock there would offer the node a second time.
    """
    is_ours, is_novas = MARKER in seen.provider.traits, OWNER_NOVA in seen.provider.traits
    if task.known and not is_ours and not wishes.take_over:
        raise Contested(
            "another agent removed our mark from its provider: stop that agent (nova-compute?), then run "
            "sync --take-over"
        )
    wanted = task.provider.inventories.keys()
    if marks := others_marks(seen) - task.provider.traits - given_traits(seen.provider.traits):
        raise Contested(_claimed(marks))
    others = single_classes(seen.provider) - wanted
    stands = bool(wanted & seen.provider.inventories.keys())
    if others and (is_novas or not is_ours):
        # nova reports one class of a node, so others added the rest
        return frozenset() if stands else _novas_class(seen, others, wanted, force=wishes.force)
    former = others if wishes.force else node_classes(seen.provider) - wanted
    if others and not former and not stands:
        classes = ", ".join(sorted(others))
        raise Contested(
            f"its provider has {classes} instead of {', '.join(wanted)}, in a form that this agent does not write, so "
            f"it may be a former class of the node or another service's: remove {classes} by hand, or run sync --force"
        )
    return former


def _novas_class(
    seen: ObservedProvider, others: frozenset[str], wanted: Iterable[str], *, force: bool
) -> frozenset[str]:
    """
    Return the class that nova reported of a node, where nova owns the provider and no class of the node stands there.

    With ``force`` all of ``others`` count as nova's.

    Raises:
        Contested: that class cannot be told from what others added, and there is no ``force``.
    """
    if force or (len(others) == 1 and others <= node_classes(seen.provider)):
        return others
    raise Contested(
        f"nova made the provider of this node. The provider has {', '.join(sorted(others))}, but not "
        f"{', '.join(wanted)}. The agent cannot tell nova's class from classes that another writer added. Remove "
        f"nova's class by hand, or run sync --force to remove all of {', '.join(sorted(others))}"
    )


def _claimed(marks: frozenset[str]) -> str:
    """Return why nothing is written on a provider with these marks of other services."""
    return (
        f"its provider carries {', '.join(sorted(marks))}, the mark of another service: nothing is written there until "
        f"that trait is removed from the provider (openstack resource provider trait list)"
    )


def _held(bare_metal: BareMetalNodes, task: Task, wishes: Wishes) -> Settled | None:
    """
    Return the outcome of a node that consumers hold, None if there are none.

    The class that they hold stays, and is reserved if the node no longer has it.
    """
    uuid = task.provider.name
    try:
        root = bare_metal.client.observe(uuid).root
        holders = bare_metal.client.allocations((root,)) if root else ()
        if root is None or not holders:
            return None
        held = {one.resource_class for one in holders}
        plan = _reserve(root) if held & _former(task, root, wishes) else Plan(())
        stands = bare_metal.client.execute(plan, ObservedTree((root,))).root
    except (PlacementError, Contested):
        return None  # the caller reports the first error instead
    why = f"consumer {holders[0].consumer} holds {holders[0].resource_class}, which stays until it is released"
    known = replace(task.known, seen=stands) if task.known and stands else task.known
    return node_outcome(uuid, Status.HELD, why, plan, root), known


def _read(bare_metal: BareMetalNodes, task: Task) -> ObservedProvider | None:
    """Return the provider as it stands, read if the look did not; None if placement does not have it."""
    if task.seen or task.generation is None:
        return task.seen
    return bare_metal.client.read(task.provider.name, task.provider.name, task.generation)


def note_on(task: Task, lacked: frozenset[str]) -> str:
    """Return why the node is reserved, and which of its traits placement is too old for; empty for neither."""
    missing = sorted(task.provider.traits & lacked)
    old = f"this placement is too old to know {', '.join(missing)}" if missing else ""
    return "; ".join(filter(None, (f"reserved: {task.because}" if task.because else "", old)))
