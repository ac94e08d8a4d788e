"""
End a host under this agent: remove its tree, or leave the tree to nova without our marks.

Both are refused while the service runs, as its next pass would undo them. A refusal is of the whole: neither removes
anything that a consumer holds, or that this agent did not write.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext

from agent.state.locks import locked, serving
from agent.state.memory import NodeState
from agent.sync.decide.feature import Draft
from agent.sync.decide.features.boot import awaited
from agent.sync.decide.features.hold import HOST, held, spoken
from agent.sync.decide.laws import Given, breaches, sentences
from agent.sync.decide.owner import advice, stranded
from agent.sync.decide.view import View, Wishes
from agent.sync.journal import end_trial
from agent.sync.node import ComputeNode
from agent.sync.outcome import Outcome, Status
from agent.sync.run import again, foresee
from drivers.pools import SHARER
from reportclient.allocations import Allocation
from reportclient.errors import few
from reportclient.names import NO_DEVICES
from reportclient.ownership import MARKER, SET, Names, Ownership, is_marked, is_novas, others_marks, set_on
from reportclient.plan import Delete, Plan, Reshape, SetInventories, SetTraits
from reportclient.reserve import given_back, is_mark, reserved_by_operator, with_marks_of, with_reservations
from reportclient.tree import ObservedTree, same_stock

_STOPPED = "leave the service stopped, because it reports this host again when it starts"
_OTHER = "the tree changed since it was shown: run this again"
_HELD = (
    "a person holds {}: release-hold first, or say --force, and keep guests away by nova (openstack compute service "
    "set --disable, or [pci] device_spec)"
)
_RESERVED = "CPUs, memory and disk of this host, which a person holds, stay reserved until nova-compute writes its own"
_BESIDE = "start nova-compute now, and then this service"
_SHARING = (
    "this host shares the storage of its guests' disks, and nova would report that storage on the root again: set "
    "[agent] shared_disk = own, and run compute-node-agent reshape first"
)
_AWAITING = (
    "devices are awaited since this host was booted, and nova would offer them at once: start what sets them up and "
    "run sync, or wait until [agent] expect_timeout is over, or say --force"
)


def retire_node(node: ComputeNode, *, dry: bool = False, agreed: str | None = None) -> Outcome:
    """
    Remove this host's tree from placement; compute_id stays, so that the host is the same one if it comes back.

    All stock goes in one request, which placement refuses if a consumer holds any of it; then the providers go. In the
    role beside only this agent's children go. Another plan than that of the digest ``agreed`` is not carried out.

    Raises:
        as ``ComputeNode.draft``; StateError: the service runs. Conflict: others wrote first at each of several
            attempts.
    """

    def attempt() -> Outcome:
        draft = foresee(node, Wishes())
        held = _held(node, draft)
        refused = node.against_writing(draft) or against_retirement(draft, held)
        given = _given(node, draft.observed, draft.meanwhile, held)  # a lost memory does not know what files add
        leaving = _leaving(draft)
        lost = _lost(leaving, draft)
        return _leave(node, draft, plan_retirement(leaving), given, refused, dry=dry, agreed=agreed, lost=lost)

    return _until_done(node, attempt, dry=dry)


def hand_over_node(node: ComputeNode, *, dry: bool = False, force: bool = False, agreed: str | None = None) -> Outcome:
    """
    Remove our marks and reservations from this host's tree and leave the rest, for nova-compute to go on with.

    With ``force`` also where there are providers that nova would not maintain, where devices are awaited after a boot,
    and where nova-compute reported the root with our driver. In the role beside this agent's own providers keep their
    marks and reservations, as it maintains them. ``agreed`` as ``retire_node``.

    Raises:
        as ``retire_node``.
    """

    def attempt() -> Outcome:
        node.client.begin()
        view = node.view(any_role=True)
        given = _given(node, view.observed, view.memory, _held(node, view))
        files = {name: names.classes for name, names in view.memory.configured.items()}
        said = with_reservations(with_marks_of(view.observed, view.memory.observed), files)
        plan = plan_hand_over(said, view.memory.configured, kept=kept)
        then = _BESIDE if beside else _STOPPED
        refused, lost = against(view), (_RESERVED,) if HOST in held(view.observed, view.memory) and not beside else ()
        return _leave(node, view, plan, given, refused, dry=dry, agreed=agreed, then=then, how="handed over", lost=lost)

    def against(view: View) -> tuple[str, ...]:
        root = view.observed.root
        if root and SHARER in root.provider.traits:
            return (_SHARING,)
        if awaited(view.memory).stock and not force:
            return (_AWAITING,)
        if (holds := held(view.observed, view.memory)) and not force and not beside:
            return (_HELD.format(few(sorted(map(spoken, holds)))),)
        stands = node.standing_layout(view.observed, view.memory)
        return node.against_handing(view, force=force) or against_hand_over(
            view.observed, stands, force=force or beside
        )

    beside = node.settings.beside_nova
    kept = _own_uuids(foresee(node, Wishes())) if beside else frozenset[str]()
    return _until_done(node, attempt, dry=dry)


def plan_retirement(observed: ObservedTree) -> Plan:
    """Return the plan that removes the whole tree: its stock in one transaction, then children before parents."""
    stocked = tuple(SetInventories(seen.uuid, seen.name, {}) for seen in observed if seen.provider.inventories)
    deletes = tuple(Delete(seen.uuid, seen.name) for seen in reversed(observed.providers))
    return Plan((*((Reshape(stocked),) if stocked else ()), *deletes))


def plan_hand_over(observed: ObservedTree, configured: Mapping[str, Names], *, kept: Collection[str] = ()) -> Plan:
    """
    Return the plan that gives back what we reserved and removes our marks, the root's last.

    The rest of the stock, names and uuids stay. Children with the mark of another service stay as they are, and so do
    classes that the operator's files added (``configured``), and the providers ``kept``, by uuid.

    The stock comes first: after a run that was cut off, the marks still tell what an operator reserved.
    """
    own = [
        seen
        for seen in reversed(observed.providers)
        if seen.uuid not in kept and not (seen.provider.parent and others_marks(seen))
    ]
    stock = tuple(
        SetInventories(seen.uuid, seen.name, after)
        for seen in own
        if is_marked(seen)
        and not same_stock(
            after := given_back(seen, configured.get(seen.name, Names()).classes), seen.provider.inventories
        )
    )
    writes = []
    for seen in own:
        ours = {one for one in seen.provider.traits if one == MARKER or one.startswith(SET) or is_mark(one)}
        if marks := set_on(seen) | ours:
            writes.append(SetTraits(seen.uuid, seen.name, seen.provider.traits - marks, frozenset(), marks))
    return Plan((*((Reshape(stock),) if len(stock) > 1 else stock), *writes))


def _lost(leaving: ObservedTree, draft: Draft) -> tuple[str, ...]:
    """Return what is reserved in a tree that goes, and would not be in one that is made anew, a sentence each."""
    holds = sorted(map(spoken, held(leaving, draft.memory)))
    by_hand = [
        f"{amount} {name} on {seen.name}"
        for seen in draft.said
        if seen.name in leaving.by_name
        for name, amount in sorted(reserved_by_operator(seen.provider).items())
        if amount and name not in NO_DEVICES  # of these an option says how much is reserved
    ]
    return (
        *((f"what a person holds is on offer if this host is reported again: {few(holds)}",) if holds else ()),
        *((f"what is reserved by hand, or as a used one-time device, is lost: {few(by_hand)}",) if by_hand else ()),
    )


def _leaving(draft: Draft) -> ObservedTree:
    """Return what of a tree goes with this agent: all of it, or its children below nova's root."""
    if not draft.view.beside:
        return draft.observed
    own = _own_uuids(draft)
    return ObservedTree(tuple(seen for seen in draft.observed if seen.uuid in own))


