"""Print bare-metal nodes for people: sums, and one by one only the nodes that are new, changed or wrong."""

from collections import Counter

from rich.table import Column, Table

from agent.command.changes import rows
from agent.command.plan_results import Ended, NodesPass
from agent.command.results import Nodes, ShownNodes
from agent.command.screen import Screen
from reportclient.allocations import Observed
from reportclient.forecast import forecast
from reportclient.ownership import MARKER
from reportclient.plan import Delete, Plan

MOST = 20  # nodes of one outcome that are printed one by one


def print_nodes(out: Screen, data: Nodes) -> None:
    """Print how many nodes each class has, and the nodes that cannot be reported."""
    stocks = [(name, stock) for one in data.providers.values() for name, stock in one.inventories.items()]
    nodes = Counter(name for name, _ in stocks)
    reserved = Counter(name for name, stock in stocks if stock.reserved)
    table = Table("class", Column("nodes", justify="right"), Column("reserved", justify="right"), box=None)
    for name, count in sorted(nodes.items()):
        table.add_row(name, str(count), str(reserved[name]))
    if nodes:
        out.print(table)
    _print_some(out, "cannot be reported", [(one.node, one.why) for one in data.findings])
    if not nodes and not data.findings:
        out.print("Ironic has no node in this agent's share")


def print_sums(out: Screen, data: ShownNodes) -> None:
    """Print how many nodes placement has, how many are this agent's, and of which classes."""
    sums = data.summary
    out.print(f"{sums.marked} nodes carry the mark of agents for bare metal, {sums.ours} are this agent's")
    table = Table("class", Column("nodes", justify="right"), box=None)
    for name, count in sorted(sums.classes.items()):
        table.add_row(name, str(count))
    if sums.classes:
        out.print(table)


def print_pass(out: Screen, data: NodesPass) -> None:
    """Print the sums of a pass, and the nodes that did not stay as they were."""
    out.print(", ".join(f"{count} {data.told(name)}" for name, count in data.summary.items()) or "no nodes")
    by_outcome: dict[str, list[tuple[str, str]]] = {}
    for one in data.nodes:
        by_outcome.setdefault(one.outcome.value, []).append((one.node, _describe_steps(one)))
    for outcome, nodes in by_outcome.items():
        _print_some(out, data.told(outcome), nodes)


def _describe_steps(outcome: Ended) -> str:
    """Return what becomes of one node, and why; empty where nothing does."""
    before = outcome.plan.observed
    steps = tuple(one for one in outcome.plan.plan.operations if not isinstance(one, Delete))  # the heading tells it
    after = forecast(Plan(steps), before)
    told = [one for row in rows(Observed(before), Observed(after), with_use=False) for one in (*row.stock, *row.traits)]
    return "; ".join([*(one for one in told if not one[1:].startswith(MARKER)), *outcome.notes])


def _print_some(out: Screen, what: str, nodes: list[tuple[str, str]]) -> None:
    """Print the first ``MOST`` of these nodes, each with its reason, under a heading; nothing for no nodes."""
    if not nodes:
        return
    out.print(f"{what}:", style="bold")
    for node, why in nodes[:MOST]:
        out.print(f"  {node}  {why}", soft_wrap=True, markup=False)
    if len(nodes) > MOST:
        out.print(f"  and {len(nodes) - MOST} more: --format json has all of them")
