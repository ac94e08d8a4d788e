"""Hold something of a host that cannot be read: reservations on the tree that stands, and nothing else."""

from collections.abc import Iterable
from dataclasses import replace

from agent.errors import ConfigError
from agent.settings.read import Settings
from agent.state.identity import read_identity
from agent.state.locks import locked
from agent.state.memory import NodeState
from agent.state.node_file import StateFile
from agent.sync.decide.features.hold import BODY, HOST, Hold, HoldWish, encoded, held, is_device, key_of
from agent.sync.decide.features.second_writer import SECOND_WRITER
from agent.sync.decide.laws import Given, breaches, sentences
from agent.sync.decide.reserving import own_standing, with_root_traits, without_others
from agent.sync.decide.way import reservations, with_marks, with_reserved
from agent.sync.outcome import Outcome, Status, conditions_of
from agent.sync.run import again
from reportclient.client import PlacementClient
from reportclient.diff import diff
from reportclient.errors import Conflict
from reportclient.forecast import forecast
from reportclient.names import ONE_TIME
from reportclient.ownership import MARKER, OWNER_NOVA, Names, Ownership, joined
from reportclient.plan import Plan
from reportclient.reserve import is_mark, with_marks_of, with_reservations
from reportclient.tree import UNWRITTEN, ObservedProvider, ObservedTree, Provider, ProviderTree

_DOUBTED = (Status.CONTESTED.value, Status.AUDIT_ONLY.value, SECOND_WRITER)


def hold_unseen(client: PlacementClient, settings: Settings, where: str, wish: HoldWish, emitted: Names) -> Outcome:
    """
    Reserve what is free of what a person holds, on the providers of this agent as they stand in placement.

    Raises:
        ConfigError: that needs a look at the host. StateError: the state cannot be used. PlacementError: as for a pass.
    """
    root_uuid = None if settings.recorded else read_identity(settings.folders.identity)
    if root_uuid is None or settings.beside_nova or settings.audits_only:
        raise ConfigError("without a look at it only a host that this agent reports can be held")
    if wish.note is None:
        raise ConfigError("without a look at the host nothing is given back")
    folder = settings.folders.state
    with locked(folder):
        state = StateFile(folder, root_uuid)
        memory = state.read(where)  # once: an attempt that ends in a conflict leaves doubts in the file
        try:
            return again(lambda: _attempt(client, state, memory, root_uuid, wish, emitted), root_uuid)
        except (Conflict, ConfigError):
            doubted = state.read(where)
            if doubted != memory:  # a hold that a person was told has failed is no hold
                state.write(doubted.with_bodies({BODY: memory.bodies.get(BODY, {})}))
            raise


def _attempt(
    client: PlacementClient, state: StateFile, memory: NodeState, root_uuid: str, wish: HoldWish, emitted: Names
) -> Outcome:
    client.begin()
    observed = client.observe(root_uuid)
    root = _sure_root(observed, memory)
    files = {name: names.classes for name, names in memory.configured.items()}
    ours = Ownership(emitted=emitted, configured=joined(memory.configured, memory.reported))
    own = own_standing(with_reservations(with_marks_of(observed, memory.observed), files), ours)
    if own is None:
        raise ConfigError("providers of this agent stand below another service's: run it again when libvirt answers")
    claimed = _perhaps_claimed(own, memory.observed)
    what, holds, note = _key_of(wish.what, root, own, claimed), held(observed, memory), wish.note
    assert note
    feature = Hold(holds={**holds, what: holds[what].and_also(note) if what in holds else note})
    rows = client.allocations(seen for seen in own if seen.provider.inventories)
    tree = ProviderTree(tuple(seen.provider for seen in own))
    tree = with_marks(with_reserved(tree, reservations(tree, [feature]), files, rows), [feature])
    tree = ProviderTree(tuple(claimed.get(one.name, one) for one in tree))
    tree = without_others(tree, {seen.name: ours.classes(seen) for seen in own})
    tree = _with_traits_of(root, with_root_traits(tree, [feature], root))
    known = frozenset[str]().union(feature.root_traits(), *(seen.provider.traits for seen in observed))
    plan = diff(observed, tree, ours, root_uuid=root_uuid, known_traits=known)
    given = Given(
        observed=observed,
        emitted=emitted,
        files=memory.configured,
        reported=memory.reported,
        rows={seen.uuid: tuple(row for row in rows if row.provider == seen.name) for seen in own},
    )
    if broken := sentences(breaches(plan, given)):
        return Outcome(node=root.name, status=Status.UNSAFE, plan=plan, observed=observed, reasons=broken)
    memory = memory.with_bodies({BODY: encoded(feature.holds)})
    if plan.operations:
        foreseen = (replace(seen, generation=UNWRITTEN) for seen in forecast(plan, observed))
        state.write(_with_written(memory, plan, observed, ObservedTree(tuple(foreseen))))
        client.execute(plan, observed)
    state.write(_with_written(memory, plan, observed, client.observe(root_uuid)))
    status = Status.CHANGED if plan.operations else Status.UNCHANGED
    return Outcome(node=root.name, status=status, plan=plan, observed=observed, reasons=(feature.sentence(what),))