def _own_uuids(draft: Draft) -> frozenset[str]:
    """Return our children below nova's root."""
    return frozenset(
        seen.uuid
        for seen in draft.observed
        if seen.provider.parent and seen.uuid not in draft.novas and draft.wanted.ours.writes(seen)
    )


def against_retirement(draft: Draft, held: tuple[Allocation, ...]) -> tuple[str, ...]:
    """Return why this tree is not removed, a sentence each; empty when it may be."""
    observed, ours = draft.observed, draft.wanted.ours
    root, leaving = observed.root, _leaving(draft).by_name
    if root is None:
        return ()
    if MARKER not in root.provider.traits and not draft.view.beside:
        return (f"{root.name} does not carry this agent's mark, so this agent does not remove it",)
    sentences = []
    if consumers := sorted({one.consumer for one in held if one.provider in leaving}):
        sentences.append(f"consumers hold allocations here, move or delete them first: {few(consumers)}")
    if not draft.view.beside:
        return (*sentences, *against_foreign(observed, ours))
    if below := [seen.name for seen in observed if seen.provider.parent in leaving and seen.name not in leaving]:
        sentences.append(f"{few(below)} below this agent's providers belong to other services: stop those first")
    return tuple(sentences)


def against_foreign(observed: ObservedTree, ours: Ownership) -> tuple[str, ...]:
    """Return what other services have in a tree and must remove before the tree can go, a sentence each."""
    sentences = []
    novas = stranded(observed, ours)
    sentences += [advice(seen) for seen in novas]
    if foreign := [seen.name for seen in observed if not ours.writes(seen) and seen not in novas]:
        root = observed.providers[0].name
        sentences.append(
            f"{few(foreign)} below {root} belong to other services (Neutron, for instance): stop those services first"
        )
    for seen in observed:
        if ours.writes(seen) and (strange := sorted(seen.provider.inventories.keys() - ours.classes(seen))):
            sentences.append(
                f"{few(strange)} on {seen.name} is not this agent's: the service that made it must remove it first"
            )
    return tuple(sentences)


