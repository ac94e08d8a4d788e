"""
The verbs that change allocations: each is one operation of ``agent.allocations.operations``.

What takes allocations away first reads this host: whether a guest that runs here uses them.
"""

import argparse
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from agent.allocations.decide.in_use import in_use, uncovered
from agent.allocations.decide.sets import added
from agent.allocations.operations import Ending, Operations, Result
from agent.command.exits import Exit
from agent.command.result import Report, agreed, asks, open_host, placement_of, settings_of
from agent.command.wording import written_amounts
from agent.connect.choice import lists_nodes
from agent.errors import ConfigError
from agent.state.files import read_named
from agent.state.identity import read_identity
from agent.sync.node import ComputeNode
from drivers.base import Survey
from drivers.errors import DiscoveryError
from reportclient.allocations import AllocationRequest, Slots
from reportclient.client import PlacementClient
from reportclient.payload import decode_request, encode_slots
from reportclient.plan import Rewrite

_Judge = Callable[[ComputeNode, Survey, str, Mapping[str, str]], str]
"""Gets a host, what it has, the uuid of its root, and the names of its providers by uuid."""

_BY_FORCE = "stop or resize the guest first, or repeat the command with --force"


def claim(options: argparse.Namespace) -> Report:
    """Give a guest the requested allocations; the options choose the operation."""
    return _place(options, partial(_claim, options))


def move(options: argparse.Namespace) -> Report:
    """Give a guest its new place, and its migration the old one."""
    return _place(options, lambda operations, requests: operations.move(options.consumer, options.migration, requests))


def confirm(options: argparse.Namespace) -> Report:
    """Remove the allocations that a migration kept; a migration without allocations counts as done."""
    client, _ = placement_of(options)
    if used := _uses_of(options):
        return _refused(client, options.consumer, f"{used}: revert the move, or run release {options.consumer} --force")
    return _report(Operations(client).confirm(options.consumer), well=(Result.DONE, Result.ABSENT))


def revert(options: argparse.Namespace) -> Report:
    """Give a guest back the allocations that its migration kept. One that runs at its new place needs force."""
    return _unless_used(options, lambda operations: operations.revert(options.consumer, options.migration))


def release(options: argparse.Namespace) -> Report:
    """Remove all allocations of a guest; a guest without allocations counts as done. One that runs here needs force."""
    client, _ = placement_of(options)
    operations, used, uuid = Operations(client), _uses_of(options), options.consumer
    if used and not options.force:
        return _refused(client, uuid, f"{used}: stop the guest first, or run release {uuid} --force")
    if asks(options) and (now := client.consumer(uuid)):
        owner = f"{uuid} of project {now.project} and user {now.user}"
        if not agreed([*_held(now.slots), *filter(None, [used])], f"remove this from {owner}?"):
            no = "nothing was written: --yes does it without this question"
            return replace(_refused(client, uuid, no), lines=(), exit=Exit.DIFFERENCES)
        if (then := client.consumer(uuid)) is None or then.generation != now.generation:
            return _refused(client, uuid, "its allocations changed since they were shown: run this again")
    ending = operations.release_forced(uuid) if options.force else operations.release(uuid)
    return _report(ending, used, well=(Result.DONE, Result.ABSENT))


def _unless_used(options: argparse.Namespace, act: Callable[[Operations], Ending]) -> Report:
    """Carry out an operation, unless it takes allocations away that the guest has in use here, without force."""
    client, _ = placement_of(options)
    heard: list[str] = []

    def objection(rewrites: Sequence[Rewrite]) -> str:
        heard[:] = filter(None, [_loses(options, rewrites)])
        return "" if options.force or not heard else f"{heard[0]}: {_BY_FORCE}"

    # a move has no --force: the migration keeps all that the guest has
    ending = act(Operations(client, objection=objection) if hasattr(options, "force") else Operations(client))
    return _report(ending, "".join(heard))


def _refused(client: PlacementClient, uuid: str, note: str) -> Report:
    now = client.consumer(uuid)
    return _report(Ending(told=Result.REFUSED, consumer=uuid, held=now.slots if now else {}, note=note))


def _report(ending: Ending, used: str = "", well: Collection[Result] = (Result.DONE,)) -> Report:
    """Report how an operation ended; ``used``: what a guest here uses of what it took away, as a sentence."""
    if used and ending.told is Result.DONE:
        ending = replace(ending, note=used)
    good = ending.told in well
    remarks = [ending.note] if ending.note and (not good or ending.told is Result.DONE) else ()
    held = _held(ending.held)
    return Report(
        data={
            "outcome": ending.told,
            "consumer": ending.consumer,
            "allocations": encode_slots(ending.held),
            "note": ending.note,
        },
        lines=[f"{ending.consumer}: {ending.told.value}", *(held or ["  holds nothing"])],
        exit=Exit.DONE if good else Exit.REFUSED if ending.told is Result.REFUSED else Exit.ERROR,
        remarks=remarks,
    )


