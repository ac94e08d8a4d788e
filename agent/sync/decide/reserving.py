"""
Reserve what a host does not show now on the providers that stand, and give it back once it is there again. Pure.

A pass does this also while the rest of its plan is refused: it takes units off offer and changes nothing else, so doubt
about the rest is no reason to wait. What comes back was reserved by this agent alone, but for the host's own CPUs,
memory and disk: of these a pass that is carried out undoes what a hand reserved too. What is gone of these is reserved
as far as it is free.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from agent.sync.decide.additions import Addition, entries_on
from agent.sync.decide.feature import Feature, Reservation
from agent.sync.decide.shaped import Shaped, Standing, missing_of, recast, sides_of, unexplained, with_stock
from agent.sync.decide.view import View
from agent.sync.decide.way import reservations, with_marks, with_reserved
from reportclient.forecast import stock_after
from reportclient.names import CPUS, NO_DEVICES, ONE_TIME
from reportclient.ownership import MARKER, SET, Ownership, is_marked, set_on
from reportclient.plan import Plan
from reportclient.reserve import HELD, RESERVED, UNHEALTHY, is_mark, is_reserved_by_us, reserved_by_operator, with_left
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree, total_of


def reserved_tree(view: View, shaped: Shaped, features: Sequence[Feature]) -> ProviderTree | None:
    """
    Return our standing providers with as few free units of devices as ``shaped``, the host in their layout, has.

    None: one of them stands below another service's.
    """
    standing = shaped.standing
    sides = replace(sides_of(shaped), once=True)
    there = {one.name: one for one in shaped.tree}
    doubted = {shaped.tree.root.name} if unexplained(sides, ()) else set()  # which may be devices that are back
    back = {name: one for name, one in there.items() if name not in doubted}
    if root := back.get(shaped.tree.root.name):  # guests may have what is back by its former class
        known = root.inventories.keys() - {new for _, new in recast(shaped)}
        back[root.name] = replace(root, inventories={name: root.inventories[name] for name in known})
    whole = {one.name: one for one in with_stock(shaped, dict(missing_of(sides))).tree}
    said, files = shaped.stands.by_uuid, standing.files
    ours = own_standing(standing.observed, shaped.ours)
    if ours is None:
        return None
    marked = _marked(standing, beside=view.beside)
    after = ProviderTree(
        tuple(
            _reserved(seen, said[seen.uuid].provider, back.get(seen.name), whole[seen.name], files.get(seen.name, ()))
            if seen.name in whole and (seen.name in marked or is_reserved_by_us(said[seen.uuid].provider.traits))
            else seen.provider
            for seen in ours
        )
    )
    changed = {one.name for one in after if one.parent is None or one != standing.observed.by_name[one.name].provider}
    after = _with_our_mark(after, changed & marked)
    after = _as_files_say(after, standing.observed, view.additions)
    after = without_others(after, {seen.name: shaped.ours.classes(seen) for seen in ours})
    gone = tuple(_gone(after, there, files))
    if standing.observed.root and not view.beside:
        after = with_root_traits(after, features, standing.observed.root)
    top = standing.observed.root
    base = _without_earlier(after, said[top.uuid].provider, whole[top.name]) if top and top.name in whole else after
    wished = (*gone, *reservations(base, features))
    names = {one.provider for one in wished}
    rows = view.rows_on((seen.uuid for seen in ours if seen.name in names), standing.observed) if wished else ()
    return with_marks(with_reserved(after, wished, files, rows), features)


def _without_earlier(tree: ProviderTree, said: Provider, whole: Provider) -> ProviderTree:
    """
    Return a tree whose root has reserved what operators said and what is missing, and nothing of earlier passes.

    To that a feature adds what it reserves of the root, else each refused pass would add it once more.
    """
    theirs, stock = reserved_by_operator(said), dict(tree.root.inventories)
    for name in stock.keys() & whole.inventories.keys() - NO_DEVICES:
        now, wanted = stock[name], whole.inventories[name]
        least = max(theirs.get(name, 0), now.total - (wanted.total - wanted.reserved))
        if wanted.total >= now.total:
            stock[name] = replace(now, reserved=min(now.reserved, least))
    return ProviderTree((replace(tree.root, inventories=stock), *(one for one in tree if one.parent)))


def own_standing(observed: ObservedTree, ours: Ownership) -> list[ObservedProvider] | None:
    """Return the root and our children of a tree; None: one of them stands below another service's."""
    found = [seen for seen in observed if seen.provider.parent is None or ours.writes(seen)]
    return found if {seen.provider.parent for seen in found} <= {None, *(seen.name for seen in found)} else None


