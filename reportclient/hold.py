"""What guests hold of devices that a host no longer offers: kept until they let go of it."""

from collections.abc import Iterable
from dataclasses import replace

from reportclient.allocations import Allocation, usages
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree


def hold(
    desired: ProviderTree, observed: ObservedTree, allocations: Iterable[Allocation]
) -> tuple[ProviderTree, tuple[str, ...]]:
    """
    The desired tree with as much stock on its children as guests hold there, and a sentence for each that was kept.

    A class that the host offers elsewhere now is left alone: keeping it here too would put it on offer twice.
    """
    providers = {provider.name: provider for provider in desired}
    notes: list[str] = []
    for (name, resource_class), used in sorted(usages(allocations).items()):
        seen = observed.by_name.get(name)
        stands = seen.provider.inventories.get(resource_class) if seen else None
        if seen is None or stands is None or seen.provider.parent not in providers:
            continue
        wanted = providers.get(name)
        stays = wanted.inventories.get(resource_class) if wanted else None
        if (stays and stays.total >= used) or _is_elsewhere(resource_class, used, providers.values(), observed):
            continue
        kept = replace(stands, total=used, reserved=0, max_unit=used)
        providers[name] = _with(wanted or _bare(seen), resource_class, kept)
        notes.append(f"{name} keeps {used} {resource_class}, which guests hold and this host no longer offers")
    return (ProviderTree(tuple(providers.values())), tuple(notes)) if notes else (desired, ())


def _is_elsewhere(resource_class: str, used: int, desired: Iterable[Provider], observed: ObservedTree) -> bool:
    """Whether keeping ``used`` would make more of the class than there was."""
    after = sum(_total(provider, resource_class) for provider in desired)
    before = sum(_total(seen.provider, resource_class) for seen in observed)
    return after + used > before


def _total(provider: Provider, resource_class: str) -> int:
    stock = provider.inventories.get(resource_class)
    return stock.total if stock else 0


def _bare(seen: ObservedProvider) -> Provider:
    return Provider(name=seen.name, parent=seen.provider.parent, traits=seen.provider.traits)


def _with(provider: Provider, resource_class: str, stock: Inventory) -> Provider:
    return replace(provider, inventories={**provider.inventories, resource_class: stock})
