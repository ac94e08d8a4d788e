"""Carries out the repairs of an audit, as far as an operator's policy lets it: its kinds, its patience, its limit."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from agent.allocations.decide.rules import Operation
from agent.allocations.operations import Operations, Told
from agent.audit.decide.findings import Finding, Kind
from agent.audit.run import Testimony
from agent.errors import ConfigError
from agent.sync.node import Planner
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
class Care:
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


def judge(testimony: Testimony, policy: HealPolicy, now: float) -> tuple[Care, ...]:
    """What would become of each finding; those to be healed are HEALED with no reason against it."""
    cares = []
    repairs: set[str] = set()
    touched: set[str] = set()  # the consumers that those rewrite
    against: dict[str, str] = {}  # one repair is of all findings that name it, so one of them keeps it back
    for finding in testimony.findings:
        if finding.repair and (why := _against(finding, testimony, policy, now)):
            against.setdefault(finding.repair.text, why)
    for finding in testimony.findings:
        why = against.get(finding.repair.text, "") if finding.repair else _against(finding, testimony, policy, now)
        if not why and finding.repair and finding.repair.text not in repairs:
            consumers = finding.consumers
            if len(repairs) >= policy.limit:
                why = f"the policy's limit of {policy.limit} is reached"
            elif consumers & touched:
                why = "another repair of the same consumer goes first, and this one at the next audit"
            else:
                repairs.add(finding.repair.text)
                touched |= consumers
        cares.append(Care(finding, Healed.REPORTED if why else Healed.HEALED, why))
    return tuple(cares)


def heal(
    planner: Planner, testimony: Testimony, policy: HealPolicy, clock: Callable[[], float] | None = None
) -> tuple[Care, ...]:
    """
    Carry out what the policy lets; a repair that fails is told, and the others go on.

    Once placement does not answer, the rest is not tried.
    """
    outcomes: dict[str, str] = {}
    cares = []
    gone = ""
    for care in judge(testimony, policy, clock() if clock else testimony.clock.now_s()):
        repair = care.finding.repair
        if care.healed is Healed.HEALED and repair and gone and repair.text not in outcomes:
            cares.append(Care(care.finding, Healed.REPORTED, f"not tried: {gone}"))
        elif care.healed is Healed.HEALED and repair:
            if repair.text not in outcomes:
                try:
                    outcomes[repair.text] = _repair(planner, testimony, care.finding)
                except Unavailable as error:
                    outcomes[repair.text] = gone = str(error)
            failed = outcomes[repair.text]
            cares.append(Care(care.finding, Healed.FAILED if failed else Healed.HEALED, failed))
        else:
            cares.append(care)
    return tuple(cares)


def _against(finding: Finding, testimony: Testimony, policy: HealPolicy, now: float) -> str:
    """Why a finding is not healed now; empty when it may be."""
    sighting = testimony.memory.sightings[finding.key]
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
    consumers = [testimony.consumers.get(uuid) for uuid in finding.consumers]
    age_s = min([age_s, *(one.age_s for one in consumers if one and one.age_s is not None)])
    if age_s < patience_s:
        way = ", as a guest may be on its way" if finding.arriving else ""
        return f"it is so for {age_s:.0f} s, and the policy waits for {patience_s:g} s{way}"
    return ""


def _repair(planner: Planner, testimony: Testimony, finding: Finding) -> str:
    """Why a repair was not done; empty when it was."""
    assert finding.repair is not None
    operation = finding.repair.operation
    try:
        if isinstance(operation, ReplaceAllocations):
            subject = finding.consumer or operation.rewrites[0].consumer
            ending = Operations(planner.client).carry_out(Operation.REPAIR, subject, operation.rewrites)
            return "" if ending.told is Told.DONE else f"{ending.told.value}: {ending.note}"
        observed = planner.client.observe(testimony.root_uuid)
        if why := _too_much(operation, observed, planner.settings.shrink_fraction):
            return why
        now, seen = observed.by_uuid.get(operation.uuid), testimony.tree.by_uuid[operation.uuid]
        if now is None or now.provider.inventories != seen.provider.inventories:
            return f"{operation.name} was changed since it was looked at: the next audit judges it anew"
        planner.client.execute(Plan((operation,)), observed)
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
