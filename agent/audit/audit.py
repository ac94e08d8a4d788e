"""One audit of a node: look at host and placement, find what does not agree, and look at both once more."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.audit.decide.findings import Finding, Kind
from agent.audit.decide.guests import find_all
from agent.audit.decide.snapshot import Providers, Snapshot, kin, suspects
from agent.audit.decide.unknown_consumers import strangers
from agent.nova.answers import NovaWitness
from agent.nova.client import NovaClient
from agent.state.audit_memory import AuditMemory, Sighting, read_memory
from agent.state.memory import NodeState
from agent.sync.decide.beside import left_to_nova
from agent.sync.decide.features.boot import awaited
from agent.sync.decide.owner import NOVA_COMPUTE, disputed
from agent.sync.decide.shaped import ownership
from agent.sync.node import ComputeNode
from drivers.base import Survey
from drivers.errors import PolicyError
from reportclient.allocations import Allocation, Consumer
from reportclient.errors import Absent
from reportclient.ownership import OWNER_NOVA
from reportclient.renaming import as_called
from reportclient.tree import ObservedTree


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """What an audit found, and what the next audit is to remember of it."""

    root_uuid: str
    tree: ObservedTree
    findings: tuple[Finding, ...]
    young: tuple[str, ...]  # uuids of consumers that were written too lately to be judged
    early: tuple[Finding, ...] = ()  # misplaced rows of young consumers: no findings yet, but a policy may move them
    memory: AuditMemory
    before: AuditMemory  # the memory that the last audit left
    consumers: dict[str, Consumer] = field(default_factory=dict)  # those that were read whole, by uuid
    names: Mapping[str, str] = field(default_factory=dict)  # of the guests, by uuid, as ``Survey.names``
    silence: str = ""  # why nova's answer is missing, and what to do; empty: it is not missing, or not needed

    def since_s(self, finding: Finding) -> float:
        """Return when a finding was first seen, by the clock of the sightings; now for one that is ``early``."""
        sighting = self.memory.sightings.get(finding.key)
        return sighting.first_s if sighting else self.memory.clock.now_s()


def witness(node: ComputeNode, *, light: bool = False, seen: tuple[Survey, ObservedTree] | None = None) -> AuditResult:
    """
    Look at one node; writes nothing anywhere.

    ``light`` reads the allocations only of providers whose generation changed since the last audit, and takes the stock
    as the last pass left it. Suspect consumers are read whole in any case, as some writes change no generation.
    ``seen`` is what a pass that found nothing to change saw a moment ago: first the host, then placement. Nova is asked
    about consumers that are no guests here.

    Raises:
        DiscoveryError, PolicyError: the host cannot be read, or contradicts the policy. StateError: a file of the state
            directory cannot be used.
        PlacementError: placement cannot be read, or has no such tree. ConfigError: there is no login to nova.
    """
    noted, nova = node.clock(), node.nova()
    now = noted.now_s()
    survey, found = seen or (node.survey(), None)
    root_uuid = found.root.uuid if found and found.root else node.known_uuid(survey)
    if root_uuid is None:
        raise _absent(node)
    left = node.state_file(root_uuid).read(node.where)
    memory = read_memory(node.settings.folders.state, root_uuid, node.where, clock=noted)
    left, tree = _tree(node, root_uuid, left, found, light=light)
    allocations, generations = _read(node, tree, memory if light else AuditMemory())
    snapshot = _snapshot(node, survey, tree, allocations, left)
    doubted = snapshot.without_rows_of_nova(running=light) if nova else frozenset[str]()
    snapshot = _verified(node, replace(snapshot, doubted=doubted))
    young = _young(node, snapshot)
    snapshot = _with_nova(node, snapshot, root_uuid, young, nova)
    if findings := find_all(snapshot):
        tree, findings = _still_so(node, root_uuid, snapshot, findings, left)
    early = tuple(one for one in findings if one.repair and one.repair.misplaced and one.consumers & young)
    findings = tuple(one for one in findings if young.isdisjoint(one.consumers))
    sightings = {one.key: _seen_again(memory.sightings.get(one.key), one, now, node) for one in findings}
    return AuditResult(
        root_uuid=root_uuid,
        tree=tree,
        findings=tuple(one for one in findings if sightings[one.key].looks),
        young=tuple(sorted(young)),
        early=early,
        memory=AuditMemory(
            where=node.where,
            clock=noted,
            generations=generations,
            names=snapshot.names,
            allocations=snapshot.allocations,
            sightings=sightings,
        ),
        before=memory,
        consumers=dict(snapshot.consumers),
        names=survey.names,
        silence=snapshot.nova.silence,
    )


def _with_nova(
    node: ComputeNode, snapshot: Snapshot, root_uuid: str, young: frozenset[str], nova: NovaClient | None
) -> Snapshot:
    """Return the snapshot with nova's answer on strangers; nothing is asked where there are none that can be judged."""
    several = {one.uuid for one in strangers(snapshot)}
    if not several and not snapshot.without_rows_of_nova(running=True) | snapshot.doubted:
        return snapshot
    root = snapshot.tree.providers[0].provider
    told = nova is not None or not node.settings.reports_root  # a login, or such a role, says that nova is there
    shown = told or OWNER_NOVA in root.traits
    beside = shown or (not node.settings.recorded and node.probe(NOVA_COMPUTE).any)
    differing = any(snapshot.differences(uuid) for uuid in snapshot.holdings.guests & snapshot.consumers.keys())
    asked = frozenset(several if differing else several - young)  # a young one may be why a guest differs
    asked |= snapshot.doubted
    answer = nova.witness(root_uuid, asked) if nova and asked else NovaWitness()
    return replace(snapshot, beside_nova=beside, nova=answer)


