"""Read this host before allocations are taken away: which guests here have them, and what of them they use."""

import argparse
from collections.abc import Callable, Iterable, Mapping

from agent.allocations.decide.in_use import in_use, uncovered
from agent.command.result import open_host, placement_of, settings_of
from agent.connect.choice import lists_nodes
from agent.state.identity import read_identity
from agent.sync.node import ComputeNode
from drivers.base import Survey
from drivers.errors import DiscoveryError
from reportclient.allocations import Consumer, Slots

Judge = Callable[[ComputeNode, Survey, str, Mapping[str, str]], str]
"""Gets a host, what it has, the uuid of its root, and the names of its providers by uuid."""


def uses_of(options: argparse.Namespace) -> str:
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


def loses(options: argparse.Namespace, guest: Consumer, before: Slots, after: Slots) -> str:
    """
    Return what a guest that runs here uses and would no longer have, as ``uncovered``; empty: nothing.

    ``before`` is what it and its migration have. With --force also a sentence where this host cannot be read.

    Raises:
        DiscoveryError, PolicyError: the host cannot be read, or contradicts the configuration.
    """

    def judge(node: ComputeNode, survey: Survey, root: str, names: Mapping[str, str]) -> str:
        _, holdings = node.driver.shape(survey, node.settings.policy, node.client.observe(root))
        return uncovered(guest.uuid, before, after, names, holdings)

    return _on_host(options, before, judge)


def _on_host(options: argparse.Namespace, providers: Iterable[str], judge: Judge) -> str:
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
