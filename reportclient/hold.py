"""What guests hold of devices that a host no longer offers: kept until they let go of it, and given to nobody else."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from reportclient.allocations import Allocation, usages
from reportclient.names import NO_DEVICES
from reportclient.reserve import HELD, all_said, is_mark, keeps
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree, total_of

ONE_TIME = "HW_PCI_ONE_TIME_USE"


def hold(
    desired: ProviderTree,
    observed: ObservedTree,
    allocations: Iterable[Allocation],
    *,
    elsewhere: Collection[str] = (),
    lost: Callable[[str], bool] = lambda _: False,
) -> tuple[ProviderTree, tuple[str, ...]]:
    """
    The desired tree with what guests hold of devices on its children, and a sentence for each that was kept.

    What is kept is all reserved, so that nobody is given what a guest lets go of; HELD says that this is no operator's
    word, and what an operator reserved is remembered beside it. Where the same device is on offer in other words (as
    another class, whole instead of in parts, or as part of the root's total; ``elsewhere`` has such providers) nothing
    is kept: that is a change of shape, and taking the stock away is refused as long as guests hold it.

    What an operator reserved of a device that is ``lost``, by the name of its provider, is kept too: a card that drops
    off the bus and comes back must not be on offer then.
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
        if (stays and stays.total >= used) or name in elsewhere:
            continue
        if _is_reshaped(seen, wanted, resource_class, desired, observed):
            continue
        kept = Inventory(total=used, reserved=used, max_unit=used)
        providers[name] = _marked(_with(wanted or _bare(seen), resource_class, kept), seen)
        notes.append(f"{name} keeps {used} {resource_class}, which guests hold and this host no longer offers")
    for seen in observed:
        if seen.name in providers or seen.provider.parent not in providers or seen.name in elsewhere:
            continue
        if is_used_up(seen):
            providers[seen.name] = seen.provider
            notes.append(f"{seen.name} is a one-time device that was used: it stays until it is no longer reserved")
        elif lost(seen.name) and (reserved := _reserved_devices(seen)):
            providers[seen.name] = _marked(replace(_bare(seen), inventories=reserved), seen)
            told = ", ".join(f"{one.total} {name}" for name, one in reserved.items())
            notes.append(
                f"{seen.name} is gone from this host, and keeps {told} that an operator reserved: if it is gone for "
                f"good, say sync --force"
            )
    return (ProviderTree(tuple(providers.values())), tuple(notes)) if notes else (desired, ())


def is_used_up(seen: ObservedProvider) -> bool:
    """Whether it is a one-time device without anything left to give: out of sight it must not become new again."""
    stock, words = seen.provider.inventories, all_said(seen)
    used = all(words.get(name, 0) >= one.total for name, one in stock.items())
    return ONE_TIME in seen.provider.traits and bool(stock) and used


def _is_reshaped(
    seen: ObservedProvider,
    wanted: Provider | None,
    resource_class: str,
    desired: ProviderTree,
    observed: ObservedTree,
) -> bool:
    """Whether the class is gone because the same hardware is offered in another form, or is no device at all."""
    before = observed.root.provider.inventories if observed.root else {}
    on_root = total_of(desired.root.inventories, resource_class) > total_of(before, resource_class)
    other_classes = wanted is not None and bool(wanted.inventories.keys() - seen.provider.inventories.keys())
    return resource_class in NO_DEVICES or on_root or other_classes


def _reserved_devices(seen: ObservedProvider) -> dict[str, Inventory]:
    """What an operator reserved of a provider's devices, as all that there is."""
    return {
        name: Inventory(total=amount, reserved=amount, max_unit=amount)
        for name, amount in sorted(all_said(seen).items())
        if name not in NO_DEVICES
    }


def _bare(seen: ObservedProvider) -> Provider:
    own = frozenset(name for name in seen.provider.traits if not is_mark(name))
    return Provider(name=seen.name, parent=seen.provider.parent, traits=own)


def _marked(provider: Provider, seen: ObservedProvider) -> Provider:
    """The provider with the mark of what is kept; what guests hold of a one-time device is used up for good."""
    used = {name: one.total for name, one in provider.inventories.items() if ONE_TIME in seen.provider.traits}
    return replace(provider, traits=provider.traits | {HELD} | keeps(all_said(seen) | used))


def _with(provider: Provider, resource_class: str, stock: Inventory) -> Provider:
    return replace(provider, inventories={**provider.inventories, resource_class: stock})
