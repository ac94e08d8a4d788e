"""
First steps of a draft: what stands, by the wanted names; what the host gives; and what of devices it does not show now.

The latter stays in placement, reserved.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from agent.state.memory import NodeState
from agent.sync.decide.additions import Addition, now_named, without
from agent.sync.decide.view import Shaper, View
from drivers.base import Survey
from drivers.moves import exchanged
from reportclient.allocations import Holdings
from reportclient.diff import adopted
from reportclient.hold import device_classes, is_of_the_host, is_reshaped, keep_whole
from reportclient.names import BANDWIDTH, ONE_TIME, spelled
from reportclient.ownership import OWNERS, Names, Ownership, is_marked, joined
from reportclient.renaming import as_called, called, former_name, new_names
from reportclient.reserve import classes_left, reserved_by_operator, with_marks_of, with_reservations
from reportclient.settings import with_limits
from reportclient.tree import ObservedProvider, ObservedTree, Provider, ProviderTree

Slot = tuple[str, str]
"""A provider's name and a resource class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Standing tree and memory, by the wanted names."""

    formerly: str | None  # the root's name before a renaming; None: it is not renamed
    observed: ObservedTree
    memory: NodeState
    named: Mapping[str, Names]  # what the operator's files put on each provider
    new_name: Callable[[str], str]  # returns the wanted name of a provider that the memory names

    @property
    def files(self) -> dict[str, frozenset[str]]:
        """Classes of the operator's files, by provider."""
        return {name: each.classes for name, each in self.named.items()}


def stand(view: View) -> Standing:
    """Return standing tree and memory by the wanted names: they differ while the host, or a child, is renamed."""
    names = (name.removeprefix(view.node) for name in view.survey.present)
    own_parts = sorted(names, key=lambda part: (-len(part), part))
    formerly = view.wishes.rename_from or former_name(view.observed, own_parts)
    root, node = view.observed.root, view.node
    if root is None or (root.name != node and root.name != formerly):
        # another host's root, or one that is not to be renamed: ``diff`` raises
        named = _named(view.observed, view.memory, view.additions)
        return Standing(formerly=formerly, observed=view.observed, memory=view.memory, named=named, new_name=str)
    before = {root.name, node, formerly or node}
    standing = new_names(view.observed, node, formerly)

    def new_name(name: str) -> str:
        return standing.get(name) or spelled(called(name, node, before))

    left = view.memory.observed
    observed = as_called(view.observed, node, formerly)
    memory = replace(
        view.memory,
        observed=as_called(left, node, formerly) if left else None,
        configured=_by_new_name(view.memory.configured, new_name),
        reported=_by_new_name(view.memory.reported, new_name),
        kinds={spelled(device): classes for device, classes in view.memory.kinds.items()},
    )
    named = _named(observed, memory, view.additions)
    return Standing(formerly=formerly, observed=observed, memory=memory, named=named, new_name=new_name)


def _by_new_name(names: Mapping[str, Names], new_name: Callable[[str], str]) -> dict[str, Names]:
    return joined(*({new_name(name): each} for name, each in names.items()))


def _named(observed: ObservedTree, memory: NodeState, additions: Iterable[Addition]) -> dict[str, Names]:
    """Return what the operator's files put on the standing providers, and the owner's marks that rules gave them."""
    added = {}
    for name, now in now_named(observed, additions).items():
        ours = memory.reported.get(name, Names())
        added[name] = Names(now.classes - ours.classes, now.traits - ours.traits)
    owners = {
        name: Names(traits=frozenset(trait for trait in names.traits if trait.startswith(OWNERS)))
        for name, names in memory.reported.items()
    }
    return joined(memory.configured, added, owners)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """What the host gives, before the operator's files are applied; features change it one after the other."""

    tree: ProviderTree
    holdings: Holdings
    present: frozenset[str]  # names of providers whose hardware the survey found
    ours: Ownership  # as it was before this pass
    stands: ObservedTree  # the standing tree, with marks for what operators reserved since the last pass
    memory: NodeState  # as the last pass left it, with what features add
    standing: Standing

    def is_lost(self, name: str) -> bool:
        """Return whether the hardware of a provider is away, or shows none of its parts."""
        return name not in self.present or name in self.holdings.backing.silent


