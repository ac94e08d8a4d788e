"""The audit after each pass of the service: what it finds is logged once, and repaired within the policy."""

import logging
from collections.abc import Sequence

from agent.audit.audit import AskNova, AuditResult, witness
from agent.audit.decide.findings import Finding
from agent.audit.heal import Healed, HealPolicy, RepairOutcome, heal
from agent.service.status import WELL
from agent.state.audit_memory import write_memory
from agent.sync.node import ComputeNode
from agent.sync.outcome import Outcome, Status

LOG = logging.getLogger(__name__)


class Audits:
    """Audits nodes under one ``policy`` for repairs (None: nothing is repaired); ``nova`` as for ``witness``."""

    def __init__(self, policy: HealPolicy | None, nova: AskNova | None = None) -> None:
        self._policy = policy
        self._nova = nova
        self._silence: dict[str, str] = {}  # by node: why nova's answer was missing at its last audit, to log it once
        self._failed: dict[str, set[str]] = {}  # by node: why repairs of its last audit failed, so as to log it once

    def take(self, node: ComputeNode, outcome: Outcome, *, deep: bool) -> AuditResult | None:
        """
        Compare placement with the guests that run, and repair what the policy allows if the tree is up to date.

        ``outcome`` is that of the pass just made; a ``deep`` audit reads everything. None: there is no such tree.

        Raises:
            as ``witness``; StateError: the memory of the audit cannot be written.
        """
        may_heal = outcome.status.value in WELL
        if not may_heal and outcome.observed.root is None:
            return None
        unchanged = outcome.status is Status.UNCHANGED
        seen = (outcome.survey, outcome.observed) if unchanged and outcome.survey else None
        light = not (deep or node.client.went_back)
        result = witness(node, light=light, seen=seen, nova=self._nova)
        if result.memory != result.before:
            write_memory(node.settings.folders.state, result.root_uuid, result.memory, clock=result.clock)
        repairs = heal(node, result, self._policy) if may_heal and self._policy else ()
        self._log_silence(node.name, result.silence)
        _log_new(result)
        self._log_repairs(node.name, repairs)
        return result

    def _log_silence(self, node: str, silence: str) -> None:
        """Log why nova's answer is missing, unless the last audit had the same reason."""
        if silence and silence != self._silence.get(node):
            LOG.warning("no finding that needs nova's answer is repaired node=%s why=%s", node, silence)
        self._silence[node] = silence

    def _log_repairs(self, node: str, repairs: Sequence[RepairOutcome]) -> None:
        """Log the repairs that were made, and those that failed for a reason that the last audit did not have."""
        if not repairs:
            self._failed.pop(node, None)
            return

        healed = [repair.finding for repair in repairs if repair.healed is Healed.HEALED]
        for kind, where in dict.fromkeys((finding.kind.value, _place(finding)) for finding in healed):
            LOG.warning("finding kind=%s where=%s healed", kind, where)
        failed = [repair for repair in repairs if repair.healed is Healed.FAILED]
        before = self._failed.get(node, set())
        for repair in failed:
            if repair.why not in before:
                kind, where = repair.finding.kind.value, _place(repair.finding)
                LOG.warning("finding kind=%s where=%s not healed why=%s", kind, where, repair.why)
        self._failed[node] = {repair.why for repair in failed}


def _log_new(result: AuditResult) -> None:
    """Log each finding that no earlier audit saw."""
    new = [one for one in result.findings if result.memory.sightings[one.key].looks == 1]
    for kind, where, what in dict.fromkeys((one.kind.value, _place(one), one.seen) for one in new):
        LOG.warning("finding kind=%s where=%s seen=%s", kind, where, what)


def _place(finding: Finding) -> str:
    return finding.consumer or finding.provider or "-"
