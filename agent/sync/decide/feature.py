"""
The protocol of a feature: an optional part of a pass, with a file of its own, which no other part knows by name.

``features.FEATURES`` has all of them, in the order in which they act. ``plan.py`` and ``checks.py`` call their hooks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from agent.state.memory import NodeState
from agent.sync.decide.additions import without
from agent.sync.decide.laws import Breach
from agent.sync.decide.shaped import Shaped, Standing
from agent.sync.decide.view import Shaper, View
from agent.sync.decide.wanted import Wanted
from agent.sync.outcome import Condition, Status
from drivers.policy import Layout
from reportclient.allocations import Allocation, Consumer, Move, apply_moves
from reportclient.plan import Plan
from reportclient.tree import ObservedTree, ProviderTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a plan is not carried out."""

    status: Status
    notes: tuple[str, ...]  # a sentence each
    forgets: bool = False  # True: the memory is of another moment, and its tree is forgotten
    loss: str = ""  # all that the host would lose, where that is much; empty: it is refused for another reason
    seen: int = 0  # passes in a row that want this loss
    broken: tuple[str, ...] = ()  # the laws that the plan breaks, of each breach

    @property
    def bars(self) -> bool:
        """Whether nothing is written, not even what only reserves."""
        return bool(self.broken) or self.status not in (Status.UNSAFE, Status.RESHAPE_NEEDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Units that a feature takes off offer. What is reserved of the class for other reasons counts in it."""

    provider: str  # by name
    resource_class: str
    least: int  # so many units are reserved at least; more than there are: all
    # True: what guests have stays unreserved, so that nova can move them; always so of CPUs, memory and disk
    spares_use: bool
    kind: str = ""  # as in ``Condition``; empty: nobody is told
    why: str = ""  # a sentence, as in ``Condition``

    @property
    def condition(self) -> Condition:
        return Condition(kind=self.kind, text=self.why, provider=self.provider)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """Allocations that move between the tree and providers that are not part of it."""

    uuids: Mapping[str, str] = field(default_factory=dict)  # of those providers, by name
    known: frozenset[str] = frozenset()  # uuids of those, and of one that is gone
    aggregates: frozenset[str] = frozenset()  # that the root enters or leaves for them
    moves: tuple[Move, ...] = ()
    consumers: tuple[Consumer, ...] = ()  # of the moves, and others
    rows: tuple[Allocation, ...] = ()  # on the tree as far as it was read for that, and what moves from outside
    unplaceable: str = ""  # why a provider outside cannot take what moves there; empty: it can


class Feature:
    """
    An optional part of a pass. Each hook does nothing here; a feature has its own where it acts.

    A feature is a frozen value, and hooks are pure. A hook that finds something returns the feature with it; until
    ``ask`` it may raise ``Unread``. The hooks stand in the order in which a pass calls them. What a feature remembers
    are bodies of JSON (``NodeState.bodies``), whose keys no other feature has.
    """

    __slots__ = ()

    prefix: ClassVar[str] = ""  # of its marks in placement; empty: it has none

    @classmethod
    def after_restored(cls, memory: NodeState) -> Mapping[str, Any]:
        """Return the bodies to keep where placement has older data than this memory, whose tree is lost with that."""
        return {}

    @classmethod
    def in_another_role(cls, memory: NodeState) -> Mapping[str, Any]:
        """Return the bodies to keep where the last pass was in another role, in which other providers were ours."""
        return {}

    def look(self, view: View, standing: Standing) -> "tuple[Feature, View]":
        """Change what the driver sees of host and policy."""
        return self, view

    def shape(self, view: View, shaper: Shaper, shaped: Shaped) -> "tuple[Feature, Shaped]":
        """Change what the host gives, and what is known of the standing tree."""
        return self, shaped

    def reserve(self, tree: ProviderTree) -> Iterable[Reservation]:
        """
        Return what is taken off offer on a finished tree.

        That is the wanted one or, while its plan is refused, the standing one, where only this is written.
        """
        return ()

    def marks(self, tree: ProviderTree) -> Mapping[str, frozenset[str]]:
        """
        Return the traits by which placement remembers this feature, by provider, on a tree as that of ``reserve``.

        They begin with ``prefix``, are marks (``reportclient.reserve.is_mark``), and go once they are not returned.
        """
        return {}

    def root_traits(self) -> frozenset[str]:
        """
        Return the traits that the root is to have because of this feature; they go with it, and wait for no plan.

        A mark beside each says that it is ours. One that somebody else set stays his; beside nova none is set.
        """
        return frozenset()

    def outside(self) -> Outside:
        """Return what moves between the tree and other providers."""
        return Outside()

    def ask(self, view: View, plan: Plan) -> "Feature":
        """Read what only a plan shows to be needed."""
        return self

    def again(self, earlier: "Feature") -> "Feature":
        """Return the feature at a later attempt of one pass, with what it found at the ``earlier`` one."""
        return self

    def refuse(self, draft: "Draft") -> Refusal | None:
        """Return why the plan is not carried out; None: no objection."""
        return None

    def conditions(self, draft: "Draft") -> Iterable[Condition]:
        """Return what a person should know; what the feature reserves by ``reserve`` is not repeated here."""
        return ()

    def remember(self, end: "PassEnd") -> Mapping[str, Any]:
        """Return the bodies that change with this pass, beside those that ``shape`` changed."""
        return {}

    def read_back(self, draft: "Draft") -> frozenset[str]:
        """Return the names of providers whose generations must be known after a write."""
        return frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PassEnd:
    """How a pass ends."""

    draft: "Draft"
    refused: Refusal | None  # None: the plan may be carried out
    done: bool = False  # True: the plan is carried out


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """The way from the standing tree to the wanted one, with what must move and what must stay."""

    tree: ProviderTree  # the wanted providers, and the held ones
    plan: Plan
    allocations: tuple[Allocation, ...]  # on the whole tree if consumers hold stock that shrinks, else empty
    held: tuple[Condition, ...]  # one for each amount that is held
    unplaceable: str  # why the wanted tree has no place for what guests hold; empty: it has, or no consumer must move


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Contents of a pass before it writes: what each step of ``plan.py: draft`` found."""

    view: View  # as it was read
    shaped: Shaped
    wanted: Wanted
    way: Way
    stands_in: Layout  # the layout of the standing tree
    held: tuple[Condition, ...]  # on each open choice, held provider, and entry of a file without effect
    meanwhile: NodeState  # to remember while the plan is being carried out: what was ours, and what will be
    lasting: NodeState  # to remember once it is carried out
    features: tuple[Feature, ...] = ()  # with what each of them found, in the order of ``FEATURES``
    reserving: Plan = field(default_factory=Plan)  # of reserved amounts alone, for a pass whose plan is refused
    novas: frozenset[str] = frozenset()  # beside nova: uuids of the children that are left to nova
    unreserved: tuple[Breach, ...] = ()  # laws that such a plan would break, for which it is empty
    breaches: tuple[Breach, ...] = ()  # laws that the plan breaks: a fault of this agent

    @property
    def root_uuid(self) -> str:
        return self.view.root_uuid

    @property
    def layout(self) -> Layout:
        """The layout of the wanted tree."""
        return self.view.policy.layout

    @property
    def plan(self) -> Plan:
        return self.way.plan

    @property
    def desired(self) -> ProviderTree:
        """The wanted tree, with what is held."""
        return self.way.tree

    @property
    def observed(self) -> ObservedTree:
        """The standing tree, by the wanted names."""
        return self.shaped.standing.observed

    @property
    def said(self) -> ObservedTree:
        """The same, without what the operator's files add, and with what operators reserved meanwhile."""
        return without(self.shaped.stands, self.shaped.standing.named)

    @property
    def memory(self) -> NodeState:
        """What the last pass left, by the wanted names, with what this look adds."""
        return self.shaped.memory

    @property
    def allocations_after(self) -> tuple[Allocation, ...]:
        """The allocations once the plan's moves are carried out."""
        return apply_moves(self.way.allocations, self.plan.moves)
