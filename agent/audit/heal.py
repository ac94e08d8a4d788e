"""Carries out the repairs of an audit, as far as an operator's policy lets it: its kinds, its patience, its limit."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from agent.allocations.decide.rules import ChangeKind
from agent.allocations.operations import Operations, Result
from agent.audit.decide.findings import Finding, Kind
from agent.audit.run import AuditResult
from agent.errors import ConfigError
from agent.sync.node import ComputeNode
from reportclient.errors import Conflict, Rejected, Unavailable
from reportclient.plan import Delete, Plan, ReplaceAllocations, SetInventories
from reportclient.tree import ObservedTree

SECONDS = {"type": "number", "minimum": 0, "maximum": 1_000_000_000}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["heal"],
    "properties": {
        "heal": {"type": "array", "items": {"enum": [kind.value for kind in Kind]}},
        "grace_s": SECONDS,
        "again_s": SECONDS,
        "move_s": SECONDS,
        "untyped": {"type": "boolean"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 1_000_000},
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HealPolicy:
    """What may be healed without a person; by default nothing."""

    kinds: frozenset[Kind] = frozenset()
    grace_s: float = 600  # how long something must have been wrong
    again_s: float = 60  # and at least that long ago it was seen by an earlier audit
    move_s: float = 86400  # and how long what looks the same while a guest is on its way
    untyped: bool = False  # consumers without a type are nova's: no other service claims here
    limit: int = 5  # repairs in one audit


class Healed(Enum):
    """What became of a finding."""

    REPORTED = "reported"
    HEALED = "healed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RepairOutcome:
    """What became of one finding, and why it was left alone."""

    finding: Finding
    healed: Healed
    why: str


def read_policy(path: Path) -> HealPolicy:
    """
    A policy as an operator wrote it: YAML with ``heal`` (kinds), and what is not to be as ``HealPolicy`` has it.

    Raises:
        ConfigError: it cannot be read, or says what no policy can.
    """
    try:
        record = yaml.safe_load(path.read_text(encoding="utf-8"))
        jsonschema.validate(record, SCHEMA)
        if strange := [name for name, value in record.items() if value != value]:  # only what is no number is so
            raise ConfigError(f"{path}: {strange[0]} is no number")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (
        yaml.YAMLError,
        ValueError,
        ArithmeticError,
        LookupError,
        AttributeError,
        TypeError,
        RecursionError,
    ) as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())[:200]}") from error
    except jsonschema.ValidationError as error:
        where = ".".join(map(str, error.absolute_path))
        raise ConfigError(f"{path}: {where}{': ' if where else ''}{error.message[:300]}") from error
    return HealPolicy(
        kinds=frozenset(map(Kind, record["heal"])),
        **{name: value for name, value in record.items() if name != "heal"},
    )


def decide_repairs(result: AuditResult, policy: HealPolicy, now: float) -> tuple[RepairOutcome, ...]:
    """What would become of each finding; those to be healed are HEALED with no reason against it."""
    outcomes = []
    repairs: set[str] = set()
    touched: set[str] = set()  # the consumers that those rewrite
    against: dict[str, str] = {}  # one repair is of all findings that name it, so one of them keeps it back
    for finding in result.findings:
        if finding.repair and (why := _against(finding, result, policy, now)):
            against.setdefault(finding.repair.text, why)
    for finding in result.findings:
        why = against.get(finding.repair.text, "") if finding.repair else _against(finding, result, policy, now)
        if not why and finding.repair and finding.repair.text not in repairs:
            consumers = finding.consumers
            if len(repairs) >= policy.limit:
                why = f"the policy's limit of {policy.limit} is reached"
            elif consumers & touched:
                why = "another repair of the same consumer goes first, and this one at the next audit"
            else:
                repairs.add(finding.repair.text)
                touched |= consumers
        outcomes.append(RepairOutcome(finding, Healed.REPORTED if why else Healed.HEALED, why))
    return tuple(outcomes)


def heal(
    node: ComputeNode, result: AuditResult, policy: HealPolicy, clock: Callable[[], float] | None = None
) -> tuple[RepairOutcome, ...]:
    """
    Carry out what the policy lets; a repair that fails is told, and the others go on.

    Once placement does not answer, the rest is not tried.
    """
    tried: dict[str, str] = {}  # by the text of the repair: why it failed; empty: it was done
    outcomes = []
    gone = ""
    for outcome in decide_repairs(result, policy, clock() if clock else result.clock.now_s()):
        repair = outcome.finding.repair
        if outcome.healed is Healed.HEALED and repair and gone and repair.text not in tried:
            outcomes.append(RepairOutcome(outcome.finding, Healed.REPORTED, f"not tried: {gone}"))
        elif outcome.healed is Healed.HEALED and repair:
            if repair.text not in tried:
                try:
                    tried[repair.text] = _repair(node, result, outcome.finding)
                except Unavailable as error:
                    tried[repair.text] = gone = str(error)
            failed = tried[repair.text]
            outcomes.append(RepairOutcome(outcome.finding, Healed.FAILED if failed else Healed.HEALED, failed))
        else:
            outcomes.append(outcome)
    return tuple(outcomes)


def _against(finding: Finding, result: AuditResult, policy: HealPolicy, now: float) -> str:
    """Why a finding is not healed now; empty when it may be."""
    sighting = result.memory.sightings[finding.key]
    age_s = now - sighting.first_s
    if finding.repair is None:
        return "a person must decide"
    if not finding.safe:
        return "it is not certain"
    if finding.kind not in policy.kinds:
        return "the policy does not name its kind"
    if finding.untyped and not policy.untyped:
        return "it has no consumer type, and the policy does not say that such are nova's"
    if sighting.looks < 2 or age_s < policy.again_s:
        return f"it is looked at again after {policy.again_s:g} s"
    patience_s = max(policy.grace_s, policy.move_s) if finding.arriving else policy.grace_s
    consumers = [result.consumers.get(uuid) for uuid in finding.consumers]
    age_s = min([age_s, *(one.age_s for one in consumers if one and one.age_s is not None)])
    if age_s < patience_s:
        way = ", as a guest may be on its way" if finding.arriving else ""
        return f"it is so for {age_s:.0f} s, and the policy waits for {patience_s:g} s{way}"
    return ""


def _repair(node: ComputeNode, result: AuditResult, finding: Finding) -> str:
    """Why a repair was not done; empty when it was."""
    assert finding.repair is not None
    operation = finding.repair.operation
    try:
        if isinstance(operation, ReplaceAllocations):
            subject = finding.consumer or operation.rewrites[0].consumer
            ending = Operations(node.client).carry_out(ChangeKind.REPAIR, subject, operation.rewrites)
            return "" if ending.told is Result.DONE else f"{ending.told.value}: {ending.note}"
        observed = node.client.observe(result.root_uuid)
        if why := _too_much(operation, observed, node.settings.shrink_fraction):
            return why
        now, seen = observed.by_uuid.get(operation.uuid), result.tree.by_uuid[operation.uuid]
        if now is None or now.provider.inventories != seen.provider.inventories:
            return f"{operation.name} was changed since it was looked at: the next audit judges it anew"
        node.client.execute(Plan((operation,)), observed)
    except (Conflict, Rejected) as error:
        return str(error)
    return ""


def _too_much(operation: SetInventories | Delete, observed: ObservedTree, fraction: float) -> str:
    """Why a provider is not deleted, as a pass would not take so much away at once; empty when it may be."""
    going = observed.by_uuid.get(operation.uuid)
    if isinstance(operation, SetInventories) or going is None:
        return ""
    for name, stock in going.provider.inventories.items():
        whole = sum(seen.provider.inventories[name].total for seen in observed if name in seen.provider.inventories)
        if stock.total > whole * fraction and whole > stock.total:
            return f"it is {stock.total} of {whole} {name} of this host, more than [agent] shrink_limit_percent"
    return ""
