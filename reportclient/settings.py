"""What operators set in placement by hand, and plans that would lose it: reservations of devices, allocation ratios."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from math import isclose
from types import MappingProxyType

from reportclient.names import NO_DEVICES, ONE_TIME
from reportclient.reserve import keep_trait, reserved_by_operator, without_classes
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

HUGE = "CUSTOM_MEMORY_PAGE_SIZE_LARGE"  # of providers that nobody can overcommit
_BANDWIDTH = "NET_BW_"  # begins the classes that count kbit/s
_NONE: Mapping[str, Collection[str]] = MappingProxyType({})
_OPTIONS = {"VCPU": "cpu_allocation_ratio", "MEMORY_MB": "ram_allocation_ratio", "DISK_GB": "disk_allocation_ratio"}


@dataclass(frozen=True, slots=True)
class _Flow:
    """Stock of a class that goes from providers to others above or below them."""

    name: str
    sources: tuple[ObservedProvider, ...]  # that lose all of it
    targets: tuple[Provider, ...]  # that did not have it, or less


def lost_settings(
    observed: ObservedTree,
    desired: ProviderTree,
    owned: Collection[str],
    free_ratios: Collection[str],
    *,
    elsewhere: Collection[str] = (),
    away: Collection[str] = (),
    apart: Mapping[str, Collection[str]] = _NONE,
) -> tuple[str, ...]:
    """
    Why a change would lose what an operator set: a sentence each; none when all of it comes along.

    Changes are of the layout, and of the names of classes. ``owned`` are the names of the providers that we write;
    ``free_ratios`` the classes whose ratio nobody configured; ``elsewhere`` the providers whose hardware is to be on
    offer in another form; ``away`` the classes of a root's total of which no device has any now. ``apart`` has the
    classes, by provider's name, that are no device's: those of the operator's files, and others'.
    """
    observed = replace(
        observed,
        providers=tuple(
            replace(seen, provider=without_classes(seen.provider, apart.get(seen.name, ()))) for seen in observed
        ),
    )
    desired = ProviderTree(tuple(without_classes(one, apart.get(one.name, ())) for one in desired))
    flows = list(_flows(observed, desired, owned))
    sentences = [_lost_reservation(flow) for flow in flows if flow.name not in NO_DEVICES]
    sentences += [_lost_ratio(flow, observed, desired) for flow in flows if flow.name in free_ratios]
    sentences += [_lost_total(observed.root, name) for name in sorted(away) if observed.root]
    related = _relations(observed, desired)
    for seen in observed:
        if seen.name in owned:
            flown = {flow.name for flow in flows if seen in flow.sources}
            near = [one for one in desired if one.name == seen.name or related(one.name, seen.name)]
            sentences.append(_lost_name(seen, near, flown, observed, is_elsewhere=seen.name in elsewhere))
    return tuple(filter(None, sentences))


def _lost_total(root: ObservedProvider, name: str) -> str:
    """Why a reservation of devices that are away is lost with the root's total of them; empty when none stands."""
    amount = reserved_by_operator(root.provider).get(name, 0)
    if not amount:
        return ""
    return (
        f"{amount} {name} on {root.name} are reserved by hand, and no device of this host has any now that could keep "
        f"it: wait until one is back, or {_take_off(root, name)}"
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
    Why a reservation is lost as the same hardware is to be on offer by another name; empty when none is.

    ``near`` are the providers that may get it: the same one, and those above and below; ``flown`` the classes that
    they get by the same name.
    """
    stays = {name for one in near if one.name == seen.name for name in one.inventories}
    for name, amount in sorted(reserved_by_operator(seen.provider).items()):
        if name in NO_DEVICES or name in stays or name in flown:
            continue
        came = _came(near, observed, name)
        spent = [one for one in near if one.name == seen.name and ONE_TIME in one.traits & seen.provider.traits]
        if came and all(reserved_by_operator(one).get(each, 0) for one in spent for each in came) and spent:
            continue  # a one-time device that was used is used by whatever name
        if came or is_elsewhere:
            other = ", ".join(came) or "the same hardware in another form"
            return (
                f"{amount} {name} on {seen.name} are reserved by hand, and {other} is to be on offer instead, which "
                f"may be the same devices: {_take_off(seen, name)}, and set it again on {came[0] if came else 'that'} "
                f"afterwards"
            )
    return ""


def _came(near: Iterable[Provider], observed: ObservedTree, gone: str) -> list[str]:
    """The classes that providers get and that may be another name of one that goes: bandwidth is none of devices."""
    stood = observed.by_name
    before = {one.name: stood[one.name].provider.inventories.keys() if one.name in stood else () for one in near}
    came = {name for one in near for name in one.inventories if name not in before[one.name]}
    return sorted(name for name in came - NO_DEVICES if name.startswith(_BANDWIDTH) == gone.startswith(_BANDWIDTH))


def _take_off(seen: ObservedProvider, name: str) -> str:
    """How a person takes a reservation off: in the stock, or where that says 0 or is away, in our trait."""
    stock = seen.provider.inventories.get(name)
    if stock and stock.reserved:
        command = f"openstack resource provider inventory set {seen.uuid} --amend --resource {name}:reserved=0"
        return f"take the reservation off ({command})"
    trait = keep_trait(seen.provider, name)
    return (
        f"take the trait {trait} off {seen.name} (openstack resource provider trait set {seen.uuid}, with --trait for "
        f"each of its other traits)"
    )


def _flows(observed: ObservedTree, desired: ProviderTree, owned: Collection[str]) -> Iterable[_Flow]:
    wanted = {provider.name: provider for provider in desired}
    related = _relations(observed, desired)
    stood = observed.by_name
    sources: dict[str, list[ObservedProvider]] = {}
    for seen in observed:
        after = wanted[seen.name].inventories if seen.name in wanted else {}
        for name in seen.provider.inventories.keys() - after.keys():
            if seen.name in owned:
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


def _relations(observed: ObservedTree, desired: ProviderTree) -> Callable[[str, str], bool]:
    """Whether one provider is above the other, before or after."""
    before = {seen.name: seen.provider.parent for seen in observed}
    after = {provider.name: provider.parent for provider in desired}

    def is_above(one: str, other: str, parents: Mapping[str, str | None]) -> bool:
        parent = parents.get(other)
        return parent is not None and (parent == one or is_above(one, parent, parents))

    def related(one: str, other: str) -> bool:
        return any(is_above(one, other, each) or is_above(other, one, each) for each in (before, after))

    return related


def _lost_reservation(flow: _Flow) -> str:
    """Why a reservation is lost or could not come back; empty when it comes along."""
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
        f"{where} are reserved by hand, and this change would lose which of the devices they are: "
        f"{_take_off(seen, flow.name)}, and set it again on {_first(one.name for one in flow.targets)} afterwards"
    )


def _may_be_of_others(flow: _Flow, amount: int) -> bool:
    """Whether a root's total counted more devices than are here to get what is reserved of it: one may be lost."""
    (source,), (target,) = flow.sources, flow.targets
    most = max(amount, source.provider.inventories[flow.name].total)
    return source.provider.parent is None and most > target.inventories[flow.name].total


def _lost_ratio(flow: _Flow, observed: ObservedTree, desired: ProviderTree) -> str:
    """Why an allocation ratio is lost; empty when all that had the class agree on it, and what has it then too."""
    before = {seen.name: _ratio(seen.provider, flow.name) for seen in flow.sources}
    top = observed.root
    before |= {top.name: _ratio(top.provider, flow.name)} if top else {}
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


def _ratio(provider: Provider, name: str) -> float | None:
    stock: Inventory | None = None if HUGE in provider.traits else provider.inventories.get(name)
    return stock.allocation_ratio if stock else None


def _first(names: Iterable[str]) -> str:
    several = list(names)
    return several[0] if len(several) == 1 else f"{', '.join(several[:3])}{' ...' if len(several) > 3 else ''}"
