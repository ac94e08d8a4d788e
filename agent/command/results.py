"""What the verbs found, as values: ``encode`` makes their JSON, and tables and pictures read them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.allocations.operations import Ending
from agent.audit.decide.findings import Finding
from agent.audit.heal import Healed
from agent.command.candidacy import Missing
from agent.service.status import ServiceStatus, record_of
from agent.sync.decide.undoing import Conversion
from agent.sync.json_form import encode
from agent.sync.outcome import Condition
from reportclient.payload import encode_slots
from reportclient.request import Wish
from reportclient.tree import Inventory, Provider


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a run is about; the key ``about`` of all that is printed for programs."""

    verb: str
    version: str  # of the agent
    time: str  # ISO 8601, UTC: when this was printed
    nodes: tuple[str, ...]  # empty: the verb asks about no node, or did not come so far
    placement: str | None  # its name in messages; None: none was opened
    layout: str | None  # as configured; None: bare metal, or the configuration cannot be read
    target: str | None  # the layout that the run plans: that of --to, else the configured one
    request_id: str  # X-OpenStack-Request-ID of all requests of the run


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One consumer as a repair leaves it."""

    project: str
    user: str
    type: str | None  # None: placement tells none, and it stays as it is
    allocations: Mapping[str, Mapping[str, int]]
    # all of them, by provider: its name, or its uuid where it is not of this host; empty: deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedFinding:
    """One finding of an audit, its repair, and what became of it."""

    finding: Finding
    since: str  # ISO 8601, UTC: the first audit that saw it
    writes: Mapping[str, Written]  # by consumer: all that the repair writes; empty: it writes no allocations
    outcome: Healed
    why: str  # why the repair was not carried out, or failed; empty: it was


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What an audit found on all nodes."""

    findings: tuple[AuditedFinding, ...]
    young: tuple[str, ...]  # consumers that changed too lately to be judged
    light: bool
    nova: str  # why nova's answer is missing, and what to do; empty: it is not missing, or not needed
    names: Mapping[str, str]  # of the guests with findings, by consumer


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What ``reshape --withdraw`` did."""

    withdrawn: tuple[Path, ...]  # files of approvals that are gone
    begun: tuple[Path, ...]  # files of approvals that stay, as their conversion was begun


@dataclass(frozen=True, slots=True)
class Journal:
    """The conversions of this host."""

    conversions: tuple[Conversion, ...]  # the latest first


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check; ``detail`` is a sentence, which also says what to do if ``ok`` is false."""

    check: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Checks:
    """What the verb ``check`` found, in the order of the checks."""

    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Graded:
    """One check before an upgrade."""

    check: str
    result: str  # "success", "warning" or "failure"
    detail: str


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What ``upgrade check`` found."""

    version: str  # of the agent that checked
    checks: tuple[Graded, ...]


@dataclass(frozen=True, slots=True)
class PartContents:
    """One part of a bundle."""

    what: str
    files: Mapping[str, int]  # bytes by path; empty: the part is missing
    missing: str  # why; empty: it is there


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """What a bundle has inside, and whether it was written."""

    path: Path
    parts: tuple[PartContents, ...]
    written: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRoot:
    """A root provider that may be this host's."""

    uuid: str
    name: str
    named_alike: bool  # whether it has this host's name
    guests: int  # of this host, that hold something in its tree
    providers: int  # in its tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """The search for the root provider of a host without compute_id."""

    node: str
    guests: int  # of this host, that hold anything in placement
    found: tuple[FoundRoot, ...]  # the most guests first
    chosen: str | None  # uuid; None: a person must name one
    why: str
    path: Path  # of compute_id
    written: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One class or trait of one provider, with its fact and its rule."""

    name: str
    inventory: Inventory | None  # None for a trait
    fact: str
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedProvider:
    """What one provider has, and why."""

    provider: str
    parent: str | None  # None for a root
    left_to: str | None  # the service to which [agent] role leaves this provider; None: this agent reports it
    counted_in: str | None  # provider that reports this one's inventory in the layout flat; None: it reports its own
    reasons: tuple[Explanation, ...]
    conditions: tuple[Condition, ...] = ()  # that the last pass of this host left for this provider


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedRequest:
    """Whether a host is among the allocation candidates of a request."""

    node: str
    candidate: bool | None  # None: not known
    gives: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by provider and class; empty: it is none
    missing: tuple[Missing, ...] = ()  # without these wishes the host would be a candidate
    refusal: str = ""  # why placement refuses the request, or to be asked about one host; empty: it does not


@dataclass(frozen=True, slots=True)
class Usages:
    """What a project uses in the whole placement."""

    project: str
    user: str | None  # only this user of the project; None: all
    usages: Mapping[str, Mapping[str, int]]  # by consumer type and class; "" where placement tells no type


@dataclass(frozen=True, slots=True)
class Recorded:
    """A host archive that was written."""

    directory: Path
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownStatus:
    """What the service last wrote into status.json, with what the verb ``status`` adds."""

    status: ServiceStatus
    cases: tuple[Path, ...]
    approvals: tuple[str, ...]  # a sentence each


@dataclass(frozen=True, slots=True)
class NodeFinding:
    """One bare-metal node that cannot be reported."""

    node: str  # uuid, or ``record N`` for a record without one
    why: str


@dataclass(frozen=True, slots=True)
class Nodes:
    """The desired providers of all bare-metal nodes."""

    providers: Mapping[str, Provider]  # by node uuid
    reserved: Mapping[str, str]  # why a node is reserved, by uuid; no free nodes
    findings: tuple[NodeFinding, ...]


@dataclass(frozen=True, slots=True)
class NodeSums:
    """How many bare-metal nodes have a provider."""

    marked: int  # with the mark of agents for bare metal
    ours: int  # that this agent remembers as its own
    classes: Mapping[str, int]  # of ours, by resource class


@dataclass(frozen=True, slots=True)
class ShownNodes:
    """What ``show`` reports of all bare-metal nodes together."""

    summary: NodeSums


@encode.register
def _(one: AuditedFinding) -> dict[str, object]:
    names = ("kind", "consumer", "provider", "resource_class", "expected", "actual", "seen", "safe")
    return {
        **{name: encode(getattr(one.finding, name)) for name in names},
        "since": one.since,
        "repair": one.finding.repair.text if one.finding.repair else None,
        "writes": encode(one.writes),
        "outcome": one.outcome.value,
        "why": one.why,
    }


@encode.register
def _(one: Conversion) -> dict[str, object]:
    names = ("node", "began", "outcome", "layout", "target", "digest", "consumers", "path")
    return {name: getattr(one, name) for name in names}


@encode.register
def _(journal: Journal) -> dict[str, object]:
    """Add to each conversion the digest of the one that it took back; None: it took none back."""
    digests: dict[str | None, str] = {one.name: one.digest for one in journal.conversions}
    return {"conversions": [{**encode(one), "takes_back": digests.get(one.undoes)} for one in journal.conversions]}


@encode.register
def _(wish: Wish) -> str:
    return str(wish)


@encode.register
def _(ending: Ending) -> dict[str, object]:
    return {
        "outcome": ending.told.value,
        "consumer": ending.consumer,
        "allocations": encode_slots(ending.held),
        "note": ending.note,
    }


@encode.register
def _(shown: ShownStatus) -> dict[str, object]:
    return {
        **record_of(shown.status),
        "cases": encode(shown.cases),
        "approvals": encode(shown.approvals),
        "running": shown.status.is_running,
        "late": shown.status.is_late,
    }
