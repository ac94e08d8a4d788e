"""Result of a pass of the service: what it did and saw, of one node or of all."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agent.audit.audit import AuditResult
from agent.sync.outcome import Condition, Outcome
from drivers.base import Survey
from drivers.facts import DiskUnread, PoolSpace
from reportclient.allocations import usages
from reportclient.forecast import forecast
from reportclient.tree import Provider


@dataclass(frozen=True, slots=True)
class Stock:
    """What one provider has of one class in placement."""

    total: int
    reserved: int
    allocation_ratio: float
    usage: int  # by the allocations that the audit knows


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """What a pass did and saw; of bare-metal nodes it names only the unwell ones."""

    outcomes: Mapping[str, str]  # by node
    notes: tuple[str, ...] = ()
    notes_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # the same by node, where there are several
    conditions: Mapping[str, tuple[Condition, ...]] = field(default_factory=dict)  # by hypervisor
    findings: Mapping[str, int] = field(default_factory=dict)  # count by kind
    observed: Mapping[str, int] = field(default_factory=dict)  # total by resource class, in placement before the pass
    desired: Mapping[str, int] = field(default_factory=dict)  # total by resource class, after the plan
    stocks: Mapping[tuple[str, str], Stock] = field(default_factory=dict)  # by (provider, class), as its audit saw it
    hardware: frozenset[str] = frozenset()  # PCI addresses of all devices that count in reported inventory
    broken: tuple[str, ...] = ()  # laws that plans break, of each breach; a fault of this agent
    storage: str | None = None  # why the cluster with the guests' disks did not answer; empty: it did; None: none asked


def result_of(outcome: Outcome, audited: AuditResult | None) -> RoundResult:
    """Return the result of a node's pass and of its audit; None: there was no audit."""
    return RoundResult(
        outcomes={outcome.node: outcome.status.value},
        notes=outcome.notes,
        conditions={outcome.node: outcome.conditions},
        findings=Counter(one.kind.value for one in audited.findings) if audited else {},
        stocks=_stocks(audited) if audited else {},
        observed=_totals(seen.provider for seen in outcome.observed),
        desired=_totals(seen.provider for seen in forecast(outcome.plan, outcome.observed)),
        hardware=outcome.hardware,
        broken=outcome.broken,
        storage=_storage(outcome.survey),
    )


def together(taken: Iterable[RoundResult]) -> RoundResult:
    """Merge the results of several nodes into one."""
    taken = tuple(taken)
    if len(taken) == 1:
        return taken[0]
    return RoundResult(
        outcomes={node: outcome for one in taken for node, outcome in one.outcomes.items()},
        notes=tuple(note for one in taken for note in one.notes),
        notes_of={node: one.notes for one in taken for node in one.outcomes},
        conditions={node: each for one in taken for node, each in one.conditions.items()},
        findings=sum((Counter(one.findings) for one in taken), Counter()),
        stocks={key: stock for one in taken for key, stock in one.stocks.items()},
        observed=sum((Counter(one.observed) for one in taken), Counter()),
        desired=sum((Counter(one.desired) for one in taken), Counter()),
        hardware=frozenset().union(*(one.hardware for one in taken)),
        broken=tuple(law for one in taken for law in one.broken),
        storage=next((one.storage for one in taken if one.storage is not None), None),
    )


def _stocks(result: AuditResult) -> dict[tuple[str, str], Stock]:
    used = usages(result.memory.allocations)
    return {
        (seen.name, name): Stock(stock.total, stock.reserved, stock.allocation_ratio, used.get((seen.name, name), 0))
        for seen in result.tree
        for name, stock in seen.provider.inventories.items()
    }


def _storage(survey: Survey | None) -> str | None:
    """Return why the cluster that has the guests' disks did not answer, as ``RoundResult.storage``."""
    disk = survey.facts.disk if survey else None
    if isinstance(disk, DiskUnread):
        return disk.because
    return "" if isinstance(disk, PoolSpace) else None


def _totals(providers: Iterable[Provider]) -> Counter[str]:
    """Return the total of each resource class in a tree."""
    sums: Counter[str] = Counter()
    for provider in providers:
        sums.update({name: stock.total for name, stock in provider.inventories.items()})
    return sums