def shape_host(view: View, shaper: Shaper, standing: Standing, observed: ObservedTree) -> Shaped:
    """Return the tree that the host gives, with the ratios and reservations of ``observed``, the standing tree."""
    memory = standing.memory

    def as_said(tree: ObservedTree) -> ObservedTree:
        return with_reservations(with_marks_of(tree, memory.observed), standing.files)

    said = without(as_said(observed), standing.named)
    tree, holdings = shaper.shape(view.survey, view.policy, said)
    return Shaped(
        tree=with_limits(tree, said),
        holdings=holdings,
        present=view.survey.present,
        ours=ownership(shaper, view.survey, tree, standing.observed, memory),
        stands=as_said(standing.observed),
        memory=memory,
        standing=standing,
    )


def ownership(
    shaper: Shaper, survey: Survey, shaped: ProviderTree, observed: ObservedTree, memory: NodeState
) -> Ownership:
    """Return what was ours before this pass, also if one write of a hand took our mark off, and nova's for devices."""
    before = observed.once_written(memory.observed)
    ours = {seen.name for seen in observed if seen.uuid in before and is_marked(before[seen.uuid])}
    names = survey.present | ours | {provider.name for provider in shaped}
    configured = joined(memory.configured, memory.reported)
    return Ownership(emitted=shaper.emitted, configured=configured, adopted=adopted(observed, names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """What stands and what is wanted, and what tells whether a device may come back."""

    shaped: Shaped
    lost: Callable[[str], bool]  # whether the hardware of a provider is away, or shows none of its parts
    kinds: Mapping[str, Collection[str]]  # classes in the root's totals, by device's name
    shown: Mapping[str, int]  # VFs that a card shows, offered or not, by its provider
    undecided: Collection[Slot] = ()  # of odd devices: ours, whatever the memory says
    once: bool = False  # True: one-time devices count too
    forced: bool = False  # True: a person takes away what a card that shows others does not show
    unexplained: frozenset[str] = frozenset()  # classes of the root soon after a boot: its links may be of these


def sides_of(shaped: Shaped) -> Sides:
    """Return the sides of a host as it stands and as it is shaped."""
    backing, kinds = shaped.holdings.backing, shaped.standing.memory.kinds
    return Sides(
        shaped=shaped,
        lost=lambda name: shaped.is_lost(name) or name in backing.untyped,
        kinds={f"{shaped.tree.root.name}_{suffix}": classes for suffix, classes in kinds.items()},
        shown=backing.shown,
    )


def with_stock(shaped: Shaped, stock: Mapping[Slot, int]) -> Shaped:
    """Return the shape with at least this stock, as ``keep_whole``, without traits that the operator's files add."""
    standing, there = shaped.standing, {one.name for one in shaped.tree}
    added = {name: each.traits for name, each in standing.named.items() if name not in there}
    tree = keep_whole(shaped.tree, shaped.stands, stock, standing.files)
    kept = (replace(one, traits=one.traits - added.get(one.name, frozenset())) for one in tree)
    return replace(shaped, tree=ProviderTree(tuple(kept)))


def unexplained(sides: Sides, doubted: Collection[str]) -> frozenset[str]:
    """
    Return the classes of devices on our root that may be ours, as the memory is lost or of a moment before them.

    That the last pass saw a class which it ``doubted`` itself explains nothing.
    """
    shaped, root = sides.shaped, sides.shaped.stands.root
    if root is None or not is_marked(root):
        return frozenset()
    left = shaped.standing.memory.observed
    known = left.root.provider.inventories.keys() if left and left.root else frozenset[str]()
    undecided = frozenset(each for name, each in sides.undecided if name == root.name)
    classes = device_classes(root.provider.inventories, shaped.standing.files.get(root.name, ()))
    return frozenset(classes - shaped.ours.classes(root) - undecided - (known - frozenset(doubted)))


def recast(shaped: Shaped) -> frozenset[tuple[str, str]]:
    """
    Return (old class, new class) of devices in the root's totals: whose class changed, or may have.

    A class of which some are reserved on the root, of which devices show fewer, and of which the memory knows no
    device, may be the former name of each class that is back.
    """
    before, now, root = shaped.standing.memory.kinds, shaped.holdings.backing.kinds, shaped.stands.root
    if root is None:
        return frozenset()
    kept = classes_left(root.provider) - BANDWIDTH  # which a card has beside its units, as long as its link is up
    stood, theirs = root.provider.inventories, reserved_by_operator(root.provider)
    there = {name: one.total - one.reserved for name, one in shaped.tree.root.inventories.items()}
    unknown = kept.difference(*before.values())
    fewer = {name for name in unknown if there.get(name, 0) < stood[name].total - theirs.get(name, 0)}
    back = kept.intersection(frozenset[str]().union(*now.values())) - fewer
    return exchanged(before, now) | {(old, new) for old in fewer for new in back}


def missing_of(sides: Sides) -> Iterator[tuple[Slot, int]]:
    """Yield the stock of devices, and of their links, of which less is wanted than stands, with the standing total."""
    shaped, files = sides.shaped, sides.shaped.standing.files
    wanted = {one.name: one for one in shaped.tree}
    for seen in shaped.stands:
        name, besides = seen.name, files.get(seen.name, ())
        if name in shaped.holdings.backing.elsewhere or not shaped.ours.writes(seen):
            continue
        if (ONE_TIME in seen.provider.traits and not sides.once) or (
            seen.provider.parent and is_of_the_host(seen.provider)
        ):
            continue
        ours = shaped.ours.classes(seen) | {each for provider, each in sides.undecided if provider == name}
        less = _less(seen, wanted.get(name))
        devices = [
            each
            for each in device_classes(less, besides) & ours
            if (not _is_withdrawn(seen, each, sides) if less[each] else _may_come_back(seen, each, sides))
        ]
        unknown = seen.provider.parent is None and sides.unexplained
        links = less.keys() & (BANDWIDTH - frozenset(besides)) & ours if devices or unknown else ()
        for each in (*devices, *links):
            yield (name, each), seen.provider.inventories[each].total


def _less(seen: ObservedProvider, wanted: Provider | None) -> dict[str, int]:
    """Return the classes of which less is wanted than stands, with the total that is wanted."""
    totals = {name: one.total for name, one in wanted.inventories.items()} if wanted else {}
    return {
        name: totals.get(name, 0) for name, one in seen.provider.inventories.items() if totals.get(name, 0) < one.total
    }


def _is_withdrawn(seen: ObservedProvider, resource_class: str, sides: Sides) -> bool:
    """Return whether a person took a part of a class out: its cards show as much as stood, or the person says so."""
    if sides.forced:
        return True
    cards = [seen.name]
    if seen.provider.parent is None:
        cards = [name for name, classes in sides.kinds.items() if resource_class in classes]
    shown = [sides.shown[name] for name in cards if name in sides.shown]
    return len(shown) == len(cards) and sum(shown) >= seen.provider.inventories[resource_class].total


def _may_come_back(seen: ObservedProvider, resource_class: str, sides: Sides) -> bool:
    """Return whether a class that is gone may come back: no person withdrew it, and it is not on offer elsewhere."""
    shaped = sides.shaped
    if seen.provider.parent is None:
        offered = any(resource_class in one.inventories for one in shaped.tree if one.parent)
        gave = [name for name, classes in sides.kinds.items() if resource_class in classes]
        return not offered and any(map(sides.lost, gave if sides.kinds else (one.name for one in shaped.stands)))
    if not sides.lost(seen.name):
        return False
    wanted = next((one for one in shaped.tree if one.name == seen.name), None)
    besides = shaped.standing.files.get(seen.name, ())
    return not is_reshaped(seen, wanted, resource_class, shaped.tree, shaped.stands, besides)