def _gone(
    tree: ProviderTree, there: Mapping[str, Provider], files: Mapping[str, Collection[str]]
) -> Iterator[Reservation]:
    """
    Yield what the host has less for guests of its own CPUs, memory and disk than a provider of ours offers.

    No CPU is gone while some become dedicated, or shared again, no disk while it leaves for shared storage, and nothing
    of a class that a provider is to have which has none of it yet.
    """
    stands = {one.name: one.inventories for one in tree}
    moved = {name for one in there.values() for name in one.inventories.keys() - stands.get(one.name, {}).keys()}
    exchanged = any(
        total_of(there[one.name].inventories, name) > total_of(one.inventories, name)
        for one in tree
        if one.name in there
        for name in CPUS
    )
    if exchanged or moved & CPUS:
        moved |= CPUS
    for one in (each for each in tree if MARKER in each.traits):
        shown = there[one.name].inventories if one.name in there else {}
        own = NO_DEVICES.difference(files.get(one.name, ()), moved, {"DISK_GB"} - shown.keys())
        for name in sorted(own & one.inventories.keys()):
            left = shown[name].total - shown[name].reserved if name in shown else 0
            least = one.inventories[name].total - left
            if least > one.inventories[name].reserved:
                yield Reservation(provider=one.name, resource_class=name, least=least, spares_use=True)


def _as_files_say(tree: ProviderTree, stands: ObservedTree, additions: Iterable[Addition]) -> ProviderTree:
    """Return the tree with what features reserved of the classes of the operator's files, by a mark, given back."""
    entries = entries_on(stands, additions)
    marked = {name for name, seen in stands.by_name.items() if RESERVED in seen.provider.traits}
    return ProviderTree(
        tuple(
            _with_most(one, entries[one.name].inventories) if one.name in marked & entries.keys() else one
            for one in tree
        )
    )


def _with_most(provider: Provider, said: Mapping[str, Inventory]) -> Provider:
    """Return a provider that reserves of each class at most what is ``said``."""
    stock = dict(provider.inventories)
    for name in stock.keys() & said.keys():
        stock[name] = replace(stock[name], reserved=min(stock[name].reserved, said[name].reserved))
    return replace(provider, inventories=stock)


def _marked(standing: Standing, *, beside: bool) -> frozenset[str]:
    """Return the names of providers with our mark, or from which a hand took it; a lost memory could not tell."""
    seen = (*standing.observed, *(standing.memory.observed or ()))
    root = standing.observed.root if standing.memory.wrote and not beside else None
    return frozenset(one.name for one in seen if is_marked(one) or one is root)


def _with_our_mark(tree: ProviderTree, names: Collection[str]) -> ProviderTree:
    return ProviderTree(tuple(replace(one, traits=one.traits | {MARKER}) if one.name in names else one for one in tree))


def without_others(tree: ProviderTree, ours: Mapping[str, frozenset[str]]) -> ProviderTree:
    """Return the tree without classes of others, which stay as they are; ``ours`` are our classes by provider."""
    stocks = ({name: one.inventories[name] for name in one.inventories if name in ours[one.name]} for one in tree)
    return ProviderTree(tuple(replace(one, inventories=stock) for one, stock in zip(tree, stocks, strict=True)))


