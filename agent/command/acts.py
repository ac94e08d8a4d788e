"""The function of each verb; apart from ``verbs.py``, so that ``--help`` imports none of them."""

from collections.abc import Mapping

from agent.command import (
    adopt_verb,
    allocation_verbs,
    audit_verb,
    bundle_verb,
    host_verbs,
    node_verbs,
    run_verb,
    undo_verb,
    upgrade_verb,
)
from agent.command.result import Act

ACTS: Mapping[str, Act] = {
    "discover": host_verbs.discover,
    "show": host_verbs.show,
    "plan": host_verbs.plan,
    "sync": host_verbs.sync,
    "reshape": host_verbs.reshape,
    "undo": undo_verb.undo,
    "record": host_verbs.record,
    "upgrade": upgrade_verb.upgrade,
    "adopt": adopt_verb.adopt,
    "bundle": bundle_verb.bundle,
    "explain": host_verbs.explain,
    "claim": allocation_verbs.claim,
    "move": allocation_verbs.move,
    "confirm": allocation_verbs.confirm,
    "revert": allocation_verbs.revert,
    "release": allocation_verbs.release,
    "audit": audit_verb.audit,
    "run": run_verb.run,
    "status": host_verbs.status,
    "retire": host_verbs.retire,
    "hand-over": host_verbs.hand_over,
    "check": host_verbs.check,
}
OF_NODES: Mapping[str, Act] = {
    "discover": node_verbs.discover_nodes,
    "show": node_verbs.show_nodes,
    "plan": node_verbs.plan_nodes,
    "sync": node_verbs.sync_nodes,
    "check": node_verbs.check_nodes,
}
"""The function for bare-metal nodes; a verb without one is only for a hypervisor."""