def against_hand_over(observed: ObservedTree, layout: str, *, force: bool = False) -> tuple[str, ...]:
    """Return why our marks are not removed, a sentence each; empty when they may be."""
    if observed.root is None or not any(map(is_marked, observed)):
        return ()
    if layout != "devices":
        return (
            f"the tree stands in the layout {layout}, which nova does not know: set [compute] layout = devices (and "
            f"[agent] role = sole), and run compute-node-agent reshape --to devices first",
        )
    children = [seen for seen in observed if seen.provider.parent and is_marked(seen)]
    both = [seen.name for seen in children if others_marks(seen)]
    if both and not force:
        return (
            f"{few(both)} carries this agent's mark and another service's: remove the trait that is wrong, or say "
            f"--force to leave it as it is",
        )
    strange = [seen.name for seen in children if not is_novas(seen)]
    if not strange or force:
        return ()
    return (
        f"nova would not maintain {few(strange)}, and guests could still be scheduled there: take these providers "
        f"out of the configuration and run sync, or use --force and maintain them yourself",
    )


def _until_done(node: ComputeNode, attempt: Callable[[], Outcome], *, dry: bool) -> Outcome:
    """Return the outcome of the first attempt at which no other writer was first."""
    directory = node.settings.folders.state
    with nullcontext() if dry else serving(directory), locked(directory):
        return again(attempt, node.name)


def _held(node: ComputeNode, seen: Draft | View) -> tuple[Allocation, ...]:
    """Return all allocations on the tree of a node whose name is its own."""
    node.check_name(seen)
    return node.client.allocations(one for one in seen.observed if one.provider.inventories)


def _leave(
    node: ComputeNode,
    seen: Draft | View,
    plan: Plan,
    given: Given,
    refused: tuple[str, ...],
    *,
    dry: bool,
    agreed: str | None,
    then: str = _STOPPED,
    how: str = "retired",
    lost: tuple[str, ...] = (),
) -> Outcome:
    """
    Carry out a plan, unless that is ``refused`` or no law allows it.

    ``then`` is what a person must do after it, ``how`` a trial ends by it, ``lost`` what a person should know before.
    """
    observed, terms = seen.observed, (seen.view if isinstance(seen, Draft) else seen).terms
    if terms.untold:
        lost = (*lost, f"it is not known whether a conversion is on trial: {terms.untold}")
    if why := refused or sentences(breaches(plan, given)):
        return Outcome(node=node.name, status=Status.UNSAFE, plan=plan, observed=observed, reasons=why)
    if agreed not in (None, plan.digest):
        return Outcome(node=node.name, status=Status.OTHER_PLAN, plan=plan, observed=observed, reasons=(_OTHER,))
    if dry:
        return Outcome(node=node.name, status=Status.UNCHANGED, plan=plan, observed=observed, reasons=lost)
    if plan.operations:
        node.state_file(seen.root_uuid).begin(seen.memory)  # so a run that is cut off is not taken for a second writer
        node.client.execute(plan, observed)
    if plan.operations or (observed.root is None and not seen.memory.elsewhere):  # nothing is left that it is about
        node.state_file(seen.root_uuid).forget()
    if terms.trial:
        end_trial(terms.trial, how)
    if not plan.operations:
        return Outcome(node=node.name, status=Status.UNCHANGED, plan=plan, observed=observed, reasons=lost)
    return Outcome(node=node.name, status=Status.CHANGED, plan=plan, observed=observed, reasons=(*lost, then))


def _given(node: ComputeNode, observed: ObservedTree, memory: NodeState, held: tuple[Allocation, ...]) -> Given:
    """Return what the plan of a host that ends is held against."""
    return Given(
        observed=observed,
        emitted=node.driver.emitted,
        files=memory.configured,
        reported=memory.reported,
        rows={one.uuid: tuple(row for row in held if row.provider == one.name) for one in observed},
        ends=True,
    )