def _tree(
    node: ComputeNode, root_uuid: str, left: NodeState, found: ObservedTree | None, *, light: bool
) -> tuple[NodeState, ObservedTree]:
    """
    Return the tree, as ``found`` or read now, with the memory to compare it with.

    Raises:
        PlacementError: as ``witness``.
    """
    if found is not None:
        tree = found
    elif light:
        tree = node.client.glance(root_uuid, left.observed or ObservedTree())
    else:
        left, tree = node.look_at_tree(root_uuid, left)
    if tree.root is None:
        raise _absent(node)
    return left, as_called(tree, tree.root.name)


def _absent(node: ComputeNode) -> Absent:
    who = "run compute-node-agent sync first" if node.settings.reports_root else "start nova-compute, which reports it"
    return Absent(f"placement has no provider {node.name}: {who}")


def _still_so(
    node: ComputeNode, root_uuid: str, snapshot: Snapshot, findings: tuple[Finding, ...], left: NodeState
) -> tuple[ObservedTree, tuple[Finding, ...]]:
    """Return the tree read anew, and the findings that it still has: a guest may have come or gone meanwhile."""
    first = {finding.key for finding in findings}
    survey = node.survey()
    tree = node.client.observe(root_uuid, left.observed)
    tree = as_called(tree, tree.root.name) if tree.root else tree
    now = _snapshot(node, survey, tree, snapshot.allocations, left)
    again = replace(
        snapshot,
        tree=tree,
        holdings=now.holdings,
        providers=now.providers,
        standing=now.standing,
        disputed=now.disputed,
    )
    return tree, tuple(finding for finding in find_all(again) if finding.key in first)


def _read(node: ComputeNode, tree: ObservedTree, memory: AuditMemory) -> tuple[tuple[Allocation, ...], dict[str, int]]:
    """Return all allocations of the tree (remembered where a generation is unchanged, else read), and generations."""
    generations = {seen.uuid: seen.generation for seen in tree}
    same = {uuid for uuid in memory.names if memory.generations.get(uuid) == generations.get(uuid)}
    moved = [seen for seen in tree if seen.uuid not in same]
    names = {memory.names[seen.uuid]: seen.name for seen in tree if seen.uuid in same}  # renaming changes no generation
    kept = tuple(replace(one, provider=names[one.provider]) for one in memory.allocations if one.provider in names)
    return (*kept, *node.client.allocations(moved)), generations


