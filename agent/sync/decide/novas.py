"""Find providers that nova made and this agent cannot take over, as no device of this host matches them."""

from collections.abc import Iterable

from reportclient.ownership import Ownership, is_novas
from reportclient.tree import ObservedProvider


def stranded(observed: Iterable[ObservedProvider], ours: Ownership) -> list[ObservedProvider]:
    """Return the children that stay nova's; a child whose device is here is ours from the first pass on."""
    return [seen for seen in observed if seen.provider.parent and is_novas(seen) and not ours.writes(seen)]


def open_stock(seen: ObservedProvider) -> list[str]:
    """Return the classes of a provider that still have unreserved stock, sorted."""
    return sorted(name for name, stock in seen.provider.inventories.items() if stock.reserved < stock.total)


def advice(seen: ObservedProvider) -> str:
    """Return a sentence on such a provider, with what a person can do about it."""
    open_ = open_stock(seen)
    stands = f". Placement still offers {', '.join(open_)} of this provider to guests" if open_ else ""
    reserved = " ".join(f"--resource {name}:reserved={seen.provider.inventories[name].total}" for name in open_)
    kept = (
        f". Until then, run openstack resource provider inventory set {seen.uuid} --amend {reserved}" if open_ else ""
    )
    return (
        f"nova made {seen.name}, but no device of this host matches this provider{stands}. Bring the device back and "
        f"run sync{kept}. If the device is gone for good, run openstack resource provider delete {seen.uuid}"
    )
