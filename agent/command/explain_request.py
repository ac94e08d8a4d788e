"""Explain whether placement offers a host for a request, and what is missing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from agent.command.candidacy import Givers, Missing, bind, combinations, is_sure, missing
from agent.command.result import Report
from agent.command.wording import written_amounts
from agent.errors import ConfigError
from agent.state.files import read_named
from reportclient.allocations import usages
from reportclient.client import PlacementClient
from reportclient.errors import Forbidden, Rejected, mask, shorten
from reportclient.request import RESOURCES, Wish, format_request, parse_request
from reportclient.tree import ObservedTree

_MOST = 4096  # combinations of providers, about a second of placement's time


UNTOLD = "not known, as other providers share with this host what the request asks for"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedRequest:
    """Whether a host is among the allocation candidates of a request."""

    node: str
    candidate: bool | None  # None: not known
    gives: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by provider and class; empty: it is none
    missing: tuple[Missing, ...] = ()  # without these wishes the host would be a candidate
    refusal: str = ""  # why placement refuses the request, or to be asked about one host; empty: it does not

    @property
    def report(self) -> Report:
        """Who gives what for the request, or what is missing."""
        missing = [{"wish": str(one.wish), "why": one.why} for one in self.missing]
        known = {"candidate": self.candidate, "gives": self.gives, "refusal": self.refusal}
        return Report(data={"node": self.node, "missing": missing, **known}, lines=self._lines())

    def _lines(self) -> Iterator[str]:
        verdict = {
            True: "is a candidate",
            False: "is no candidate",
            None: "may be a candidate: placement has none without what other hosts share",
        }[self.candidate]
        if self.candidate is None and self.refusal:
            verdict = "may be a candidate: this placement cannot be asked about one host"
        yield f"{self.node} {verdict}"
        if self.refusal:
            yield f"placement refuses what was asked: {self.refusal}"
        yield from (f"  {name} gives {written_amounts(resources)}" for name, resources in self.gives.items())
        yield from (f"  {one.wish}: {one.why}" for one in self.missing)


def read_request(path: Path) -> tuple[Wish, ...]:
    """
    Read the query of a request from a file: alone, in a URL, or in a line of a log. Lines that begin with # are left.

    Raises:
        ConfigError: the file cannot be read, or has no query.
    """
    try:
        lines = [one.strip() for one in read_named(path).splitlines()]
        told = [one for one in lines if one and not one.startswith("#")]
        if len(told) != 1:
            raise ValueError(f"it must have one request, and has {len(told)} lines")
        return parse_request(told[0])
    except (OSError, ValueError) as error:
        safe = "".join(one if one.isprintable() else "?" for one in mask(str(error)))
        raise ConfigError(f"--request {path}: {shorten(safe, head=400)}") from error


def explain_request(client: PlacementClient, node: str, wishes: tuple[Wish, ...]) -> ExplainedRequest:
    """
    Ask placement whether the tree of a node is among the candidates of a request, and if not, for which parts it is.

    Raises:
        ConfigError: placement has no such tree.
        Unavailable: no complete answer of placement.
    """
    standing = client.find(node)
    if standing is None:
        raise ConfigError(f"placement has no provider {node}: run compute-node-agent sync first")
    givers = _givers(client, client.observe(standing), wishes)
    foreign = any(givers.is_foreign(one) for one in wishes)
    try:
        gives = None if foreign else _candidate(client, givers, wishes)
    except Forbidden:
        raise
    except Rejected as error:
        refused = _is_refused(client, wishes)  # else placement refuses what names the tree: in_tree came with 1.31
        return ExplainedRequest(node=node, candidate=False if refused else None, refusal=str(error))
    if gives is not None:
        names = {one.uuid: one.name for one in givers.every}
        return ExplainedRequest(node=node, candidate=True, gives={names.get(uuid, uuid): gives[uuid] for uuid in gives})
    lacks = missing(partial(_ask, client, givers), givers, wishes)
    return ExplainedRequest(node=node, candidate=False if is_sure(wishes, givers) else None, missing=lacks)


def _is_refused(client: PlacementClient, wishes: Sequence[Wish]) -> bool:
    """Return whether placement refuses a request as it stands; then nobody is a candidate, whatever the host has."""
    try:
        client.candidate(format_request(wishes))
    except Forbidden:
        raise
    except Rejected:
        return True
    return False


def _givers(client: PlacementClient, tree: ObservedTree, wishes: Iterable[Wish]) -> Givers:
    """Read what can give to a request for the host of this tree."""
    aggregates = frozenset().union(*(one.provider.aggregates for one in tree))
    sharing = tuple(one for one in client.sharing_with(aggregates) if one.uuid not in tree.by_uuid)
    classes = frozenset().union(*(one.names for one in wishes if one.kind == RESOURCES))
    holders = (one for one in (*tree, *sharing) if classes & one.provider.inventories.keys())
    return Givers(tree.providers, sharing, usages(client.allocations(holders)))


def _candidate(client: PlacementClient, givers: Givers, wishes: Sequence[Wish]) -> dict[str, dict[str, int]] | None:
    """Return what each provider gives in one candidate of this host; empty for wishes that ask for nothing."""
    queries = [query for query in map(format_request, bind(wishes, givers)) if query]
    found = (client.candidate(query) for query in queries)
    return next((one for one in found if one is not None), None) if queries else {}


def _ask(client: PlacementClient, givers: Givers, wishes: Sequence[Wish]) -> str | None:
    """Ask for a part of a request, as ``missing`` does; the host is a candidate for a part without resources."""
    if (number := combinations(wishes, givers)) > _MOST:
        return f"it was not asked for beside the rest, as placement would compare {number} combinations of providers"
    try:
        if _candidate(client, givers, wishes) is not None:
            return None
        return "" if is_sure(wishes, givers) else UNTOLD
    except Forbidden:
        raise
    except Rejected as error:
        return f"placement refuses it: {error}"
