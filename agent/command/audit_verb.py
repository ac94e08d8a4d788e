"""The verb ``audit``: findings, what would put each right, and with --heal what was."""

import argparse
from datetime import UTC, datetime
from functools import partial
from typing import Any

from agent.audit.heal import Care, Healed, HealPolicy, heal, judge, read_policy
from agent.audit.run import Testimony, witness
from agent.command.exits import Exit
from agent.command.result import Report, choice_of
from agent.connect.choice import open_client, open_driver, planner_of, settings_for
from agent.errors import StateError
from agent.state.audit import read_memory, write_memory
from agent.state.locks import locked
from agent.sync.decide.judge import judge as judge_pass
from agent.sync.decide.view import Wishes
from agent.sync.node import Planner
from agent.sync.run import foresee
from reportclient.errors import TreeMismatch


def audit(options: argparse.Namespace) -> Report:
    """Findings of each node; with --heal within the policy those that it lets are repaired."""
    policy = read_policy(options.policy) if options.policy else HealPolicy()
    choice = choice_of(options)
    settings = settings_for(choice)
    client, where = open_client(settings, choice)
    findings: list[dict[str, Any]] = []
    young: list[str] = []
    remarks: list[str] = []
    failed = False
    with open_driver(settings, choice) as driver:
        for node in driver.nodes():
            planner = planner_of(node, driver, client, settings, where, choice)
            testimony, cares, remark = _audit_one(planner, policy, options)
            findings += [_encode(testimony, care) for care in cares]
            young += testimony.young
            remarks += [remark] if remark else []
            failed = failed or any(care.healed is Healed.FAILED for care in cares)
    if young:
        several = "s" if len(young) > 1 else ""
        remarks.append(
            f"{len(young)} consumer{several} changed less than {settings.audit_grace_s} s ago ([agent] audit_grace) "
            f"and not judged yet: {', '.join(young[:5])}{', ...' if len(young) > 5 else ''}"
        )
    left = [one for one in findings if one["outcome"] != Healed.HEALED.value]
    ending = Exit.ERROR if failed else Exit.DIFFERENCES if left else Exit.DONE
    data = {"findings": findings, "young": young, "light": options.light}
    return Report(data=data, table="agent.command.host_tables:print_findings", exit=ending, remark="\n".join(remarks))


def _audit_one(
    planner: Planner, policy: HealPolicy, options: argparse.Namespace
) -> tuple[Testimony, tuple[Care, ...], str]:
    """One node; who only looks need not be able to remember it."""
    look = partial(witness, planner, light=options.light, consumers=options.consumers)
    if options.heal:
        with locked(planner.settings.state_directory):
            testimony = look()
            _remember(planner, testimony)
            would = [care for care in judge(testimony, policy, testimony.clock.now_s()) if not care.why]
            why = _refusal(planner) if would else ""
            if why:
                return testimony, tuple(Care(one, Healed.REPORTED, why) for one in testimony.findings), why
            return testimony, heal(planner, testimony, policy), ""
    testimony = look()
    remark = ""
    try:
        with locked(planner.settings.state_directory):
            left = partial(read_memory, planner.settings.state_directory, testimony.root_uuid, planner.where)
            if left(clock=testimony.clock) == testimony.before:
                _remember(planner, testimony)  # else another audit came first, and knows more
    except StateError as error:
        remark = f"the next audit will not know of this one: {error}"
    cares = judge(testimony, policy, testimony.clock.now_s())
    return testimony, tuple(Care(one.finding, Healed.REPORTED, _why(one, options)) for one in cares), remark


def _refusal(planner: Planner) -> str:
    """Why nothing is healed, as in the service, while a pass over this node would be refused; empty: it would not."""
    try:
        verdict = judge_pass(foresee(planner, Wishes()), Wishes(), planner.terms())
    except TreeMismatch as error:
        return f"nothing is healed while passes are refused: {error}"
    if verdict.refused is None:
        return ""
    return f"nothing is healed while passes are refused as {verdict.refused.value}: {'; '.join(verdict.notes)}"


def _why(care: Care, options: argparse.Namespace) -> str:
    """Why nothing is done about a finding in an audit that only looks."""
    if care.finding.repair and care.finding.safe and not options.policy:
        return "not done: no --policy says so"
    return care.why or "audit --heal carries it out"


def _remember(planner: Planner, testimony: Testimony) -> None:
    write_memory(planner.settings.state_directory, testimony.root_uuid, testimony.memory, clock=testimony.clock)


def _encode(testimony: Testimony, care: Care) -> dict[str, Any]:
    finding = care.finding
    since = testimony.memory.sightings[finding.key].first_s
    return {
        "kind": finding.kind.value,
        "consumer": finding.consumer,
        "provider": finding.provider,
        "resource_class": finding.resource_class,
        "expected": finding.expected,
        "actual": finding.actual,
        "seen": finding.seen,
        "since": datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds"),
        "repair": finding.repair.text if finding.repair else None,
        "safe": finding.safe,
        "outcome": care.healed.value,
        "why": care.why,
    }
