"""A real Keystone on a SQLite file of its own: the users of a deployment, and placement in its catalog."""

import datetime
import os
import sqlite3
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from cryptography.fernet import Fernet
from keystoneauth1.adapter import Adapter
from keystoneauth1.identity import v3
from keystoneauth1.session import Session

from beds import template, wsgi
from beds.process import free_port, run
from beds.tls import Certificates

DATABASE = "keystone.sqlite"
OTHER = Path(value) if (value := os.environ.get("KEYSTONE_PYTHON")) else None  # another release's: tools/releases.py
PYTHON = OTHER or Path(sys.executable)
APPLICATION = "keystone.server.wsgi:initialize_public_application()"  # ``keystone.wsgi.api`` came with 27
KEYS = ("fernet", "credential")
REGION = "RegionOne"
# Endpoints are rows of the database. The template holds these, and each server puts its own in their place.
TEMPLATE_KEYSTONE = "http://keystone.invalid/v3"
TEMPLATE_PLACEMENT = "http://placement.invalid"


@dataclass(frozen=True, slots=True)
class Login:
    """A user of the domain ``default``, scoped to a project of it; roles are those on that project."""

    username: str
    password: str
    project: str
    roles: tuple[str, ...]


ADMIN = Login("admin", "admin-password", "admin", ("admin",))  # made by keystone-manage bootstrap
AGENT = Login("agent", "agent-password", "service", ("service",))
AGENT_ADMIN = Login("agent-admin", "agent-admin-password", "service", ("admin",))
AGENT_READER = Login("agent-reader", "agent-reader-password", "service", ("reader",))
NOVA = Login("nova", "nova-password", "service", ("service", "admin"))
PLACEMENT = Login("placement-mw", "placement-mw-password", "service", ("service",))
SEEDED = (AGENT, AGENT_ADMIN, AGENT_READER, NOVA, PLACEMENT)


@dataclass(frozen=True, slots=True)
class ApplicationCredential:
    """What an agent logs in with instead of a password; ``owner`` made it and may delete it."""

    id: str
    secret: str
    owner: Login


@dataclass(frozen=True, slots=True)
class KeystoneServer:
    """A running Keystone; ``url`` ends with ``/v3``, ``cafile`` is None without TLS."""

    url: str
    directory: Path
    log: Path
    cafile: Path | None


def keystone_template(cache: Path) -> Path:
    """A directory with keys and a seeded database; making it takes about 10 seconds."""
    return template.cached(cache, "keystone", PYTHON, _make_template, Path(__file__))


@contextmanager
def serving(
    directory: Path,
    template_directory: Path,
    *,
    placement_url: str,
    tls: Certificates | None = None,
    port: int | None = None,
    token_s: int = 3600,
    caches: bool = False,
) -> Iterator[KeystoneServer]:
    """
    Serve from ``directory``, a copy of the template whose catalog has this server and ``placement_url``.

    Its tokens are good for ``token_s`` seconds. ``caches``: it remembers users, roles and the catalog, as a real one
    does; then what is changed in it may take effect later.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name in (DATABASE, *KEYS):
        template.copy_once(template_directory / name, directory / name)
    bound = port or free_port()
    _put_endpoints(directory / DATABASE, keystone_url=f"{wsgi.base_url(bound, tls)}/v3", placement_url=placement_url)
    with _serving(directory, tls, bound, token_s, caches=caches) as server:
        yield server


def login_options(url: str, login: Login, **more: object) -> dict[str, object]:
    """How a service logs in, as a group of its configuration has it; ``url`` is Keystone's, with ``/v3``."""
    return {
        "auth_type": "password",
        "auth_url": url,
        "username": login.username,
        "password": login.password,
        "project_name": login.project,
        "user_domain_id": "default",
        "project_domain_id": "default",
        **more,
    }


@contextmanager
def logged_in(server: KeystoneServer, login: Login | ApplicationCredential = AGENT) -> Iterator[Session]:
    """A keystoneauth session which closes its connections in the end."""
    with requests.Session() as http:
        http.trust_env = False
        yield Session(auth=_auth(server, login), session=http, verify=str(server.cafile) if server.cafile else True)


def system_token(server: KeystoneServer) -> str:
    """A token of the administrator of the whole cloud, as Ironic wants one who deletes nodes."""
    auth = v3.Password(
        server.url,
        username=ADMIN.username,
        password=ADMIN.password,
        user_domain_id="default",
        system_scope="all",
    )
    with requests.Session() as http:
        http.trust_env = False
        session = Session(auth=auth, session=http, verify=str(server.cafile) if server.cafile else True)
        return str(session.get_token())


def create_application_credential(
    server: KeystoneServer, owner: Login = AGENT, *, expires_in: float | None = None
) -> ApplicationCredential:
    """A credential with all roles of its owner, for ever or for ``expires_in`` seconds from now."""
    body: dict[str, Any] = {"name": uuid.uuid4().hex}
    with logged_in(server, owner) as session:
        path = f"/users/{session.get_user_id()}/application_credentials"
        if expires_in is not None:
            end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=expires_in)
            body["expires_at"] = end.strftime("%Y-%m-%dT%H:%M:%S.%f")
        made = _post(Adapter(session, endpoint_override=server.url), path, "application_credential", body)
    return ApplicationCredential(made["id"], made["secret"], owner)


