"""
One pass over all bare-metal nodes of this agent: each is a root provider of its own, and most of them need nothing.

A quiet pass costs one listing of Ironic and one of placement. Only nodes with something new in one of the two are
planned and written, several at a time; a node that fails does not stop the others. Once placement does not answer, the
nodes that are left wait for the next pass.
"""

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

from agent.bare_metal.compare import look_at_nodes
from agent.bare_metal.context import BareMetalNodes, Look, Task, node_outcome
from agent.state.node_records import KnownNode, write_nodes
from agent.sync.decide.laws import Given, lawful
from agent.sync.decide.view import Wishes
from agent.sync.outcome import Outcome, Status
from drivers.errors import DiscoveryError
from drivers.ironic.shape import MARKS, given_traits, node_classes, on_offer, single_classes, with_critical
from reportclient.client import PlacementClient
from reportclient.diff import diff
from reportclient.errors import Conflict, PlacementError, Rejected, Unavailable, Unlawful
from reportclient.forecast import forecast
from reportclient.names import is_custom, unknown_standard
from reportclient.ownership import MARKER, OWNER_NOVA, Names, Ownership, others_marks
from reportclient.plan import Delete, EnsureClasses, Plan
from reportclient.tree import ObservedProvider, ObservedTree, ProviderTree

_SILENCES = 5  # nodes without an answer of placement's, after which placement is taken to be down
_ATTEMPTS = 3  # at one node whose provider others write too

Execute = Callable[[Plan, ObservedTree], ObservedTree]  # carries out a plan, or forecasts the tree after it
Settled = tuple[Outcome, KnownNode | None]  # how a node's pass ended, and what to remember of it (None: nothing)


class Contested(Exception):
    """Another agent writes on a provider, or it has something that may not be ours; the message says what."""


@dataclass(frozen=True, slots=True)
class NodesOutcome:
    """How a pass over bare-metal nodes ended; of unchanged nodes it has only the count."""

    outcomes: tuple[Outcome, ...]
    unchanged: int

    def count(self, status: Status) -> int:
        """Return how many nodes ended with this status."""
        return self.unchanged if status is Status.UNCHANGED else sum(one.status is status for one in self.outcomes)


@dataclass(frozen=True, slots=True)
class Writing:
    """How one pass writes its nodes, or foresees what that does."""

    bare_metal: BareMetalNodes
    classes: set[str]  # that placement has, so that no node has to make them; written nodes add theirs
    traits: set[str]  # likewise
    wishes: Wishes
    execute: Execute


def run_nodes(bare_metal: BareMetalNodes, wishes: Wishes = Wishes(), *, dry: bool = False) -> NodesOutcome:
    """
    Carry out one pass, and remember what it did, also when placement stops answering in between.

    Of the wishes two count: ``force`` lets many nodes go at once, and removes classes that may be another's;
    ``take_over`` writes also where another agent removed our mark. With ``dry`` nothing is written anywhere.

    Raises:
        as ``look_at_nodes``, and then nothing was written. StateError: what was done cannot be remembered.
    """
    look = look_at_nodes(bare_metal, force=wishes.force)
    classes, traits, lacked = _learn_names(bare_metal.client, look)
    execute = forecast if dry else bare_metal.client.execute
    settled = _settle_all(Writing(bare_metal, classes, traits, wishes, execute), look.tasks)
    told = [*look.outcomes, *(one for one, _ in settled)]
    changed = tuple(one for one in told if one.status is not Status.UNCHANGED)
    outcome = NodesOutcome(changed, look.unchanged + len(told) - len(changed))
    after = replace(
        look.memory,
        lacked=lacked,
        nodes=look.nodes | {one.node: known for one, known in settled if known},
        left=look.left,
        behind=look.behind,
        elsewhere=None,
    )
    if look.whole and not outcome.count(Status.UNFINISHED):
        after = replace(after, whole_s=bare_metal.clock.now_s())
    other_placement = look.memory.elsewhere and outcome.count(Status.REFUSED)
    if not dry and not other_placement and (look.tasks or after != replace(look.memory, elsewhere=None)):
        write_nodes(bare_metal.settings.folders.state, after, clock=bare_metal.clock)
    return outcome


