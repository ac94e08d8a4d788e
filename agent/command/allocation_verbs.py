"""The verbs that change who holds what: each is one operation of ``agent.allocations.operations``."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.allocations.decide.fit import Claimant, misfits, others_stock
from agent.allocations.decide.sets import merge_set
from agent.allocations.operations import Ending, Operations, Told
from agent.command.exits import Exit
from agent.command.result import Report, choice_of
from agent.connect.choice import open_client, open_driver, settings_for
from agent.errors import ConfigError
from agent.sync.node import Planner, look
from reportclient.allocations import AllocationRequest
from reportclient.client import PlacementClient
from reportclient.errors import Absent
from reportclient.payload import decode_request, encode_slots


def run(verb: str, options: argparse.Namespace) -> Report:
    """
    Carry out one of them.

    Raises:
        ConfigError: a file that holds no allocation request. PlacementError: as ``Operations``.
    """
    choice = choice_of(options)
    client, where = open_client(settings_for(choice), choice)
    ending = _act(verb, options, client, where)
    # What is to be let go and is gone already is nothing to do.
    done = ending.told is Told.DONE or (ending.told is Told.ABSENT and verb in ("confirm", "release"))
    record = {
        "outcome": ending.told.value,
        "consumer": ending.consumer,
        "allocations": encode_slots(ending.held),
        "note": ending.note,
    }
    return Report(
        data=record, table=_print_ending, exit=Exit.DONE if done else Exit.ERROR, remark="" if done else ending.note
    )


def _act(verb: str, options: argparse.Namespace, client: PlacementClient, where: str) -> Ending:
    operations = Operations(client)
    consumer = options.consumer
    if verb == "confirm":
        return operations.confirm(consumer)
    if verb == "release":
        return operations.release_forced(consumer) if options.force else operations.release(consumer)
    if verb == "revert":
        return operations.revert(consumer, options.migration)
    requests = [_read(path) for path in (options.request, *options.alternate)]
    if options.fit:
        requests, reasons = _fitting(options, client, where, requests)
        if not requests:
            return Ending(told=Told.NO_ROOM, consumer=consumer, note="; ".join(reasons))
    if other := _others(options, client):
        return other
    if verb == "move":
        return operations.move(consumer, options.migration, requests)
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
    return Ending(told=Told.CONFLICT, consumer=now.uuid, held=now.slots, note=note)


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
        for node in driver.nodes():
            survey = look(lambda node=node: driver.survey(node))  # type: ignore[misc]
            standing = client.find(node)
            if standing is None:
                raise Absent(f"placement has no provider {node}: run compute-node-agent sync first")
            observed = client.observe(standing)
            tree, holdings = driver.shape(survey, settings.policy, observed)
            names = {seen.uuid: seen.name for seen in observed}
            booked = client.allocations(observed)
            claimant = _claimant(options, client)
            planner = Planner(node=node, driver=driver, client=client, settings=settings, where=where)
            left = planner.state_file(standing).read(where)
            ours = planner.ownership(survey, tree, observed, left)
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


def _print_ending(out: Any, data: dict[str, Any]) -> None:
    from agent.command.host_tables import print_ending

    print_ending(out, data)
