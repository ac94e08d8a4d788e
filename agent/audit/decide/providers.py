"""Find what is wrong with the providers of a host's tree: their owners, their hardware, and how full they are."""

from collections.abc import Collection, Mapping

from agent.audit.decide.findings import Finding, Kind
from agent.audit.decide.snapshot import Snapshot
from agent.sync.decide.layout import doubled_kinds
from agent.sync.decide.owner import advice, open_stock, tell_disputed
from reportclient.allocations import usages
from reportclient.hold import if_gone_for_good, is_of_the_host, is_used_up
from reportclient.names import NO_DEVICES, device_address
from reportclient.ownership import MARKER, OWNERS, is_novas, unmarked_owner
from reportclient.tree import ObservedProvider


def audit_providers(snapshot: Snapshot) -> list[Finding]:
    """Return the findings of providers; they need no ``snapshot.consumers``."""
    booked = usages(snapshot.allocations)
    held = {name for name, _ in booked}
    parents = {seen.provider.parent for seen in snapshot.tree}
    odd, providers = snapshot.holdings.backing.odd.sentences.items(), snapshot.providers
    found = [Finding(kind=Kind.ODD_DEVICE, provider=name, seen=sentence) for name, sentence in odd]
    for seen in snapshot.tree:
        name, provider = seen.name, seen.provider
        found += _over(seen, booked)
        if provider.parent is None:
            continue
        is_ours = MARKER in provider.traits and name not in providers.foreign | providers.novas
        is_begun = is_of_the_host(provider) and not provider.inventories  # by a conversion that was cut off
        if is_ours and name not in providers.present and not is_begun and not is_used_up(seen):
            found.append(_ghost(seen, in_use=name in parents | held))
        if name in providers.foreign and is_novas(seen) and open_stock(seen):
            found.append(Finding(kind=Kind.GHOST, provider=name, seen=advice(seen)))
        if not _owner(seen, snapshot.tree.providers[0].name):
            sentence = "it has no trait OWNER_* or CUSTOM_OWNER_*, so its owner is not known"
            found.append(Finding(kind=Kind.OWNERLESS, provider=name, seen=sentence))
    twice = (*_duplicates(snapshot), *_offered_by_two(snapshot), *_twice_on_offer(snapshot))
    found += (*twice, *_other_layout(snapshot))
    if snapshot.disputed and not any(one.kind is Kind.TWICE_ON_OFFER for one in twice):
        root = snapshot.tree.providers[0].name
        sentence = tell_disputed(root, snapshot.disputed)
        found.append(Finding(kind=Kind.OTHER_OPTIONS, provider=root, seen=sentence))
    return found


def _ghost(seen: ObservedProvider, *, in_use: bool) -> Finding:
    """Return the finding of a provider of ours without hardware; a pass deletes it, unless something is reserved."""
    reserved = any(one.reserved for name, one in seen.provider.inventories.items() if name not in NO_DEVICES)
    why = "no hardware of this host matches this provider" + (", and it is in use" if in_use else "")
    if reserved and not in_use:
        why += f", and its reserved amounts stay until the device is back: {if_gone_for_good(seen)}"
    return Finding(kind=Kind.GHOST, provider=seen.name, seen=why)


def _twice_on_offer(snapshot: Snapshot) -> list[Finding]:
    """Return a finding for each class of the root that stands for CPUs or memory which its cells offer too."""
    root = snapshot.tree.providers[0]
    doubled = frozenset[str]().union(*doubled_kinds(snapshot.tree))
    return [
        Finding(
            kind=Kind.TWICE_ON_OFFER,
            provider=root.name,
            resource_class=name,
            actual=root.provider.inventories[name].total,
            seen=f"the cells of {root.name} offer the same {name}, as after a start of nova-compute on a host with "
            f"cells: stop and disable nova-compute here and run reshape --apply --take-over, or to give the host back "
            f"to nova, run reshape --to devices --apply --take-over and then hand-over; if nova-compute reports this "
            f"host with this agent's driver, start nova-compute with that driver",
        )
        for name in sorted(doubled & root.provider.inventories.keys())
    ]


