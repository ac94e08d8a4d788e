"""
Bring the providers of bare-metal nodes to what they should be, several at a time.

A node that fails does not stop the others. Once placement does not answer, the nodes that are left wait for the next
pass.
"""

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from agent.bare_metal.context import BareMetalNodes, Task, node_outcome
from agent.bare_metal.vocabulary import Vocabulary
from agent.state.node_records import KnownNode
from agent.sync.decide.laws import Given, lawful
from agent.sync.decide.view import Wishes
from agent.sync.outcome import Outcome, Status
from drivers.errors import DiscoveryError
from drivers.ironic.shape import MARKS, given_traits, node_classes, on_offer, single_classes
from reportclient.client import PlacementClient
from reportclient.diff import diff
from reportclient.errors import Conflict, PlacementError, Rejected, Unavailable, Unlawful
from reportclient.ownership import MARKER, OWNER_NOVA, Names, Ownership, others_marks
from reportclient.plan import Delete, EnsureClasses, Plan, SetInventories
from reportclient.side_by_side import each
from reportclient.tree import ObservedProvider, ObservedTree, Provider, ProviderTree

SILENCES = 5  # nodes without an answer of placement's, after which placement is taken to be down
_ATTEMPTS = 3  # at one node whose provider others write too

Execute = Callable[[Plan, ObservedTree], ObservedTree]  # carries out a plan, or forecasts the tree after it
Settled = tuple[Outcome, KnownNode | None]  # how a node's pass ended, and what to remember of it (None: nothing)


class Contested(Exception):
    """Another agent writes on a provider, or it has something that may not be ours; the message says what."""


@dataclass(frozen=True, slots=True)
class Writing:
    """How one pass writes its nodes, or foresees what that does."""

    bare_metal: BareMetalNodes
    vocabulary: Vocabulary
    wishes: Wishes
    execute: Execute


def settle(writing: Writing, task: Task) -> Settled:
    """Write one node; read it and plan again where others write on it too."""
    uuid, bare_metal = task.provider.name, writing.bare_metal

    try:
        for _ in range(_ATTEMPTS - 1):
            with suppress(Conflict):
                return _settle_once(writing, task)
            task = replace(task, seen=None, generation=bare_metal.client.generations(uuid=uuid).get(uuid))
        return _settle_once(writing, task)
    except Contested as error:
        return node_outcome(uuid, Status.CONTESTED, str(error)), task.known
    except Conflict as error:
        held = _held(writing, task)
        return held or (node_outcome(uuid, Status.FAILED, str(error)), task.known)
    except Rejected as error:
        return node_outcome(uuid, Status.FAILED, str(error)), task.known
    except Unlawful as error:
        return replace(node_outcome(uuid, Status.UNSAFE, str(error)), broken=error.laws), task.known


def _settle_once(writing: Writing, task: Task) -> Settled:
    uuid, bare_metal = task.provider.name, writing.bare_metal
    seen = _read(bare_metal, task)
    plan = plan_node(task, seen, writing.vocabulary.known, writing.wishes)
    stands = writing.execute(plan, ObservedTree((seen,) if seen else ())).root
    if stands is None:
        return node_outcome(uuid, Status.FAILED, "its provider is gone"), None
    outcome = node_outcome(uuid, _status(task, seen, plan), _note_on(task, plan), plan, seen)
    writing.vocabulary.add(task)
    known = _known_after(task, stands)
    if task.status is Status.GOING and plan.operations:  # it was on offer, so the node may have been back
        known = replace(known, gone_s=bare_metal.now_s(), may_go=False)
    return outcome, known


def delete(writing: Writing, known: KnownNode) -> Outcome:
    """Delete the provider of a node that is gone, if it still has our marks and no allocations."""
    uuid, bare_metal = known.seen.uuid, writing.bare_metal
    plan = Plan((Delete(uuid, known.seen.name),))
    try:
        if bare_metal.ironic.is_there(uuid):  # it came back while this pass was writing
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
        writing.execute(lawful(plan, read), ObservedTree((root,)))
    except (Conflict, Rejected) as error:
        held = _held(replace(writing, wishes=Wishes()), Task(Provider(name=uuid), known, None, None))
        return held[0] if held else node_outcome(uuid, Status.FAILED, str(error), plan)
    except Unlawful as error:
        return replace(node_outcome(uuid, Status.UNSAFE, str(error), plan), broken=error.laws)
    except PlacementError as error:
        return node_outcome(uuid, Status.UNFINISHED, str(error), plan)
    return node_outcome(uuid, Status.DELETED, "", plan)


