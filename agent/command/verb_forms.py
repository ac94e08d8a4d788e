"""
The types of the JSON that the verbs print, beside those of ``agent.sync.forms``.

A verb encodes one of these forms, and the printer that its ``Report`` names takes the same form.
"""

from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict

from agent.sync.forms import (
    Amounts,
    CapacityForm,
    ConversionForm,
    InstructionForm,
    ObservedTreeForm,
    PlanForm,
)


class ReservingForm(TypedDict):
    """The plan that a refused pass carries out all the same; left out where it has no operations."""

    reserving: NotRequired[PlanForm]


class OutcomeForm(PlanForm, ReservingForm):
    """How a pass over one node ended, with its plan."""

    node: str
    outcome: str  # a value of agent.sync.outcome.Status
    notes: list[str]


class LeavingForm(OutcomeForm):
    """How ``retire`` or ``hand-over`` of one node ended."""

    dry_run: bool


ApprovalAnswer = Literal["approved", "refused", "not-needed"]


class ApprovalForm(TypedDict, total=False):
    """The key that ``reshape --approve`` adds to a conversion."""

    approval: ApprovalAnswer


class RefusalForm(TypedDict, total=False):
    """The key that ``reshape`` without ``--apply`` adds to a conversion that ``--apply`` would refuse."""

    refused: Literal[True]


class ForeseenForm(ConversionForm, ReservingForm):
    """A plan as the verb ``plan`` shows it: what a pass over one node would do."""

    node: str
    outcome: str  # how the pass would end, as in OutcomeForm
    layout: str  # in which the tree stands
    target: str  # the layout of the plan
    notes: list[str]  # why the pass would not carry out the plan


class RehearsedForm(PlanForm):
    """The plan of one of several recorded hosts, without its trees: a thousand of them are to be read."""

    archive: str
    node: str
    outcome: str  # as in ForeseenForm; also the next three
    layout: str
    target: str
    notes: list[str]
    refused: NotRequired[Literal[True]]
    instructions: list[InstructionForm]
    capacity: dict[str, CapacityForm]


class FailedHostForm(TypedDict):
    """A recorded host of a rehearsal that has no plan."""

    archive: str
    node: None
    outcome: str  # "failed"
    notes: list[str]  # why


class RehearsalForm(TypedDict):
    """The plans of several recorded hosts."""

    plans: Sequence[RehearsedForm | FailedHostForm]  # in the order of the archives
    summary: dict[str, int]  # hosts by outcome


class ShownConversionForm(ForeseenForm, ApprovalForm, RefusalForm):
    """A conversion as the verb ``reshape`` shows it."""


class ShownTreeForm(ObservedTreeForm):
    """A tree as the verb ``show`` shows it."""

    names: dict[str, str]  # of guests on this host, by consumer


class EventForm(TypedDict):
    """One event of the host."""

    source: str
    what: str


class ChangeForm(PlanForm):
    """One line of the verb ``watch``: a batch of events and what it changes."""

    at: str  # ISO 8601, UTC
    events: list[EventForm]
    seconds: float  # from the first event to the end of the look
    outcome: str | None  # of the pass; None without --sync
    notes: list[str]


class WrittenForm(TypedDict):
    """One consumer as a repair leaves it."""

    project: str
    user: str
    type: str | None  # None: placement tells none, and it stays as it is
    allocations: dict[
        str, Amounts
    ]  # all of them, by provider: its name, or its uuid where it is not of this host; empty: deleted


class FindingForm(TypedDict):
    """One finding of an audit, its repair, and what became of it."""

    kind: str  # a value of agent.audit.decide.findings.Kind
    consumer: str | None  # None: the finding is about a provider
    provider: str | None
    resource_class: str | None
    expected: int | None  # by the hypervisor or the inventory
    actual: int | None  # in placement
    seen: str
    since: str  # ISO 8601, UTC: the first audit that saw it
    repair: str | None  # a sentence; None: a person must decide
    writes: dict[str, WrittenForm]  # by consumer: all that the repair writes; empty: it writes no allocations
    safe: bool  # the repair may be carried out by --heal
    outcome: str  # a value of agent.audit.heal.Healed
    why: str  # why the repair was not carried out, or failed; empty: it was


class AuditForm(TypedDict):
    """What an audit found on all nodes."""

    findings: list[FindingForm]
    young: list[str]  # consumers that changed too lately to be judged
    light: bool
    nova: str  # why nova's answer is missing, and what to do; empty: it is not missing, or not needed
    names: dict[str, str]  # of the guests with findings, by consumer


class NodesPassForm(TypedDict):
    """A pass over all bare-metal nodes, or its dry run."""

    nodes: list[OutcomeForm]  # nodes that are not unchanged
    summary: dict[str, int]  # how many nodes ended with each value of agent.sync.outcome.Status, without zeros
    dry_run: bool
