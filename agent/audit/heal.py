"""Carry out the repairs of an audit as far as an operator's policy allows: its kinds, waiting times and limit."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from agent.allocations.decide.sets import MIGRATION
from agent.allocations.operations import Operations, Result
from agent.audit.audit import AuditResult
from agent.audit.decide.findings import Finding, Kind
from agent.errors import ConfigError
from agent.form_errors import form_error
from agent.sync.node import ComputeNode
from agent.sync.yaml_file import load_once
from reportclient.allocations import sums
from reportclient.errors import Conflict, Rejected, Unavailable
from reportclient.plan import Rewrite

UNLISTED = "the policy does not list this kind of finding"
UNASKED = "not done: no --policy allows it"
SECONDS = {"type": "number", "minimum": 0, "maximum": 1_000_000_000}
SCHEMA: dict[str, object] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["heal"],
    "properties": {
        "heal": {"type": "array", "items": {"enum": [kind.value for kind in Kind]}},
        "grace_s": SECONDS,
        "again_s": SECONDS,
        "move_s": SECONDS,
        "untyped": {"type": "boolean"},
        "at_once": {"type": "boolean"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 1_000_000},
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HealPolicy:
    """Which findings may be repaired without a person; by default none."""

    kinds: frozenset[Kind] = frozenset()
    grace_s: float = 600  # seconds for which a finding must have lasted, and its consumers must be unchanged
    again_s: float = 60  # seconds that must lie between the first audit that saw a finding and its repair
    move_s: float = 86400  # seconds instead of grace_s for findings that look the same while a guest is on its way
    untyped: bool = False  # True: consumers without a type are nova's, as no other service claims here
    at_once: bool = False  # True: misplaced rows of a guest go to where it is without any of these waiting times
    limit: int = 5  # repairs in one audit
    agreed: frozenset[str] | None = None  # digests of the only repairs that a person agreed to; None: nobody was asked


class Healed(Enum):
    """What became of a finding."""

    REPORTED = "reported"
    HEALED = "healed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RepairOutcome:
    """What became of one finding; ``why`` says why it was not repaired, empty if it was."""

    finding: Finding
    healed: Healed
    why: str


def read_policy(path: Path) -> HealPolicy:
    """
    Read a policy that an operator wrote: YAML with ``heal`` (kinds); other keys have the defaults of ``HealPolicy``.

    Raises:
        ConfigError: the file cannot be read, or is no valid policy.
    """
    record = load_once(path, path)
    if wrong := form_error(record, SCHEMA):
        raise ConfigError(f"{path}: {wrong}")
    if strange := [name for name, value in record.items() if value != value]:  # only NaN differs from itself
        raise ConfigError(f"{path}: {strange[0]} is no number")
    return HealPolicy(
        kinds=frozenset(map(Kind, record["heal"])),
        **{name: value for name, value in record.items() if name != "heal"},
    )


def heal(node: ComputeNode | None, result: AuditResult, policy: HealPolicy) -> tuple[RepairOutcome, ...]:
    """
    Carry out the repairs that the policy allows, and return what became of each finding.

    Without a ``node`` nothing is written: what would be repaired is HEALED. After a repair that fails, the others go
    on, but once placement does not answer, the remaining ones are not tried. Repairs that fail do not count against the
    limit: else some that cannot be done would keep off all others. A finding about a young consumer is among the
    outcomes only if its repair was tried.
    """
    findings, now = (*result.findings, *result.early), result.memory.clock.now_s()
    tried: dict[str, str] = {}  # by the text of the repair: why it failed; empty: it was done
    touched: set[str] = set()  # the consumers that those repairs rewrite
    against: dict[str, str] = {}  # by the text of the repair: a reason against one of its findings stops the repair
    gone = ""
    outcomes = []
    for finding in findings:
        if finding.repair and (why := _against(finding, result, policy, now)):
            against.setdefault(finding.repair.text, why)
    for number, finding in enumerate(findings):
        text = finding.repair.text if finding.repair else ""
        why = against.get(text, "") if text else _against(finding, result, policy, now)
        if not why and text not in tried:
            if gone:
                why = f"not tried: {gone}"
            elif list(tried.values()).count("") >= policy.limit:
                why = f"the policy's limit of {policy.limit} is reached"
            elif finding.consumers & touched:
                why = "another repair of the same consumer goes first, and this one at the next audit"
            else:
                try:
                    tried[text] = _repair(node, result, finding) if node else ""
                except Unavailable as error:
                    tried[text] = gone = str(error)
                touched |= finding.consumers
        failed = "" if why else tried[text]
        if not why or number < len(result.findings):
            healed = Healed.REPORTED if why else Healed.FAILED if failed else Healed.HEALED
            outcomes.append(RepairOutcome(finding, healed, why or failed))
    return tuple(outcomes)


def _against(finding: Finding, result: AuditResult, policy: HealPolicy, now: float) -> str:
    """Return why a finding is not repaired now; empty when it may be."""
    if finding.repair is None:
        return "a person must decide"
    if not finding.safe:
        return "the repair is not certain to be right"
    if finding.kind not in policy.kinds:
        return UNLISTED
    if finding.untyped and not policy.untyped:
        return "its consumer has no type, and the policy does not say untyped: true"
    if policy.at_once and finding.repair.misplaced:
        return ""
    sighting = result.memory.sightings.get(finding.key)
    if sighting is None:
        return "its consumer was written too lately"
    age_s = now - sighting.first_s
    if sighting.looks < 2 or age_s < policy.again_s:
        return f"a later audit must find it again, {policy.again_s:g} s or more after the first"
    patience_s = max(policy.grace_s, policy.move_s) if finding.arriving else policy.grace_s
    consumers = [result.consumers.get(uuid) for uuid in finding.consumers]
    age_s = min([age_s, *(one.age_s for one in consumers if one and one.age_s is not None)])
    if age_s < patience_s:
        way = ", as a guest may be on its way" if finding.arriving else ""
        return f"it has been so for {age_s:.0f} s, and the wait is {patience_s:g} s{way}"
    if policy.agreed is not None and finding.repair.digest not in policy.agreed:
        return "nobody agreed to it"
    return ""


def _repair(node: ComputeNode, result: AuditResult, finding: Finding) -> str:
    """Carry out a repair and return why it was not done; empty when it was."""
    assert finding.repair is not None
    rewrites = finding.repair.rewrites
    try:
        moves = rewrites if finding.repair.misplaced else ()
        if why := next(filter(None, (_meanwhile(node, result, move) for move in moves)), ""):
            return why
        ending = Operations(node.client).carry_out(finding.consumer or rewrites[0].consumer, rewrites)
    except (Conflict, Rejected) as error:
        return str(error)
    return "" if ending.told is Result.DONE else f"{ending.told.value}: {ending.note}"


def _meanwhile(node: ComputeNode, result: AuditResult, move: Rewrite) -> str:
    """
    Return why a guest's rows are not moved after all: they changed since the look, or a migration came to where they
    are.

    The generation does not tell: a consumer that loses all and gets something anew begins with the first one again. Who
    came may be a migration of the guest, which has what the guest had. Its owner does not tell: after an
    administrator's resize, the guest's allocations are the administrator's.
    """
    now = node.client.consumer(move.consumer)
    if now is None or (now.generation, now.slots) != (move.generation, move.before):
        return f"the allocations of {move.consumer} changed meanwhile: the next audit judges them anew"
    changing = {uuid for uuid in (*move.before, *move.after) if move.before.get(uuid) != move.after.get(uuid)}
    rows = node.client.allocations([result.tree.by_uuid[uuid] for uuid in sorted(changing)])
    came = sorted({one.consumer for one in rows} - {one.consumer for one in result.memory.allocations})
    found, amounts = [*filter(None, map(node.client.consumer, came))], sums(move.before.values())
    # a migration is told by its type; without one, by having as much of each class
    kin = [one.uuid for one in found if one.kind == MIGRATION or (one.kind is None and one.amounts == amounts)]
    if kin:
        return f"{kin[0]} got allocations beside those of {move.consumer} meanwhile: the next audit judges them anew"
    return ""
