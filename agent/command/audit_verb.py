"""The verb ``audit``: report findings with their repairs, and with --heal carry repairs out."""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

from agent.audit.audit import AskNova, AuditResult, witness
from agent.audit.heal import UNASKED, Healed, HealPolicy, RepairOutcome, decide_repairs, heal, read_policy
from agent.command.exits import Exit
from agent.command.host_tables import print_findings
from agent.command.picture.subjects import of_audit
from agent.command.result import Report, choice_of, open_host, settings_of
from agent.command.results import Audit, AuditedFinding, Written
from agent.connect.choice import open_nova
from agent.errors import StateError
from agent.state.audit_memory import read_memory, write_memory
from agent.state.locks import locked
from agent.sync.decide.checks import judge
from agent.sync.decide.view import Wishes
from agent.sync.node import ComputeNode
from agent.sync.outcome import Status
from agent.sync.run import foresee
from reportclient.allocations import Observed
from reportclient.errors import TreeMismatch


def audit(options: argparse.Namespace) -> Report:
    """Report the findings of this host; with --heal carry out the repairs that the policy allows."""
    policy = read_policy(options.policy) if options.policy else HealPolicy()
    settings = settings_of(options)
    nova = open_nova(settings, choice_of(options))
    with open_host(options) as node:
        result, outcomes, remark = _audit_one(node, policy, options, nova.witness if nova else None)
    about = {one.finding.consumer for one in outcomes if one.finding.consumer}
    findings = tuple(_shown(result, outcome) for outcome in outcomes)
    healed = {outcome.finding.consumer for outcome in outcomes if outcome.healed is Healed.HEALED}
    young = tuple(uuid for uuid in result.young if uuid not in healed)
    silence = f"no finding that needs nova's answer is repaired: {result.silence}" if result.silence else ""
    failed = any(outcome.healed is Healed.FAILED for outcome in outcomes)
    left = [one for one in findings if one.outcome is not Healed.HEALED]
    ending = Exit.ERROR if failed else Exit.DIFFERENCES if left else Exit.DONE
    return Report(
        data=Audit(
            findings=findings,
            young=young,
            light=options.light,
            nova=result.silence,
            names={uuid: name for uuid, name in result.names.items() if uuid in about},
        ),
        table=print_findings,
        exit=ending,
        remarks=[*filter(None, (remark, silence)), *_too_young(young, settings.audit_grace_s)],
        subjects=[
            of_audit([one.finding for one in outcomes], Observed(result.tree, result.memory.allocations), result.names)
        ],
    )


def _too_young(young: Sequence[str], grace_s: int) -> list[str]:
    """Return the remark on consumers that are not judged yet; none for none."""
    if not young:
        return []
    noun, verb = ("consumers", "are") if len(young) > 1 else ("consumer", "is")
    return [
        f"{len(young)} {noun} changed less than {grace_s} s ago ([agent] audit_grace) and "
        f"{verb} not judged yet: {', '.join(young[:5])}{', ...' if len(young) > 5 else ''}"
    ]


def _audit_one(
    node: ComputeNode, policy: HealPolicy, options: argparse.Namespace, nova: AskNova | None
) -> tuple[AuditResult, tuple[RepairOutcome, ...], str]:
    """Audit one node; without --heal it is only a remark when the audit cannot be remembered."""
    look = partial(witness, node, light=options.light, nova=nova)
    if options.heal:
        with locked(node.settings.folders.state):
            result = look()
            _remember(node, result)
            would = [outcome for outcome in decide_repairs(result, policy) if not outcome.why]
            why = _refusal(node) if would else ""
            if why:
                return result, tuple(RepairOutcome(one, Healed.REPORTED, why) for one in result.findings), why
            return result, heal(node, result, policy), ""
    result = look()
    remark = ""
    try:
        with locked(node.settings.folders.state):
            left = partial(read_memory, node.settings.folders.state, result.root_uuid, node.where)
            if left(clock=result.clock) == result.before:
                _remember(node, result)  # else another audit wrote a newer memory meanwhile
    except StateError as error:
        remark = f"the result of this audit could not be saved for the next audit: {error}"
    outcomes = decide_repairs(result, policy)
    return result, tuple(RepairOutcome(one.finding, Healed.REPORTED, _why(one, options)) for one in outcomes), remark


def _refusal(node: ComputeNode) -> str:
    """Say why nothing is healed: a pass over this node would be refused. Empty: it would not be refused."""
    try:
        verdict = judge(foresee(node, Wishes()))
    except TreeMismatch as error:
        return f"no finding is repaired, because a pass over this host would be refused: {error}"
    if verdict.refused in (None, Status.AUDIT_ONLY):
        return ""
    return (
        f"no finding is repaired, because a pass over this host would be refused ({verdict.refused.value}): "
        f"{'; '.join(verdict.notes)}"
    )


def _why(outcome: RepairOutcome, options: argparse.Namespace) -> str:
    """Say why an audit without --heal does nothing about a finding."""
    if outcome.finding.repair and outcome.finding.safe and not options.policy:
        return UNASKED
    return outcome.why or "audit --heal carries it out"


def _remember(node: ComputeNode, result: AuditResult) -> None:
    write_memory(node.settings.folders.state, result.root_uuid, result.memory, clock=result.clock)


def _shown(result: AuditResult, outcome: RepairOutcome) -> AuditedFinding:
    finding, names = outcome.finding, {uuid: seen.name for uuid, seen in result.tree.by_uuid.items()}
    writes = {
        one.consumer: Written(
            project=one.project,
            user=one.user,
            type=one.kind,
            allocations={names.get(uuid, uuid): resources for uuid, resources in one.after.items()},
        )
        for one in (finding.repair.rewrites if finding.repair else ())
    }
    since = datetime.fromtimestamp(result.since_s(finding), UTC).isoformat(timespec="seconds")
    return AuditedFinding(finding=finding, since=since, writes=writes, outcome=outcome.healed, why=outcome.why)
