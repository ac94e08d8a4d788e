"""Context of a pass over all bare-metal nodes of this agent, and the values that its steps hand over."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from agent.settings.read import Settings
from agent.state.clock import Clock, probe_clock
from agent.state.node_records import KnownNode, NodesMemory, read_nodes
from agent.sync.outcome import Outcome, Status
from drivers.ironic.client import IronicClient
from drivers.ironic.shape import WAS_CRITICAL, on_offer
from reportclient.client import PlacementClient
from reportclient.plan import Plan
from reportclient.tree import ObservedProvider, ObservedTree, Provider


@dataclass(frozen=True, slots=True, kw_only=True)
class BareMetalNodes:
    """
    All bare-metal nodes of this agent's share: where they are read and reported, under one configuration.

    The counterpart of ``ComputeNode`` (``agent/sync/node.py``), with one root provider for each node.
    """

    ironic: IronicClient
    client: PlacementClient
    settings: Settings
    where: str  # the placement's name
    clock: Clock = field(default_factory=probe_clock)

    def memory(self) -> NodesMemory:
        """Return what the last pass remembered about this Ironic and this placement; errors as ``read_nodes``."""
        return read_nodes(self.settings.folders.state, self.where, self.ironic.where, clock=self.clock)


@dataclass(frozen=True, slots=True)
class Task:
    """A node whose provider differs from what it should be, or must be read to tell."""

    provider: Provider  # as it should be; without stock where the node is not to be reported
    known: KnownNode | None  # what was remembered of the node; None: nothing
    seen: ObservedProvider | None  # the provider as it stands; None: not read yet, or not in placement
    generation: int | None  # of the provider; None: not in placement
    because: str = ""  # why the node is reserved; empty: it is not
    spelling: str | None = None  # the node's resource class as Ironic has it, to be remembered when this is done
    does: Literal["report", "reserve", "delete"] = "report"  # reserve: only take the node off offer, as it stands
    only: str = ""  # reserve this class alone; empty: whichever is on offer
    ill: bool = False  # the node is reserved as its hardware fails, which its provider remembers
    status: Status | None = None  # how the node's pass ends; None: the write decides


@dataclass(slots=True)
class Look:
    """Everything that one look at Ironic and placement found."""

    memory: NodesMemory
    marked: Mapping[str, int]  # generation of each provider in placement with our mark, by uuid
    here: frozenset[str]  # uuids of the nodes that Ironic lists
    nodes: dict[str, KnownNode]  # what to remember of nodes that need no write, by uuid
    lacked: frozenset[str]  # standard traits that this placement is too old to know
    tasks: list[Task] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)  # of nodes that need no write
    believed: list[KnownNode] = field(default_factory=list)  # nodes whose memory equals what stands now
    left: Mapping[str, float | None] = field(default_factory=dict)  # as in ``NodesMemory``
    unchanged: int = 0  # nodes that are as they should be
    whole: bool = False  # every provider is read, whatever is remembered
    behind: frozenset[str] = frozenset()  # uuids of nodes whose generation is lower than the remembered one

    def current(self, uuid: str, known: KnownNode | None) -> ObservedProvider | None:
        """Return a provider with our mark as it stands, if the memory tells that without reading it; else None."""
        return known.seen if known and not self.whole and known.seen.generation == self.marked.get(uuid) else None

    def reserve(
        self,
        uuid: str,
        known: KnownNode | None,
        because: str,
        *,
        only: str = "",
        ill: bool = False,
        status: Status | None = None,
    ) -> bool:
        """
        Add a task that takes a node with our mark off offer, as in ``Task``.

        Return False, without one, if it is not on offer, and an ill one has its trait.
        """
        current = self.current(uuid, known)
        stands = current.provider if current else None
        remembers = not ill or (stands and WAS_CRITICAL in stands.traits)
        if stands and remembers and not on_offer(stands) & ({only} if only else stands.inventories.keys()):
            return False
        provider, generation = Provider(name=uuid), self.marked[uuid]
        task = Task(provider, known, current, generation, because, does="reserve", only=only, ill=ill, status=status)
        self.tasks.append(task)
        return True


def node_outcome(
    uuid: str, status: Status, note: str = "", plan: Plan = Plan(), seen: ObservedProvider | None = None
) -> Outcome:
    """Return the outcome of one node; ``seen`` is its provider before the pass, None if it was not read."""
    observed = ObservedTree((seen,)) if seen else ObservedTree()
    return Outcome(node=uuid, status=status, plan=plan, observed=observed, reasons=(note,) if note else ())
