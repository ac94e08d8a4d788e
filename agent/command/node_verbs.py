"""The verbs for bare metal: the counterpart of ``host_verbs`` for many roots at once, which people see as sums."""

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from agent.bare_metal.context import BareMetalNodes
from agent.bare_metal.node_pass import NodesOutcome, run_nodes
from agent.command.check import Check, check_files, report_checks
from agent.command.exits import Exit
from agent.command.host_verbs import report_standing, show_usages
from agent.command.result import ENDINGS, Report, choice_of, settings_of, wishes_of
from agent.command.shown import encode_outcome, steps_of
from agent.command.wording import columns
from agent.connect.choice import Choice, open_bare_metal, open_client, open_nodes
from agent.errors import ConfigError
from agent.state.locks import locked
from agent.sync.outcome import Outcome, Status
from drivers.ironic.shape import BARE_METAL, shape_share
from reportclient.allocations import Observed
from reportclient.ownership import MARKER
from reportclient.plan import Delete, Plan

NO_NODES = (
    "no node: are [ironic] shard and conductor_group spelt right, and may this user see all nodes? Without that "
    "right Ironic lists only the nodes of the user's own project, and gives no error (a system reader sees all nodes; "
    "a service user sees all nodes if Ironic has rbac_service_role_elevated_access)"
)
_GRAVITY = (Exit.DONE, Exit.DIFFERENCES, Exit.REFUSED, Exit.ERROR)  # of many nodes the gravest ending counts
MOST = 20  # nodes of one outcome that are printed one by one
# Attributes of options that only a hypervisor has.
_HOST_OPTIONS = ("host", "rename_from", "picture")


def discover_nodes(options: argparse.Namespace) -> Report:
    """Return the provider of each node, and the nodes that cannot be reported; needs no placement."""
    ironic = open_nodes(settings_of(options), _choice(options))
    share = shape_share(ironic.survey(), elsewhere=ironic.elsewhere())
    misfits = [(uuid, one.why) for uuid, one in sorted(share.misfits.items())]
    stocks = [(name, stock) for one in share.providers.values() for name, stock in one.inventories.items()]
    nodes = Counter(name for name, _ in stocks)
    reserved = Counter(name for name, stock in stocks if stock.reserved)
    rows = [(name, str(count), str(reserved[name])) for name, count in sorted(nodes.items())]
    lines = [*columns(rows, heads=("class", "nodes", "reserved")), *_some("cannot be reported", misfits)]
    return Report(
        data={
            "providers": share.providers,
            "reserved": share.reserved,
            "findings": [{"node": node, "why": why} for node, why in misfits],
        },
        lines=lines or ["Ironic has no node in this agent's share"],
        exit=Exit.DIFFERENCES if misfits else Exit.DONE,
    )


def show_nodes(options: argparse.Namespace) -> Report:
    """Return what placement holds of one node; without --node the sums over all nodes with our mark, and over ours."""
    if options.project:
        return show_usages(options)
    node = _uuid(options.node) if options.node else None
    bare_metal = _open(options)
    if node is None:
        return _show_sums(bare_metal)
    observed = bare_metal.client.observe(node)
    return report_standing(node, Observed(observed, bare_metal.client.allocations(observed)), {}, (), whole=True)


def _show_sums(bare_metal: BareMetalNodes) -> Report:
    known = bare_metal.memory().nodes
    stocks = Counter(name for one in known.values() for name in one.seen.provider.inventories)
    marked = bare_metal.client.generations(BARE_METAL)
    rows = [(name, str(count)) for name, count in sorted(stocks.items())]
    told = f"{len(marked)} nodes carry the mark of agents for bare metal, {len(known)} are this agent's"
    return Report(
        data={"summary": {"marked": len(marked), "ours": len(known), "classes": stocks}},
        lines=[told, *columns(rows, heads=("class", "nodes"))],
    )


def plan_nodes(options: argparse.Namespace) -> Report:
    """Return what a pass would change."""
    bare_metal = _open(options)
    outcome = run_nodes(bare_metal, wishes_of(options), dry=True)
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
    checks = [*check_files(settings), Check("ironic", bool(count), detail)]
    checks += [Check("node", False, f"{one.uuid}: {one.why}") for one in share.misfits.values()]
    client, name = open_client(settings, choice)
    may = client.may_write()
    detail = "can be read and written" if may else "the user lacks a role to write: give it the role service"
    checks.append(Check("placement", may, f"{name} {detail}"))
    return report_checks(checks, strict=options.strict)


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
    gravest = max([ending, *(ENDINGS[status] for status in found)], key=_GRAVITY.index)
    return Report(
        data={
            "nodes": [encode_outcome(one) for one in outcome.outcomes],  # those that are not unchanged
            "summary": {status.value: count for status, count in found.items()},
            "dry_run": dry,
        },
        lines=_pass_lines(outcome, found, dry=dry),
        exit=gravest if found else Exit.DIFFERENCES,
        remarks=() if found else [f"{where} has {NO_NODES}"],
    )


def _pass_lines(outcome: NodesOutcome, found: Mapping[Status, int], *, dry: bool) -> Iterator[str]:
    """Yield the sums of a pass, and the nodes that did not stay as they were, with what becomes of each, and why."""
    foreseen = (Status.CREATED, Status.CHANGED, Status.DELETED) if dry else ()  # no facts yet
    called = {status: f"would be {status.value}" if status in foreseen else status.value for status in found}
    yield ", ".join(f"{count} {called[status]}" for status, count in found.items()) or "no nodes"
    for status in dict.fromkeys(one.status for one in outcome.outcomes):
        nodes = [(one.node, _describe_steps(one)) for one in outcome.outcomes if one.status is status]
        yield from _some(called[status], nodes)


def _describe_steps(outcome: Outcome) -> str:
    """Return what becomes of one node, and why; empty where nothing does."""
    steps = tuple(one for one in outcome.plan.operations if not isinstance(one, Delete))  # the heading tells it
    told = (one for one in steps_of(Plan(steps), outcome.observed) if not one[1:].startswith(MARKER))
    return "; ".join((*told, *outcome.notes))


def _some(what: str, nodes: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the first ``MOST`` of these nodes, each with its reason, under a heading; nothing for no nodes."""
    if nodes:
        yield f"{what}:"
        yield from columns(nodes[:MOST], indent="  ")
    if len(nodes) > MOST:
        yield f"  and {len(nodes) - MOST} more: --format json has all of them"
