"""Input of a draft: what was seen, what was requested, and what must be read in addition."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from agent.nova.answers import NovaRecord
from agent.settings.read import ChangeSettings
from agent.state.memory import NodeState
from agent.sync.decide.additions import Addition
from agent.sync.decide.undoing import Conversion
from drivers.base import Survey
from drivers.facts import ServiceSigns
from drivers.policy import Policy
from reportclient.allocations import Allocation, Consumer, Holdings
from reportclient.ownership import Names
from reportclient.tree import ObservedProvider, ObservedTree, ProviderTree


class Shaper(Protocol):
    """The pure half of a driver (``drivers.base.Driver``)."""

    @property
    def emitted(self) -> Names: ...

    def shape(self, survey: Survey, policy: Policy, observed: ObservedTree | None) -> tuple[ProviderTree, Holdings]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Requests of a person, or of the service, for one pass."""

    force: bool = False  # True: capacity may go below what is used, and shrink beyond the limit
    take_over: bool = False  # True: a second writer is gone, or a root that was never ours may be written
    rename_from: str | None = None  # the former name of the root
    deep: bool | None = None  # True: a full pass of the service; False: one between full passes; None: any other pass
    counts: bool = True  # True: counts for the passes in a row that must want the same smaller host
    reshape: bool = False  # True: guests' allocations may be moved
    confirm_by_s: float = 0.0  # seconds since the epoch: a conversion is taken back then, unless confirmed; 0: never
    agreed: str | None = None  # the digest of the plan that a person read; None: no plan was agreed on
    undone: Conversion | None = None  # to be taken back; None: none
    asked: Mapping[str, Any] = field(default_factory=dict)  # what a person asks of features, by keys of their own
    configured: str | None = None  # with ``undone``: what the next pass makes of a tree without allocations

    @property
    def of_nobody(self) -> bool:
        """Whether no person wishes what a pass does to the tree: the service does, or the configuration."""
        return self.deep is not None or not self.reshape


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """What was read because a draft needed it; a key that is missing was not read."""

    allocations: Mapping[str, tuple[Allocation, ...]] = field(default_factory=dict)  # by uuid of the provider
    consumers: Mapping[str, Consumer | None] = field(default_factory=dict)  # by uuid; None: nothing is allocated to it
    traits: Mapping[str, bool] = field(default_factory=dict)  # whether placement has a trait of this name
    providers: Mapping[str, ObservedProvider | None] = field(default_factory=dict)  # by name or uuid; None: none
    sharing: tuple[ObservedProvider, ...] | None = None  # providers that share their stock with this root
    usages: Mapping[tuple[str, str], int] = field(default_factory=dict)  # by uuid of the provider and class
    nova_compute: ServiceSigns | None = None  # what shows nova-compute on this host; None: not looked for
    nova_record: NovaRecord | None = None  # what nova answered about this hypervisor; None: not asked


@dataclass(kw_only=True, eq=False)
class Unread(Exception):
    """A decision needs what was not read yet, at least one of these fields: read it, and decide again."""

    allocations: frozenset[str] = frozenset()  # uuids of providers whose allocations are needed
    consumers: frozenset[str] = frozenset()  # by uuid
    traits: frozenset[str] = frozenset()  # by name
    providers: frozenset[str] = frozenset()  # of others, by name or uuid
    sharing: bool = False  # True: the providers that share their stock with this root
    usages: frozenset[tuple[str, str]] = frozenset()  # by uuid of the provider and class
    nova_compute: bool = False  # True: whether nova-compute is on this host, or nova has this hypervisor


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTree:
    """A node's tree in placement, and how it was read."""

    tree: ObservedTree
    whole: bool = True  # False: providers with the generation of the last pass were not read again
    went_back: bool = False  # True: placement is in an older state than the one that the last pass left
    tried: tuple[ObservedTree, ...] = ()  # trees that cut-off attempts of this pass were to make


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Terms on which a plan may be carried out, from the configuration, this machine and this placement."""

    recorded: bool = False  # True: the host is an archive, and its processes cannot be seen
    audits_only: bool = False  # True: nothing is written on this host but repairs of audits
    now_s: float  # seconds since the epoch; counts only after a strike, and for what ends at a time
    skew_s: float = 0.0  # seconds by which placement's clock is ahead of this one; 0 too where it is not known
    uptime_s: float = 0.0  # seconds since the boot of the host; a recorded one counts as booted long ago
    interval_s: float  # seconds between two passes of the service
    microversion: tuple[int, int]  # the one agreed on with this placement
    trial: Conversion | None = None  # of this root, waits to be confirmed, so no other one begins; None: none does
    untold: str = ""  # why it is not known whether one waits, so none begins; empty: it is known

    @property
    def earliest_s(self) -> float:
        """Return the time by the clock that is behind, of this host or of placement: one of them may be wrong."""
        return self.now_s + min(0.0, self.skew_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything that was seen of one node and of its tree in placement, and the requests for this pass."""

    node: str  # name of the root that it is to have
    root_uuid: str  # without an identity a stand-in for the one that sync will make: ``planned_identity``
    policy: Policy
    additions: tuple[Addition, ...]  # the operator's files
    survey: Survey
    seen: SeenTree
    memory: NodeState  # as the last pass left it
    beside: bool = False  # True: nova reports the root, and this agent only children that nova does not make
    wishes: Wishes = Wishes()
    changes: ChangeSettings  # options of features, and of what may change
    terms: Terms
    readings: Readings = Readings()

    @property
    def observed(self) -> ObservedTree:
        return self.seen.tree

    def rows_on(self, uuids: Iterable[str], observed: ObservedTree) -> tuple[Allocation, ...]:
        """Return what is allocated on these providers, by the names of ``observed``; Unread: not of all of them."""
        asked, read = tuple(uuids), self.readings.allocations
        if unread := frozenset(asked) - read.keys():
            raise Unread(allocations=unread)
        return tuple(replace(row, provider=observed.by_uuid[uuid].name) for uuid in asked for row in read[uuid])

    def consumers(self, uuids: Iterable[str]) -> tuple[Consumer, ...]:
        """Return these consumers, without those to which nothing is allocated; Unread: not all of them."""
        asked = frozenset(uuids)
        if unread := asked - self.readings.consumers.keys():
            raise Unread(consumers=unread)
        return tuple(filter(None, (self.readings.consumers[uuid] for uuid in sorted(asked))))
