"""
What is ours in a tree that other services write too, and what changed there since we left it.

On the root, a closed set of resource classes and traits is ours: those that the drivers can emit and those that the
operator configured. On a child that carries our marker trait, every class is ours. Everything else stays unchanged.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reportclient.names import NO_DEVICES, SHARES, is_by_address
from reportclient.reserve import classes_left, is_mark
from reportclient.tree import UNWRITTEN, Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

MARKER = "CUSTOM_OWNER_COMPUTE_NODE_AGENT"
MANAGED = "COMPUTE_MANAGED_PCI_DEVICE"  # nova's trait of the PCI devices that its flavors can ask for
SET = f"{MARKER}_SET_"  # followed by a trait of the root that this agent set, and takes back; else it is another's
OWNER_NOVA = "OWNER_NOVA"  # nova 34 and later put it on the providers that they write
_NOTHING = Provider(name="")
OWNERS = ("OWNER_", "CUSTOM_OWNER_")  # prefixes of the traits by which services mark providers as theirs
CYBORG = "Cyborg"
_OF_CYBORG = frozenset({"FPGA", "PGPU", "VGPU", "CUSTOM_QAT", "CUSTOM_NIC", "CUSTOM_SSD"})  # cyborg/common/constants.py


@dataclass(frozen=True, slots=True)
class Names:
    """Names of resource classes and traits."""

    classes: frozenset[str] = frozenset()
    traits: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()  # of further traits
    below: "Names | None" = None  # further names on children of a root; None: none


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """What we may change or remove in a tree."""

    emitted: Names  # all that the drivers can report on a root, and below it
    configured: Mapping[str, Names] = field(default_factory=dict)  # the operator's, now or last pass, by provider name
    adopted: frozenset[str] = frozenset()  # names of the children that are ours without our mark
    aggregates: frozenset[str] = frozenset()  # that our providers leave where they are not wanted there

    def classes(self, observed: ObservedProvider) -> frozenset[str]:
        """Return the classes on this provider that we may change or remove."""
        if observed.provider.parent is not None:
            return frozenset(observed.provider.inventories) if self.writes(observed) else frozenset()
        configured = self.configured.get(observed.name, Names()).classes
        return self.emitted.classes | configured | classes_left(observed.provider)

    def traits(self, observed: ObservedProvider) -> frozenset[str]:
        """Return the traits on this provider that we may remove."""
        configured = self.configured.get(observed.name, Names()).traits
        if not self.writes(observed):
            return frozenset() if self._is_others(observed) else configured
        below = self.emitted.below or Names()
        possible = [self.emitted] if observed.provider.parent is None else [self.emitted, below]
        prefixes = tuple(prefix for names in possible for prefix in names.prefixes)
        begun = {name for name in observed.provider.traits if name.startswith(prefixes)}
        return configured.union(begun, set_on(observed), *(names.traits for names in possible))

    def writes(self, observed: ObservedProvider) -> bool:
        """Return whether we write this provider: the root, or our own or adopted child without another's mark."""
        if observed.provider.parent is None:
            return True
        return not self._is_others(observed) and (is_marked(observed) or observed.name in self.adopted)

    def _is_others(self, observed: ObservedProvider) -> bool:
        """Return whether a child carries another service's mark; a trait of our own configuration does not count."""
        given = self.configured.get(observed.name, Names()).traits
        return bool(others_marks(observed) - given)


@dataclass(frozen=True, slots=True)
class Contest:
    """A sign of a second writer: how our providers changed since we left them."""

    provider: str  # name of the changed provider; several names are separated by commas
    changes: tuple[str, ...]  # one sentence each
    nova: bool  # OWNER_NOVA came with the changes; a mark from before says little about them
    marked: bool  # OWNER_NOVA is on the root or on a changed provider
    uuids: frozenset[str] = frozenset()  # of the changed providers that still exist


