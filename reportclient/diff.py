"""
Pure planner: compares what placement holds with what it should hold, and returns the operations between them.

A reshape replaces all allocations of each consumer that it names, so moves become whole sets here.
"""

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from reportclient.allocations import Allocation, Consumer, Move, apply_moves
from reportclient.errors import Conflict, TreeMismatch
from reportclient.names import is_custom, unknown_standard
from reportclient.ownership import Ownership, is_novas, others_marks
from reportclient.plan import (
    Create,
    Delete,
    EnsureClasses,
    EnsureTraits,
    Operation,
    Plan,
    Rename,
    Reparent,
    Reshape,
    Rewrite,
    SetAggregates,
    SetInventories,
    SetTraits,
)
from reportclient.renaming import as_called, child_uuid, is_unmarked
from reportclient.reserve import class_kept, is_mark, is_reserved_by_us, tells_left
from reportclient.tree import ObservedProvider, ObservedTree, Provider, ProviderTree, same_stock

_NONE: Mapping[str, Provider] = MappingProxyType({})


def adopted(observed: ObservedTree, names: Collection[str]) -> frozenset[str]:
    """
    Return the names of the children that are ours to write although they do not carry our mark.

    These are the children in ``names`` that nova made, and the children whose uuid is derived from our root's uuid. An
    interrupted pass or a forced hand-over left the latter, and the next pass may not want them any more. A child whose
    uuid is derived from one of ``names`` counts even if it has another name by now.
    """
    root = observed.root
    if root is None:
        return frozenset()
    derived = {child_uuid(root.uuid, root.name, name) for name in names}
    return frozenset(
        seen.name
        for seen in observed
        if (seen.name in names and is_novas(seen))
        or is_unmarked(seen, root.uuid)
        or (seen.uuid in derived and not others_marks(seen))
    )


def diff(
    observed: ObservedTree,
    desired: ProviderTree,
    ours: Ownership,
    *,
    root_uuid: str,
    known_traits: frozenset[str] | None = None,
    rename: bool = False,
    formerly: str | None = None,
    moves: tuple[Move, ...] = (),
    consumers: Iterable[Consumer] = (),
    others: Mapping[str, Provider] = _NONE,
    outside: Mapping[str, str] = MappingProxyType({}),
) -> Plan:
    """
    Return the plan that makes ``observed`` equal to ``desired`` in what is ours, and that carries out ``moves``.

    ``consumers`` are the consumers of ``moves``, with all their allocations. ``others`` is what providers of other
    services are to become as a whole, by name. ``outside`` has the uuid of each provider of another tree that ``moves``
    name.

    ``root_uuid`` is this host's identity; ``known_traits`` are the names of the desired traits that placement has
    (None: take them all as known); ``rename`` allows a root of this uuid under another name; ``formerly`` is the name
    that the host had before a renaming that was interrupted.

    Order of the operations:
    1. Rename providers, the root last, so that its name tells whether all are renamed.
    2. Create providers top-down: a name that is taken stops the plan here. Put providers under their new parents.
    3. Make classes and traits.
    4. Set traits and aggregates, so that a new provider has them before its stock.
    5. Set the stock, of several providers in one reshape.
    6. Remove traits of providers whose stock changed.
    7. Delete providers bottom-up.

    Raises:
        TreeMismatch: the root in placement has another name or uuid, or a foreign child stands in the way.
        Conflict: as ``reportclient.reshape.rewrites``.
    """
    check_root(observed, desired, root_uuid, rename=rename)
    stands = observed
    observed = as_called(stands, desired.root.name, formerly)
    traits = frozenset().union(*(provider.traits for provider in desired))
    dropped = unknown_standard(traits, traits if known_traits is None else known_traits)
    pairs = _matches(observed, desired)
    identity = {desired.root.name: root_uuid} | {
        provider.name: seen.uuid if seen else child_uuid(root_uuid, desired.root.name, provider.name)
        for provider, seen in pairs
        if provider.parent
    }
    _check_foreign(pairs, ours)
    parents = {seen.name: provider.name for provider, seen in pairs if seen}
    changes = [_changes(provider, seen, identity, parents, ours, dropped) for provider, seen in pairs]
    changes += [_set_whole(seen, others[seen.name]) for seen in observed if seen.name in others]
    kept = {seen.uuid for _, seen in pairs if seen}
    doomed = _doomed(observed, kept, ours, parents)
    renames = _renames(stands, pairs)
    steps = [operation for change in changes for operation in change]
    if moves or any(isinstance(step, SetInventories) for step in steps):
        # With the writes that add stock elsewhere: else a device that changes its provider is there twice for a moment.
        steps += [SetInventories(seen.uuid, seen.name, {}) for seen in doomed if seen.provider.inventories]
    gone = [Delete(seen.uuid, seen.name) for seen in doomed]
    moved = rewrites(moves, consumers, {**outside, **{seen.name: seen.uuid for seen in observed}} | identity)
    return Plan((*renames, *_arrange(observed, steps, moved, known_traits), *gone), moves, left_out=dropped)


