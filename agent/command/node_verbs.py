"""The verbs for bare metal: as ``host_verbs``, for many roots at once, of which people see sums and what is new."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from agent.bare_metal.compare import Fate, NodesPlanner
from agent.bare_metal.run import NodesOutcome, foresee_nodes, run_nodes
from agent.bare_metal.write import NodeWishes, Progress
from agent.command.check import check_option_names, try_state
from agent.command.exits import Exit
from agent.command.result import Report, choice_of
from agent.connect.choice import Choice, node_workers, open_client, open_nodes, settings_for
from agent.errors import ConfigError
from agent.settings.read import Settings
from agent.state.clock import probe_clock
from agent.state.locks import locked
from agent.sync.json_form import encode_observed_tree, encode_plan, encode_provider
from drivers.ironic.shape import BARE_METAL
from reportclient.tree import ObservedTree

NO_NODES = (
    "no node: are [ironic] shard and conductor_group spelt right, and may this user see all nodes? Who may not is "
    "shown those of its own project, without any error (a system reader sees all, and a service user where Ironic "
    "has rbac_service_role_elevated_access)"
)
BAD = {
    Fate.FAILED: Exit.ERROR,
    Fate.UNFINISHED: Exit.ERROR,
    Fate.CONTESTED: Exit.REFUSED,
    Fate.REFUSED: Exit.REFUSED,
    Fate.HELD: Exit.DIFFERENCES,
    Fate.MISFIT: Exit.DIFFERENCES,
    Fate.STRAY: Exit.DIFFERENCES,
}


def discover(options: argparse.Namespace) -> Report:
    """The provider of each node, and the nodes that cannot be reported; needs no placement."""
    choice = choice_of(options)
    with open_nodes(settings_for(choice), choice) as driver:
        share = driver.shape(driver.survey())
    data = {
        "providers": {uuid: encode_provider(provider) for uuid, provider in sorted(share.providers.items())},
        "reserved": dict(sorted(share.reserved.items())),
        "findings": [{"node": uuid, "why": one.why} for uuid, one in sorted(share.misfits.items())],
    }
    return Report(
        data=data, table="agent.command.node_tables:print_nodes", exit=Exit.DIFFERENCES if share.misfits else Exit.DONE
    )


def show(options: argparse.Namespace) -> Report:
    """What placement holds of one node; without a name the sums of those that carry our mark, and of ours."""
    choice = choice_of(options)
    node = _uuid(options.node) if options.node else None
    with _planner(settings_for(choice), choice) as planner:
        if node is None:
            known = planner.memory().nodes
            stocks = Counter(name for one in known.values() for name in one.seen.provider.inventories)
            sums = {"marked": len(planner.client.generations(BARE_METAL)), "ours": len(known), "classes": dict(stocks)}
            return Report(data={"summary": sums}, table="agent.command.node_tables:print_sums")
        observed = planner.client.observe(node)
        shown = encode_observed_tree(observed, planner.client.allocations(observed))
    remark = "" if observed.root else f"placement has no provider {node}: run compute-node-agent sync first"
    return Report(
        data=shown,
        table="agent.command.host_tables:print_shown",
        exit=Exit.ERROR if remark else Exit.DONE,
        remark=remark,
    )


def plan(options: argparse.Namespace) -> Report:
    """What a pass would change."""
    choice = choice_of(options)
    with _planner(settings_for(choice), choice) as planner, _progress() as progress:
        outcome = foresee_nodes(planner, _wishes(options), progress)
    changes = any(one.plan.operations for one in outcome.outcomes)
    return _report(outcome, planner.driver.where, Exit.DIFFERENCES if changes else Exit.DONE, dry=True)


def sync(options: argparse.Namespace) -> Report:
    """One pass over all nodes."""
    choice = choice_of(options)
    settings = settings_for(choice)
    with (
        locked(settings.state_directory),
        _planner(settings, choice, writes=True) as planner,
        _progress() as progress,
    ):
        outcome = run_nodes(planner, _wishes(options), progress)
    return _report(outcome, planner.driver.where, Exit.DONE)


def check(options: argparse.Namespace) -> Report:
    """Whether Ironic and placement can be read, and which nodes cannot be reported."""
    choice = choice_of(options)
    settings = settings_for(choice)
    with open_nodes(settings, choice) as driver:
        share = driver.shape(driver.survey())
        where = driver.where
    count = len(share.providers) + len(share.misfits)
    detail = f"{where} has {count if count else NO_NODES}{' nodes for this agent' if count else ''}"
    checks = [
        {"check": one.name, "ok": one.ok, "detail": one.detail}
        for one in (*check_option_names(settings), try_state(settings))
    ]
    checks += [{"check": "ironic", "ok": bool(count), "detail": detail}]
    checks += [{"check": "node", "ok": False, "detail": f"{one.uuid}: {one.why}"} for one in share.misfits.values()]
    client, name = open_client(settings, choice)
    may = client.may_write()
    detail = "can be read and written" if may else "the user lacks a role to write: give it the role service"
    checks.append({"check": "placement", "ok": may, "detail": f"{name} {detail}"})
    ending = Exit.DONE if all(one["ok"] for one in checks) else Exit.DIFFERENCES
    return Report(data={"checks": checks}, table="agent.command.host_tables:print_checks", exit=ending)


@contextmanager
def _planner(settings: Settings, choice: Choice, *, writes: bool = False) -> Iterator[NodesPlanner]:
    client, where = open_client(settings, choice, writes=writes)
    workers = node_workers(settings, choice)
    told = choice.case or choice.recorder
    with open_nodes(settings, choice, writes=writes) as driver:
        yield NodesPlanner(
            driver=driver,
            client=client,
            settings=settings,
            where=where,
            workers=workers,
            noted=told.clock if told else probe_clock(),
        )


def _uuid(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError as error:
        raise ConfigError(f"--node {text}: a bare-metal node goes by its uuid here, as discover tells it") from error


def _wishes(options: argparse.Namespace) -> NodeWishes:
    return NodeWishes(force=getattr(options, "force", False), take_over=getattr(options, "take_over", False))


def _report(outcome: NodesOutcome, where: str, ending: Exit, *, dry: bool = False) -> Report:
    nodes = [
        {
            "node": one.node,
            "outcome": one.fate.value,
            "notes": [one.why] if one.why else [],
            **encode_plan(one.plan, ObservedTree((one.seen,) if one.seen else ())),
        }
        for one in outcome.outcomes
    ]
    counts = Counter({fate.value: outcome.count(fate) for fate in Fate})
    data = {"nodes": nodes, "summary": {name: count for name, count in counts.items() if count}, "dry_run": dry}
    worst = max([ending, *(code for fate, code in BAD.items() if outcome.count(fate))], key=_gravity)
    empty = not nodes and not outcome.unchanged
    remark = f"{where} has {NO_NODES}" if empty else ""
    worst = Exit.DIFFERENCES if empty else worst
    return Report(data=data, table="agent.command.node_tables:print_pass", exit=worst, remark=remark)


def _gravity(code: Exit) -> int:
    return (Exit.DONE, Exit.DIFFERENCES, Exit.REFUSED, Exit.ERROR).index(code)


@contextmanager
def _progress() -> Iterator[Progress]:
    """On a terminal the count of nodes that are done; a pipe or a log sees nothing of it."""
    if not sys.stderr.isatty():
        yield lambda done, of: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("reading Ironic and placement") as status:
        yield lambda done, of: status.update(f"{done} of {of} nodes") if done % 10 == 0 or done == of else None
