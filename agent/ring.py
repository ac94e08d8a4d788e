"""
Which nodes are this agent's where several share one Ironic without shards: a consistent hash ring over all of them.

Each agent is a member of a group in etcd for some time after its last pass (``[agent] ring_timeout``): one that is
killed loses its nodes to the others after that time, and one that runs a pass now and then keeps its own.
"""

from collections.abc import Callable
from contextlib import suppress

from etcd3gw.exceptions import Etcd3Exception
from tooz import ToozError
from tooz.coordination import CoordinationDriver, GroupAlreadyExist, MemberAlreadyExist, get_coordinator
from tooz.hashring import HashRing

from agent.errors import StateError

GROUP = b"compute-node-agent-nodes"


def join_ring(url: str, member: str, timeout_s: int) -> tuple[Callable[[str], bool], tuple[str, ...]]:
    """
    Be a member for ``timeout_s`` seconds from now on; answers which nodes (by uuid) are ours, and all members.

    Raises:
        StateError: etcd cannot be reached, or refuses. Who does not know the others must not guess.
    """
    separator = "&" if "?" in url else "?"
    try:
        coordinator = get_coordinator(f"{url}{separator}membership_timeout={timeout_s}", member.encode())
        coordinator.start(start_heart=False)
        _join(coordinator)
        members = sorted(coordinator.get_members(GROUP).get())
    except (ToozError, Etcd3Exception, OSError, ValueError) as error:
        cause = " ".join(str(error).split())[:200] or type(error).__name__
        raise StateError(
            f"the ring of agents at {url} cannot be joined: {cause}: does etcd run there, is [agent] ring_url right?"
        ) from error
    ring = HashRing(members)
    return lambda uuid: member.encode() in ring.get_nodes(uuid.encode()), tuple(one.decode() for one in members)


def _join(coordinator: CoordinationDriver) -> None:
    """Anew, so that membership begins to run out from now on."""
    with suppress(GroupAlreadyExist):
        coordinator.create_group(GROUP).get()
    try:
        coordinator.join_group(GROUP).get()
    except MemberAlreadyExist:
        coordinator.leave_group(GROUP).get()
        coordinator.join_group(GROUP).get()
