"""Keep what operators set in placement by hand (reservations and limits of devices, ratios), or say what is lost."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from math import isclose
from types import MappingProxyType

from reportclient.errors import few
from reportclient.names import BANDWIDTH, HUGE, NO_DEVICES, ONE_TIME
from reportclient.reserve import keeps, reserved_by_operator, without_classes
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

_NONE: Mapping[str, Collection[str]] = MappingProxyType({})
_Related = Callable[[str, str], bool]  # whether one of two providers is above the other
_OPTIONS = {"VCPU": "cpu_allocation_ratio", "MEMORY_MB": "ram_allocation_ratio", "DISK_GB": "disk_allocation_ratio"}


@dataclass(frozen=True, slots=True)
class _Flow:
    """Stock of one class that goes from providers to others above or below them."""

    name: str  # of the class
    sources: tuple[ObservedProvider, ...]  # lose all of it
    targets: tuple[Provider, ...]  # had none of it, or less


def with_limits(tree: ProviderTree, observed: ObservedTree) -> ProviderTree:
    """
    Return the tree with the limits of device classes that stand on the same providers and that only a hand sets.

    That is a ``max_unit`` below the total, as the agent writes the total or a limit of the device itself. A ratio above
    1 stays for bandwidth alone: a device serves one guest.
    """
    stood = observed.by_name
    return ProviderTree(tuple(_limited(one, stood.get(one.name)) for one in tree))


def set_back(observed: ObservedTree, desired: ProviderTree) -> tuple[str, ...]:
    """Return a sentence for each ratio above 1 that a hand set on a class of devices, and that a plan sets back."""
    return tuple(
        f"{name} on {one.name} has allocation_ratio {stands.allocation_ratio:g}, set by hand: it is set back to "
        f"{stock.allocation_ratio:g}, as a device serves one guest"
        for one in desired
        if (seen := observed.by_name.get(one.name))
        for name, stock in one.inventories.items()
        if name not in NO_DEVICES | BANDWIDTH
        and (stands := seen.provider.inventories.get(name))
        and stands.allocation_ratio > max(1, stock.allocation_ratio)
    )


def lost_settings(
    observed: ObservedTree,
    desired: ProviderTree,
    free_ratios: Collection[str],
    *,
    elsewhere: Collection[str] = (),
    away: Collection[str] = (),
    apart: Mapping[str, Collection[str]] = _NONE,
) -> tuple[str, ...]:
    """
    Return a sentence for each setting of an operator that a change would lose; empty when all settings are kept.

    Such a change is one of the layout, or of the names of classes. ``free_ratios`` are the classes whose ratio is not
    configured; ``elsewhere`` the names of providers whose hardware is to be offered in another form; ``away`` the
    classes of a root's total that no device has now. ``apart`` has, by provider name, the classes that do not belong to
    devices: from the operator's files, or of other services.
    """
    observed = replace(
        observed,
        providers=tuple(
            replace(seen, provider=without_classes(seen.provider, apart.get(seen.name, ()))) for seen in observed
        ),
    )
    desired = ProviderTree(tuple(without_classes(one, apart.get(one.name, ())) for one in desired))
    related = _relations(observed, desired)
    flows = list(_flows(observed, desired, related))
    sentences = [_lost_reservation(flow) for flow in flows if flow.name not in NO_DEVICES]
    sentences += [_lost_ratio(flow, observed, desired, related) for flow in flows if flow.name in free_ratios]
    sentences += [
        _lost_limit(seen, flow.name, (one.inventories[flow.name] for one in flow.targets))
        for flow in flows
        for seen in flow.sources
    ]
    sentences += [_lost_total(observed.root, name) for name in sorted(away) if observed.root]
    for seen in observed:
        flown = {flow.name for flow in flows if seen in flow.sources}
        near = [one for one in desired if one.name == seen.name or related(one.name, seen.name)]
        is_elsewhere = seen.name in elsewhere
        sentences.append(_lost_name(seen, near, flown, observed, is_elsewhere=is_elsewhere))
        stays = {name for one in near if one.name == seen.name for name in one.inventories}
        sentences += [
            _lost_limit(seen, name)
            for name in sorted(seen.provider.inventories.keys() - stays - flown)
            if is_elsewhere or _new_classes(near, observed, name)
        ]
    return tuple(filter(None, sentences))


def _limited(provider: Provider, seen: ObservedProvider | None) -> Provider:
    stock = {
        name: _with_limit(name, one, seen.provider.inventories.get(name) if seen else None)
        for name, one in provider.inventories.items()
    }
    return replace(provider, inventories=stock)


def _with_limit(name: str, stock: Inventory, stands: Inventory | None) -> Inventory:
    if stands is None or name in NO_DEVICES:
        return stock
    largest = min(stock.max_unit, stands.max_unit) if stands.max_unit < stands.total else stock.max_unit
    ratio = stands.allocation_ratio if name in BANDWIDTH or stands.allocation_ratio < 1 else stock.allocation_ratio
    return replace(stock, max_unit=largest, allocation_ratio=ratio)


def _lost_limit(seen: ObservedProvider, name: str, after: Iterable[Inventory] = ()) -> str:
    """
    Return why a limit of a class of devices is lost when its stock goes to other providers; empty: none is lost.

    ``after`` is the stock of the class there: it has a limit of the device itself, too.
    """
    stock = seen.provider.inventories[name]
    free = replace(stock, max_unit=stock.total, allocation_ratio=1.0)
    kept, there = _with_limit(name, free, stock), list(after)
    set_by_hand = []
    if kept.max_unit < free.max_unit and not (there and all(one.max_unit <= kept.max_unit for one in there)):
        set_by_hand.append(("max_unit", f"{kept.max_unit}", f"{stock.total}"))
    if not isclose(kept.allocation_ratio, 1, rel_tol=1e-5):
        set_by_hand.append(("allocation_ratio", f"{kept.allocation_ratio:g}", "1"))
    if not set_by_hand:
        return ""
    told = " and ".join(f"{field} {value}" for field, value, _ in set_by_hand)
    options = " ".join(f"--resource {name}:{field}={default}" for field, _, default in set_by_hand)
    return (
        f"{name} on {seen.name} has {told}, set by hand, and this change would lose that: set it back (openstack "
        f"resource provider inventory set {seen.uuid} --amend {options}), and set it again afterwards on the providers "
        f"that then have the devices"
    )


def _lost_total(root: ObservedProvider, name: str) -> str:
    """Return why a reservation of devices that are away is lost with the root's total; empty: none is reserved."""
    amount = reserved_by_operator(root.provider).get(name, 0)
    if not amount:
        return ""
    return (
        f"{amount} {name} on {root.name} are reserved by hand. No device of this host has this class now, so the "
        f"reservation would be lost: wait until such a device is back, or {_take_off(root, name)}"
    )


