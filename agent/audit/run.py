"""One audit of a node: a look at the host, at placement, at what does not agree, and once more at the host."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import get_args

from agent.audit.decide.findings import Finding
from agent.audit.decide.guests import find_all
from agent.audit.decide.snapshot import Snapshot, kin, suspects
from agent.state.audit import AuditMemory, Sighting, read_memory
from agent.state.clock import Clock
from agent.state.memory import NodeState
from agent.sync.node import ComputeNode, look
from drivers.base import Survey
from drivers.errors import PolicyError
from drivers.policy import Layout
from reportclient.allocations import Allocation, Consumer
from reportclient.errors import Absent
from reportclient.payload import UNTYPED
from reportclient.tree import ObservedTree


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """What an audit found, and what the next one is to remember of it."""

    node: str
    root_uuid: str
    tree: ObservedTree
    findings: tuple[Finding, ...]
    young: tuple[str, ...]  # consumers too young to be judged
    memory: AuditMemory
    clock: Clock  # by which the sightings are noted
    before: AuditMemory  # what the last one left
    consumers: dict[str, Consumer] = field(default_factory=dict)


def witness(
    node: ComputeNode,
    *,
    light: bool = False,
    consumers: bool = False,
    seen: tuple[Survey, ObservedTree] | None = None,
    clock: Callable[[], float] | None = None,
) -> AuditResult:
    """
    Look at one node; writes nothing anywhere.

    ``light`` reads only the allocations of providers whose generation moved since the last audit, and takes their
    stock as the last pass left it. Whatever is suspect is read whole in any case, as some writes move no generation.
    ``consumers`` reads each guest's consumer too, one request each: whose it is, and of what type. ``seen`` is what
    a pass that found nothing to change saw a moment ago, of the host first and then of placement.

    Raises:
        DiscoveryError, PolicyError: of the host. StateError: of our own files.
        PlacementError: placement cannot be read, or has no such tree.
    """
    noted = node.clock()
    now = clock() if clock else noted.now_s()
    survey = seen[0] if seen else look(partial(node.driver.survey, node.name))
    root_uuid = seen[1].root.uuid if seen and seen[1].root else node.known_uuid(survey)
    if root_uuid is None:
        raise Absent(f"placement has no provider {node.name}: run compute-node-agent sync first")
    left = node.state_file(root_uuid).read(node.where)
    node.client.microversion = left.microversion or node.client.microversion
    memory = read_memory(node.settings.state_directory, root_uuid, node.where, clock=noted)
    if seen:
        tree = seen[1]
    elif light:
        tree = node.client.glance(root_uuid, left.observed or ObservedTree())
    else:
        left, tree = node.look_at_tree(root_uuid, left)
    if tree.root is None:
        raise Absent(f"placement has no provider {node.name}: run compute-node-agent sync first")
    names = {seen.uuid: seen.name for seen in tree}
    allocations, generations = _read(node, tree, memory if light else AuditMemory())
    snapshot = _snapshot(node, survey, tree, allocations, left)
    snapshot = replace(snapshot, asked=snapshot.holdings.guests & snapshot.holders if consumers else frozenset())
    snapshot = _verified(node, snapshot)
    findings = find_all(snapshot)
    if findings:
        tree, findings = _still_so(node, root_uuid, snapshot, findings, left)
    young = _young(node, snapshot)
    findings = tuple(finding for finding in findings if young.isdisjoint(finding.consumers))
    sightings = {finding.key: _seen_again(memory.sightings.get(finding.key), now) for finding in findings}
    return AuditResult(
        node=node.name,
        root_uuid=root_uuid,
        tree=tree,
        findings=findings,
        young=tuple(sorted(young)),
        memory=AuditMemory(
            where=node.where,
            generations=generations,
            names=names,
            allocations=snapshot.allocations,
            sightings=sightings,
        ),
        clock=noted,
        before=memory,
        consumers=dict(snapshot.consumers),
    )


def _still_so(
    node: ComputeNode, root_uuid: str, snapshot: Snapshot, findings: tuple[Finding, ...], left: NodeState
) -> tuple[ObservedTree, tuple[Finding, ...]]:
    """The tree and the findings that are so a moment later too: a guest may have come or gone meanwhile."""
    first = {finding.key for finding in findings}
    survey = look(partial(node.driver.survey, node.name))
    tree = node.client.observe(root_uuid, left.observed)
    again = _snapshot(node, survey, tree, snapshot.allocations, left)
    again = replace(again, consumers=snapshot.consumers, sharing=snapshot.sharing, asked=snapshot.asked)
    return tree, tuple(finding for finding in find_all(again) if finding.key in first)


def _read(node: ComputeNode, tree: ObservedTree, memory: AuditMemory) -> tuple[tuple[Allocation, ...], dict[str, int]]:
    """Who holds what: as remembered where the generation is still the same, else read."""
    generations = {seen.uuid: seen.generation for seen in tree}
    same = {uuid for uuid in memory.names if memory.generations.get(uuid) == generations.get(uuid)}
    moved = [seen for seen in tree if seen.uuid not in same]
    names = {memory.names[seen.uuid]: seen.name for seen in tree if seen.uuid in same}  # renaming moves no generation
    kept = tuple(replace(one, provider=names[one.provider]) for one in memory.allocations if one.provider in names)
    return (*kept, *node.client.allocations(moved)), generations


def _snapshot(
    node: ComputeNode, survey: Survey, tree: ObservedTree, allocations: tuple[Allocation, ...], left: NodeState
) -> Snapshot:
    policy = node.settings.policy
    layout = node.standing_layout(tree, left)
    present = node.driver.present(survey)
    try:
        desired, holdings = node.driver.shape(survey, replace(policy, layout=layout), tree)
    except PolicyError:  # the configuration says what only its own layout can: of the other one nothing is a ghost
        desired, holdings = node.driver.shape(survey, policy, tree)
        present |= tree.by_name.keys()
    ours = node.ownership(survey, desired, tree, left)
    present |= {provider.name for provider in desired}
    if any(ours.writes(seen) and seen.name not in present for seen in tree):
        present |= _of_any_layout(node, survey, tree)
    return Snapshot(
        tree=tree,
        allocations=allocations,
        holdings=holdings,
        classes={seen.name: ours.classes(seen) for seen in tree},
        foreign=frozenset(seen.name for seen in tree if not ours.writes(seen)),
        present=present | left.configured.keys(),
        wanted=frozenset(provider.name for provider in desired),
        layout=layout,
        configured_layout=policy.layout,
        typed=node.client.microversion > UNTYPED,
    )


def _of_any_layout(node: ComputeNode, survey: Survey, tree: ObservedTree) -> frozenset[str]:
    """The providers that this host has in one layout or another, for instance cells of a conversion cut off."""
    names: set[str] = set()
    for layout in get_args(Layout):
        with suppress(PolicyError):  # this configuration makes no tree in that layout
            desired, _ = node.driver.shape(survey, replace(node.settings.policy, layout=layout), tree)
            names |= {provider.name for provider in desired}
    return frozenset(names)


def _verified(node: ComputeNode, snapshot: Snapshot) -> Snapshot:
    """The same with the whole sets of those asked for and of all that is suspect, until nothing more is."""
    known: dict[str, Consumer | None] = {}
    while unread := (suspects(snapshot) | kin(snapshot) | snapshot.asked) - known.keys():
        known |= {uuid: node.client.consumer(uuid) for uuid in sorted(unread)}
        names = {uuid: seen.name for uuid, seen in snapshot.tree.by_uuid.items()}
        rows = [one for one in snapshot.allocations if one.consumer not in known]
        for consumer in filter(None, known.values()):
            rows += [
                Allocation(consumer.uuid, names[uuid], name, amount)
                for uuid, resources in consumer.slots.items()
                if uuid in names
                for name, amount in resources.items()
            ]
        read = {uuid: consumer for uuid, consumer in known.items() if consumer}
        snapshot = replace(snapshot, allocations=tuple(sorted(rows)), consumers=read)
    abroad = {uuid for one in snapshot.consumers.values() for uuid in snapshot.elsewhere(one)}
    return replace(snapshot, sharing=node.client.sharing()) if abroad else snapshot


def _young(node: ComputeNode, snapshot: Snapshot) -> frozenset[str]:
    """The consumers that were written so lately that their guests may be on their way, or about to move."""
    grace_s = node.settings.audit_grace_s
    compared = kin(snapshot) - suspects(snapshot) - snapshot.asked  # with a stranger, and not judged themselves
    return frozenset(
        uuid
        for uuid, consumer in snapshot.consumers.items()
        if uuid not in compared and consumer.age_s is not None and consumer.age_s < grace_s
    )


def _seen_again(before: Sighting | None, now: float) -> Sighting:
    """A clock that was ahead and was put right does not make a wrong older than it is."""
    return Sighting(min(before.first_s, now), before.looks + 1) if before else Sighting(now)
