"""The verb ``audit``: findings, what would put each right, and with --heal what was."""

import argparse
from datetime import UTC, datetime
from functools import partial
from typing import Any

from agent.assembly import open_client, open_driver, settings_for
from agent.audit_memory import AuditMemory, write_memory
from agent.errors import StateError
from agent.exits import Exit
from agent.heal import Care, Healed, HealPolicy, heal, judge, read_policy
from agent.planner import Planner
from agent.report import Report, choice_of
from agent.state import locked
from agent.witness import Testimony, witness


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
            planner = Planner(node=node, driver=driver, client=client, settings=settings, where=where)
            testimony, cares, remark = _audit_one(planner, policy, options)
            findings += [_encode(testimony, care) for care in cares]
            young += testimony.young
            remarks += [remark] if remark else []
            failed = failed or any(care.healed is Healed.FAILED for care in cares)
    if young:
        remarks.append(
            f"{len(young)} {'consumers have' if len(young) > 1 else 'consumer has'} no guest here yet, changed less "
            f"than {settings.audit_grace_s} s ago, and not judged"
        )
    left = [one for one in findings if one["outcome"] != Healed.HEALED.value]
    ending = Exit.ERROR if failed else Exit.DIFFERENCES if left else Exit.DONE
    return Report(
        data={"findings": findings, "young": young}, table=_print_findings, exit=ending, remark="\n".join(remarks)
    )


def _audit_one(
    planner: Planner, policy: HealPolicy, options: argparse.Namespace
) -> tuple[Testimony, tuple[Care, ...], str]:
    """One node; who only looks need not be able to remember it."""
    look = partial(witness, planner, light=options.light, consumers=options.consumers)
    if options.heal:
        with locked(planner.settings.state_directory):
            testimony = look()
            _remember(planner, testimony)
            return testimony, heal(planner, testimony, policy), ""
    testimony = look()
    remark = ""
    try:
        with locked(planner.settings.state_directory):
            _remember(planner, testimony)
    except StateError as error:
        remark = f"the next audit will not know of this one: {error}"
    now = max((one.first_s for one in testimony.memory.sightings.values()), default=0.0)
    return (
        testimony,
        tuple(
            Care(care.finding, Healed.REPORTED, care.why or "audit --heal repairs it")
            for care in judge(testimony, policy, max(now, datetime.now(UTC).timestamp()))
        ),
        remark,
    )


def _remember(planner: Planner, testimony: Testimony) -> None:
    memory: AuditMemory = testimony.memory
    write_memory(planner.settings.state_directory, testimony.root_uuid, memory)


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


def _print_findings(out: Any, data: dict[str, Any]) -> None:
    from agent.tables import print_findings

    print_findings(out, data)