def joined(*several: Mapping[str, Names]) -> dict[str, Names]:
    """Return the union of these mappings, by provider."""
    found: dict[str, Names] = {}
    for provider, more in (pair for names in several for pair in names.items()):
        known = found.get(provider, Names())
        found[provider] = Names(known.classes | more.classes, known.traits | more.traits)
    return found


def is_novas(observed: ObservedProvider) -> bool:
    """
    Return whether nova made the provider for a device: by nova's mark, by its PCI trait, or by its classes.

    Older versions of nova put no mark on their providers of VGPU and MEM_ENCRYPTION_CONTEXT, and named none of them by
    an address. A provider with the mark of another service is that service's, whatever else it carries.
    """
    if others_marks(observed):
        return False
    marked = observed.provider.traits & {OWNER_NOVA, MANAGED}
    by_class = observed.provider.inventories.keys() & {"VGPU", "MEM_ENCRYPTION_CONTEXT"}
    return bool(marked or (by_class and not is_by_address(observed.name)))  # such a VGPU is Cyborg's


def unmarked_owner(observed: ObservedProvider, root: str) -> str:
    """
    Return the service whose providers are like this one, which no service marked and ``is_novas`` denies; or empty.

    Neutron's agents and Blazar build names from that of the host, which Blazar keeps when that changes. Cyborg has
    classes that only it leaves so.
    """
    if observed.name.startswith(f"{root}:"):
        return "Neutron"
    if observed.name.startswith("blazar_"):
        return "Blazar"
    return CYBORG if observed.provider.inventories.keys() & _OF_CYBORG else ""


def is_cyborgs(observed: ObservedProvider, root: str) -> bool:
    """Return whether Cyborg reports a provider: by its mark, which older ones did not set, or by its class."""
    unmarked = not others_marks(observed) and not is_novas(observed) and unmarked_owner(observed, root) == CYBORG
    return "OWNER_CYBORG" in observed.provider.traits or unmarked


def is_marked(observed: ObservedProvider) -> bool:
    """Return whether the provider carries our marker trait."""
    return MARKER in observed.provider.traits


def set_on(observed: ObservedProvider) -> frozenset[str]:
    """Return the traits that this agent set on a root and takes back, by their marks."""
    return frozenset(name.removeprefix(SET) for name in observed.provider.traits if name.startswith(SET))


def check_no_marks(traits: Iterable[str]) -> None:
    """
    Refuse traits that a person lists and by which this agent knows its own providers and reservations again.

    Raises:
        ValueError: one of them is such a mark.
    """
    if marks := sorted(name for name in traits if name == MARKER or name.startswith(f"{MARKER}_") or is_mark(name)):
        raise ValueError(
            f"has {', '.join(marks)}, by which this agent marks its own providers and reservations: remove it"
        )


def others_marks(observed: ObservedProvider) -> frozenset[str]:
    """Return the traits by which services other than nova and this agent mark the provider as theirs."""
    return frozenset(
        name
        for name in observed.provider.traits
        if name.startswith(OWNERS) and name != OWNER_NOVA and name != MARKER and not name.startswith(f"{MARKER}_")
    )