def delete_application_credential(server: KeystoneServer, credential: ApplicationCredential) -> None:
    """Take the credential away; a token which came from it lives on in caches."""
    with logged_in(server, credential.owner) as session:
        path = f"/users/{session.get_user_id()}/application_credentials/{credential.id}"
        Adapter(session, endpoint_override=server.url).delete(path)


@contextmanager
def _serving(
    directory: Path, tls: Certificates | None, port: int, token_s: int = 3600, *, caches: bool = False
) -> Iterator[KeystoneServer]:
    environment = {"OS_KEYSTONE_CONFIG_FILES": str(_write_configuration(directory, token_s, caches=caches))}
    with wsgi.serving(
        APPLICATION, directory=directory, port=port, tls=tls, environment=environment, python=OTHER
    ) as log:
        yield KeystoneServer(f"{wsgi.base_url(port, tls)}/v3", directory, log, tls.ca if tls else None)


def _auth(server: KeystoneServer, login: Login | ApplicationCredential) -> v3.Password | v3.ApplicationCredential:
    if isinstance(login, ApplicationCredential):
        return v3.ApplicationCredential(
            server.url, application_credential_id=login.id, application_credential_secret=login.secret
        )
    return v3.Password(
        server.url,
        username=login.username,
        password=login.password,
        project_name=login.project,
        user_domain_id="default",
        project_domain_id="default",
    )


def _make_template(made: Path) -> None:
    for repository in KEYS:
        _make_keys(made / repository)
    configuration = _write_configuration(made)
    _manage(configuration, "db_sync")
    if OTHER:  # before 2026.2 one request has two sessions, and locks itself out; it stays with the file
        with closing(sqlite3.connect(made / DATABASE)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
    _manage(configuration, "bootstrap", *_bootstrap_options())
    with _serving(made, None, free_port()) as server, logged_in(server, ADMIN) as session:
        _seed(Adapter(session, endpoint_override=server.url))


def _make_keys(repository: Path) -> None:
    # What keystone-manage fernet_setup leaves: 0 is staged, the highest is primary. Two processes less.
    repository.mkdir(mode=0o700)
    for index in range(2):
        key = repository / str(index)
        key.touch(mode=0o600)
        key.write_bytes(Fernet.generate_key())


def _manage(configuration: Path, *arguments: str) -> None:
    command = [str(PYTHON.with_name("keystone-manage")), "--config-file", str(configuration), *arguments]
    run(command, directory=configuration.parent, log=configuration.with_name("manage.log"))


def _bootstrap_options() -> Iterator[str]:
    values = {
        "username": ADMIN.username,
        "password": ADMIN.password,
        "project-name": ADMIN.project,
        "role-name": "admin",
        "service-name": "keystone",
        "region-id": REGION,
        "public-url": TEMPLATE_KEYSTONE,
        "internal-url": TEMPLATE_KEYSTONE,
        "admin-url": TEMPLATE_KEYSTONE,
    }
    for name, value in values.items():
        yield from (f"--bootstrap-{name}", value)


def _seed(keystone: Adapter) -> None:
    roles = {role["name"]: role["id"] for role in keystone.get("/roles").json()["roles"]}
    for name in {role for login in SEEDED for role in login.roles} - roles.keys():  # up to 2023.1 there is no service
        roles[name] = _post(keystone, "/roles", "role", {"name": name})["id"]
    project = _post(keystone, "/projects", "project", {"name": "service", "domain_id": "default"})["id"]
    for login in SEEDED:
        body = {"name": login.username, "password": login.password, "domain_id": "default"}
        user = _post(keystone, "/users", "user", body)["id"]
        for role in login.roles:
            keystone.put(f"/projects/{project}/users/{user}/roles/{roles[role]}")
    service = _post(keystone, "/services", "service", {"type": "placement", "name": "placement"})["id"]
    for interface in ("public", "internal", "admin"):
        endpoint = {"service_id": service, "interface": interface, "url": TEMPLATE_PLACEMENT, "region_id": REGION}
        _post(keystone, "/endpoints", "endpoint", endpoint)


def _post(keystone: Adapter, path: str, key: str, body: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = keystone.post(path, json={key: body}).json()[key]
    return answer


def _put_endpoints(database: Path, *, keystone_url: str, placement_url: str) -> None:
    rows: Sequence[tuple[str, str]] = ((keystone_url, "identity"), (placement_url, "placement"))
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.executemany(
            "UPDATE endpoint SET url = ? WHERE service_id IN (SELECT id FROM service WHERE type = ?)", rows
        )


def _write_configuration(directory: Path, token_s: int = 3600, *, caches: bool = False) -> Path:
    configuration = directory / "keystone.conf"
    configuration.write_text(f"""\
[database]
connection = sqlite:///{directory / DATABASE}
[token]
provider = fernet
expiration = {token_s}
[fernet_tokens]
key_repository = {directory / "fernet"}
[fernet_receipts]
key_repository = {directory / "fernet"}
[credential]
key_repository = {directory / "credential"}
[identity]
password_hash_rounds = 4
[cache]
enabled = {caches}
backend = {"dogpile.cache.memory" if caches else "dogpile.cache.null"}
""")
    return configuration
