"""
Which nodes are this agent's where several share one Ironic without shards: a consistent hash ring over all of them.

Each agent is a member of a group in etcd while its pass runs, and for some time after it (``[agent] ring_timeout``):
one that is killed loses its nodes to the others after that time, and one that runs a pass now and then keeps its own.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from etcd3gw.exceptions import Etcd3Exception
from tooz import ToozError
from tooz.coordination import (
    CoordinationDriver,
    GroupAlreadyExist,
    GroupNotCreated,
    MemberAlreadyExist,
    get_coordinator,
)
from tooz.hashring import HashRing

from agent.errors import StateError

ERRORS = (ToozError, Etcd3Exception, OSError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """Where the members meet, and who we are among them."""

    url: str
    about: str  # the Ironic, and what of it is shared: agents of another one are no members of this ring
    member: str
    instance: str  # this agent's own mark, so that two of one name are found out
    timeout_s: int

    @property
    def group(self) -> bytes:
        return b"compute-node-agent-" + hashlib.sha256(self.about.encode()).hexdigest()[:16].encode()


@contextmanager
def membership(ring: Ring) -> Iterator[Callable[[str], bool]]:
    """
    Inside, and for ``timeout_s`` seconds after, we are a member; yields which nodes (by uuid) are ours.

    Raises:
        StateError: etcd cannot be reached, or another agent has our name. Who does not know the others must not guess.
    """
    with _connected(ring) as coordinator:
        _join(ring, coordinator)
        coordinator.heart.start()  # a pass may take longer than the time that we are believed to be there
        try:
            yield _shares(ring, coordinator)
        finally:
            coordinator.heart.stop()
            with suppress(*ERRORS):
                coordinator.heartbeat()


@contextmanager
def looked_at(ring: Ring) -> Iterator[Callable[[str], bool]]:
    """Which nodes would be ours if we joined now; writes nothing. Errors as ``membership``."""
    with _connected(ring) as coordinator:
        yield _shares(ring, coordinator)


@contextmanager
def _connected(ring: Ring) -> Iterator[CoordinationDriver]:
    separator = "&" if "?" in ring.url else "?"
    beat_s = max(1, ring.timeout_s // 3)  # tooz beats as often as its shortest timeout
    try:
        url = f"{ring.url}{separator}membership_timeout={ring.timeout_s}&lock_timeout={beat_s}"
        coordinator = get_coordinator(url, ring.member.encode())
        coordinator.start(start_heart=False)
    except ERRORS as error:
        raise _unreachable(ring, error) from error
    yield coordinator  # never stopped: that would end our membership with the pass


def _join(ring: Ring, coordinator: CoordinationDriver) -> None:
    """Where we are a member already, our time begins to run anew, and nobody sees the ring without us."""
    instance = {"instance": ring.instance}
    try:
        with suppress(GroupAlreadyExist):
            coordinator.create_group(ring.group).get()
        try:
            coordinator.join_group(ring.group, instance).get()
        except MemberAlreadyExist:
            if coordinator.get_member_capabilities(ring.group, ring.member.encode()).get() != instance:
                raise StateError(
                    f"another agent is called {ring.member} in the ring at {ring.url}: set [agent] ring_member to a "
                    f"name of its own on each"
                ) from None
            coordinator.update_capabilities(ring.group, instance).get()
    except ERRORS as error:
        raise _unreachable(ring, error) from error


def _shares(ring: Ring, coordinator: CoordinationDriver) -> Callable[[str], bool]:
    own = ring.member.encode()
    try:
        members = set(coordinator.get_members(ring.group).get())
    except GroupNotCreated:
        members = set()
    except ERRORS as error:
        raise _unreachable(ring, error) from error
    shares = HashRing(sorted(members | {own}))
    return lambda uuid: own in shares.get_nodes(uuid.encode())


def _unreachable(ring: Ring, error: Exception) -> StateError:
    cause = " ".join(str(error).split())[:200] or type(error).__name__
    return StateError(
        f"the ring of agents at {ring.url} cannot be joined: {cause}: does etcd run there, is [agent] ring_url right?"
    )
