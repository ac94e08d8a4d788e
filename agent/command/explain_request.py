"""Explain whether placement offers a host for a request, and why not."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from agent.command.candidacy import Candidacy, candidacy
from agent.command.results import ExplainedRequest, GroupShare
from agent.errors import ConfigError
from agent.state.files import read_named
from reportclient.allocations import usages
from reportclient.candidates import Giver, Offered, Unsearched
from reportclient.client import PlacementClient
from reportclient.errors import Rejected, mask, shorten
from reportclient.request import Criterion, Wish, format_request, parse_request
from reportclient.tree import ObservedProvider, ObservedTree


def read_request(path: Path) -> tuple[Wish, ...]:
    """
    Read the query of a request from a file: alone, in a URL, or in a line of a log. Lines that begin with # are left.

    Raises:
        ConfigError: the file cannot be read, or has no query, or one that placement refuses.
    """
    try:
        lines = [one.strip() for one in read_named(path, 1).splitlines()]
        told = [one for one in lines if one and not one.startswith("#")]
        if len(told) != 1:
            raise ValueError(f"it must have one request, and has {len(told)} lines")
        return parse_request(told[0])
    except (OSError, ValueError) as error:
        safe = "".join(one if one.isprintable() else "?" for one in mask(str(error)))
        raise ConfigError(f"--request {path}: {shorten(safe, head=400)}") from error


def explain_request(client: PlacementClient, node: str, wishes: tuple[Wish, ...]) -> ExplainedRequest:
    """
    Say why the tree of a node is, or is not, among the candidates of a request; ask placement too where it can tell.

    Raises:
        ConfigError: placement has no such tree.
        Unavailable: no complete answer of placement.
    """
    standing = client.find(node)
    if standing is None:
        raise ConfigError(f"placement has no provider {node}: run compute-node-agent sync first")
    tree = client.observe(standing)
    classes = {one.names[0] for one in wishes if one.kind is Criterion.RESOURCES}
    sharing = [
        one
        for one in client.sharing_with(frozenset().union(*(each.provider.aggregates for each in tree)))
        if one.uuid not in tree.by_uuid
    ]
    givers = tuple(_givers(client, tree, sharing, classes))
    try:
        found = candidacy(givers, wishes)
    except Unsearched as error:
        return ExplainedRequest(node=node, candidate=None, placement=f"not asked: {error}")
    told = ExplainedRequest(
        node=node,
        candidate=found.gives is not None,
        gives=tuple(_given(found)),
        missing=found.missing,
        placement="not asked: it cannot be asked about one host that gives what others share",
    )
    if sharing:
        return told
    try:
        offers = client.has_candidates(format_request(wishes, standing))
    except Rejected as error:  # whatever the host has, nobody is a candidate then
        return replace(told, candidate=False, gives=(), placement=f"refuses the request: {error}")
    if offers is told.candidate:
        return replace(told, placement="agrees")
    return replace(told, candidate=None, placement=f"differs: it has {'a' if offers else 'no'} candidate")


def _givers(
    client: PlacementClient, tree: ObservedTree, sharing: Iterable[ObservedProvider], classes: set[str]
) -> Iterator[Giver]:
    """Return the providers, with what they have of the classes that are asked for."""
    parents = {one.name: one.uuid for one in tree}
    shared = frozenset(one.uuid for one in sharing)
    every = (*tree, *sharing)
    used = usages(client.allocations(one for one in every if classes & one.provider.inventories.keys()))
    for one in every:
        has = one.provider.inventories
        yield Giver(
            uuid=one.uuid,
            name=one.name,
            parent=parents[one.provider.parent] if one.provider.parent else None,
            shares=one.uuid in shared,
            traits=one.provider.traits,
            aggregates=one.provider.aggregates,
            stock={name: Offered(has[name], used.get((one.name, name), 0)) for name in sorted(classes & has.keys())},
        )


def _given(found: Candidacy) -> Iterator[GroupShare]:
    """Return what each provider gives for each group, the group without a suffix first."""
    given: dict[tuple[str, str], dict[str, int]] = {}
    for part, giver in found.gives or ():
        given.setdefault((part.group, giver.name), {}).update(part.amounts)
    for (group, provider), resources in given.items():
        yield GroupShare(group, provider, resources)
