"""Keep what guests hold of devices that a host no longer offers, until they release it; no other guest gets it."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from reportclient.allocations import Allocation, usages
from reportclient.names import BANDWIDTH, CELL, NO_DEVICES, ONE_TIME, PAGES
from reportclient.reserve import HELD, is_mark, keeps, reserved_by_operator
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree, total_of

_PAGES = re.compile(rf"{PAGES}(\d+|SMALL|LARGE)")  # other names are an operator's


def hold(
    desired: ProviderTree,
    observed: ObservedTree,
    allocations: Iterable[Allocation],
    *,
    elsewhere: Collection[str] = (),
    lost: Callable[[str], bool] = lambda _: False,
    besides: Mapping[str, Collection[str]] | None = None,
) -> tuple[ProviderTree, tuple[tuple[str, str], ...]]:
    """
    Return the desired tree with what guests hold of devices on its children.

    The second value has the provider's name and a sentence for each kept amount.

    All that is kept is reserved, so that no guest gets what another one releases. The trait HELD shows that no operator
    reserved it; KEEP traits remember what an operator did reserve. Nothing is kept where the same device is offered in
    another form: as another class, whole instead of in parts, or as part of the root's total (``elsewhere`` names such
    providers). That is a change of shape, and removing the stock is refused while guests hold it.

    What an operator reserved of a device is kept too when ``lost``, called with its provider's name, returns True: a
    card that drops off the bus, or shows no VFs for a while, must not be on offer once it is back.

    What is kept below a cell that goes is put below the root. ``besides`` has, by provider name, the classes that the
    operator's files add to the devices' own.
    """
    besides = besides or {}
    wanted_names = {provider.name for provider in desired}
    providers = {provider.name: provider for provider in desired}
    stood = _placed(observed, wanted_names, desired.root.name)
    notes: list[tuple[str, str]] = []
    for (name, resource_class), used in sorted(usages(allocations).items()):
        seen = stood.get(name)
        if seen is None or resource_class not in seen.provider.inventories:
            continue
        wanted = providers.get(name)
        stays = wanted.inventories.get(resource_class) if wanted else None
        if (stays and stays.total >= used) or name in elsewhere:
            continue
        added = besides.get(name, ())
        if is_reshaped(seen, wanted, resource_class, desired, observed, added):
            continue
        kept = Inventory(total=used, reserved=used, max_unit=used)
        providers[name] = _marked(_with(wanted or _bare(seen), resource_class, kept), seen, added)
        notes.append((name, f"{name} keeps {used} {resource_class}, which guests hold and this host no longer offers"))
    for seen in stood.values():
        if seen.name in wanted_names or seen.name in elsewhere:
            continue
        added = besides.get(seen.name, ())
        if is_used_up(seen, added):
            stays_as = providers.get(seen.name, seen.provider)
            stock = _of_devices(seen.provider.inventories, added)
            held = stays_as.inventories if seen.name in providers else {}  # also of bandwidth and added classes
            providers[seen.name] = replace(stays_as, inventories={**stock, **held})
            why = f"{seen.name} is a one-time device that was used: it stays until it is no longer reserved"
            notes.append((seen.name, why))
        elif seen.name not in providers and lost(seen.name) and (reserved := _reserved_devices(seen, added)):
            providers[seen.name] = _marked(replace(_bare(seen), inventories=reserved), seen, added)
            told = ", ".join(f"{one.total} {name}" for name, one in reserved.items())
            why = f"{seen.name} keeps {told}, which an operator reserved and this host does not show now"
            notes.append((seen.name, f"{why}: {if_gone_for_good(seen)}"))
    return ProviderTree(tuple(providers.values())), tuple(notes)


def is_used_up(seen: ObservedProvider, besides: Collection[str] = ()) -> bool:
    """
    Return whether the provider is a one-time device with nothing left to give.

    Such a device must not count as new again after it was out of sight. Bandwidth, and classes that the operator's
    files add (``besides``), do not matter.
    """
    said = reserved_by_operator(seen.provider)
    stock = _of_devices(seen.provider.inventories, besides)
    used = all(said.get(name, 0) >= one.total for name, one in stock.items())
    return ONE_TIME in seen.provider.traits and bool(stock) and used


def if_gone_for_good(seen: ObservedProvider) -> str:
    """Return the advice for a device that will not come back: delete its provider, and its reservation with it."""
    return f"if it is gone for good, delete it (openstack resource provider delete {seen.uuid})"


def device_classes(names: Iterable[str], besides: Collection[str] = ()) -> frozenset[str]:
    """Return the classes of devices: without the host's own, bandwidth, and those that files add (``besides``)."""
    return frozenset(names) - NO_DEVICES - BANDWIDTH - frozenset(besides)