def check_root(observed: ObservedTree, desired: ProviderTree, root_uuid: str, *, rename: bool = False) -> None:
    """
    Refuse to write on a root that is not this host's.

    Raises:
        TreeMismatch: same name with another uuid, or (unless ``rename``) same uuid with another name.
    """
    root = observed.root
    if root is None:
        return
    if root.uuid != root_uuid:
        raise TreeMismatch(
            f"placement holds a root provider {root.name} with uuid {root.uuid}, and this host's compute_id is "
            f"{root_uuid}: if that provider is this host's, put its uuid into compute_id; if it is stale, delete it "
            f"(openstack resource provider delete {root.uuid})"
        )
    if root.name != desired.root.name and not rename:
        raise TreeMismatch(
            f"the root provider {root_uuid} in placement is named {root.name}, and this host is named "
            f"{desired.root.name}: if the host was renamed, run sync --rename-from {root.name}; if its disk was "
            f"cloned from {root.name}, remove the file compute_id on this host"
        )


def _matches(observed: ObservedTree, desired: ProviderTree) -> list[tuple[Provider, ObservedProvider | None]]:
    """Return each desired provider with its observed one, found by the name's suffix, else by uuid; None: not there."""
    root = observed.root
    if root is None:
        return [(provider, None) for provider in desired]
    by_suffix = {seen.name.removeprefix(root.name): seen for seen in observed}
    by_uuid = observed.by_uuid
    return [
        (
            provider,
            by_suffix.get(provider.name.removeprefix(desired.root.name))
            or by_uuid.get(child_uuid(root.uuid, desired.root.name, provider.name)),
        )
        for provider in desired
    ]


def _renames(stands: ObservedTree, pairs: Iterable[tuple[Provider, ObservedProvider | None]]) -> list[Rename]:
    """Return the renames, the root last: while it has its old name, the next pass knows that renames are missing."""
    names = {seen.uuid: seen.name for seen in stands}
    found = [
        Rename(seen.uuid, provider.name, names[seen.uuid])
        for provider, seen in pairs
        if seen and names[seen.uuid] != provider.name
    ]
    return sorted(found, key=lambda step: stands.by_uuid[step.uuid].provider.parent is None)


def _check_foreign(pairs: Iterable[tuple[Provider, ObservedProvider | None]], ours: Ownership) -> None:
    """
    Refuse to write on a child that another service marked or filled: its device would be offered twice.

    Raises:
        TreeMismatch: one of our names belongs to such a child.
    """
    for _, seen in pairs:
        if seen is None or ours.writes(seen):
            continue
        if marks := others_marks(seen):
            raise TreeMismatch(
                f"provider {seen.name} ({seen.uuid}) carries {', '.join(sorted(marks))}, the mark of another service, "
                f"and this host's configuration offers the device too: take the device out of one of the two services; "
                f"if the other service is gone, remove its trait from the provider (openstack resource provider trait "
                f"set {seen.uuid}, with --trait for each of the other traits)"
            )
        if seen.provider.inventories:
            raise TreeMismatch(
                f"provider {seen.name} ({seen.uuid}) holds {', '.join(sorted(seen.provider.inventories))} and was made "
                f"neither by this agent nor by nova: if it stands for this host's device, delete it; else rename it"
            )