def settle_all(writing: Writing, tasks: list[Task]) -> list[Settled]:
    """
    Settle all tasks, as many at a time as the client sends requests, after those that make names for others.

    Tasks that are not begun when placement stops answering are unfinished.
    """
    down = threading.Event()
    counted = threading.Lock()
    silences = 0

    def guarded(task: Task) -> Settled:
        nonlocal silences
        uuid = task.provider.name
        if down.is_set():
            return node_outcome(uuid, Status.UNFINISHED, "placement does not answer"), task.known
        try:
            return settle(writing, task)
        except Unavailable as error:
            with counted:
                silences += 1
            if silences < SILENCES and _still_answers(writing.bare_metal.client, uuid):
                return node_outcome(uuid, Status.FAILED, str(error)), task.known
            down.set()
            return node_outcome(uuid, Status.UNFINISHED, str(error)), task.known

    first, rest = writing.vocabulary.split(tasks)
    return [*map(guarded, first), *each(guarded, rest, writing.bare_metal.client.workers)]


def _still_answers(client: PlacementClient, uuid: str) -> bool:
    """Return whether placement answers a read of one provider, so that an error concerns that provider only."""
    try:
        client.generations(uuid=uuid)
    except PlacementError:
        return False
    return True


def _status(task: Task, seen: ObservedProvider | None, plan: Plan) -> Status:
    """Return how a node's pass ends by a plan that was made from ``seen``."""
    if task.status:
        return task.status
    return Status.CREATED if seen is None else Status.CHANGED if plan.operations else Status.UNCHANGED


def _known_after(task: Task, stands: ObservedProvider) -> KnownNode:
    """Return what to remember of a node that was written, or found as it should be."""
    if task.known and task.reserves:
        return replace(task.known, seen=stands)
    return KnownNode(stands, spelling=task.spelling)


def plan_node(task: Task, seen: ObservedProvider | None, known_names: frozenset[str], wishes: Wishes) -> Plan:
    """
    Plan what the task wants of its provider, ``seen`` before (None: not in placement); errors as ``_former``.

    ``known_names`` are classes and traits that placement has: the plan makes the others that it needs.

    Raises:
        Unlawful: the plan breaks a law; placement itself guards what consumers hold.
    """
    if task.reserves:
        return _reserve(seen, task.only)
    wanted = task.provider
    classes, traits = frozenset(wanted.inventories), wanted.traits
    if seen:
        classes |= _former(task, seen, wishes)
        traits |= given_traits(seen.provider.traits)
    names = Names(classes=classes, traits=traits)
    tree = ObservedTree((seen,)) if seen else ObservedTree()
    ours = Ownership(emitted=names)
    plan = diff(tree, ProviderTree((wanted,)), ours, root_uuid=wanted.name, known_traits=known_names)
    steps = (
        one for one in plan.operations if not isinstance(one, EnsureClasses) or not known_names.issuperset(one.names)
    )
    return lawful(replace(plan, operations=tuple(steps)), Given(observed=tree, emitted=names))


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


def _held(writing: Writing, task: Task) -> Settled | None:
    """
    Return the outcome of a node that consumers hold, None if there are none.

    The class that they hold stays, and is reserved if the node no longer has it.
    """
    uuid, client = task.provider.name, writing.bare_metal.client
    try:
        root = client.observe(uuid).root
        holders = client.allocations((root,)) if root else ()
        if root is None or not holders:
            return None
        held = {one.resource_class for one in holders}
        plan = _reserve(root) if held & _former(task, root, writing.wishes) else Plan(())
        stands = writing.execute(plan, ObservedTree((root,))).root
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


def _note_on(task: Task, plan: Plan) -> str:
    """Return why the node is reserved, and which of its traits placement is too old for; empty for neither."""
    old = f"this placement is too old to know {', '.join(sorted(plan.left_out))}" if plan.left_out else ""
    return "; ".join(filter(None, (f"reserved: {task.because}" if task.because else "", old)))
