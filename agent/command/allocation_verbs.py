"""The verbs that change who holds what: each is one operation of ``agent.allocations.operations``."""

import argparse
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from agent.allocations.decide.fit import Claimant, misfits, others_stock
from agent.allocations.decide.sets import merge_set
from agent.allocations.operations import Ending, Operations, Result
from agent.command.exits import Exit
from agent.command.forms import EndingForm
from agent.command.result import Report, choice_of
from agent.connect.choice import open_client, open_driver, settings_for
from agent.errors import ConfigError
from agent.sync.node import ComputeNode, look
from reportclient.allocations import AllocationRequest
from reportclient.client import PlacementClient
from reportclient.errors import Absent
from reportclient.payload import decode_request, encode_slots


def claim(options: argparse.Namespace) -> Report:
    """Give a guest what is requested; which operation of the client that is, the options say."""
    return _place(options, partial(_claim, options))


def move(options: argparse.Namespace) -> Report:
    """Give a guest its new place, and its migration the old one."""
    return _place(
        options,
        lambda operations, requests: operations.move(options.consumer, options.migration, requests),
    )


def confirm(options: argparse.Namespace) -> Report:
    """Let go of what a migration kept; that it holds nothing any more is as good."""
    client, _ = _open(options)
    return _report(Operations(client).confirm(options.consumer), well=(Result.DONE, Result.ABSENT))


def revert(options: argparse.Namespace) -> Report:
    """Give a guest back what its migration kept."""
    client, _ = _open(options)
    return _report(Operations(client).revert(options.consumer, options.migration))


def release(options: argparse.Namespace) -> Report:
    """Let go of all that a guest holds; that it holds nothing any more is as good."""
    client, _ = _open(options)
    operations = Operations(client)
    let_go = operations.release_forced if options.force else operations.release
    return _report(let_go(options.consumer), well=(Result.DONE, Result.ABSENT))


def _open(options: argparse.Namespace) -> tuple[PlacementClient, str]:
    choice = choice_of(options)
    return open_client(settings_for(choice), choice)


def _report(ending: Ending, well: Collection[Result] = (Result.DONE,)) -> Report:
    record: EndingForm = {
        "outcome": ending.told.value,
        "consumer": ending.consumer,
        "allocations": encode_slots(ending.held),
        "note": ending.note,
    }
    table = "agent.command.host_tables:print_ending"
    if ending.told in well:
        return Report(data=record, table=table)
    return Report(data=record, table=table, exit=Exit.ERROR, remark=ending.note)


def _place(options: argparse.Namespace, act: Callable[[Operations, list[AllocationRequest]], Ending]) -> Report:
    """
    Carry an operation out with the requests of the options, as far as they fit.

    Raises:
        ConfigError: a file that holds no allocation request. PlacementError: as ``Operations``.
    """
    client, where = _open(options)
    requests = [_read(path) for path in (options.request, *options.alternate)]
    if options.fit:
        requests, reasons = _fitting(options, client, where, requests)
        if not requests:
            return _report(Ending(told=Result.NO_ROOM, consumer=options.consumer, note="; ".join(reasons)))
    return _report(_others(options, client) or act(Operations(client), requests))


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
    """Why a guest that is named with its project and user, and exists, is not meant; None when it may be."""
    exists = getattr(options, "project", None) and (options.replace or options.evacuate or options.merge)
    now = client.consumer(options.consumer) if exists else None
    if now is None or (now.project, now.user) == (options.project, options.user or now.user):
        return None
    note = f"{now.uuid} is of project {now.project} and user {now.user}, not as the command says: is it that guest?"
    return Ending(told=Result.CONFLICT, consumer=now.uuid, held=now.slots, note=note)


def _read(path: Path) -> AllocationRequest:
    try:
        request = AllocationRequest(path.read_text(encoding="utf-8"))
        decode_request(request)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is no allocation request as placement offers them: {error}") from error
    return request


def _fitting(
    options: argparse.Namespace, client: PlacementClient, where: str, requests: Sequence[AllocationRequest]
) -> tuple[list[AllocationRequest], list[str]]:
    """The requests that fit this host as it really is, and why the others do not."""
    choice = choice_of(options)
    settings = settings_for(choice)
    fitting: list[AllocationRequest] = []
    reasons: list[str] = []
    with open_driver(settings, choice) as driver:
        for name in driver.nodes():
            survey = look(partial(driver.survey, name))
            standing = client.find(name)
            if standing is None:
                raise Absent(f"placement has no provider {name}: run compute-node-agent sync first")
            observed = client.observe(standing)
            tree, holdings = driver.shape(survey, settings.policy, observed)
            names = {seen.uuid: seen.name for seen in observed}
            booked = client.allocations(observed)
            claimant = _claimant(options, client)
            node = ComputeNode(name=name, driver=driver, client=client, settings=settings, where=where)
            left = node.state_file(standing).read(where)
            ours = node.ownership(survey, tree, observed, left)
            theirs = others_stock(observed, tree, ours, left.configured)
            for request in requests:
                slots = decode_request(request)
                found = misfits(slots, names, tree, booked, holdings.units, claimant=claimant, theirs=theirs)
                fitting += [] if found else [request]
                reasons += found
    return fitting, reasons


def _claimant(options: argparse.Namespace, client: PlacementClient) -> Claimant | None:
    """The guest whose allocations the operation rewrites; None for a move, which keeps them for its migration."""
    if options.verb == "move":
        return None
    guest = client.consumer(options.consumer) if options.merge else None
    if guest is None:
        return Claimant(options.consumer)
    before = decode_request(_read(options.instead_of)) if options.instead_of else {}
    try:
        return Claimant(guest.uuid, merge_set(guest.slots, before, {}))
    except ValueError:  # the guest has less than --instead-of says: the operation itself refuses that
        return Claimant(guest.uuid, guest.slots)