def _settle(writing: Writing, task: Task) -> Settled:
    """Write one node; read it and plan again where others write on it too, unless its provider goes."""
    uuid, generations = task.provider.name, writing.bare_metal.client.generations
    try:
        for _ in range(0 if task.does == "delete" else _ATTEMPTS - 1):
            with suppress(Conflict):
                return _settle_once(writing, task)
            task = replace(task, seen=None, generation=generations(uuid=uuid).get(uuid))
        return _settle_once(writing, task)
    except Contested as error:
        return node_outcome(uuid, Status.CONTESTED, str(error)), task.known
    except (Conflict, Rejected) as error:
        held = _held(writing, task) if isinstance(error, Conflict) else None
        return held or (node_outcome(uuid, Status.FAILED, str(error)), task.known)
    except Unlawful as error:
        return replace(node_outcome(uuid, Status.UNSAFE, str(error)), broken=error.laws), task.known
    except DiscoveryError as error:
        return node_outcome(uuid, Status.UNFINISHED, str(error)), task.known


def _settle_once(writing: Writing, task: Task) -> Settled:
    uuid, bare_metal, goes = task.provider.name, writing.bare_metal, task.does == "delete"
    if goes and bare_metal.ironic.is_there(uuid):  # it came back while this pass was writing
        return node_outcome(uuid, Status.LEFT, "Ironic has it again"), task.known
    seen = task.seen
    if seen is None and task.generation is not None:
        seen = bare_metal.client.read(uuid, uuid, task.generation)
    plan = _plan_node(task, seen, writing)
    stands = writing.execute(plan, ObservedTree((seen,) if seen else ())).root
    if stands is None:
        gone = (Status.DELETED, "") if goes else (Status.FAILED, "its provider is gone")
        return node_outcome(uuid, *gone, plan), None
    status = Status.CREATED if seen is None else Status.CHANGED if plan.operations else Status.UNCHANGED
    outcome = node_outcome(uuid, task.status or status, _note_on(task, plan), plan, seen)
    writing.classes.update(task.provider.inventories)
    writing.traits.update(filter(is_custom, task.provider.traits))  # a standard one may have been left out
    known = KnownNode(stands, spelling=task.spelling)
    if task.known and task.does == "reserve":
        known = replace(task.known, seen=stands)
    if task.status is Status.GOING and plan.operations:  # it was on offer, so the node may have been back
        known = replace(known, gone_s=bare_metal.clock.now_s(), may_go=False)
    return outcome, known


def _settle_all(writing: Writing, tasks: list[Task]) -> list[Settled]:
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
            return _settle(writing, task)
        except Unavailable as error:
            with counted:
                silences += 1
            if silences < _SILENCES and _still_answers(writing.bare_metal.client, uuid):
                return node_outcome(uuid, Status.FAILED, str(error)), task.known
            down.set()
            return node_outcome(uuid, Status.UNFINISHED, str(error)), task.known

    first, rest = _split(tasks, writing)
    return [*map(guarded, first), *writing.bare_metal.client.each(guarded, rest)]


def _split(tasks: list[Task], writing: Writing) -> tuple[list[Task], list[Task]]:
    """
    Return the tasks that make names for others, which are to be done one after the other, and all other tasks.

    Each new class is among the former: placement can lose one of two classes that are made at once.
    """
    times = Counter(trait for task in tasks for trait in task.provider.traits)
    classes, traits, first, rest = set(writing.classes), set(writing.traits), list[Task](), list[Task]()
    for task in tasks:
        new = filter(is_custom, task.provider.inventories.keys() - classes)
        shared = (trait for trait in task.provider.traits - traits if is_custom(trait) and times[trait] > 1)
        (first if any(chain(new, shared)) else rest).append(task)
        classes.update(task.provider.inventories)
        traits |= task.provider.traits
    return first, rest


def _still_answers(client: PlacementClient, uuid: str) -> bool:
    """Return whether placement answers a read of one provider, so that an error concerns that provider only."""
    try:
        client.generations(uuid=uuid)
    except PlacementError:
        return False
    return True


def _plan_node(task: Task, seen: ObservedProvider | None, writing: Writing) -> Plan:
    """
    Plan what the task wants of its provider, ``seen`` before (None: not in placement); errors as ``_former``.

    The plan makes the classes and traits that placement does not have.

    Raises:
        Unlawful: the plan breaks a law; placement itself guards what consumers hold.
    """
    tree = ObservedTree((seen,) if seen else ())
    if task.does == "report":
        plan, names = _report(task, seen, writing)
    elif seen is None:
        plan, names = Plan(()), Names()
    elif task.does == "reserve":
        plan, names = _reserve(task, seen, writing)
    else:
        plan, names = _delete(seen), Names()
    return lawful(plan, Given(observed=tree, emitted=names, ends=task.does == "delete"))


