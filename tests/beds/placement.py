"""A real placement over HTTP: on a SQLite file of its own, or on a database server."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, assert_never

from beds import template, wsgi
from beds.process import free_port, run
from beds.tls import Certificates
from beds.written import check_writes

DATABASE = "placement.sqlite"
OTHER = Path(value) if (value := os.environ.get("PLACEMENT_PYTHON")) else None
"""The Python of an environment with another release of placement, which is served then (``tools/releases.py``)."""
PYTHON = OTHER or Path(sys.executable)
APPLICATION = "placement.wsgi:init_application()"  # ``placement.wsgi.api`` came with 13
NOAUTH_HEADERS: Final = MappingProxyType({"X-Auth-Token": "admin", "X-Roles": "service"})
"""What a client of a ``NoAuth`` server sends: without the roles header the token alone makes an admin."""


@dataclass(frozen=True, slots=True)
class NoAuth:
    """placement's ``noauth2``: the headers are believed."""


@dataclass(frozen=True, slots=True)
class KeystoneAuth:
    """Tokens are validated at ``url`` (with ``/v3``), as a user who has the role service only."""

    url: str
    username: str
    password: str
    project: str
    cafile: Path | None
    token_cache_seconds: int = 1


Auth = NoAuth | KeystoneAuth


@dataclass(frozen=True, slots=True)
class PlacementServer:
    """A running placement; ``url`` has no slash at the end, ``cafile`` is None without TLS."""

    url: str
    directory: Path
    log: Path
    cafile: Path | None


def placement_template(cache: Path) -> Path:
    """A directory with a database whose schema, traits and resource classes are in place."""
    return template.cached(cache, "openstack-placement", PYTHON, _make_template, Path(__file__))


@contextmanager
def serving(
    directory: Path,
    template_directory: Path,
    *,
    auth: Auth = NoAuth(),
    tls: Certificates | None = None,
    port: int | None = None,
) -> Iterator[PlacementServer]:
    """Serve from ``directory``, which begins as a copy of the template and keeps its data for another start."""
    directory.mkdir(parents=True, exist_ok=True)
    template.copy_once(template_directory / DATABASE, directory / DATABASE)
    with _serving(directory, auth, tls, port or free_port(), sync=False) as server:
        yield server


@contextmanager
def serving_on(
    database: str,
    directory: Path,
    *,
    workers: int = 2,
    threads: int = 4,
    port: int | None = None,
    auth: Auth = NoAuth(),
    random_candidates: bool = False,
    pauses: bool = False,
) -> Iterator[PlacementServer]:
    """
    Serve what the database of this URL holds, with several workers; its tables are made when they are missing.

    ``random_candidates`` gives allocation candidates in random order, which is otherwise the database's. With
    ``pauses`` the log has those of the workers (``beds.wsgi.PAUSE``).
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "placement.conf").write_text(_configuration(database, auth, sync=False))
    environment = {
        "OS_PLACEMENT_CONFIG_DIR": str(directory),
        "OS_PLACEMENT__RANDOMIZE_ALLOCATION_CANDIDATES": str(random_candidates),
    }
    command = [str(PYTHON.parent / "placement-manage"), "--config-dir", str(directory), "db", "sync"]
    run(command, directory=directory, log=directory / "sync.log", environment=environment)
    port = port or free_port()
    with wsgi.serving(
        APPLICATION,
        directory=directory,
        port=port,
        tls=None,
        environment=environment,
        workers=workers,
        threads=threads,
        python=OTHER,
        pauses=pauses,
    ) as log:
        yield PlacementServer(wsgi.base_url(port, None), directory, log, None)
    check_writes(log)


@contextmanager
def _serving(
    directory: Path, auth: Auth, tls: Certificates | None, port: int, *, sync: bool
) -> Iterator[PlacementServer]:
    (directory / "placement.conf").write_text(_configuration(f"sqlite:///{directory / DATABASE}", auth, sync=sync))
    environment = {"OS_PLACEMENT_CONFIG_DIR": str(directory)}
    with wsgi.serving(
        APPLICATION,
        directory=directory,
        port=port,
        tls=tls,
        environment=environment,
        python=OTHER,
    ) as log:
        yield PlacementServer(wsgi.base_url(port, tls), directory, log, tls.ca if tls else None)
    check_writes(log)


def _make_template(made: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        with _serving(Path(scratch), NoAuth(), None, free_port(), sync=True):
            pass
        template.copy_once(Path(scratch) / DATABASE, made / DATABASE)


def _configuration(database: str, auth: Auth, *, sync: bool) -> str:
    strategy, section = _authentication(auth)
    return f"""\
[api]
auth_strategy = {strategy}
[placement_database]
connection = {database}
sync_on_startup = {sync}
{section}"""


def _authentication(auth: Auth) -> tuple[str, str]:
    match auth:
        case NoAuth():
            return "noauth2", ""
        case KeystoneAuth():
            return "keystone", authtoken(auth, "placement")
        case _:
            assert_never(auth)


def authtoken(auth: KeystoneAuth, service_type: str) -> str:
    """keystonemiddleware's section; the type is what access rules of an application credential are compared with."""
    return f"""\
[keystone_authtoken]
www_authenticate_uri = {auth.url}
auth_url = {auth.url}
auth_type = password
username = {auth.username}
password = {auth.password}
project_name = {auth.project}
user_domain_id = default
project_domain_id = default
service_type = {service_type}
service_token_roles_required = True
token_cache_time = {auth.token_cache_seconds}
{f"cafile = {auth.cafile}" if auth.cafile else ""}
"""
