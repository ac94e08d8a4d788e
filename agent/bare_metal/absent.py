"""
Nodes that left this agent's share: another agent reports them, or nobody does, and then nobody sees that they are gone.

They are remembered for as long as their providers stand, and only told; they are another agent's to write. Those that
come back, as where the shard was renamed, are known again.
"""

import random
from collections.abc import Collection, Mapping
from dataclasses import replace

from agent.state.nodes import KnownNode
from drivers.errors import DiscoveryError
from drivers.ironic.driver import IronicDriver

_ASKED = 200  # nodes of which Ironic is asked in one pass


def look_at_left(
    driver: IronicDriver, left: Mapping[str, KnownNode], listed: Collection[str], now_s: float
) -> dict[str, KnownNode]:
    """
    These nodes, by uuid, with the moment since which Ironic does not have them.

    Those that are ``listed`` need no question. Where Ironic does not answer, what was known stays.
    """
    found = {uuid: replace(known, gone_s=None) if uuid in listed else known for uuid, known in left.items()}
    asked = sorted(found.keys() - set(listed), key=lambda uuid: (found[uuid].gone_s is None, random.random()))
    for uuid in asked[:_ASKED]:
        try:
            gone_s = None if driver.is_there(uuid) else min(found[uuid].gone_s or now_s, now_s)
        except DiscoveryError:
            break  # the listing was read, so it is busy: the next pass asks again
        found[uuid] = replace(found[uuid], gone_s=gone_s)
    return found


def strays(left: Mapping[str, KnownNode], before: Mapping[str, KnownNode], now_s: float, grace_s: int) -> list[str]:
    """The nodes that are gone for as long as the agent of their share waits before it deletes their providers."""
    return sorted(
        uuid
        for uuid, known in left.items()
        if known.gone_s is not None
        and uuid in before
        and before[uuid].gone_s is not None
        and now_s - known.gone_s >= grace_s
    )
