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
    ProviderForm,
)
from reportclient.payload import InventoryForm


class AboutForm(TypedDict):
    """What a run is about; the key ``about`` of all that is printed for programs."""

    verb: str
    version: str  # of the agent
    time: str  # ISO 8601, UTC: when this was printed
    nodes: list[str]  # empty: the verb asks about no node, or did not come so far
    placement: str | None  # its name in messages; None: none was opened
    layout: str | None  # as configured; None: bare metal, or the configuration cannot be read
    target: str | None  # the layout that the run plans: that of --to, else the configured one
    request_id: str  # X-OpenStack-Request-ID of all requests of the run


class ErrorForm(TypedDict):
    """Why a verb failed."""

    kind: str  # class of the error
    message: str  # as a person sees it; one line for each problem
    exit: int


class FailureForm(TypedDict):
    """What is printed for programs instead of a result."""

    about: AboutForm
    error: ErrorForm


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


class WithdrawnForm(TypedDict):
    """What ``reshape --withdraw`` did."""

    withdrawn: list[str]  # files of approvals that are gone
    begun: list[str]  # files of approvals that stay, as their conversion was begun


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


class DoneForm(TypedDict):
    """One conversion of this host, as its journal has it."""

    node: str
    began: str  # ISO 8601, UTC
    outcome: str  # "done", "begun", or why the end is not known
    layout: str  # in which the tree stood before; "?": an older release did not say
    target: str
    digest: str
    takes_back: str | None  # digest of the conversion that this one took back; None: it took none back
    consumers: int  # whose allocations moved
    path: str  # of the entry


class JournalForm(TypedDict):
    """The conversions of this host, the latest first."""

    conversions: list[DoneForm]


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


class CheckForm(TypedDict):
    """One check before the first pass."""

    check: str
    ok: bool
    detail: str


class ChecksForm(TypedDict):
    """What the verb ``check`` found, in the order of the checks."""

    checks: list[CheckForm]


class GradedForm(TypedDict):
    """One check before an upgrade."""

    check: str
    result: str  # "success", "warning" or "failure"
    detail: str


class UpgradeForm(TypedDict):
    """What ``upgrade check`` found."""

    version: str  # of the agent that checked
    checks: list[GradedForm]


class SuggestionForm(TypedDict):
    """Lines of a configuration file for the devices of a host."""

    lines: list[str]


class PartForm(TypedDict):
    """One part of a bundle."""

    what: str
    files: dict[str, int]  # bytes by path; empty: the part is missing
    missing: str  # why; empty: it is there


class BundleForm(TypedDict):
    """What a bundle has inside, and whether it was written."""

    path: str
    masked: bool
    parts: list[PartForm]
    written: bool


class FoundRootForm(TypedDict):
    """A root provider that may be this host's."""

    uuid: str
    name: str
    named_alike: bool  # whether it has this host's name
    guests: int  # of this host, that hold something in its tree
    providers: int  # in its tree


class AdoptionForm(TypedDict):
    """The search for the root provider of a host without compute_id."""

    node: str
    guests: int  # of this host, that hold anything in placement
    found: list[FoundRootForm]  # the most guests first
    chosen: str | None  # uuid; None: a person must name one
    why: str
    path: str  # of compute_id
    written: bool


class ReasonForm(TypedDict):
    """One resource class or trait with its fact and its rule."""

    name: str
    inventory: InventoryForm | None  # None for a trait
    fact: str
    rule: str


class ExplanationForm(TypedDict):
    """What one provider has, and why."""

    provider: str
    parent: str | None  # None for a root
    left_to: str | None  # the service to which [agent] role leaves this provider; None: this agent reports it
    counted_in: str | None  # provider that reports this one's inventory in the layout flat; None: it reports its own
    reasons: list[ReasonForm]


class GivenForm(TypedDict):
    """What one provider gives for a group of a request."""

    group: str  # its suffix; "" for the group without one
    provider: str
    resources: dict[str, int]  # by class; empty: a place in the tree alone


class MissingForm(TypedDict):
    """What a request asks for and a host lacks."""

    wish: str  # as the query spells it
    why: str


class CandidacyForm(TypedDict):
    """Whether a host is among the allocation candidates of a request."""

    node: str
    candidate: bool | None  # None: not known
    gives: list[GivenForm]  # empty: the host is none
    missing: list[MissingForm]  # without these wishes the host would be a candidate
    placement: str  # "agrees", "differs: ...", or "not asked: ..."


class UsagesForm(TypedDict):
    """What a project uses in the whole placement."""

    project: str
    user: str | None  # only this user of the project; None: all
    usages: dict[str, Amounts]  # by consumer type; "" where placement tells none


class RecordedForm(TypedDict):
    """A host archive that was written."""

    directory: str
    files: int


class SlotForm(TypedDict):
    """Allocations on one provider."""

    resources: Amounts


class EndingForm(TypedDict):
    """How an operation on the allocations of one consumer ended."""

    outcome: str  # a value of agent.allocations.operations.Result
    consumer: str
    allocations: dict[str, SlotForm]  # by provider uuid; empty: the consumer has none
    note: str


class SourceForm(TypedDict):
    """One source that the service reads or writes: the host, placement, its own files or its configuration."""

    ok_s: float | None  # when it last answered, in seconds since 1970; None: never
    error: str  # empty: it answered the last time


class StatusForm(TypedDict):
    """What the service last wrote into status.json, with what the verb ``status`` adds."""

    format: int
    version: str
    pid: int
    started_s: float
    passes: int
    last_pass_s: float | None  # end of the last pass; None: there was none
    took_s: float
    interval_s: int
    written_s: float  # when the service wrote this
    waits_s: float  # seconds from then in which no pass begins: after a failed one, or until the first one
    outcomes: dict[str, str]  # by node
    notes: list[str]
    findings: dict[str, int]  # by kind
    sources: dict[str, SourceForm]
    sentence: str
    ready: bool
    cases: list[str]  # paths; the verb adds this key and all below
    approvals: list[str]  # a sentence each
    running: bool  # the process exists
    late: bool  # nothing written for so long that the service must hang, or cannot write


class NodeFindingForm(TypedDict):
    """One bare-metal node that cannot be reported."""

    node: str  # uuid, or ``record N`` for a record without one
    why: str


class NodesForm(TypedDict):
    """The desired providers of all bare-metal nodes."""

    providers: dict[str, ProviderForm]  # by node uuid
    reserved: dict[str, str]  # why a node is reserved, by uuid; no free nodes
    findings: list[NodeFindingForm]


class NodeSumsForm(TypedDict):
    """How many bare-metal nodes have a provider."""

    marked: int  # with the mark of agents for bare metal
    ours: int  # that this agent remembers as its own
    classes: dict[str, int]  # of ours, by resource class


class ShownNodesForm(TypedDict):
    """What ``show`` reports of all bare-metal nodes together."""

    summary: NodeSumsForm


class NodesPassForm(TypedDict):
    """A pass over all bare-metal nodes, or its dry run."""

    nodes: list[OutcomeForm]  # nodes that are not unchanged
    summary: dict[str, int]  # how many nodes ended with each value of agent.sync.outcome.Status, without zeros
    dry_run: bool