def _changes(
    provider: Provider,
    seen: ObservedProvider | None,
    identity: Mapping[str, str],
    parents: Mapping[str, str],
    ours: Ownership,
    dropped: frozenset[str],
) -> list[Operation]:
    """
    Return one provider's operations: at most one per aspect, but up to two for traits.

    ``parents`` has the desired name of each provider that stays, by its present name.
    """
    uuid_ = identity[provider.name]
    operations: list[Operation] = []
    if seen is None:
        operations.append(Create(uuid_, provider.name, identity[provider.parent] if provider.parent else None))
        seen = ObservedProvider(uuid=uuid_, generation=0, provider=Provider(name=provider.name))
    elif provider.parent and parents.get(old := seen.provider.parent or "") != provider.parent:
        operations.append(Reparent(uuid_, provider.name, identity[provider.parent], provider.parent, old))
    foreign = seen.provider.traits - ours.traits(seen)
    operations += _set_traits(seen, provider, (foreign | provider.traits) - dropped)
    aggregates = (seen.provider.aggregates - ours.aggregates) | provider.aggregates
    if aggregates != seen.provider.aggregates:
        operations.append(SetAggregates(uuid_, provider.name, aggregates))
    own = ours.classes(seen)
    others = {name: stock for name, stock in seen.provider.inventories.items() if name not in own}
    inventories = {**others, **provider.inventories}
    if not same_stock(inventories, seen.provider.inventories):
        operations.append(SetInventories(uuid_, provider.name, inventories))
    return operations


def _set_whole(seen: ObservedProvider, provider: Provider) -> list[Operation]:
    """Return the operations that give a provider exactly these traits and this stock."""
    steps = _set_traits(seen, provider, provider.traits)
    if not same_stock(provider.inventories, seen.provider.inventories):
        steps.append(SetInventories(seen.uuid, seen.name, provider.inventories))
    return steps


def _set_traits(seen: ObservedProvider, provider: Provider, traits: frozenset[str]) -> list[Operation]:
    """
    Return one write of the traits, or two when our reservation ends or changes and other traits change too.

    The second write only removes the marks of our reservation, after the stock is written. If the marks went first, a
    pass that is interrupted in between would leave our reservation behind as if an operator had made it. What an
    operator reserved of a class that goes from here stays told for so long too.
    """
    stood, goes = seen.provider.traits, seen.provider.inventories.keys() - provider.inventories.keys()
    if traits == stood:
        return []
    ends = is_reserved_by_us(stood) and not is_reserved_by_us(traits)
    late = {one for one in stood - traits if tells_left(one) or class_kept(one) in goes}
    marks = frozenset(filter(is_mark, stood - traits) if ends else late)
    if not traits - stood and marks == stood - traits:  # one write does
        marks = frozenset()
    first = traits | marks
    steps: list[Operation] = [SetTraits(seen.uuid, provider.name, first, first - stood, stood - first)]
    return steps + ([SetTraits(seen.uuid, provider.name, traits, frozenset(), marks)] if marks else [])


def _arrange(
    observed: ObservedTree,
    steps: Collection[Operation],
    moved: tuple[Rewrite, ...],
    known_traits: frozenset[str] | None,
) -> Iterable[Operation]:
    """Return the steps in an order in which the scheduler never sees stock without its traits."""
    created = [step for step in steps if isinstance(step, Create)]
    placed = [step for step in steps if isinstance(step, Reparent)]
    stock = tuple(step for step in steps if isinstance(step, SetInventories))
    stood = {seen.uuid: seen.provider.inventories.keys() for seen in observed}
    restocked = {step.uuid: stood.get(step.uuid, set()) - step.inventories.keys() for step in stock}
    described = [step for step in steps if not isinstance(step, Create | Reparent | SetInventories)]
    late = [step for step in described if _is_late(step, restocked)]
    early = [step for step in described if not _is_late(step, restocked)]
    # Placement refuses a reshape without inventories.
    as_it_is = tuple(SetInventories(one.uuid, one.name, one.provider.inventories) for one in observed.providers[:1])
    at_once = (Reshape(stock or as_it_is, moved),) if moved or len(stock) > 1 else stock
    return (*created, *placed, *_vocabulary(observed, steps, known_traits), *early, *at_once, *late)


