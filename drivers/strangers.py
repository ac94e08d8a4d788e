"""Find the guest behind a consumer whose uuid the hypervisor does not know."""

from collections.abc import Iterable

from reportclient.allocations import Allocation, Consumer, Holdings


def find_stand_ins(
    strangers: Iterable[Consumer], guests: Iterable[Consumer], holdings: Holdings, allocations: Iterable[Allocation]
) -> dict[str, str]:
    """
    Return the guest of each stranger, by uuid; without strangers that no guest or several guests fit.

    While a guest migrates away, its migration has the allocations on this host. The guest fits if it runs here, has
    nothing on our tree, has the same project and user, and has elsewhere the same amounts as the migration here.
    ``guests`` are those that have allocations elsewhere; ``allocations`` are all of our tree.
    """
    here = {one.consumer for one in allocations}
    absent = [guest for guest in guests if guest.uuid in holdings.guests and guest.uuid not in here]
    found: dict[str, str] = {}
    for stranger in strangers:
        fitting = [
            guest.uuid
            for guest in absent
            if (guest.project, guest.user, guest.amounts) == (stranger.project, stranger.user, stranger.amounts)
        ]
        if len(fitting) == 1:
            found[stranger.uuid] = fitting[0]
    taken = list(found.values())
    return {stranger: guest for stranger, guest in found.items() if taken.count(guest) == 1}
