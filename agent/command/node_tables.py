"""Print bare-metal nodes for people: sums, and one by one only the nodes that are new, changed or wrong."""

from collections import Counter

from rich.table import Column, Table

from agent.command.plan_results import Ended, NodesPass
from agent.command.results import Nodes, ShownNodes
from agent.command.screen import Screen
from agent.sync.json_form import Before, inventories_of
from drivers.ironic.shape import GAVE, MARKS
from reportclient.plan import Operation, SetInventories, SetTraits

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
    before = inventories_of(outcome.plan.observed)
    steps = [text for step in reversed(outcome.plan.plan.operations) for text in _describe(step, before)]
    return "; ".join([*steps, *outcome.notes])


def _describe(operation: Operation, stood: Before) -> list[str]:
    """Return what one operation changes on a node, a few words for each name."""
    if isinstance(operation, SetTraits):
        signed = [f"+{name}" for name in sorted(operation.added)] + [f"-{name}" for name in sorted(operation.removed)]
        return [text for text in signed if text[1:] not in MARKS and not text[1:].startswith(GAVE)]
    if not isinstance(operation, SetInventories):
        return []
    after, before = operation.inventories, stood.get(operation.uuid, {})
    found = []
    for name in sorted(after.keys() | before.keys()):
        now, was = after.get(name), before.get(name)
        if now is None:
            found.append(f"no {name} any more")
        elif was is None:
            found.append(f"{name}{' reserved' if now.reserved else ''}")
        elif now.reserved != was.reserved:
            found.append(f"{name} {'reserved' if now.reserved else 'free again'}")
    return found


def _print_some(out: Screen, what: str, nodes: list[tuple[str, str]]) -> None:
    """Print the first ``MOST`` of these nodes, each with its reason, under a heading; nothing for no nodes."""
    if not nodes:
        return
    out.print(f"{what}:", style="bold")
    for node, why in nodes[:MOST]:
        out.print(f"  {node}  {why}", soft_wrap=True, markup=False)
    if len(nodes) > MOST:
        out.print(f"  and {len(nodes) - MOST} more: --format json has all of them")
