"""
The cloud as a whole, started from nothing in a minute, and what a user or an operator does with it.

Unless a test asks for a real one, Neutron is a stand-in that has nothing: nova asks for the security groups even of
servers without networks.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy
from keystoneauth1.adapter import Adapter

from beds import databases, keystone, placement, wsgi
from beds.cloud import settings, sriov
from beds.cloud.rabbit import rabbitmq
from beds.cloud.settings import Where
from beds.keystone import ADMIN, NOVA, PLACEMENT, KeystoneServer, logged_in
from beds.placement import KeystoneAuth
from beds.process import LOOPBACK, BedError, Child, free_port, run, start, stop, tail, wait_until
from beds.proxy import Answer, Forward, Proxy, Request
from beds.synthetic.bed import Host
from beds.upgrades import write_config

PYTHON = Path(os.environ.get("NOVA_PYTHON") or Path(__file__).parents[3] / ".bench/nova/bin/python")
"""Of the environment with nova and Glance; another release's, where ``tools/releases.py`` says so."""
BIN, VENV = PYTHON.parent, PYTHON.parents[1]
HERE = Path(__file__).parent
COMPUTE_API = "2.96"
PATIENCE_S = 180
ROWS = """
SELECT allocations.consumer_id, resource_providers.name, resource_classes.name, allocations.used FROM allocations
JOIN resource_providers ON resource_providers.id = allocations.resource_provider_id
JOIN resource_classes ON resource_classes.id = allocations.resource_class_id
"""
UNTYPED, TYPED = "1.36", "1.39"  # placement's microversions before and with consumer types


@dataclass
class Compute:
    """A nova-compute on a synthetic host; it can be stopped and started again with other options."""

    cloud: "Cloud"
    host: Host
    folder: Path
    child: Child | None = None

    @property
    def config(self) -> Path:
        return self.folder / "nova.conf"

    @property
    def log(self) -> Path:
        return self.folder / "nova-compute.log"

    def start(self, **groups: Mapping[str, object]) -> None:
        """Start it, or start it anew, with these options over those that it needs."""
        self.stop()
        for folder in (self.cloud.disks, self.folder / "provider_config"):
            folder.mkdir(parents=True, exist_ok=True)
        helper = f"{BIN / 'privsep-helper'} --config-file {self.config}"
        wanted = settings.compute(self.cloud.where, self.folder, self.host.libvirtd.uri, helper, groups)
        wanted["DEFAULT"] |= {"log_file": self.log, "instances_path": self.cloud.disks}
        wanted["libvirt"] |= {"live_migration_tunnelled": True, "live_migration_uri": self._other_libvirtds}
        del wanted["DEFAULT"]["log_dir"]
        write_config(wanted, self.config)
        inside = ["nsenter", f"--target={self.host.libvirtd.pid}", "--mount", "--uts", "--"]
        command = [*inside, str(BIN / "nova-compute"), "--config-file", str(self.config)]
        self.child = start(command, directory=self.folder, log=self.folder / "out.log")

    @property
    def _other_libvirtds(self) -> str:
        """Where the libvirtd of a host of this cloud is, by ``%s``, the host's name."""
        socket = str(self.host.libvirtd.socket).replace(f"/{self.host.machine.name}/", "/%s/")
        return f"qemu+unix:///system?socket={socket}"

    def stop(self) -> None:
        """Stop it, if it runs: its periodic tasks hold it for a while."""
        if self.child:
            stop(self.child, patience=60)
            self.child = None

    def end(self) -> None:
        """Stop it, and what runs on its host."""
        self.stop()
        self.host.libvirtd.destroy_all()