def with_root_traits(tree: ProviderTree, features: Iterable[Feature], stands: ObservedProvider | None) -> ProviderTree:
    """Return a tree whose root has the traits that features want on it, with their marks, and no earlier ones."""
    before = set_on(stands) if stands else frozenset[str]()
    theirs = stands.provider.traits - before if stands else frozenset[str]()
    now = frozenset[str]().union(*(one.root_traits() for one in features)) - theirs
    ended = (before - now) | {f"{SET}{name}" for name in before - now}
    traits = (tree.root.traits - ended) | now | {f"{SET}{name}" for name in now}
    others = (one for one in tree if one.parent)
    return ProviderTree((replace(tree.root, traits=traits), *others))


def _reserved(
    seen: ObservedProvider, said: Provider, back: Provider | None, whole: Provider, files: Collection[str]
) -> Provider:
    """
    Return a standing provider with other reserved amounts, and the marks for them.

    ``said`` is it with what operators reserved, ``back`` what the host shows of it (None: nothing is given back), and
    ``whole`` that with all that is missing. Classes of ``files`` are the operator's. A class of which a person withdrew
    a part stays as it is. The mark is that of ill devices: a held provider could be a lost one's in any layout.
    """
    if ONE_TIME in whole.traits - seen.provider.traits:
        return seen.provider
    stands, theirs = seen.provider.inventories, reserved_by_operator(said)
    names = stands.keys() & whole.inventories.keys() - NO_DEVICES - frozenset(files)
    stock = dict(stands)
    for name in names:
        now, wanted = stands[name], whole.inventories[name]
        if wanted.total < now.total:
            continue
        is_back = back is not None and total_of(back.inventories, name) >= now.total
        least = theirs.get(name, 0) if is_back else now.reserved
        off_offer = now.total - (wanted.total - wanted.reserved)
        stock[name] = replace(now, reserved=min(now.total, max(least, off_offer)))
    if RESERVED in seen.provider.traits:
        for name in stands.keys() & whole.inventories.keys() & NO_DEVICES:
            stock[name] = replace(stands[name], reserved=min(stands[name].reserved, whole.inventories[name].reserved))
    ours = any(stock[name].reserved > theirs.get(name, 0) for name in names)
    marks = frozenset(filter(is_mark, whole.traits))
    unmarked = ours and not is_reserved_by_us(marks) and ONE_TIME not in whole.traits
    apart = NO_DEVICES.union(files)
    kept = any(one.reserved > theirs.get(name, 0) for name, one in stock.items() if name not in apart)
    ends = is_reserved_by_us(said.traits) and not kept  # the marks are left of a pass that was cut off
    ends &= not is_reserved_by_us(marks)
    if unmarked or (stock == stands and not ends):
        return said
    marks = (marks - {HELD}) | {UNHEALTHY} if is_reserved_by_us(marks) else marks
    left = kept and not is_reserved_by_us(marks)  # of a class that the host gives by another name now
    if left or any(amount > stock[name].reserved for name, amount in theirs.items() if name in stock):
        marks |= frozenset(filter(is_mark, said.traits))  # or an operator reserved more than stands
    after = replace(said, inventories=stock, traits=frozenset(t for t in said.traits if not is_mark(t)) | marks)
    return with_left(after, files)


def reservation_notes(plan: Plan, observed: ObservedTree) -> tuple[str, ...]:
    """Return a sentence on each amount that such a plan reserves or gives back."""
    after = stock_after(plan, observed)
    amounts = [
        (seen.name, name, stock.reserved - seen.provider.inventories[name].reserved)
        for seen in observed
        for name, stock in sorted(after.get(seen.uuid, {}).items())
    ]
    return tuple(
        f"{provider}: {more} more {name} are reserved (plan {plan.digest}, carried out alone)"
        if more > 0
        else f"{provider}: {-more} {name} are reserved no more (plan {plan.digest}, carried out alone)"
        for provider, name, more in amounts
        if more
    )
