"""Hold something of a host that cannot be read: reservations on the tree that stands, and nothing else."""

from dataclasses import replace

from agent.errors import ConfigError
from agent.settings.read import Settings
from agent.state.identity import read_identity
from agent.state.locks import locked
from agent.state.node_file import StateFile
from agent.sync.decide.features.hold import BODY, DISABLED, HOST, Hold, HoldWish, held_in, key_of
from agent.sync.decide.laws import Given, breaches, sentences
from agent.sync.decide.way import reservations, with_marks, with_reserved
from agent.sync.outcome import Outcome, Status
from reportclient.client import PlacementClient
from reportclient.diff import diff
from reportclient.ownership import MARKER, SET, Names, Ownership, is_marked, joined
from reportclient.reserve import with_marks_of, with_reservations
from reportclient.tree import ProviderTree


def hold_unseen(client: PlacementClient, settings: Settings, where: str, wish: HoldWish, emitted: Names) -> Outcome:
    """
    Reserve what is free of what a person holds, on the providers of this agent as they stand in placement.

    Raises:
        ConfigError: that needs a look at the host. StateError: the state cannot be used. PlacementError: as for a pass.
    """
    root_uuid = read_identity(settings.folders.identity)
    if root_uuid is None or settings.beside_nova or settings.audits_only or wish.gives_back:
        raise ConfigError("only a host that this agent reports can be held without a look at it; nothing is given back")
    with locked(settings.folders.state):
        state = StateFile(settings.folders.state, root_uuid)
        memory, observed = state.read(where), client.observe(root_uuid)
        root = observed.root
        if root is None or MARKER not in root.provider.traits:
            raise ConfigError(
                "placement has no root of this host with this agent's mark: nothing can be held without it"
            )
        files = {name: names.classes for name, names in memory.configured.items()}
        said = with_reservations(with_marks_of(observed, memory.observed), files)
        ours = [seen for seen in said if seen is said.root or is_marked(seen)]
        what = HOST if wish.what == HOST else key_of(wish.what, root.name)
        if what not in {HOST, *(key_of(seen.name, root.name) for seen in ours)}:
            raise ConfigError(
                f"placement has no provider of {wish.what}: what a root's total has of it is not known now"
            )
        notes = {**memory.bodies.get(BODY, {}), what: dict(wish.note)}
        feature = Hold(holds=held_in(said) | {what: wish.until_s}, notes=notes)
        rows = client.allocations(seen for seen in ours if seen.provider.inventories)
        tree = ProviderTree(tuple(seen.provider for seen in ours))
        tree = with_marks(with_reserved(tree, reservations(tree, [feature]), files, rows), [feature])
        if what == HOST and DISABLED not in root.provider.traits:
            traits = tree.root.traits | {DISABLED, f"{SET}{DISABLED}"}
            tree = ProviderTree((replace(tree.root, traits=traits), *(one for one in tree if one.parent)))
        owned = Ownership(emitted=emitted, configured=joined(memory.configured, memory.reported))
        known = frozenset[str]({DISABLED}).union(*(seen.provider.traits for seen in observed))
        plan = diff(observed, tree, owned, root_uuid=root_uuid, known_traits=known)
        given = Given(
            observed=observed,
            emitted=emitted,
            files=memory.configured,
            reported=memory.reported,
            rows={seen.uuid: tuple(row for row in rows if row.provider == seen.name) for seen in ours},
        )
        if broken := sentences(breaches(plan, given)):
            return Outcome(node=root.name, status=Status.UNSAFE, plan=plan, observed=observed, reasons=broken)
        if plan.operations:
            state.begin(memory)
            client.execute(plan, observed)
        left = client.observe(root_uuid) if memory.observed else None
        state.write(replace(memory, observed=left).with_bodies({BODY: notes}))
    status = Status.CHANGED if plan.operations else Status.UNCHANGED
    return Outcome(node=root.name, status=status, plan=plan, observed=observed, reasons=(feature.sentence(what),))
