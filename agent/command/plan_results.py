"""Plans and trees as the verbs show them: values, as in ``agent.command.results``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from agent.sync.json_form import encode, encode_plan
from agent.sync.outcome import Condition, Status
from reportclient.allocations import Instruction, Observed, instructions, usages
from reportclient.payload import requests_of
from reportclient.plan import Plan
from reportclient.tree import ObservedTree, Provider

ApprovalAnswer = Literal["approved", "refused", "not-needed"]


@dataclass(frozen=True, slots=True)
class DesiredTree:
    """What ``discover`` found."""

    providers: Mapping[str, Provider]  # by name


@dataclass(frozen=True, slots=True)
class ShownTree:
    """A tree as the verb ``show`` shows it."""

    observed: Observed
    names: Mapping[str, str]  # of guests on this host, by consumer
    conditions: tuple[Condition, ...] = ()  # that the last pass of this host left


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """A plan with the tree before it."""

    plan: Plan
    observed: ObservedTree
    digest: str  # of the plan; a screen shows names with characters that act, and so another plan
    names: Mapping[str, str] | None = None  # of guests, by consumer; None: nobody asked the host


@dataclass(frozen=True, slots=True)
class Forecast:
    """A plan with all that a person needs in order to agree to it."""

    shown: ShownPlan
    before: Observed
    after: Observed

    @property
    def capacity(self) -> dict[str, "Capacity"]:
        """The sums of each resource class."""
        old, new = _sums(self.before), _sums(self.after)
        return {
            name: Capacity(old.get(name, Sums()), new.get(name, Sums())) for name in sorted(old.keys() | new.keys())
        }

    @property
    def requests(self) -> list[str]:
        """``METHOD PATH`` of each request, in order."""
        return [f"{method} {path}" for step in self.shown.plan.operations for method, path in requests_of(step)]


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of one resource class over all providers of a tree."""

    total: int = 0
    capacity: int = 0  # what placement can allocate: without reserved stock, times the allocation ratio
    used: int = 0


@dataclass(frozen=True, slots=True)
class Capacity:
    """Sums of one resource class before a plan and after it; zeros where the tree lacks the class."""

    before: Sums
    after: Sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a pass over one node ended, with its plan."""

    node: str
    outcome: Status
    notes: tuple[str, ...]
    plan: ShownPlan
    reserving: ShownPlan | None = None  # what a refused pass carried out all the same
    dry_run: bool | None = None  # of ``retire`` and ``hand-over``


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """A plan as the verbs ``plan`` and ``reshape`` show it: what a pass over one node would do."""

    node: str
    outcome: Status  # how the pass would end
    layout: str  # in which the tree stands
    target: str  # the layout of the plan
    notes: tuple[str, ...]  # why the pass would not carry out the plan
    forecast: Forecast
    reserving: ShownPlan | None = None  # as in ``Ended``
    approval: ApprovalAnswer | None = None  # of ``reshape --approve``
    refused: bool | None = None  # True: ``reshape --apply`` would refuse it


@dataclass(frozen=True, slots=True)
class NodesPass:
    """A pass over all bare-metal nodes, or its dry run."""

    nodes: tuple[Ended, ...]  # nodes that are not unchanged
    summary: Mapping[str, int]  # how many nodes ended with each value of agent.sync.outcome.Status, without zeros
    dry_run: bool

    def told(self, outcome: str) -> str:
        """Return how an outcome is called: what a dry run only foresees is no fact."""
        return f"would be {outcome}" if self.dry_run and outcome in ("created", "changed", "deleted") else outcome


def shown_plan(plan: Plan, observed: ObservedTree, names: Mapping[str, str] | None = None) -> ShownPlan:
    """Return a plan with the tree before it and its digest."""
    return ShownPlan(plan, observed, plan.digest, names)


def _sums(observed: Observed) -> dict[str, Sums]:
    """Sum each class over all providers of a tree."""
    found: dict[str, Sums] = {}
    used = usages(observed.allocations)
    for seen in observed.tree:
        for name, stock in seen.provider.inventories.items():
            one = found.get(name, Sums())
            more = used.get((seen.name, name), 0)
            found[name] = Sums(one.total + stock.total, one.capacity + stock.capacity, one.used + more)
    return found


@encode.register
def _(shown: ShownTree) -> dict[str, object]:
    return {**encode(shown.observed), "names": encode(shown.names), "conditions": encode(shown.conditions)}


@encode.register
def _(shown: ShownPlan) -> dict[str, object]:
    names = {} if shown.names is None else {"names": encode(shown.names)}
    return {**encode_plan(shown.plan, shown.observed), **names}


@encode.register
def _(one: Forecast) -> dict[str, object]:
    parts = {name: encode(getattr(one, name)) for name in ("before", "after", "capacity", "requests")}
    return {**encode(one.shown), "instructions": encode(instructions(one.shown.plan.moves)), **parts}


@encode.register
def _(one: Instruction) -> dict[str, object]:
    """Encode the moves of all consumers from one provider to another, each with its share."""
    renamed = {"to_resources": dict(one.to_resources)} if one.to_resources != one.moved_resources else {}
    return {
        "from_resource_provider": one.from_resource_provider,
        "to_resource_provider": one.to_resource_provider,
        "moved_resources": dict(one.moved_resources),
        **renamed,
        "consumers": {part.consumer: dict(part.moved_resources) for part in one.parts},
    }


@encode.register
def _(one: Ended | Foreseen) -> dict[str, object]:
    """Encode a value, with the keys of its plan beside its own."""
    form = encode.dispatch(object)(one)
    return {**form.pop("forecast" if isinstance(one, Foreseen) else "plan"), **form}