def keep_whole(
    desired: ProviderTree,
    observed: ObservedTree,
    stock: Mapping[tuple[str, str], int],
    besides: Mapping[str, Collection[str]],
) -> ProviderTree:
    """
    Return the desired tree with at least this much stock of devices, by provider and class.

    What is added is reserved, beside what operators reserved of the class. A provider that is not desired stays with
    its traits; one whose parent goes is put below the root. ``besides`` is as for ``hold``.
    """
    stood = _placed(observed, {one.name for one in desired}, desired.root.name)
    if observed.root and observed.root.name == desired.root.name:
        stood[desired.root.name] = observed.root
    providers = {one.name: one for one in desired}
    for (name, resource_class), total in sorted(stock.items()):
        seen = stood.get(name)
        if seen is None:
            continue
        wanted = providers.get(name) or _bare(seen)
        now, before = wanted.inventories.get(resource_class), seen.provider.inventories[resource_class]
        free = now.total - now.reserved if now else 0
        largest = max((now or before).max_unit, before.max_unit)
        more = replace(now or before, total=total, max_unit=largest, reserved=total - free)
        providers[name] = _kept(_with(wanted, resource_class, more), seen, besides.get(name, ()))
    return ProviderTree(tuple(providers.values()))


def _placed(observed: ObservedTree, wanted: Collection[str], root: str) -> dict[str, ObservedProvider]:
    """Return the providers of devices by name; if the parent of one is not wanted, the root is its new parent."""
    found = {}
    for seen in observed:
        parent = seen.provider.parent
        if is_of_the_host(seen.provider):
            continue
        if parent in wanted:
            found[seen.name] = seen
        elif parent in observed.by_name:
            found[seen.name] = seen.changed(parent=root)
    return found


def is_of_the_host(provider: Provider) -> bool:
    """Return whether a provider is a cell or a pool of pages, and so no device, whatever the operator's files add."""
    return CELL in provider.traits or any(map(_PAGES.fullmatch, provider.traits))


def _of_devices(stock: Mapping[str, Inventory], besides: Collection[str]) -> dict[str, Inventory]:
    names = device_classes(stock, besides)
    return {name: one for name, one in stock.items() if name in names}


def is_reshaped(
    seen: ObservedProvider,
    wanted: Provider | None,
    resource_class: str,
    desired: ProviderTree,
    observed: ObservedTree,
    besides: Collection[str],
) -> bool:
    """Return whether a class is gone because its hardware is offered in another form, or is not of a device."""
    before = observed.root.provider.inventories if observed.root else {}
    on_root = total_of(desired.root.inventories, resource_class) > total_of(before, resource_class)
    came = wanted.inventories.keys() - seen.provider.inventories.keys() if wanted else frozenset()
    return resource_class in NO_DEVICES or on_root or bool(device_classes(came, besides))


def _reserved_devices(seen: ObservedProvider, besides: Collection[str]) -> dict[str, Inventory]:
    """Return the stock that an operator reserved of a provider's devices: just that amount, all of it reserved."""
    return {
        name: Inventory(total=amount, reserved=amount, max_unit=amount)
        for name, amount in sorted(reserved_by_operator(seen.provider).items())
        if name not in NO_DEVICES and name not in besides
    }


def _bare(seen: ObservedProvider) -> Provider:
    own = frozenset(name for name in seen.provider.traits if not is_mark(name))
    return Provider(name=seen.name, parent=seen.provider.parent, traits=own)


def _marked(provider: Provider, seen: ObservedProvider, besides: Collection[str]) -> Provider:
    """Return the provider with the marks of what is kept; what guests hold of a one-time device counts as used up."""
    once = _of_devices(provider.inventories, besides) if ONE_TIME in seen.provider.traits else {}
    kept = _kept(provider, seen, besides)
    return replace(kept, traits=kept.traits | keeps({name: one.total for name, one in once.items()}))


def _kept(provider: Provider, seen: ObservedProvider, besides: Collection[str]) -> Provider:
    """Return the provider with the marks of what is kept, and of what an operator reserved."""
    apart = {*besides, *NO_DEVICES}
    said = {name: amount for name, amount in reserved_by_operator(seen.provider).items() if name not in apart}
    return replace(provider, traits=provider.traits | {HELD} | keeps(said))


def _with(provider: Provider, resource_class: str, stock: Inventory) -> Provider:
    return replace(provider, inventories={**provider.inventories, resource_class: stock})