@dataclass
class Cloud:
    """A running cloud; ``nova``, ``placement`` and ``glance`` are its APIs for an administrator."""

    folder: Path
    where: Where
    nova: Adapter
    placement: Adapter
    glance: Adapter
    computes: list[Compute] = field(default_factory=list)
    flavors: dict[str, str] = field(default_factory=dict)
    image: str = ""

    def add_compute(self, host: Host, **groups: Mapping[str, object]) -> Compute:
        """A host of the cloud, once the scheduler knows it."""
        one = Compute(self, host, self.folder / f"compute-{host.machine.name}")
        self.computes.append(one)
        one.start(**groups)
        self.wait(lambda: any(row["name"] == host.machine.name for row in self.providers()), "a root provider", one.log)
        _manage(self.folder / "control", "cell_v2", "discover_hosts")
        return one

    def add_flavor(self, name: str, specs: Mapping[str, str] | None = None, *, vcpus: int = 1, ram: int = 64) -> None:
        """A flavor with a disk of 1 GB, and with extra specs."""
        body = {"flavor": {"name": name, "vcpus": vcpus, "ram": ram, "disk": 1}}
        self.flavors[name] = self.nova.post("/flavors", json=body).json()["flavor"]["id"]
        if specs:
            self.nova.post(f"/flavors/{self.flavors[name]}/os-extra_specs", json={"extra_specs": dict(specs)})

    def add_image(self) -> None:
        """A small disk with nothing on it."""
        disk = self.folder / "blank.qcow2"
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", str(disk), "16M"], check=True)
        body = {"name": "blank", "disk_format": "qcow2", "container_format": "bare", "visibility": "public"}
        self.image = self.glance.post("/v2/images", json=body).json()["id"]
        headers = {"Content-Type": "application/octet-stream"}
        self.glance.put(f"/v2/images/{self.image}/file", data=disk.read_bytes(), headers=headers)

    def boot(self, name: str, flavor: str) -> str:
        """A server, once it is ACTIVE; its uuid."""
        body = {"name": name, "flavorRef": self.flavors[flavor], "imageRef": self.image, "networks": "none"}
        uuid = str(self.nova.post("/servers", json={"server": body}).json()["server"]["id"])
        self.settle(uuid, "ACTIVE")
        return uuid

    def act(self, uuid: str, action: str, options: Mapping[str, object] | None, *wanted: str) -> None:
        """An action of nova's API on a server, until it is in one of these states."""
        self.nova.post(f"/servers/{uuid}/action", json={action: options})
        self.settle(uuid, *wanted)

    def delete(self, uuid: str) -> None:
        """Delete a server, until nova does not know it."""
        self.nova.delete(f"/servers/{uuid}")
        self.wait(
            lambda: self.nova.get(f"/servers/{uuid}", raise_exc=False).status_code == 404, f"{uuid} to be deleted"
        )

    def allocations(self, consumer: str) -> dict[str, dict[str, int]]:
        """What a consumer holds, by the name of the provider."""
        names = {one["uuid"]: one["name"] for one in self.providers()}
        held = self.placement.get(f"/allocations/{consumer}").json()["allocations"]
        return {names[uuid]: one["resources"] for uuid, one in held.items()}

    def database(self, name: str) -> str:
        """The URL of another service's database."""
        return _named(self.where.database, name)

    def rows(self) -> dict[str, dict[str, dict[str, int]]]:
        """Who has what, as placement's database has it: consumer -> name of the provider -> class -> amount."""
        engine = sqlalchemy.create_engine(self.database("placement"))
        found: dict[str, dict[str, dict[str, int]]] = {}
        with engine.connect() as connection:
            for consumer, provider, name, used in connection.execute(sqlalchemy.text(ROWS)):
                found.setdefault(consumer, {}).setdefault(provider, {})[name] = used
        engine.dispose()
        return found

    def record(self, consumer: str) -> dict[str, Any]:
        """A consumer's allocations in the form in which nova writes them, which has no consumer type."""
        found: dict[str, Any] = self.placement.get(f"/allocations/{consumer}", microversion=UNTYPED).json()
        held = {uuid: {"resources": one["resources"]} for uuid, one in found["allocations"].items()}
        return {"consumer_generation": None, **found, "allocations": held}

    def write_record(self, consumer: str, record: Mapping[str, Any]) -> None:
        """Replace what a consumer has, as ``record`` shows it; a type may be added."""
        version = TYPED if "consumer_type" in record else UNTYPED
        self.placement.put(f"/allocations/{consumer}", json=dict(record), microversion=version)

    def set_service(self, host: str, **record: object) -> None:
        """Change the record of a host's nova-compute: its ``status`` "enabled" or "disabled", or ``forced_down``."""
        for one in self.nova.get(f"/os-services?binary=nova-compute&host={host}").json()["services"]:
            self.nova.put(f"/os-services/{one['id']}", json=record)

    def last_report(self, host: str) -> datetime:
        """When a host's nova-compute last told that it is up; it does so once it has started, and every ten seconds."""
        (one,) = self.nova.get(f"/os-services?binary=nova-compute&host={host}").json()["services"]
        return datetime.fromisoformat(one["updated_at"]).replace(tzinfo=UTC)

    @property
    def disks(self) -> Path:
        """Where servers have their disks: one folder for all hosts, and shared for libvirt too, by its name."""
        return self.folder / "shared-instances"

    def host_of(self, uuid: str) -> str:
        """The name of the host that nova has a server on."""
        server = self.nova.get(f"/servers/{uuid}").json()["server"]
        return str(server["OS-EXT-SRV-ATTR:host"])

    @contextmanager
    def forgotten(self, server: str) -> Iterator[None]:
        """A server that is deleted in nova's database, and nowhere else, for as long as the context lasts."""
        engine = sqlalchemy.create_engine(self.where.database)

        def mark(values: str) -> None:
            with engine.begin() as connection:
                statement = sqlalchemy.text(f"UPDATE instances SET {values} WHERE uuid = :server")
                connection.execute(statement, {"server": server})

        mark("deleted = id, deleted_at = NOW(), vm_state = 'deleted'")
        try:
            yield
        finally:
            mark("deleted = 0, deleted_at = NULL, vm_state = 'active'")
            engine.dispose()

    def settle(self, uuid: str, *wanted: str) -> None:
        """Until a server is in one of these states, and nova does nothing with it."""
        found: dict[str, Any] = {}

        def settled() -> bool:
            found.update(self.nova.get(f"/servers/{uuid}").json()["server"])
            ended = found["OS-EXT-STS:task_state"] is None or found["status"] == "ERROR"
            return ended and found["status"] in (*wanted, "ERROR")

        self.wait(settled, f"{uuid} to be {' or '.join(wanted)}")
        if found["status"] not in wanted:
            raise BedError(f"{uuid} is {found['status']}: {json.dumps(found.get('fault'))[:800]}")

    def providers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.placement.get("/resource_providers").json()["resource_providers"]
        return found

    def stocks(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Each provider's stock, by its name."""
        return {
            one["name"]: self.placement.get(f"/resource_providers/{one['uuid']}/inventories").json()["inventories"]
            for one in self.providers()
        }

    def traits(self, uuid: str) -> set[str]:
        return set(self.placement.get(f"/resource_providers/{uuid}/traits").json()["traits"])

    def wait(self, holds: Callable[[], bool], what: str, log: Path | None = None) -> None:
        told = f"the cloud waits for {what}"
        wait_until(holds, PATIENCE_S, lambda: f"{tail(log) if log else ''}\n{told}", pause_s=0.3)


def nothing_there(request: Request, _forward: Forward) -> Answer:
    """A Neutron without any network: each listing is empty."""
    part = request.path.partition("?")[0].removeprefix("/v2.0/").replace("-", "_")
    version = {"versions": [{"id": "v2.0", "status": "CURRENT", "links": [{"rel": "self", "href": "/v2.0/"}]}]}
    body = json.dumps({part: []} if request.path.startswith("/v2.0/") else version).encode()
    return Answer(200, (("Content-Type", "application/json"),), body)


@contextmanager
def serving(folder: Path, keystone_template: Path, *, with_neutron: bool = False) -> Iterator[Cloud]:
    """The cloud without a host, and with an image; ``with_neutron`` has a real one in place of a stand-in."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        enter = stack.enter_context
        rabbit = enter(rabbitmq(folder / "rabbit"))
        names = ("glance", "nova_api", "nova", "nova_cell0", "neutron", "cyborg")
        url = databases.with_driver(enter(databases.mariadb(folder / "database", *names)))
        ports = {name: free_port() for name in ("placement", "glance", "nova", "neutron", "cyborg")}
        bases = {name: f"http://{LOOPBACK}:{port}" for name, port in ports.items()}
        identity = enter(
            keystone.serving(folder / "keystone", keystone_template, placement_url=bases["placement"], token_s=86400)
        )
        user = PLACEMENT
        auth = KeystoneAuth(identity.url, user.username, user.password, user.project, None, token_cache_seconds=60)
        enter(
            placement.serving_on(url, folder / "placement", port=ports["placement"], auth=auth, random_candidates=True)
        )
        stand_in = enter(Proxy("http://unused", hook=nothing_there))
        where = Where(
            keystone=identity.url,
            placement=bases["placement"],
            glance=bases["glance"],
            neutron=bases["neutron"] if with_neutron else stand_in.url,
            nova=f"{bases['nova']}/v2.1",
            cyborg=f"{bases['cyborg']}/accelerator/v2",
            rabbit=rabbit,
            database=_named(url, "nova"),
        )
        if with_neutron:
            enter(sriov.serving(folder / "neutron", where, _named(url, "neutron"), ports["neutron"]))
        enter(_glance(folder / "glance", where, _named(url, "glance"), ports["glance"]))
        enter(_control(folder / "control", where, url, ports["nova"]))
        yield enter(_opened(folder, where, identity, bases))


@contextmanager
def _opened(folder: Path, where: Where, identity: KeystoneServer, bases: Mapping[str, str]) -> Iterator[Cloud]:
    with logged_in(identity, ADMIN) as admin, logged_in(identity, NOVA) as service:
        cloud = Cloud(
            folder=folder,
            where=where,
            nova=Adapter(
                admin,
                endpoint_override=where.nova,
                service_type="compute",
                default_microversion=COMPUTE_API,
            ),
            placement=Adapter(
                service, endpoint_override=bases["placement"], service_type="placement", default_microversion="1.39"
            ),
            glance=Adapter(admin, endpoint_override=bases["glance"], service_type="image"),
        )
        cloud.add_image()
        try:
            yield cloud
        finally:
            for one in cloud.computes:
                one.end()


@contextmanager
def _glance(folder: Path, where: Where, database: str, port: int) -> Iterator[None]:
    for name in ("images", "staging", "tasks"):
        (folder / name).mkdir(parents=True)
    # Up to 2025.1 Glance looks for it beside its configuration.
    paste = Path(shutil.copy(VENV / "etc/glance/glance-api-paste.ini", folder))
    config = write_config(settings.glance(where, folder, database, paste), folder / "glance-api.conf")
    run(
        [str(BIN / "glance-manage"), "--config-file", str(config), "db_sync"], directory=folder, log=folder / "sync.log"
    )
    environment = {"OS_GLANCE_CONFIG_DIR": str(folder), "OS_GLANCE_CONFIG_FILES": config.name}
    with _serving_app("glance", folder, port, environment):
        yield


@contextmanager
def _control(folder: Path, where: Where, url: str, port: int) -> Iterator[None]:
    """nova's API, conductor and scheduler, and its databases."""
    folder.mkdir(parents=True)
    shutil.copy(VENV / "etc/nova/api-paste.ini", folder)  # nova looks for it beside its configuration
    config = write_config(settings.control(where, folder, _named(url, "nova_api")), folder / "nova.conf")
    _manage(folder, "api_db", "sync")
    _manage(folder, "cell_v2", "map_cell0", "--database_connection", _named(url, "nova_cell0"))
    _manage(folder, "db", "sync")
    _manage(folder, "cell_v2", "create_cell", "--name", "cell1")
    with ExitStack() as stack:
        for name in ("conductor", "scheduler"):
            command = [str(BIN / f"nova-{name}"), "--config-file", str(config)]
            stack.callback(stop, start(command, directory=folder, log=folder / f"{name}.out"))
        stack.enter_context(_serving_app("nova", folder, port, {"OS_NOVA_CONFIG_DIR": str(folder)}))
        yield


@contextmanager
def _serving_app(app: str, folder: Path, port: int, environment: Mapping[str, str]) -> Iterator[None]:
    inside = {"APP": app, "PYTHONPATH": str(HERE), **environment}
    with wsgi.serving(
        "wsgi_apps:application",
        directory=folder,
        port=port,
        tls=None,
        environment=inside,
        threads=4,
        python=BIN / "python",
    ):
        yield


def _manage(folder: Path, *arguments: str) -> None:
    command: Sequence[str] = [str(BIN / "nova-manage"), "--config-file", str(folder / "nova.conf"), *arguments]
    run(command, directory=folder, log=folder / "manage.log")


def _named(url: str, name: str) -> str:
    """The same server's database of another name."""
    return f"{url.rpartition('/')[0]}/{name}?charset=utf8"
