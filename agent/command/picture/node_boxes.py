"""What a picture shows of bare metal: sums as boxes, and a table of the nodes that do not stay as they were. Pure."""

from collections import Counter

from agent.command.node_tables import describe_steps
from agent.command.picture.boxes import Box
from agent.command.picture.subjects import Subject, Table
from agent.command.plan_results import Ended, NodesPass
from agent.command.results import ShownNodes
from agent.command.wording import counted
from agent.sync.json_form import inventories_of
from reportclient.plan import SetInventories

_ENDS = {"created": "+", "changed": "~", "deleted": "-", "unchanged": " "}  # other outcomes are marked as wrong
_ROWS = 500


def of_pass(data: NodesPass, where: str) -> Subject:
    """Return the subject of a pass, or of what one would do: a box for each outcome, and the nodes behind it."""
    differing = [one for one in data.nodes if one.outcome.value != "unchanged"]
    boxes = tuple(
        Box(
            name=data.told(name),
            label=f"{data.told(name)}: {counted(count, 'node')}",
            mark=_ENDS.get(name, "!"),
            lines=_classes([one for one in differing if one.outcome.value == name]),
        )
        for name, count in data.summary.items()
    )
    shown = f", and {len(differing) - _ROWS} more: --format json has all" if len(differing) > _ROWS else ""
    return Subject(
        node=where,
        sentence=", ".join(f"{count} {data.told(name)}" for name, count in data.summary.items()),
        trees=(("bare metal", Box(name=where, label=counted(len(data.nodes), "node"), mark=" ", below=boxes)),),
        tables=(
            Table(
                title=f"Nodes that do not stay as they are{shown}",
                columns=("node", "outcome", "what changes, and why"),
                rows=tuple((one.node, data.told(one.outcome.value), describe_steps(one)) for one in differing[:_ROWS]),
            ),
        ),
    )


def of_sums(data: ShownNodes, where: str) -> Subject:
    """Return the subject of the sums over all nodes: a box for each class."""
    sums = data.summary
    boxes = tuple(
        Box(name=name, label=name, mark=" ", lines=(counted(count, "node"),))
        for name, count in sorted(sums.classes.items())
    )
    return Subject(
        node=where,
        sentence=f"{counted(sums.marked, 'node')} of all agents for bare metal, {sums.ours} of this agent",
        trees=(("in placement", Box(name=where, label=counted(sums.ours, "node"), mark=" ", below=boxes)),),
    )


def _classes(nodes: list[Ended]) -> tuple[str, ...]:
    """Return how many of these nodes get, or lose, an inventory of each class."""
    classes: Counter[str] = Counter()
    for one in nodes:
        stood = inventories_of(one.plan.observed)
        for step in one.plan.plan.operations:
            if isinstance(step, SetInventories):
                classes.update(step.inventories.keys() | stood.get(step.uuid, {}).keys())
    return tuple(f"{name}: {counted(count, 'node')}" for name, count in sorted(classes.items()))
