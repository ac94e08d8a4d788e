"""
Read Ironic's REST API through a keystoneauth adapter; no other module sends requests to Ironic.

A listing is read page by page, with only the fields that decide about providers. It is whole, or an error.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from drivers.errors import DiscoveryError, MalformedFact, Vanished
from drivers.ironic.shape import CLASS_FIELDS, FIELDS, HEALTH, Misfit, Node, parse_class, parse_node
from reportclient.keystone import FAILURES, Sender, explain

PAGE = 1000  # nodes for each request; Ironic cuts it down to its own [api] max_limit
_PAGES = 10_000  # a listing that does not end is no listing of Ironic; its max_limit may be small
REQUEST_TRIES = 5  # at a request that a busy Ironic refused, and at a listing during which a node went away
BUSY = (409, 429, *range(500, 600))  # Ironic is busy, or a node is locked: the request is worth another try
# Ironic's API versions that introduced them
WITH_TRAITS, WITH_GROUPS, WITH_SHARDS, WITH_HEALTH = (1, 37), (1, 46), (1, 82), (1, 109)
_OPTIONS = {WITH_SHARDS: "[ironic] shard", WITH_HEALTH: "[agent] reserve_critical_nodes"}  # that need them


class IronicClient:
    """
    Reads one Ironic, or a part of its nodes.

    ``shard`` and ``conductor_group`` narrow the listing; None means every shard, every group. ``health`` is whether the
    health of nodes is asked for.
    """

    def __init__(
        self, sender: Sender, where: str, *, shard: str | None, conductor_group: str | None, health: bool = False
    ) -> None:
        self._sender = sender
        self.where = where
        self._filters = {
            name: value for name, value in (("shard", shard), ("conductor_group", conductor_group)) if value is not None
        }
        self.asks_health = health
        self._fields = (*FIELDS, HEALTH) if health else FIELDS
        needed = [WITH_TRAITS] + [WITH_GROUPS] * ("conductor_group" in self._filters) + [WITH_HEALTH] * health
        self._version = max(needed + [WITH_SHARDS] * ("shard" in self._filters))

    @property
    def name(self) -> str:
        """The Ironic's address, and what narrows the listing."""
        return ", ".join([self.where, *(f"{name} {value!r}" for name, value in self._filters.items())])

    @property
    def lists_all(self) -> bool:
        """True if nothing narrows the listing."""
        return not self._filters

    def survey(self) -> tuple[Node | Misfit, ...]:
        """
        Return every node that Ironic lists for this agent's shard and group.

        The node at which a page begins may be deleted between two pages: then the listing begins again.

        Raises:
            DiscoveryError: Ironic could not be read whole. Never a shorter listing.
        """
        nodes = enumerate(parse_node(one, self._fields) for one in self._listed())
        # A listing has a node twice when others are enrolled while it is read.
        return tuple({node.uuid or number: node for number, node in nodes}.values())

    def elsewhere(self) -> dict[str, str]:
        """
        Return the resource class (empty: none), by uuid, of each node of all shards and groups.

        Empty where the listing has them all. Errors as ``survey``.
        """
        if self.lists_all:
            return {}
        return dict(filter(None, map(parse_class, self._listed(everywhere=True))))

    def _listed(self, *, everywhere: bool = False) -> list[object]:
        for _ in range(REQUEST_TRIES):
            with suppress(Vanished):
                return list(self.records(everywhere=everywhere))
        raise DiscoveryError(
            f"nodes went away while they were listed, {REQUEST_TRIES} times in a row: the next pass tries again"
        )

    def records(self, *, everywhere: bool = False) -> Iterator[object]:
        """
        Yield every listed node as Ironic's JSON has it, ``PAGE`` nodes for each request.

        With ``everywhere`` nothing narrows the listing, and it has only what tells a node's class.

        Raises:
            Vanished: the node at which a page begins was deleted meanwhile.
            DiscoveryError: Ironic did not answer whole. Never a shorter listing.
        """
        fields, filters = (CLASS_FIELDS, {}) if everywhere else (self._fields, self._filters)
        query = {"fields": ",".join(fields), "limit": str(PAGE), **filters}
        markers: set[str] = set()
        while len(markers) < _PAGES:
            body = self._get(f"/v1/nodes?{urlencode(query)}")
            try:
                page, following = body["nodes"], body.get("next")
                if not isinstance(page, list):
                    raise TypeError("nodes is no list")
                # Ironic's own link lacks shard and conductor group, so only its marker is used.
                marker = dict(parse_qsl(urlsplit(following).query))["marker"] if following else ""
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                raise MalformedFact(f"{self.where} answered with no listing of nodes: {error}") from error
            yield from page
            if not marker:
                return
            if marker in markers:
                raise MalformedFact(f"{self.where} answers with the page after node {marker} again and again")
            markers.add(marker)
            query["marker"] = marker
        raise MalformedFact(f"{self.where} lists nodes without an end, over {_PAGES} pages: see Ironic's log")

    def is_there(self, uuid: str) -> bool:
        """
        Return whether Ironic has a node of this uuid, in any share.

        Raises:
            DiscoveryError: Ironic's answer does not show it.
        """
        for written in (uuid, uuid.upper()):  # Ironic keeps a uuid in the case in which it was enrolled
            with suppress(Vanished):
                self._get(f"/v1/nodes/{written}?fields=uuid")
                return True
        return False

    def _get(self, path: str) -> Any:
        """
        Return the body of a GET; a busy Ironic is asked again, ``REQUEST_TRIES`` times in all.

        Raises:
            Vanished: 404 of Ironic's own. DiscoveryError: any other refusal.
        """
        version = ".".join(map(str, self._version))
        asked = f"{self.where} answered GET {path.partition('?')[0]}"
        try:
            spoken = {"X-OpenStack-Ironic-API-Version": version}
            answer = self._sender.request(
                path,
                "GET",
                microversion=version,
                headers=spoken,
                status_code_retries=REQUEST_TRIES - 1,
                retriable_status_codes=BUSY,
            )
        except FAILURES as error:
            raise DiscoveryError(explain(error, self.where, "ironic")[0]) from error
        status = answer.status_code
        if status == 406:
            newest = answer.headers.get("X-OpenStack-Ironic-API-Maximum-Version", "")
            supported = f"supports API versions up to {newest} only" if newest else "supports only older API versions"
            raise DiscoveryError(
                f"{self.where} {supported}, and {version} is needed: upgrade Ironic"
                + (f", or remove {option} from the configuration" if (option := _OPTIONS.get(self._version)) else "")
            )
        text = " ".join(str(answer.text).split())[:200]
        if status == 404 and "faultstring" in str(answer.text):
            raise Vanished(f"{asked} with 404: {text}")
        if status in BUSY:
            raise DiscoveryError(f"{asked} with {status}: {text} ({REQUEST_TRIES} tries): see Ironic's log")
        if status in (401, 403):
            raise DiscoveryError(
                f"{asked} with {status}: check the user and its roles in [ironic] (reader, or service)"
            )
        try:
            if status != 200:
                raise ValueError("no answer to a GET")
            return answer.json()
        except (ValueError, RecursionError) as error:
            raise DiscoveryError(
                f"{asked} with {status}, which is not an answer of Ironic to this request: does the endpoint lead to "
                f"Ironic? {text}"
            ) from error