def _held(slots: Slots) -> list[str]:
    return [f"  {written_amounts(amounts)} on {uuid}" for uuid, amounts in sorted(slots.items())]


def _place(options: argparse.Namespace, act: Callable[[Operations, list[AllocationRequest]], Ending]) -> Report:
    """
    Carry out an operation with the requests of the options.

    Raises:
        ConfigError: a file has no allocation request. PlacementError: as ``Operations``.
    """
    client, _ = placement_of(options)
    requests = [_read(path) for path in (options.request, *options.alternate)]
    if others := _others(options, client):
        return _report(others)
    return _unless_used(options, lambda operations: act(operations, requests))


def _claim(options: argparse.Namespace, operations: Operations, requests: list[AllocationRequest]) -> Ending:
    consumer = options.consumer
    if options.replace:
        return operations.replace(consumer, requests)
    if options.evacuate:
        return operations.evacuate(consumer, requests)
    if options.merge:
        return operations.merge(consumer, requests, _read(options.instead_of) if options.instead_of else None)
    return operations.spawn(consumer, project=options.project, user=options.user, kind=options.type, requests=requests)


def _others(options: argparse.Namespace, client: PlacementClient) -> Ending | None:
    """Refuse an existing guest whose project or user differs from --project or --user; None: they agree."""
    exists = getattr(options, "project", None) and (options.replace or options.evacuate or options.merge)
    now = client.consumer(options.consumer) if exists else None
    if now is None or (now.project, now.user) == (options.project, options.user or now.user):
        return None
    note = (
        f"guest {now.uuid} belongs to project {now.project} and user {now.user}, not to those of --project and --user: "
        "check the guest's uuid"
    )
    return Ending(told=Result.CONFLICT, consumer=now.uuid, held=now.slots, note=note)


def _read(path: Path) -> AllocationRequest:
    try:
        request = AllocationRequest(read_named(path))
        decode_request(request)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not an allocation request as placement offers them: {error}") from error
    return request


def _uses_of(options: argparse.Namespace) -> str:
    """
    Return which guest that runs here uses what the consumer has on this host, as ``in_use``.

    With --force also a sentence where this host cannot be read.

    Raises:
        DiscoveryError: the host cannot be read. PlacementError: placement cannot.
    """
    client, _ = placement_of(options)
    consumer = client.consumer(options.consumer)
    if consumer is None:
        return ""

    def judge(_node: ComputeNode, survey: Survey, _root: str, names: Mapping[str, str]) -> str:
        running = {guest.uuid for guest in survey.facts.guests if guest.active}
        suspects = sorted(running & {consumer.uuid} or running)
        return in_use(consumer, names, {uuid: client.consumer(uuid) for uuid in suspects})

    return _on_host(options, consumer.slots, judge)


def _loses(options: argparse.Namespace, rewrites: Iterable[Rewrite]) -> str:
    """
    Return what a guest that runs here uses and would no longer have, as ``uncovered``; empty: nothing.

    With --force also a sentence where this host cannot be read.

    Raises:
        DiscoveryError, PolicyError: the host cannot be read, or contradicts the configuration.
    """
    before: Slots = {}  # of the guest and its migration together
    after: Slots = {}
    for one in rewrites:
        before, after = added(before, one.before), added(after, one.after)

    def judge(node: ComputeNode, survey: Survey, root: str, names: Mapping[str, str]) -> str:
        _, holdings = node.driver.shape(survey, node.settings.policy, node.client.observe(root))
        return uncovered(options.consumer, before, after, names, holdings)

    return _on_host(options, before, judge)


def _on_host(options: argparse.Namespace, providers: Iterable[str], judge: _Judge) -> str:
    """Read the host of this agent that has one of these providers (uuids), and judge it; empty: it has none of them."""
    asked, settings, (client, _) = frozenset(providers), settings_of(options), placement_of(options)
    if lists_nodes(settings):
        return ""
    if not settings.recorded:
        known = read_identity(settings.folders.identity)
        if known is None or client.tree_of(known).keys().isdisjoint(asked):
            return ""
    try:
        with open_host(options) as node:
            survey = node.survey()
            root = node.known_uuid(survey)
            names = {uuid: one for uuid, (one, _) in client.tree_of(root).items()} if root else {}
            if root and not names.keys().isdisjoint(asked):
                return judge(node, survey, root, names)
    except DiscoveryError as error:
        if not getattr(options, "force", False):
            raise
        return f"it is not known whether guest {options.consumer} runs on this host: {error}"
    return ""
