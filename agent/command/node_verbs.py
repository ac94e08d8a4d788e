"""The verbs for bare metal: the counterpart of ``host_verbs`` for many roots at once, which people see as sums."""

import argparse
from collections import Counter
from uuid import UUID

from agent.bare_metal.context import BareMetalNodes
from agent.bare_metal.node_pass import NodesOutcome, foresee_nodes, run_nodes
from agent.command.check import check_option_names, check_passwords, try_state
from agent.command.exits import Exit
from agent.command.host_tables import print_checks, print_shown
from agent.command.host_verbs import show_usages
from agent.command.node_tables import print_nodes, print_pass, print_sums
from agent.command.outcomes import ENDINGS, ended, wishes_of
from agent.command.plan_results import NodesPass, ShownTree
from agent.command.result import Report, choice_of, settings_of
from agent.command.results import Check, Checks, NodeFinding, Nodes, NodeSums, ShownNodes
from agent.connect.choice import Choice, open_bare_metal, open_client, open_nodes
from agent.errors import ConfigError
from agent.state.locks import locked
from agent.sync.outcome import Status
from drivers.ironic.shape import BARE_METAL, shape_share
from reportclient.allocations import Observed

NO_NODES = (
    "no node: are [ironic] shard and conductor_group spelt right, and may this user see all nodes? Without that "
    "right Ironic lists only the nodes of the user's own project, and gives no error (a system reader sees all nodes; "
    "a service user sees all nodes if Ironic has rbac_service_role_elevated_access)"
)
_GRAVITY = (Exit.DONE, Exit.DIFFERENCES, Exit.REFUSED, Exit.ERROR)  # of many nodes the gravest ending counts
# Attributes of options that only a hypervisor has.
_HOST_OPTIONS = ("host", "rename_from", "picture")


def discover_nodes(options: argparse.Namespace) -> Report:
    """Return the provider of each node, and the nodes that cannot be reported; needs no placement."""
    ironic = open_nodes(settings_of(options), _choice(options))
    share = shape_share(ironic.survey(), elsewhere=ironic.elsewhere())
    findings = tuple(NodeFinding(uuid, one.why) for uuid, one in sorted(share.misfits.items()))
    data = Nodes(share.providers, share.reserved, findings)
    return Report(data=data, table=print_nodes, exit=Exit.DIFFERENCES if share.misfits else Exit.DONE)


def show_nodes(options: argparse.Namespace) -> Report:
    """Return what placement holds of one node; without --node the sums over all nodes with our mark, and over ours."""
    if options.project:
        return show_usages(options)
    node = _uuid(options.node) if options.node else None
    bare_metal = _open(options)
    if node is None:
        return _show_sums(bare_metal)
    observed = bare_metal.client.observe(node)
    shown = ShownTree(Observed(observed, bare_metal.client.allocations(observed)), {})
    remarks = [] if observed.root else [f"placement has no provider {node}: run compute-node-agent sync first"]
    return Report(
        data=shown,
        table=print_shown,
        exit=Exit.ERROR if remarks else Exit.DONE,
        remarks=remarks,
    )


def _show_sums(bare_metal: BareMetalNodes) -> Report:
    known = bare_metal.memory().nodes
    stocks = Counter(name for one in known.values() for name in one.seen.provider.inventories)
    marked = bare_metal.client.generations(BARE_METAL)
    data = ShownNodes(NodeSums(len(marked), len(known), stocks))
    return Report(data=data, table=print_sums)


def plan_nodes(options: argparse.Namespace) -> Report:
    """Return what a pass would change."""
    bare_metal = _open(options)
    outcome = foresee_nodes(bare_metal, wishes_of(options))
    changes = any(one.plan.operations for one in outcome.outcomes)
    return _report(outcome, bare_metal.ironic.name, Exit.DIFFERENCES if changes else Exit.DONE, dry=True)


def sync_nodes(options: argparse.Namespace) -> Report:
    """Carry out one pass over all nodes."""
    with locked(settings_of(options).folders.state):
        bare_metal = _open(options, writes=True)
        outcome = run_nodes(bare_metal, wishes_of(options))
    return _report(outcome, bare_metal.ironic.name, Exit.DONE)


def check_nodes(options: argparse.Namespace) -> Report:
    """Try to read Ironic and placement, and name the nodes that cannot be reported."""
    choice = _choice(options)
    settings = settings_of(options)
    ironic = open_nodes(settings, choice)
    share = shape_share(ironic.survey(), elsewhere=ironic.elsewhere())
    where = ironic.name
    count = len(share.providers) + len(share.misfits)
    detail = f"{where} has {count if count else NO_NODES}{' nodes for this agent' if count else ''}"
    checks = [*check_option_names(settings), *check_passwords(settings), try_state(settings)]
    checks += [Check("ironic", bool(count), detail)]
    checks += [Check("node", False, f"{one.uuid}: {one.why}") for one in share.misfits.values()]
    client, name = open_client(settings, choice)
    may = client.may_write()
    detail = "can be read and written" if may else "the user lacks a role to write: give it the role service"
    checks.append(Check("placement", may, f"{name} {detail}"))
    ending = Exit.DONE if all(one.ok for one in checks) else Exit.DIFFERENCES
    return Report(data=Checks(tuple(checks)), table=print_checks, exit=ending)


def _choice(options: argparse.Namespace) -> Choice:
    """
    Return what the command line names.

    Raises:
        ConfigError: it has an option that only a hypervisor has.
    """
    for name in _HOST_OPTIONS:
        if getattr(options, name, None):
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(
                f"leave {option} out: it works only for a hypervisor, and [DEFAULT] compute_driver is set to bare metal"
            )
    return choice_of(options)


def _open(options: argparse.Namespace, *, writes: bool = False) -> BareMetalNodes:
    """Open Ironic and placement; placement is chosen first, as that sends nothing to Ironic. Errors as ``_choice``."""
    choice, settings = _choice(options), settings_of(options)
    client, where = open_client(settings, choice, writes=writes)
    return open_bare_metal(client, settings, where, choice)


def _uuid(text: str) -> str:
    """
    Return the uuid of a node in the form that placement has.

    Raises:
        ConfigError: the text is no uuid.
    """
    try:
        return str(UUID(text))
    except ValueError as error:
        raise ConfigError(f"--node {text}: a bare-metal node is named by its uuid, as discover shows it") from error


def _report(outcome: NodesOutcome, where: str, ending: Exit, *, dry: bool = False) -> Report:
    """Return the report of a pass; ``ending`` is the exit code if no node calls for a graver one."""
    found = {status: count for status in Status if (count := outcome.count(status))}
    summary = {status.value: count for status, count in found.items()}
    data = NodesPass(tuple(map(ended, outcome.outcomes)), summary, dry)
    gravest = max([ending, *(ENDINGS[status] for status in found)], key=_GRAVITY.index)
    return Report(
        data=data,
        table=print_pass,
        exit=gravest if found else Exit.DIFFERENCES,
        remarks=() if found else [f"{where} has {NO_NODES}"],
    )
