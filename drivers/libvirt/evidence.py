"""Sentences on what shows that a guest has something of the host: the evidence for its units, for people."""

from collections.abc import Iterable, Mapping

from drivers.facts import HostFacts
from drivers.host.parse import format_cpu_set

_SHOWN = 3  # devices in one sentence
_UUID_SHOWN = 8  # digits of a mediated device's uuid: enough to find it in the guest's XML


def of_cpus(cell: int, cpus: frozenset[int]) -> str:
    """Return that vCPUs may run on these CPUs only, which are in one cell."""
    return f"pinned to CPUs {format_cpu_set(cpus)} in cell {cell}"


def of_memory(cell: int, page_kib: int | None) -> str:
    """Return that memory is bound to a cell; ``page_kib`` None: in pages of the host's own size."""
    return f"memory bound to cell {cell}{f' in pages of {page_kib} KiB' if page_kib else ''}"


def of_context(kind: str) -> str:
    """Return that a guest's memory is encrypted."""
    return f"its memory is encrypted by {kind}"


def of_devices(devices: Iterable[str], cards: Mapping[str, str]) -> str:
    """
    Return which devices a guest has.

    ``devices`` are PCI addresses, uuids of mediated devices, or paths of namespaces. ``cards`` has the card of each
    mediated device, as ``cards_of_mdevs`` returns it.
    """
    named = [f"mdev {one[:_UUID_SHOWN]}… on {cards[one]}" if one in cards else one for one in sorted(devices)]
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    return f"has {', '.join(named[:_SHOWN])}{more}"


def cards_of_mdevs(facts: HostFacts) -> dict[str, str]:
    """Return the card of each mediated device by its uuid: the PCI address, or the name of a device that is not PCI."""
    cards = {parent.name: str(parent.address or parent.name) for parent in facts.devices.mdev_parents}
    return {mdev.uuid: cards.get(mdev.parent, mdev.parent) for mdev in facts.devices.mdevs}
