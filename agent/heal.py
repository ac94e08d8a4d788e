"""Carries out the repairs of an audit, as far as an operator's policy lets it: its kinds, its patience, its limit."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from agent.audit import Finding, Kind
from agent.conflicts import Operation
from agent.errors import ConfigError
from agent.operations import Operations, Told
from agent.planner import Planner
from agent.witness import Testimony
from reportclient.errors import Conflict, Rejected
from reportclient.plan import Plan, ReplaceAllocations

SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["heal"],
    "properties": {
        "heal": {"type": "array", "items": {"enum": [kind.value for kind in Kind]}},
        "grace_s": {"type": "number", "minimum": 0},
        "again_s": {"type": "number", "minimum": 0},
        "limit": {"type": "integer", "minimum": 1},
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HealPolicy:
    """What may be healed without a person; by default nothing."""

    kinds: frozenset[Kind] = frozenset()
    grace_s: float = 600  # how long something must have been wrong
    again_s: float = 60  # and at least that long ago it was seen by an earlier audit
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
    A policy as an operator wrote it: YAML with ``heal`` (kinds), ``grace_s``, ``again_s`` and ``limit``.

    Raises:
        ConfigError: it cannot be read, or says what no policy can.
    """
    try:
        record = yaml.safe_load(path.read_text(encoding="utf-8"))
        jsonschema.validate(record, SCHEMA)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())[:200]}") from error
    except jsonschema.ValidationError as error:
        where = ".".join(map(str, error.absolute_path))
        raise ConfigError(f"{path}: {where}{': ' if where else ''}{error.message[:300]}") from error
    return HealPolicy(
        kinds=frozenset(map(Kind, record["heal"])),
        **{name: record[name] for name in ("grace_s", "again_s", "limit") if name in record},
    )


def judge(testimony: Testimony, policy: HealPolicy, now: float) -> tuple[Care, ...]:
    """What would become of each finding; those to be healed are HEALED with no reason against it."""
    cares = []
    repairs: set[str] = set()
    against: dict[str, str] = {}  # one repair is of all findings that name it, so one of them keeps it back
    for finding in testimony.findings:
        if finding.repair and (why := _against(finding, testimony, policy, now)):
            against.setdefault(finding.repair.text, why)
    for finding in testimony.findings:
        why = against.get(finding.repair.text, "") if finding.repair else _against(finding, testimony, policy, now)
        if not why and finding.repair and finding.repair.text not in repairs:
            why = f"the policy's limit of {policy.limit} is reached" if len(repairs) >= policy.limit else ""
            repairs |= set() if why else {finding.repair.text}
        cares.append(Care(finding, Healed.REPORTED if why else Healed.HEALED, why))
    return tuple(cares)


def heal(
    planner: Planner, testimony: Testimony, policy: HealPolicy, clock: Callable[[], float] = time.time
) -> tuple[Care, ...]:
    """Carry out what the policy lets; a repair that fails is told, and the others go on."""
    outcomes: dict[str, str] = {}
    cares = []
    for care in judge(testimony, policy, clock()):
        repair = care.finding.repair
        if care.healed is Healed.HEALED and repair:
            if repair.text not in outcomes:
                outcomes[repair.text] = _repair(planner, testimony, care.finding)
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
    if sighting.looks < 2 or age_s < policy.again_s:
        return f"it is looked at again after {policy.again_s:g} s"
    if age_s < policy.grace_s:
        return f"it is so for {age_s:.0f} s, and the policy waits for {policy.grace_s:g} s"
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
        planner.client.execute(Plan((operation,)), observed)
    except (Conflict, Rejected) as error:
        return str(error)
    return ""
