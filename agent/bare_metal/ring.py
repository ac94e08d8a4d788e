"""
Share the nodes of one Ironic among several agents, by a consistent hash ring over these agents.

Each agent is a member of a group in etcd while its pass runs, and for ``[agent] ring_timeout`` seconds after it. The
nodes of an agent that was killed go to the others after that time; an agent that runs a pass within it keeps its own.
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
    """A ring of agents, and this agent as its member."""

    url: str  # of etcd, as tooz spells it
    about: str  # the Ironic with shard and conductor group: agents with another text are in another ring
    member: str  # this agent's name in the ring
    instance: str  # this agent's own uuid, by which two agents of one name are told apart
    timeout_s: int

    @property
    def group(self) -> bytes:
        """Return the name of the group in etcd."""
        return b"compute-node-agent-" + hashlib.sha256(self.about.encode()).hexdigest()[:16].encode()


@contextmanager
def membership(ring: Ring) -> Iterator[Callable[[str], bool]]:
    """
    Make this agent a member inside the block, and for ``timeout_s`` seconds after it.

    Yields a function that says whether a node, by uuid, is this agent's.

    Raises:
        StateError: etcd cannot be reached, or another agent has this agent's name. Without the other members this
            agent cannot tell its own nodes.
    """
    with _connected(ring) as coordinator:
        _join(ring, coordinator)
        coordinator.heart.start()  # a pass may take longer than ``timeout_s``
        try:
            yield _shares(ring, coordinator)
        finally:
            coordinator.heart.stop()
            with suppress(*ERRORS):
                coordinator.heartbeat()


@contextmanager
def looked_at(ring: Ring) -> Iterator[Callable[[str], bool]]:
    """
    Yield a function that says whether a node, by uuid, would be this agent's if it joined now; writes nothing.

    Raises:
        as ``membership``.
    """
    with _connected(ring) as coordinator:
        yield _shares(ring, coordinator)


@contextmanager
def _connected(ring: Ring) -> Iterator[CoordinationDriver]:
    """Connect to etcd. The connection stays open, as its end would end the membership with the pass."""
    separator = "&" if "?" in ring.url else "?"
    beat_s = max(1, ring.timeout_s // 3)  # tooz beats as often as its shortest timeout
    try:
        url = f"{ring.url}{separator}membership_timeout={ring.timeout_s}&lock_timeout={beat_s}"
        coordinator = get_coordinator(url, ring.member.encode())
        coordinator.start(start_heart=False)
    except ERRORS as error:
        raise _unreachable(ring, error) from error
    yield coordinator


def _join(ring: Ring, coordinator: CoordinationDriver) -> None:
    """Join the group. A member that is in it already only renews its time, so that the ring never misses it."""
    instance = {"instance": ring.instance}
    try:
        with suppress(GroupAlreadyExist):
            coordinator.create_group(ring.group).get()
        try:
            coordinator.join_group(ring.group, instance).get()
        except MemberAlreadyExist:
            if coordinator.get_member_capabilities(ring.group, ring.member.encode()).get() != instance:
                raise StateError(
                    f"another agent has the name {ring.member} in the ring at {ring.url}: set [agent] ring_member to a "
                    f"different name on each agent"
                ) from None
            coordinator.update_capabilities(ring.group, instance).get()
    except ERRORS as error:
        raise _unreachable(ring, error) from error


def _shares(ring: Ring, coordinator: CoordinationDriver) -> Callable[[str], bool]:
    """Return the function that says whether a node is this agent's, by the members of this moment."""
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
        f"the ring of agents at {ring.url} cannot be joined: {cause}: does etcd run there, and is [agent] ring_url "
        f"right?"
    )
