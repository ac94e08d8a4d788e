"""What a draft is made from: what was seen, what was asked, and what must be read besides."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.state.memory import NodeState
from agent.sync.decide.additions import Addition
from drivers.base import Survey
from drivers.policy import Policy
from reportclient.allocations import Allocation, Consumer
from reportclient.tree import ObservedTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a person said with this pass."""

    force: bool = False
    take_over: bool = False
    rename_from: str | None = None
    deep: bool | None = (
        None  # True: the service's pass that reads everything; False: one of those between; None: others
    )
    counts: bool = True  # as one of the passes in a row that must want the same smaller host
    reshape: bool = False  # guests' allocations may be moved
    agreed: str | None = None  # the digest of the plan that a person read


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """What was read because a draft needed it; what is not in here was not read."""

    allocations: Mapping[str, tuple[Allocation, ...]] = field(default_factory=dict)  # by uuid of the provider
    consumers: Mapping[str, Consumer | None] = field(default_factory=dict)  # by uuid; None: nothing is allocated to it
    traits: Mapping[str, bool] = field(default_factory=dict)  # whether placement has a trait of this name
    providers: Mapping[str, bool] = field(default_factory=dict)  # whether placement has one of this name or uuid
    nova_compute: tuple[int, ...] | None = None  # the process ids of nova-compute on this host; None: not looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What must be read before a draft can be made; at least one of its fields is set."""

    allocations: frozenset[str] = frozenset()  # of these providers, by uuid
    consumers: frozenset[str] = frozenset()  # by uuid
    traits: frozenset[str] = frozenset()  # by name
    providers: frozenset[str] = frozenset()  # by name or uuid
    nova_compute: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All that was seen of one node and of its tree in placement, and what was asked of this pass."""

    node: str  # the name that its root is to have
    root_uuid: str
    identified: bool  # False: root_uuid is a stand-in for the one that sync will make
    recorded: bool  # the host is an archive: nothing can be seen of what runs there
    policy: Policy
    additions: tuple[Addition, ...]  # the operator's files
    survey: Survey
    observed: ObservedTree
    went_back: bool  # placement is in an older state than the one that the last pass left
    memory: NodeState  # as the last pass left it
    wishes: Wishes = Wishes()
    tried: tuple[ObservedTree, ...] = ()  # what attempts of this pass that were cut off were to make
    readings: Readings = Readings()
