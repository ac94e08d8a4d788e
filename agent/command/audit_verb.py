"""The verb ``audit``: report findings with their repairs, and with --heal carry repairs out."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from agent.audit.audit import AuditResult, witness
from agent.audit.decide.findings import Kind, counts
from agent.audit.heal import UNASKED, UNLISTED, Healed, HealPolicy, RepairOutcome, heal, read_policy
from agent.command.exits import Exit
from agent.command.picture.subjects import of_standing
from agent.command.result import Report, agreed, can_ask, open_host, settings_of
from agent.command.trial import how_to_keep
from agent.command.wording import counted, guest, written_amounts
from agent.errors import StateError
from agent.state.audit_memory import read_memory, write_memory
from agent.state.locks import locked
from agent.sync.decide.checks import judge
from agent.sync.decide.view import Wishes
from agent.sync.json_form import Form
from agent.sync.node import ComputeNode
from agent.sync.outcome import Status
from agent.sync.run import foresee
from reportclient.allocations import Observed
from reportclient.errors import TreeMismatch, few

_BY_HAND = HealPolicy(kinds=frozenset(Kind), untyped=True, limit=1_000_000)
"""What a person may agree to on a terminal: the waiting times stay those of a policy."""


def audit(options: argparse.Namespace) -> Report:
    """Report the findings of this host; with --heal carry out the repairs that the policy allows."""
    if options.heal and not (options.policy or options.yes or can_ask()):
        asked = "--heal needs --policy FILE, --yes, or a terminal, on which it shows the repairs and asks"
        return Report(data={}, lines=(), exit=Exit.USAGE, remarks=[asked])
    by_hand = replace(_BY_HAND, untyped=not options.yes)  # a program did not look whose they are
    policy = read_policy(options.policy) if options.policy else by_hand if options.heal else HealPolicy()
    settings = settings_of(options)
    with open_host(options) as node:
        result, outcomes, remark = _audit_one(node, policy, options)
        trial = how_to_keep(node)
    findings = [_encode(result, outcome) for outcome in outcomes]
    sums = counts(outcome.finding for outcome in outcomes)
    names = {one["consumer"]: result.names[one["consumer"]] for one in findings if one["consumer"] in result.names}
    healed = {outcome.finding.consumer for outcome in outcomes if outcome.healed is Healed.HEALED}
    young = [uuid for uuid in result.young if uuid not in healed]
    waiting = f"not judged yet, as changed less than {settings.audit_grace_s} s ago ([agent] audit_grace): {few(young)}"
    silence = f"no finding that needs nova's answer is repaired: {result.silence}" if result.silence else ""
    failed = any(outcome.healed is Healed.FAILED for outcome in outcomes)
    left = any(outcome.healed is not Healed.HEALED for outcome in outcomes)
    tree = Observed(result.tree, result.memory.allocations)
    return Report(
        data={
            "findings": findings,  # one for each class: of one kind about one consumer or provider they count as one
            "counts": sums,
            "young": young,  # consumers that changed too lately to be judged
            "light": options.light,
            "nova": result.silence,  # why nova's answer is missing, and what to do; empty: it is not, or not needed
            "names": names,
        },
        lines=_lines(sums, findings, names) if findings else [_nothing(young, light=options.light)],
        exit=Exit.ERROR if failed else Exit.DIFFERENCES if left else Exit.DONE,
        remarks=[*filter(None, (remark, trial, silence, waiting if young else ""))],
        subjects=[of_standing(tree, result.names, [one.finding for one in outcomes])],
    )


def _nothing(young: Sequence[str], *, light: bool) -> str:
    but = f", but for {counted(len(young), 'consumer')} too young to be judged" if young else ""
    depth = " (only providers whose generation changed were read)" if light else ""
    return f"nothing found: placement's allocations agree with the guests that the hypervisor runs{but}{depth}"


def _lines(sums: Mapping[str, int], findings: Sequence[Form], names: Mapping[str, str]) -> Iterator[str]:
    """Yield how many findings of which kinds there are, and those about one consumer or provider together."""
    subjects: dict[str, dict[str, list[Form]]] = {}
    for one in findings:
        about = one["consumer"] or one["provider"] or ""
        subjects.setdefault(about, {}).setdefault(one["kind"], []).append(one)
    total = ", ".join(f"{number} {kind}" for kind, number in sorted(sums.items()))
    consumers = {one["consumer"] for one in findings if one["consumer"]}
    both = (counted(len(consumers), "consumer"), counted(len(subjects) - len(consumers), "provider"))
    yield f"{total}: about {' and '.join(one for one in both if not one.startswith('0'))}"
    for subject, by_kind in subjects.items():
        yield guest(subject, names)
        for kind, several in by_kind.items():
            yield f"  {kind} since {several[0]['since']}"
            yield from (f"    {line}" for line in _lines_of_kind(several))


def _lines_of_kind(several: Sequence[Form]) -> Iterator[str]:
    """Yield amounts and observations of the findings of one kind about one subject, and how they are mended."""
    for one in several:
        resource_class = one["resource_class"] or ""
        where = f"{resource_class} on {one['provider']}" if one["consumer"] else resource_class
        if one["expected"] is not None:
            yield f"{where.strip()}: {one['actual']}, should be {one['expected']}"
    yield from dict.fromkeys(one["seen"] for one in several)
    first, why = several[0], several[0]["why"]
    if not first["repair"]:
        yield why
        return
    doing = {"healed": "done", "failed": f"failed: {why}"}.get(first["outcome"], why)
    yield f"repair: {first['repair']} ({doing})"
    for consumer, one in first["writes"].items():
        kept = [f"{written_amounts(resources)} on {place}" for place, resources in one["allocations"].items()]
        owner = f"project {one['project']}, user {one['user']}, {one['type'] or 'no type'}"
        yield f"it writes: {consumer} ({owner}) has {', '.join(kept) or 'nothing'}"
    if first["safe"] and why in (UNASKED, UNLISTED):
        untyped = " and untyped: true" if first["untyped"] else ""
        by_file = f"with --policy FILE and heal: [{first['kind']}]{untyped} in it"
        yield (
            "to mend it: compute-node-agent audit --heal, which asks as soon as its waiting time is over, or without a "
            f"question {by_file}"
        )


def _audit_one(
    node: ComputeNode, policy: HealPolicy, options: argparse.Namespace
) -> tuple[AuditResult, tuple[RepairOutcome, ...], str]:
    """Audit one node; without --heal it is only a remark when the audit cannot be remembered."""
    look, folder = partial(witness, node, light=options.light), node.settings.folders.state
    if options.heal:
        if not options.policy:
            policy = replace(policy, agreed=_agreed(look(), policy, sure=options.yes))
        with locked(folder):
            result = look()
            write_memory(folder, result.root_uuid, result.memory)
            would = [outcome for outcome in heal(None, result, policy) if not outcome.why]
            why = _refusal(node) if would else ""
            if why:
                return result, tuple(RepairOutcome(one, Healed.REPORTED, why) for one in result.findings), why
            return result, heal(node, result, policy), ""
    result = look()
    remark = ""
    try:
        with locked(folder):
            if read_memory(folder, result.root_uuid, node.where, clock=result.memory.clock) == result.before:
                write_memory(folder, result.root_uuid, result.memory)  # else another audit wrote a newer one meanwhile
    except StateError as error:
        remark = f"the result of this audit could not be saved for the next audit: {error}"
    outcomes = heal(None, result, policy)
    return result, tuple(RepairOutcome(one.finding, Healed.REPORTED, _why(one, options)) for one in outcomes), remark


def _agreed(result: AuditResult, policy: HealPolicy, *, sure: bool) -> frozenset[str]:
    """
    Return the digests of the repairs that can be made now, all or none.

    A person sees them and is asked, unless that person is ``sure``.
    """
    now = [one for one in heal(None, result, policy) if not one.why]
    digests = frozenset(one.finding.repair.digest for one in now if one.finding.repair)
    shown = [_encode(result, replace(one, healed=Healed.REPORTED, why="if you agree")) for one in now]
    lines = _lines(counts(one.finding for one in now), shown, result.names) if now else ()
    return digests if now and (sure or agreed(lines, f"carry out {counted(len(digests), 'repair')}?")) else frozenset()


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


def _encode(result: AuditResult, outcome: RepairOutcome) -> Form:
    """
    Encode a finding, its repair, and what became of it; ``since`` is the first audit that saw it.

    ``writes`` has by consumer all that the repair writes: owner, type (None: it stays as it is) and allocations, by
    the names of providers, or their uuids where they are not of this host (empty: they are deleted).
    """
    finding, names = outcome.finding, {uuid: seen.name for uuid, seen in result.tree.by_uuid.items()}
    writes = {
        one.consumer: {
            "project": one.project,
            "user": one.user,
            "type": one.kind,
            "allocations": {names.get(uuid, uuid): resources for uuid, resources in one.after.items()},
        }
        for one in (finding.repair.rewrites if finding.repair else ())
    }
    keys = ("consumer", "provider", "resource_class", "expected", "actual", "seen", "safe", "untyped")
    return {
        **{key: getattr(finding, key) for key in keys},
        "kind": finding.kind.value,
        "since": datetime.fromtimestamp(result.since_s(finding), UTC).isoformat(timespec="seconds"),
        "repair": finding.repair.text if finding.repair else None,
        "writes": writes,
        "outcome": outcome.healed.value,
        "why": outcome.why,  # why the repair was not carried out, or failed; empty: it was
    }