def _snapshot(
    node: ComputeNode, survey: Survey, tree: ObservedTree, allocations: tuple[Allocation, ...], left: NodeState
) -> Snapshot:
    policy = node.settings.policy
    layout = "devices" if node.settings.beside_nova else node.standing_layout(tree, left)  # nova has no other
    present = survey.present
    try:
        desired, holdings = node.driver.shape(survey, replace(policy, layout=layout), tree)
    except PolicyError:  # the policy fits only the configured layout: then no provider of this tree is a ghost
        desired, holdings = node.driver.shape(survey, policy, tree)
        present |= tree.by_name.keys()
    ours = ownership(node.driver, survey, desired, tree, left)
    present |= {provider.name for provider in desired}
    novas = left_to_nova(tree, holdings.backing.novas) if node.settings.beside_nova else ()
    # A root of ours is put right by a pass.
    differing = {} if node.settings.reports_root else disputed((seen.provider for seen in tree), desired)
    return Snapshot(
        tree=tree,
        allocations=allocations,
        holdings=holdings,
        providers=Providers(
            classes={seen.name: ours.classes(seen) for seen in tree},
            foreign=frozenset(seen.name for seen in tree if not ours.writes(seen)),
            novas=frozenset(seen.name for seen in novas),
            present=present | left.configured.keys() | {name for name, *_ in awaited(left).stock},
            wanted=frozenset(provider.name for provider in desired),
            cards={str(one.address): str(one.pf) for one in survey.facts.devices.functions if one.pf},
        ),
        layout=layout if tree.root and node.on_trial(tree.root.uuid)[0] else policy.layout,  # a trial is told elsewhere
        standing=layout,
        disputed=differing,
    )


def _verified(node: ComputeNode, snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the whole sets of all suspects, read until no new suspect appears."""
    known: dict[str, Consumer | None] = {}
    while unread := (suspects(snapshot) | kin(snapshot)) - known.keys():
        known |= {uuid: node.client.consumer(uuid) for uuid in sorted(unread)}
        rows = [one for one in snapshot.allocations if one.consumer not in known]
        for consumer in filter(None, known.values()):
            rows += [
                Allocation(consumer.uuid, snapshot.names[uuid], name, amount)
                for uuid, resources in consumer.slots.items()
                if uuid in snapshot.names
                for name, amount in resources.items()
            ]
        read = {uuid: consumer for uuid, consumer in known.items() if consumer}
        snapshot = replace(snapshot, allocations=tuple(sorted(rows)), consumers=read)
    abroad = {uuid for one in snapshot.consumers.values() for uuid in snapshot.elsewhere(one)}
    return replace(snapshot, sharing=node.client.sharing()) if abroad else snapshot


def _young(node: ComputeNode, snapshot: Snapshot) -> frozenset[str]:
    """Return the consumers that were written so lately that their guests may be on their way, or about to move."""
    grace_s = node.settings.audit_grace_s
    compared = kin(snapshot) - suspects(snapshot)  # only compared with a stranger, not judged
    return frozenset(
        uuid
        for uuid, consumer in snapshot.consumers.items()
        if uuid not in compared and consumer.age_s is not None and consumer.age_s < grace_s
    )


def _seen_again(before: Sighting | None, finding: Finding, now: float, node: ComputeNode) -> Sighting:
    """
    Return a sighting with one more look; a clock that was set back does not make a finding older than it is.

    A finding whose repair would write something else than before was not shown yet: it begins anew. A device that is
    odd for less than ``[agent] audit_grace`` seconds is no finding yet: it may just be set up.
    """
    shown = finding.repair.digest if finding.repair else ""
    if before is None or before.shown != shown:
        before = Sighting(now, 0, shown)
    first_s = min(before.first_s, now)
    waits = finding.kind is Kind.ODD_DEVICE and not before.looks and now - first_s < node.settings.audit_grace_s
    return Sighting(first_s, 0 if waits else before.looks + 1, shown)