def _lost_name(
    seen: ObservedProvider,
    near: Collection[Provider],
    flown: Collection[str],
    observed: ObservedTree,
    *,
    is_elsewhere: bool,
) -> str:
    """
    Return why a reservation is lost when the same hardware is offered under another class; empty: none is lost.

    ``near`` are the providers that may get the hardware: the same one, and those above and below it; ``flown`` are the
    classes that they get under the same name.
    """
    stays = {name for one in near if one.name == seen.name for name in one.inventories}
    for name, amount in sorted(reserved_by_operator(seen.provider).items()):
        if name in NO_DEVICES or name in stays or name in flown:
            continue
        came = _new_classes(near, observed, name)
        spent = [one for one in near if one.name == seen.name and ONE_TIME in one.traits & seen.provider.traits]
        if came and all(reserved_by_operator(one).get(each, 0) for one in spent for each in came) and spent:
            continue  # a used one-time device stays used, also under another class
        if came or is_elsewhere:
            said = f"{amount} {name} on {seen.name} are reserved by hand, and this change would offer"
            off = _take_off(seen, name)
            if came:
                return (
                    f"{said} {', '.join(came)} instead, which may be the same devices: {off}, and set it again for "
                    f"{came[0]} afterwards"
                )
            return (
                f"{said} the same hardware in another form: {off}, and set it again afterwards on the provider that "
                f"then offers the hardware"
            )
    return ""


def _new_classes(near: Iterable[Provider], observed: ObservedTree, gone: str) -> list[str]:
    """Return the new classes of ``near`` that may replace ``gone``: bandwidth replaces only bandwidth."""
    stood = observed.by_name
    before = {one.name: stood[one.name].provider.inventories.keys() if one.name in stood else () for one in near}
    came = {name for one in near for name in one.inventories if name not in before[one.name]}
    return sorted(name for name in came - NO_DEVICES if (name in BANDWIDTH) == (gone in BANDWIDTH))


def _take_off(seen: ObservedProvider, name: str) -> str:
    """Return how a person takes a reservation off: in the stock, or in our trait when no stock shows it."""
    stock = seen.provider.inventories.get(name)
    if stock and stock.reserved:
        command = f"openstack resource provider inventory set {seen.uuid} --amend --resource {name}:reserved=0"
        return f"take the reservation off ({command})"
    (trait,) = keeps({name: reserved_by_operator(seen.provider)[name]})
    return (
        f"take the trait {trait} off {seen.name} (openstack resource provider trait set {seen.uuid}, with --trait for "
        f"each of its other traits)"
    )