def _other_layout(snapshot: Snapshot) -> list[Finding]:
    """Return the finding of a tree in another layout than configured; all else is judged by the layout it has."""
    standing, configured = snapshot.standing, snapshot.layout
    if standing == configured:
        return []
    sentence = (
        f"the tree stands in the layout {standing}, and [compute] layout is {configured}: set [compute] layout = "
        f"{standing}, or convert the tree with compute-node-agent reshape --to {configured} (a pass does so by itself "
        f"while nothing on the tree is allocated), or where nova-compute reports this host with this agent's driver, "
        f"by a start of nova-compute"
    )
    return [Finding(kind=Kind.OTHER_LAYOUT, provider=snapshot.tree.providers[0].name, seen=sentence)]


def _offered_by_two(snapshot: Snapshot) -> list[Finding]:
    """Return a finding for each child of another service that offers a card, or a part of it, that we offer too."""
    units = {unit: name for name, offered in snapshot.holdings.backing.offered.items() for unit in sorted(offered)}
    found, cards, foreign = [], snapshot.providers.cards, snapshot.providers.foreign
    root = snapshot.tree.providers[0].name
    for seen in snapshot.tree:
        address = device_address(seen.name) or ""
        unit = _same_hardware(address, units, cards) if seen.provider.inventories and seen.name in foreign else None
        if unit is None:
            continue
        ours = root if snapshot.standing == "flat" else units[unit]
        if ours not in snapshot.tree.by_name or device_address(ours) == address:
            continue  # not on offer twice, or found by the names
        what, too = (
            f"{one}, which libvirt lists as a VF of {cards[one]}," if one in cards else one for one in (address, unit)
        )
        sentence = (
            f"it offers {what} and {ours} offers {too}: the first is of {_owner(seen, root) or 'nobody'}, the second "
            f"of {_owner(snapshot.tree.by_name[ours], root) or 'nobody'}: take the device out of one service"
        )
        found.append(Finding(kind=Kind.DUPLICATE, provider=seen.name, seen=sentence))
    return found


def _same_hardware(address: str, units: Collection[str], cards: Mapping[str, str]) -> str | None:
    """Return the unit that is the function at this address, its PF, or one of its VFs; None: there is none."""
    related = (address, cards.get(address), *sorted(unit for unit in units if cards.get(unit) == address))
    return next((unit for unit in related if unit in units), None)


def _over(seen: ObservedProvider, booked: Mapping[tuple[str, str], int]) -> list[Finding]:
    found = []
    for name, stock in sorted(seen.provider.inventories.items()):
        taken = booked.get((seen.name, name), 0)
        # Reserved units of a device are kept from new guests, and not taken from the guests that have them.
        most = stock.capacity if name in NO_DEVICES else max(stock.total, stock.capacity)
        if taken > most:
            sentence = f"it can give {most} {name}, and {taken} are allocated: move guests away"
            found.append(
                Finding(
                    kind=Kind.OVER, provider=seen.name, resource_class=name, expected=most, actual=taken, seen=sentence
                )
            )
    return found


def _owner(seen: ObservedProvider, root: str) -> str:
    """Return the owner of a provider: the marks of services, or the service that makes such ones; empty: unknown."""
    marks = ", ".join(sorted(trait for trait in seen.provider.traits if trait.startswith(OWNERS)))
    return marks or ("nova" if is_novas(seen) else unmarked_owner(seen, root))


def _duplicates(snapshot: Snapshot) -> list[Finding]:
    """
    Return the findings of children whose names end in the same PCI address, in any spelling.

    Children that are all ours and wanted are no duplicates: a card makes mediated devices beside its virtual functions.
    """
    parts, root = snapshot.providers.wanted - snapshot.providers.foreign, snapshot.tree.providers[0].name
    devices: dict[str, dict[str, str]] = {}
    for seen in snapshot.tree:
        if seen.provider.parent and seen.provider.inventories and (address := device_address(seen.name)):
            devices.setdefault(address, {})[seen.name] = _owner(seen, root) or "nobody that is known"
    return [
        Finding(
            kind=Kind.DUPLICATE,
            provider=name,
            seen=f"{' and '.join(f'{one} (of {owner})' for one, owner in owners.items())} stand for the same device: "
            "take it out of one service",
        )
        for owners in devices.values()
        if len(owners) > 1 and not parts.issuperset(owners)
        for name in owners
    ]
