"""Read this host before allocations are taken away: which guests here have them, and what of them they use."""

import argparse
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from agent.allocations.decide.in_use import in_use, left_over, uncovered
from agent.command.result import choice_of
from agent.connect.choice import lists_nodes, node_of, open_driver, settings_for
from agent.state.identity import read_identity
from drivers.base import Driver, Survey
from drivers.looks import look
from reportclient.allocations import Consumer, Slots
from reportclient.client import PlacementClient

T = TypeVar("T")
Judge = Callable[[Driver, Survey, str, Mapping[str, str]], T]  # host, uuid of its root, names of its providers by uuid


def uses_of(options: argparse.Namespace, client: PlacementClient, where: str) -> tuple[str, str]:
    """
    Return which guest that runs here uses what the consumer has on this host, and which one is shut off and had it.

    Each is a sentence, as ``in_use`` and ``left_over`` return them, or empty.

    Raises:
        DiscoveryError: the host cannot be read. PlacementError: placement cannot.
    """
    consumer = client.consumer(options.consumer)
    if consumer is None:
        return "", ""

    def judge(_driver: Driver, survey: Survey, _root: str, names: Mapping[str, str]) -> tuple[str, str]:
        running = {guest.uuid for guest in survey.facts.guests if guest.active}
        off = {guest.uuid for guest in survey.facts.guests} - running
        suspects = sorted(running & {consumer.uuid} or running)
        used = in_use(consumer, names, {uuid: client.consumer(uuid) for uuid in suspects})
        return used, left_over(consumer, names) if consumer.uuid in off else ""

    return _on_host(options, client, where, consumer.slots, judge) or ("", "")


def loses(
    options: argparse.Namespace, client: PlacementClient, where: str, guest: Consumer, before: Slots, after: Slots
) -> str:
    """
    Return what a guest that runs here uses and would no longer have, as ``uncovered``; empty: nothing.

    ``before`` is what it and its migration have.

    Raises:
        DiscoveryError, PolicyError: the host cannot be read, or contradicts the configuration.
    """
    settings = settings_for(choice_of(options))

    def judge(driver: Driver, survey: Survey, root: str, names: Mapping[str, str]) -> str:
        _, holdings = driver.shape(survey, settings.policy, client.observe(root))
        return uncovered(guest.uuid, before, after, names, holdings)

    return _on_host(options, client, where, before, judge) or ""


def _on_host(
    options: argparse.Namespace, client: PlacementClient, where: str, providers: Iterable[str], judge: Judge[T]
) -> T | None:
    """Read the host of this agent that has one of these providers (uuids), and judge it; None: it has none of them."""
    choice, asked = choice_of(options), frozenset(providers)
    settings = settings_for(choice)
    if lists_nodes(settings):
        return None
    if not settings.recorded:
        known = read_identity(settings.folders.identity)
        if known is None or client.tree_of(known).keys().isdisjoint(asked):
            return None
    with open_driver(settings, choice) as driver:
        for name in driver.nodes():
            survey = look(partial(driver.survey, name))
            root = node_of(name, driver, client, settings, where, choice).known_uuid(survey)
            names = {uuid: one for uuid, (one, _) in client.tree_of(root).items()} if root else {}
            if root and not names.keys().isdisjoint(asked):
                return judge(driver, survey, root, names)
    return None