def _flows(observed: ObservedTree, desired: ProviderTree, related: _Related) -> Iterable[_Flow]:
    wanted = {provider.name: provider for provider in desired}
    stood = observed.by_name
    sources: dict[str, list[ObservedProvider]] = {}
    for seen in observed:
        after = wanted[seen.name].inventories if seen.name in wanted else {}
        for name in seen.provider.inventories.keys() - after.keys():
            sources.setdefault(name, []).append(seen)
    for name, leaving in sorted(sources.items()):
        targets = tuple(
            provider
            for provider in desired
            if name in provider.inventories
            and _grows(provider, stood.get(provider.name), name)
            and any(related(provider.name, seen.name) for seen in leaving)
        )
        gone = tuple(seen for seen in leaving if any(related(one.name, seen.name) for one in targets))
        if targets:
            yield _Flow(name, gone, targets)


def _grows(provider: Provider, seen: ObservedProvider | None, name: str) -> bool:
    stood = seen.provider.inventories.get(name) if seen else None
    return stood is None or stood.total < provider.inventories[name].total


def _relations(observed: ObservedTree, desired: ProviderTree) -> _Related:
    """Return a function that returns whether one of two providers is above the other, before or after the change."""
    before = {seen.name: seen.provider.parent for seen in observed}
    after = {provider.name: provider.parent for provider in desired}

    def is_above(one: str, other: str, parents: Mapping[str, str | None]) -> bool:
        parent = parents.get(other)
        return parent is not None and (parent == one or is_above(one, parent, parents))

    def related(one: str, other: str) -> bool:
        return any(is_above(one, other, each) or is_above(other, one, each) for each in (before, after))

    return related


def _lost_reservation(flow: _Flow) -> str:
    """Return why a reservation is lost or could not come back; empty when it is kept."""
    said = [(seen, reserved_by_operator(seen.provider).get(flow.name, 0)) for seen in flow.sources]
    kept = [(one, reserved_by_operator(one).get(flow.name, 0)) for one in flow.targets]
    before, after = sum(amount for _, amount in said), sum(amount for _, amount in kept)
    whole = all(amount >= seen.provider.inventories[flow.name].total for seen, amount in said)
    alone = len(said) == len(kept) == 1
    if not before or (alone and after >= before and not _may_be_of_others(flow, before)):
        return ""
    if whole and all(amount == one.inventories[flow.name].total for one, amount in kept):
        return ""
    places = [(seen, amount) for seen, amount in said if amount]
    where = ", ".join(f"{amount} {flow.name} on {seen.name}" for seen, amount in places)
    seen = places[0][0]
    return (
        f"{where} are reserved by hand, and placement would not show after this change which of the devices are "
        f"reserved: {_take_off(seen, flow.name)}, and set it again on {few((one.name for one in flow.targets), 3)} "
        f"afterwards"
    )


def _may_be_of_others(flow: _Flow, amount: int) -> bool:
    """Return whether a root's total counted more devices than its target has: the reserved one may be lost."""
    (source,), (target,) = flow.sources, flow.targets
    most = max(amount, source.provider.inventories[flow.name].total)
    return source.provider.parent is None and most > target.inventories[flow.name].total


def _lost_ratio(flow: _Flow, observed: ObservedTree, desired: ProviderTree, related: _Related) -> str:
    """
    Return why an allocation ratio is lost; empty when none is.

    Such a ratio goes along with the stock of each cell, or all providers agree on it before and after the change.
    """
    if _keeps_each_ratio(flow, related):
        return ""
    before = {seen.name: _ratio(seen.provider, flow.name) for seen in (*flow.sources, *observed.providers[:1])}
    after = {one.name: _ratio(one, flow.name) for one in (*flow.targets, desired.root)}
    ratios = [ratio for ratio in (*before.values(), *after.values()) if ratio is not None]
    if all(isclose(ratio, ratios[0], rel_tol=1e-5) for ratio in ratios):
        return ""
    told = ", ".join(f"{name} {ratio:g}" for name, ratio in before.items() if ratio is not None)
    return (
        f"the allocation ratios of {flow.name} were set by hand and differ ({told}), and this change would lose them: "
        f"make them equal (openstack resource provider inventory set UUID --amend --resource "
        f"{flow.name}:allocation_ratio=...), or configure [DEFAULT] {_OPTIONS.get(flow.name, 'the ratio')}"
    )


def _keeps_each_ratio(flow: _Flow, related: _Related) -> bool:
    """Return whether each target has one source, as the stock of a cell that moves within it, and its ratio."""
    before = {seen.name: ratio for seen in flow.sources if (ratio := _ratio(seen.provider, flow.name)) is not None}
    after = {one.name: ratio for one in flow.targets if (ratio := _ratio(one, flow.name)) is not None}
    pairs = [(one, other) for one in before for other in after if related(one, other)]
    alone = len(pairs) == len(before) == len(after) > 1
    return alone and all(isclose(before[one], after[other], rel_tol=1e-5) for one, other in pairs)


def _ratio(provider: Provider, name: str) -> float | None:
    stock: Inventory | None = None if HUGE in provider.traits else provider.inventories.get(name)
    return stock.allocation_ratio if stock else None
