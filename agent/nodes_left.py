"""
Nodes that left this agent's share: another agent reports them, or nobody does, and then nobody sees that they are gone.

They are remembered for as long as their providers stand, and only told; they are another agent's to write.
"""

import random
from collections.abc import Collection, Mapping

from drivers.errors import DiscoveryError
from drivers.ironic.driver import IronicDriver

ASKED = 200  # nodes of which Ironic is asked in one pass


def look_at_left(
    driver: IronicDriver, left: Mapping[str, float | None], listed: Collection[str], now_s: float
) -> dict[str, float | None]:
    """
    Since when (seconds since the epoch) Ironic does not have each of these nodes, by uuid; None: it has.

    Those that are ``listed`` need no question. Where Ironic does not answer, what was known stays.
    """
    found = {uuid: None if uuid in listed else gone_s for uuid, gone_s in left.items()}
    asked = sorted(found.keys() - set(listed), key=lambda uuid: (found[uuid] is None, random.random()))
    for uuid in asked[:ASKED]:
        try:
            found[uuid] = None if driver.is_there(uuid) else min(found[uuid] or now_s, now_s)
        except DiscoveryError:
            break  # the listing was read, so it is busy: the next pass asks again
    return found


def strays(
    left: Mapping[str, float | None], before: Mapping[str, float | None], now_s: float, grace_s: int
) -> list[str]:
    """The nodes that are gone for as long as the agent of their share waits before it deletes their providers."""
    return sorted(
        uuid
        for uuid, gone_s in left.items()
        if gone_s is not None and before.get(uuid) is not None and now_s - gone_s >= grace_s
    )