def contest(
    left: ObservedTree | None,
    found: ObservedTree,
    wanted: ProviderTree,
    ours: Ownership,
    keep_ratio: frozenset[str],
    *,
    tried: Sequence[ObservedTree] = (),
) -> Contest | None:
    """
    Return what another writer changed on our providers since we left them; None if nothing, or if ``left`` is None.

    ``left`` None means that we do not know how we left them. What now stands as ``wanted`` is no contest. Operators may
    set an allocation ratio by hand where our configuration names none (classes in ``keep_ratio``), and reservations and
    ratios of devices, and of what hosts share. ``tried`` are the trees that cut-off attempts of this pass were to make:
    each may have written a part of its tree.
    """
    left = left or ObservedTree()
    root = left.root
    if root is None or found.root is None or found.root.uuid != root.uuid:
        return None
    wishes = {one.name.removeprefix(wanted.root.name): one for one in wanted}
    pairs = [(seen, found.by_uuid.get(seen.uuid)) for seen in left if ours.writes(seen)]
    meant = [tree.by_uuid for tree in tried]
    changes: dict[str, list[str]] = {}
    for before, now in pairs:
        wish = wishes.get(before.name.removeprefix(root.name))
        attempted = [tree.get(before.uuid) for tree in meant]
        if now is None and wish and None not in attempted:
            changes[before.name] = [f"{before.name} was deleted"]
        elif now and now.generation != before.generation:
            expected = (wish or _NOTHING, *(seen.provider if seen else _NOTHING for seen in attempted))
            changes[now.name] = _changes(before, now, expected, ours, keep_ratio)
    names = [name for name, several in changes.items() if several]
    if not names:
        return None
    sentences = tuple(sentence for name in names for sentence in changes[name])
    if len(names) > 1:
        sentences = tuple(_with_provider(name, sentence) for name in names for sentence in changes[name])
    changed = [(before, now) for before, now in pairs if now and now.name in names]
    return Contest(
        ", ".join(names),
        sentences,
        nova=any(OWNER_NOVA in now.provider.traits - before.provider.traits for before, now in changed),
        marked=any(OWNER_NOVA in now.provider.traits for now in (found.root, *(now for _, now in changed))),
        uuids=frozenset(before.uuid for before, _ in changed),
    )


def _changes(
    before: ObservedProvider,
    now: ObservedProvider,
    expected: Sequence[Provider],
    ours: Ownership,
    keep_ratio: frozenset[str],
) -> list[str]:
    """Return a sentence for each change on one provider that is neither as ``before`` nor as one of ``expected``."""
    fixed = NO_DEVICES if SHARES not in now.provider.traits else frozenset[str]()

    def is_known(stands: Inventory, name: str) -> bool:
        stocks = (one.inventories.get(name) for one in (before.provider, *expected))
        return any(_agree(stands, stock, name in fixed, name in keep_ratio) for stock in stocks if stock)

    def is_cut_off(stands: Inventory, was: Inventory) -> bool:  # a pass before it reserved
        return before.generation == UNWRITTEN and was.equals(replace(stands, reserved=was.reserved))

    changes = []
    for name in sorted(ours.classes(before) & before.provider.inventories.keys()):
        was, stands = before.provider.inventories[name], now.provider.inventories.get(name)
        if stands is None:
            changes += [f"{name} was removed"] if all(name in one.inventories for one in expected) else []
        elif not is_known(stands, name) and not is_cut_off(stands, was):
            changes.append(
                f"{name} total {was.total} reserved {was.reserved} ratio {was.allocation_ratio:g} became "
                f"total {stands.total} reserved {stands.reserved} ratio {stands.allocation_ratio:g}"
            )
    for name in sorted((ours.classes(now) & now.provider.inventories.keys()) - before.provider.inventories.keys()):
        stands = now.provider.inventories[name]
        if not is_known(stands, name):
            changes.append(f"{name} total {stands.total} was added")
    if MARKER in before.provider.traits - now.provider.traits and before.generation != UNWRITTEN:
        changes.append(f"trait {MARKER} was removed")
    return changes


def _agree(one: Inventory, other: Inventory, is_fixed: bool, keeps_ratio: bool) -> bool:
    """Return whether two inventories agree in all that only we may change; of devices and pools less than of a host."""
    if not is_fixed:
        return (one.total, one.min_unit, one.step_size) == (other.total, other.min_unit, other.step_size)
    return one.equals(replace(other, allocation_ratio=one.allocation_ratio) if keeps_ratio else other)


def _with_provider(provider: str, sentence: str) -> str:
    """Return the sentence of a change with its provider's name, for changes of several providers."""
    subject, _, rest = sentence.partition(" ")
    return sentence if subject == provider else f"{subject} of {provider} {rest}"