def _sure_root(observed: ObservedTree, memory: NodeState) -> ObservedProvider:
    """Return the root, where it is ours and the last pass was sure of it; ConfigError: it was not."""
    root = observed.root
    if root is None or MARKER not in root.provider.traits:
        raise ConfigError("placement has no root of this host that carries this agent's mark")
    left = memory.observed.root if memory.observed else None
    if OWNER_NOVA in root.provider.traits and left and OWNER_NOVA not in left.provider.traits:
        raise ConfigError(f"nova marked {root.name} since the last pass: run it again when libvirt answers")
    if told := [one.text for one in conditions_of(memory.bodies) if one.kind in _DOUBTED]:
        raise ConfigError(f"nothing is written without a look at the host, as its last pass said: {told[0]}")
    return root


def _key_of(what: str, root: ObservedProvider, own: Iterable[ObservedProvider], claimed: Iterable[str]) -> str:
    """Return the key of what a person names; ConfigError: that needs a look at the host."""
    if what == HOST:
        return HOST
    key = key_of(what, root.name)
    if key not in {key_of(seen.name, root.name) for seen in own if is_device(seen.name, root.name)}:
        raise ConfigError(f"placement has no provider of {what}, and what the root has of it is not known now")
    if key in {key_of(name, root.name) for name in claimed}:
        raise ConfigError(f"{what} is a one-time device and may have been used: run it again when libvirt answers")
    return key


def _with_traits_of(root: ObservedProvider, tree: ProviderTree) -> ProviderTree:
    """Return a tree whose root keeps the traits that it has, but for those that say who reserved."""
    kept = {name for name in root.provider.traits if not is_mark(name)}
    return ProviderTree((replace(tree.root, traits=tree.root.traits | kept), *(one for one in tree if one.parent)))


def _with_written(memory: NodeState, plan: Plan, observed: ObservedTree, left: ObservedTree) -> NodeState:
    """Return the memory with the providers that were written; of the others the next pass compares the last one's."""
    if not memory.observed:
        return memory
    stands, now = observed.by_uuid, left.by_uuid
    wrote = {one.uuid for one in forecast(plan, observed) if one.provider != stands[one.uuid].provider}
    after = (
        _merged(seen, stands[seen.uuid], now[seen.uuid]) if seen.uuid in wrote & now.keys() else seen
        for seen in memory.observed
    )
    return replace(memory, observed=ObservedTree(tuple(after), memory.observed.last_modified))


def _merged(last: ObservedProvider, before: ObservedProvider, after: ObservedProvider) -> ObservedProvider:
    """Return a provider as written, with all that somebody else changed since the last pass as that left it."""
    if last.generation == before.generation:
        return after
    reserved = {name: one.reserved for name, one in after.provider.inventories.items()}
    stock = {
        name: replace(one, reserved=min(one.total, reserved.get(name, one.reserved)))
        for name, one in last.provider.inventories.items()
    }
    marks = {name for name in after.provider.traits if is_mark(name)}
    traits = {name for name in last.provider.traits if not is_mark(name)} | marks
    provider = replace(last.provider, inventories=stock, traits=frozenset(traits))
    return replace(last, provider=provider, generation=min(last.generation, after.generation))  # UNWRITTEN is below all


def _perhaps_claimed(own: Iterable[ObservedProvider], left: ObservedTree | None) -> dict[str, Provider]:
    """Return the one-time devices that changed since the last pass, by name: only an untouched one shows its use."""
    known = left.by_uuid if left else {}
    return {
        seen.name: seen.provider
        for seen in own
        if ONE_TIME in seen.provider.traits
        and (seen.uuid not in known or known[seen.uuid].generation != seen.generation)
    }
