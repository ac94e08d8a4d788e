"""
Ask nova's REST API about servers and migrations; no other module sends requests to nova.

An answer that does not show everything must not look like "nova does not know it". These are the ways in which nova
leaves something out without an error, and how they are noticed:

- The host's name differs from the hypervisor's: it is taken from the hypervisor's record, which has this root's uuid.
- The user lacks rights: nova ignores filters, and answers 404 for servers of other projects. A listing with a server
  that does not match its filter is refused, and a 404 counts only together with an empty listing of all projects.
- The database of a cell is away: listings leave its servers out. The hypervisor's record comes from the cell of this
  host; a server of another cell is looked up by its uuid, which is an error while its cell is away.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal
from urllib.parse import quote, urlencode

from agent.nova.answers import (
    HOST,
    NEXT,
    NovaMigration,
    NovaRecord,
    NovaServer,
    NovaWitness,
    parse_host,
    parse_migration,
    parse_server,
)
from agent.nova.flavors import Flavor, parse_flavor
from reportclient.keystone import FAILURES, Sender, explain

VERSION = "2.69"  # the first in which a server is answered for while the database of its cell is away
_OF_IMAGES = "2.1"  # nova passes questions about images on to Glance up to 2.35
PAGE = 1000  # records for each request; nova cuts it down to its own [api] max_limit
_PAGES = 1000  # a listing that does not end is no listing of nova
RIGHTS = "docs/allocations.md lists the rights that the user in [nova] needs"
_OWN = {400: "badRequest", 404: "itemNotFound"}  # the key of nova's own refusals; a proxy's have none
_FORM = (KeyError, TypeError, ValueError, AttributeError)
_LISTINGS: Mapping[str, tuple[str, Callable[[Any], NovaServer | NovaMigration]]] = {
    "servers": ("/servers/detail", parse_server),
    "migrations": ("/os-migrations", parse_migration),
}


class NovaSilent(Exception):
    """Nova did not answer, or not whole; the message is one line: what happened, where, and what to do next."""


class NovaClient:
    """Reads one nova; ``where`` is its name in messages."""

    def __init__(self, sender: Sender, where: str) -> None:
        self._sender = sender
        self.where = where

    def witness(self, root_uuid: str, consumers: Collection[str]) -> NovaWitness:
        """
        Return what nova knows about the hypervisor with this uuid, and about ``consumers``.

        Three requests, two more for a second page of each listing, up to three for each consumer that is in neither
        listing, and one more if nova does not know one of these. After the first request without a usable answer
        nothing more is asked: what is not known by then stays undecided, and ``silence`` says why. Raises nothing.

        While the database of a cell is away, nova answers that it does not know the migrations of that cell. So a
        consumer is unknown to nova only if nova still shows this host's hypervisor after the last question.
        """
        known = NovaWitness(asked=frozenset(consumers))
        servers: dict[str, NovaServer] = {}
        migrations: dict[str, NovaMigration] = {}
        unknown: set[str] = set()
        try:
            known = replace(known, host=self._host(root_uuid), servers=servers, migrations=migrations)
            servers.update({one.uuid: one for one in self._servers(known.host)})
            moves = self._listed("migrations", {"host": known.host, "limit": str(PAGE)})
            migrations.update({one.uuid: one for one in moves})
            for uuid in sorted(known.asked - servers.keys() - migrations.keys()):
                match self._one(uuid):
                    case NovaServer() as server:
                        servers[uuid] = server
                    case NovaMigration() as migration:
                        migrations[uuid] = migration
                    case None:
                        unknown.add(uuid)
            if unknown:
                self._host(root_uuid)
        except NovaSilent as error:
            return replace(known, silence=str(error))
        return replace(known, unknown=frozenset(unknown))

    def record(self, root_uuid: str) -> NovaRecord:
        """
        Return whether a nova-compute reports the hypervisor with this uuid, by one request; raises nothing.

        Nova shows no hypervisor either while the database of its cell is away.
        """
        try:
            name = self._name(root_uuid)
            return NovaRecord(host=name or "", unknown=name is None)
        except NovaSilent as error:
            return NovaRecord(silence=str(error))

    def flavor(self, name: str) -> Flavor | None:
        """
        Return the flavor of this name or id, also one that is not public; None: nova shows no such flavor.

        Raises:
            NovaSilent: no answer, or none that says it.
        """
        query = {"is_public": "none", "limit": str(PAGE)}
        for _ in range(_PAGES):
            path = f"/flavors/detail?{urlencode(query)}"
            _, body = self._get(path)
            records = self._parsed(path, lambda body: [*body["flavors"]], body)
            for record in records:
                if name in (record["name"], record["id"]):
                    found: Flavor = self._parsed(path, parse_flavor, record)
                    return found
            if not body.get("flavors_links") or query.get("marker") == records[-1]["id"]:
                return None
            query["marker"] = records[-1]["id"]
        raise NovaSilent(f"{self.where} lists flavors without an end: see nova's log")

    def image(self, name: str) -> Mapping[str, str] | None:
        """Return the properties of the image of this name or id, as Glance told nova; None, errors: as ``flavor``."""
        path = f"/images/detail?{urlencode({'name': name})}"
        _, body = self._get(path, version=_OF_IMAGES)
        for record in self._parsed(path, lambda body: [*body["images"]], body):
            return {str(key): str(value) for key, value in record["metadata"].items()}
        status, body = self._get(f"/images/{quote(name, safe='')}", 404, version=_OF_IMAGES)
        return None if status == 404 else {str(key): str(value) for key, value in body["image"]["metadata"].items()}

    def _name(self, root_uuid: str) -> str | None:
        """Return nova's name of the host of a hypervisor; None if nova shows no such hypervisor."""
        path = f"/os-hypervisors/{root_uuid}"
        status, body = self._get(path, 404)
        return None if status == 404 else str(self._parsed(path, parse_host, body))

    def _host(self, root_uuid: str) -> str:
        """Return nova's name of the host; NovaSilent if nova shows no such hypervisor."""
        name = self._name(root_uuid)
        if name is None:
            raise NovaSilent(
                f"{self.where} has no hypervisor with the uuid of this host's root provider, {root_uuid}, or the "
                f"database of its cell is away: compare it with openstack hypervisor list"
            )
        return name

    def _servers(self, host: str) -> Iterator[NovaServer]:
        for server in self._listed("servers", {"all_tenants": "1", "host": host, "limit": str(PAGE)}):
            if server.host != host:
                raise NovaSilent(
                    f"{self.where} does not list the servers of host {host} alone, or does not show {HOST}: {RIGHTS}"
                )
            yield server

    def _one(self, uuid: str) -> NovaServer | NovaMigration | None:
        """Ask for one consumer that is in neither listing of the host; None: nova does not know it."""
        path = f"/servers/{uuid}"
        status, body = self._get(path, 404)
        if status == 200:
            known: NovaServer = self._parsed(path, lambda found: parse_server(found["server"]), body)
            return replace(known, uuid=uuid)
        listed: Iterator[NovaServer] = self._listed("servers", {"all_tenants": "1", "uuid": uuid, "limit": "2"})
        for server in listed:
            if server.uuid != uuid:
                raise NovaSilent(f"{self.where} ignores the filter uuid of a listing of servers: {RIGHTS}")
            return server
        # No filter takes a migration's uuid. A marker must be a migration of any host that nova has.
        status, _ = self._get(f"/os-migrations?{urlencode({'limit': '1', 'marker': uuid})}", 400)
        return None if status == 400 else NovaMigration(uuid=uuid, status="unknown", server="")

    def _listed(self, part: Literal["servers", "migrations"], query: dict[str, str]) -> Iterator[Any]:
        """
        Yield all servers, or migrations, of a listing.

        Servers are listed until no further page is named. Nova takes hidden migrations out of a page after it was cut,
        and names no further page then: migrations are listed until a page is empty.
        """
        path, parse = _LISTINGS[part]
        for _ in range(_PAGES):
            _, body = self._get(f"{path}?{urlencode(query)}")
            found = self._parsed(path, lambda body: [parse(one) for one in body[part]], body)
            yield from found
            if not found or not (body.get(NEXT) or part == "migrations"):
                return
            if found[-1].uuid == query.get("marker"):
                break
            query = {**query, "marker": found[-1].uuid}
        raise NovaSilent(f"{self.where} lists {part} without an end: see nova's log")

    def _parsed(self, path: str, parse: Any, body: Any) -> Any:
        try:
            return parse(body)
        except _FORM as error:
            raise self._strange(path, str(error)) from error

    def _get(self, path: str, *expected: int, version: str = VERSION) -> tuple[int, Any]:
        """
        Send one GET, and return status and body: 200, or one of ``expected`` if the answer is nova's own.

        Raises:
            NovaSilent: no answer, or none that says anything about the question.
        """
        try:
            answer = self._sender.request(path, "GET", microversion=version)
        except FAILURES as error:
            raise NovaSilent(explain(error, self.where, "nova")[0]) from error
        status, shown = answer.status_code, path.partition("?")[0]
        if status in (401, 403):
            raise NovaSilent(f"{self.where} answered GET {shown} with {status}: {RIGHTS}")
        if status == 406:
            raise NovaSilent(f"{self.where} does not support microversion {version}: upgrade nova, or remove [nova]")
        try:
            body = answer.json()
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict) or status not in (200, *expected) or _OWN.get(status, "") not in ("", *body):
            raise self._strange(shown, f"status {status}: {' '.join(str(answer.text).split())[:200]}")
        return status, body

    def _strange(self, path: str, why: str) -> NovaSilent:
        return NovaSilent(
            f"{self.where} gave no usable answer to GET {path.partition('?')[0]} ({why}): see nova's log, and make "
            f"sure that the endpoint is nova's, with its version (.../v2.1)"
        )
