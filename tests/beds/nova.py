"""A stand-in for nova's API at the HTTP edge: the requests that the audit sends, answered as nova 34's source says."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from agent.nova.client import VERSION
from beds.proxy import Answer, Forward, Proxy, Request

SECRET = "aHVudGVyMg=="  # in each server's user data
HOST = "nova-host"  # nova's name of the host, which is not the hypervisor's


@dataclass
class FakeNova:
    """
    Servers, migrations and hypervisors of one cell.

    ``fault`` may answer a request in nova's stead; None: nova answers. ``all_projects`` False: a user whose policy
    allows the listings, and whom the database still shows only its own project, which is empty. ``filters`` False:
    nova ignores the filters that only an administrator may use.
    """

    servers: list[dict[str, Any]] = field(default_factory=list)
    migrations: list[dict[str, Any]] = field(default_factory=list)
    hypervisors: dict[str, str] = field(default_factory=dict)  # uuid -> nova's name of the host
    flavors: list[dict[str, Any]] = field(default_factory=list)
    images: list[dict[str, Any]] = field(default_factory=list)
    max_limit: int = 1000
    all_projects: bool = True
    filters: bool = True
    fault: Callable[[Request], Answer | None] = field(default=lambda _request: None)
    asked: list[str] = field(default_factory=list)  # path and query of each request, without the version

    def add_server(self, uuid: str, host: str | None = HOST, status: str = "ACTIVE", task: str | None = None) -> None:
        self.servers.append(
            {
                "id": uuid,
                "status": status,
                "OS-EXT-SRV-ATTR:host": host,
                "OS-EXT-SRV-ATTR:hypervisor_hostname": "four-cells",
                "OS-EXT-STS:task_state": task,
                "OS-EXT-SRV-ATTR:user_data": SECRET,
                "metadata": {"admin_pass": SECRET},
            }
        )

    def add_migration(self, uuid: str, of: str, status: str, *, host: str = HOST, hidden: bool = False) -> None:
        self.migrations.append(
            {
                "uuid": uuid,
                "instance_uuid": of,
                "status": status,
                "source_compute": host,
                "dest_compute": "other-nova-host",
                "migration_type": "resize",
                "hidden": hidden,
            }
        )

    def answer(self, request: Request, _forward: Forward | None = None) -> Answer:
        """Answer a request; a hook of a proxy that has no upstream."""
        path, _, query = request.path.removeprefix("/v2.1").partition("?")
        self.asked.append(path + ("?" + query if query else ""))
        if (failed := self.fault(request)) is not None:
            return failed
        options = dict(parse_qsl(query))
        if path.startswith("/os-hypervisors/"):
            return self._hypervisor(path.rpartition("/")[2])
        if path == "/servers/detail":
            return self._servers(options)
        if path.startswith("/servers/"):
            found = [one for one in self.servers if one["id"] == path.rpartition("/")[2] and self.all_projects]
            return as_json(200, {"server": found[0]}) if found else refused(404)
        if path == "/os-migrations":
            return self._migrations(options)
        if path == "/flavors/detail":
            return self._flavors(options)
        if path == "/images/detail":
            return as_json(200, {"images": [one for one in self.images if one["name"] == options["name"]]})
        if path.startswith("/images/"):
            found = [one for one in self.images if one["id"] == path.rpartition("/")[2]]
            return as_json(200, {"image": found[0]}) if found else refused(404)
        return Answer(404, (), b"<html>no such page</html>")

    def add_flavor(self, name: str, **specs: str) -> None:
        sizes = {"vcpus": 4, "ram": 2048, "disk": 10, "OS-FLV-EXT-DATA:ephemeral": 0, "swap": 512}
        self.flavors.append({"id": f"id of {name}", "name": name, "extra_specs": specs, **sizes})

    def _flavors(self, options: dict[str, str]) -> Answer:
        page, more = self._page(self.flavors, "id", options)
        return as_json(200, {"flavors": page} | ({"flavors_links": [{"rel": "next"}]} if more else {}))

    def _hypervisor(self, uuid: str) -> Answer:
        if uuid not in self.hypervisors:
            return refused(404)
        service = {"host": self.hypervisors[uuid], "id": "s"}
        return as_json(200, {"hypervisor": {"id": uuid, "hypervisor_hostname": "four-cells", "service": service}})

    def _servers(self, options: dict[str, str]) -> Answer:
        assert options["all_tenants"] == "1"
        found = self.servers
        if self.filters and "host" in options:
            found = [one for one in found if one["OS-EXT-SRV-ATTR:host"] == options["host"]]
        if self.filters and "uuid" in options:
            found = [one for one in found if one["id"] == options["uuid"]]
        page, more = self._page(found, "id", options)
        if page is None:
            return refused(400)
        links = {"servers_links": [{"rel": "next", "href": f"http://nova?{SECRET}"}]} if more else {}
        return as_json(200, {"servers": page, **links})

    def _migrations(self, options: dict[str, str]) -> Answer:
        assert options.keys() <= {"host", "limit", "marker"}, "nova refuses other filters"
        found = self.migrations
        if "host" in options:
            found = [one for one in found if options["host"] in (one["source_compute"], one["dest_compute"])]
        if "marker" in options and options["marker"] not in {one["uuid"] for one in self.migrations}:
            return refused(400)
        if "host" not in options:
            options = {"limit": options["limit"]}
        page, more = self._page(found, "uuid", options)
        if page is None:
            return refused(400)
        shown = [{key: value for key, value in one.items() if key != "hidden"} for one in page if not one["hidden"]]
        links = {"migrations_links": [{"rel": "next"}]} if more and len(shown) == len(page) else {}
        return as_json(200, {"migrations": shown, **links})

    def _page(
        self, found: list[dict[str, Any]], key: str, options: dict[str, str]
    ) -> tuple[list[dict[str, Any]] | None, bool]:
        """Return one page, None for an unknown marker, and whether it is a full one."""
        limit, start = min(int(options["limit"]), self.max_limit), 0
        if "marker" in options:
            places = [number for number, one in enumerate(found) if one[key] == options["marker"]]
            if not places:
                return None, False
            start = places[0] + 1
        page = found[start : start + limit]
        return page, len(page) == limit


class Direct:
    """Sends to a stand-in in this process, as a keystoneauth adapter does."""

    def __init__(self, nova: FakeNova) -> None:
        self._nova = nova

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        assert (method, kwargs["microversion"]) == ("GET", "2.1" if url.startswith("/images") else VERSION)
        return Reply(self._nova.answer(Request(method, url)))


class Reply:
    def __init__(self, answer: Answer) -> None:
        self.status_code = answer.status
        self.headers = dict(answer.headers)
        self.content = answer.body
        self.text = answer.body.decode()

    def json(self) -> Any:
        return json.loads(self.text)


def as_json(status: int, body: object) -> Answer:
    return Answer(status, (("Content-Type", "application/json"),), json.dumps(body).encode())


def refused(status: int) -> Answer:
    """Nova's own refusal."""
    kind = {400: "badRequest", 403: "forbidden", 404: "itemNotFound", 500: "computeFault"}[status]
    return as_json(status, {kind: {"code": status, "message": "refused"}})


def failing(status: int, part: str = "/") -> Callable[[Request], Answer | None]:
    """A fault: this status for each request whose path has ``part``."""
    return lambda request: refused(status) if part in request.path else None


@contextmanager
def serving_nova(nova: FakeNova) -> Iterator[str]:
    """Serve it on loopback; yields its URL with the version."""
    with Proxy("http://unused", hook=nova.answer) as proxy:
        yield f"{proxy.url}/v2.1"