def _report(task: Task, seen: ObservedProvider | None, writing: Writing) -> tuple[Plan, Names]:
    """Plan to report a node; return what of its provider is ours too."""
    wanted = task.provider
    classes, traits = frozenset(wanted.inventories), wanted.traits
    if seen:
        classes |= _former(task, seen, writing.wishes)
        traits |= given_traits(seen.provider.traits)
    names = Names(classes=classes, traits=traits)
    tree, ours = ObservedTree((seen,) if seen else ()), Ownership(emitted=names)
    plan = diff(tree, ProviderTree((wanted,)), ours, root_uuid=wanted.name, known_traits=frozenset(writing.traits))
    steps = (
        one
        for one in plan.operations
        if not isinstance(one, EnsureClasses) or not writing.classes.issuperset(one.names)
    )
    return replace(plan, operations=tuple(steps)), names


def _reserve(task: Task, seen: ObservedProvider, writing: Writing) -> tuple[Plan, Names]:
    """Plan to take a node off offer, unless its provider has another service's mark."""
    if _marks_of_others(seen):
        return Plan(()), Names()
    stock, stand = seen.provider.inventories, seen.provider.traits
    classes = on_offer(seen.provider) & ({task.only} if task.only else stock.keys())
    after = {**stock, **{name: replace(stock[name], reserved=stock[name].total) for name in classes}}
    traits = with_critical(stand) if task.ill else stand
    wanted = replace(seen.provider, inventories=after, traits=traits)
    names = Names(classes=classes, traits=traits ^ stand)
    tree, ours, known = ObservedTree((seen,)), Ownership(emitted=names), frozenset(writing.traits) | stand
    return diff(tree, ProviderTree((wanted,)), ours, root_uuid=seen.uuid, known_traits=known), names


def _delete(seen: ObservedProvider) -> Plan:
    """Plan to delete the provider of a node that is gone, if it still has our marks and no others'."""
    if not seen.provider.traits >= MARKS:
        raise Contested("its node is gone, and another agent removed our mark from its provider")
    if marks := _marks_of_others(seen):
        raise Contested(f"its node is gone, and {_claimed(marks)}")
    return Plan((Delete(seen.uuid, seen.name),))


def _marks_of_others(seen: ObservedProvider) -> frozenset[str]:
    return others_marks(seen) - given_traits(seen.provider.traits)


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
    if marks := _marks_of_others(seen) - task.provider.traits:
        raise Contested(_claimed(marks))
    others, stands = single_classes(seen.provider) - wanted, bool(wanted & seen.provider.inventories.keys())
    novas = is_novas or not is_ours  # nova reports one class of a node, so others added the rest
    if novas and stands:
        return frozenset()
    former = others if wishes.force else node_classes(seen.provider) - wanted
    if others and not stands and (not former or (novas and len(others) > 1 and not wishes.force)):
        classes = ", ".join(sorted(others))
        raise Contested(
            f"its provider has {classes} instead of {', '.join(wanted)}, and the agent cannot tell the former class of "
            f"the node from what another writer added: remove the former class by hand, or run sync --force to remove "
            f"all of {classes}"
        )
    return former


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
        off = replace(task, does="reserve", only="")
        is_ours = held & _former(task, root, writing.wishes)
        plan = _plan_node(off, root, writing) if is_ours else Plan(())
        stands = writing.execute(plan, ObservedTree((root,))).root
    except (PlacementError, Contested):
        return None  # the caller reports the first error instead
    why = f"consumer {holders[0].consumer} holds {holders[0].resource_class}, which stays until it is released"
    known = replace(task.known, seen=stands) if task.known and stands else task.known
    return node_outcome(uuid, Status.HELD, why, plan, root), known


def _note_on(task: Task, plan: Plan) -> str:
    """Return why the node is reserved, and which of its traits placement is too old for; empty for neither."""
    old = f"this placement is too old to know {', '.join(sorted(plan.left_out))}" if plan.left_out else ""
    return "; ".join(filter(None, (f"reserved: {task.because}" if task.because else "", old)))


def _learn_names(client: PlacementClient, look: Look) -> tuple[set[str], set[str], frozenset[str]]:
    """
    Return the classes and traits that placement has of all tasks, and standard traits that it is too old to know.

    One request for 100 names. Names that stand on a provider as remembered need none; other memory may be of a
    placement before this one.
    """
    providers = [one.seen.provider for one in look.believed]
    known = {trait for one in providers for trait in one.traits}
    unread = frozenset[str]().union(*(task.provider.traits for task in look.tasks)) - known
    found = client.known_traits(unread)
    classes = {name for one in providers for name in one.inventories}
    return classes, known | found, look.lacked | unknown_standard(unread, found)