def _is_late(operation: Operation, restocked: Mapping[str, Container[str]]) -> bool:
    """
    Return whether a provider only loses traits, and its stock changes too: then its stock is written first.

    Exception: an operator took a reservation off, and our mark stays. Then the trait that remembers the reservation
    goes first: after an interruption it would otherwise still claim the reservation. Where the class itself goes, its
    reservation goes elsewhere with it: ``restocked`` has the classes that go from each provider with another stock.
    """
    if not isinstance(operation, SetTraits) or operation.added or operation.uuid not in restocked:
        return False
    stays, goes = is_reserved_by_us(operation.traits), restocked[operation.uuid]
    early = (is_mark(name) and not tells_left(name) and class_kept(name) not in goes for name in operation.removed)
    return not (stays and all(early))


def _vocabulary(
    observed: ObservedTree, operations: Iterable[Operation], known_traits: frozenset[str] | None
) -> list[Operation]:
    """Return the operations that make names before their use: classes new to the tree, traits new to placement."""
    classes: set[str] = set()
    traits: set[str] = set()
    for operation in operations:
        if isinstance(operation, SetInventories):
            classes.update(filter(is_custom, operation.inventories))
        elif isinstance(operation, SetTraits):
            traits.update(filter(is_custom, operation.added))
    classes -= {name for seen in observed for name in seen.provider.inventories}
    traits -= known_traits or frozenset()
    made: list[Operation] = [EnsureClasses(tuple(sorted(classes)))] if classes else []
    return made + ([EnsureTraits(tuple(sorted(traits)))] if traits else [])


def _doomed(
    observed: ObservedTree, kept: set[str], ours: Ownership, parents: Mapping[str, str]
) -> list[ObservedProvider]:
    """
    Return the providers that are ours and no longer wanted, children first.

    Raises:
        TreeMismatch: a foreign provider stands under one of them.
    """
    doomed = {seen.name for seen in observed if seen.uuid not in kept and ours.writes(seen)}
    for seen in observed:
        if seen.provider.parent in doomed and seen.name not in doomed and seen.name not in parents:
            raise TreeMismatch(
                f"provider {seen.provider.parent} is gone from this host, but provider {seen.name}, which another "
                f"service made, stands under it: first delete {seen.name} or put it under another parent"
            )
    return [seen for seen in reversed(observed.providers) if seen.name in doomed]


def rewrites(moves: Iterable[Move], consumers: Iterable[Consumer], identity: Mapping[str, str]) -> tuple[Rewrite, ...]:
    """
    Return the final set of each consumer that moves: it repeats what stays, and adds up what is on a target already.

    ``identity`` has the uuid of each provider that a move names.

    Raises:
        Conflict: a consumer has less than its moves take, because it changed since its allocations were read.
    """
    known = {consumer.uuid: consumer for consumer in consumers}
    by_consumer: dict[str, list[Move]] = {}
    for move in moves:
        by_consumer.setdefault(move.consumer, []).append(move)
    return tuple(_rewrite(uuid, several, known.get(uuid), identity) for uuid, several in sorted(by_consumer.items()))


def _rewrite(uuid: str, moves: Iterable[Move], consumer: Consumer | None, identity: Mapping[str, str]) -> Rewrite:
    if consumer is None:
        raise Conflict(f"consumer {uuid} released all its allocations while this plan was made")
    held = [
        Allocation(uuid, provider, name, amount)
        for provider, resources in consumer.slots.items()
        for name, amount in resources.items()
    ]
    by_uuid = (
        replace(move, from_provider=identity[move.from_provider], to_provider=identity[move.to_provider])
        for move in moves
    )
    try:
        after = apply_moves(held, by_uuid)
    except ValueError as error:
        raise Conflict(f"consumer {uuid} changed while this plan was made") from error
    final: dict[str, dict[str, int]] = {}
    for one in after:
        final.setdefault(one.provider, {})[one.resource_class] = one.amount
    return Rewrite.of(consumer, final)
