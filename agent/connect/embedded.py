"""
Runs placement in this process: on a SQLite file for trials and tests, or on a cloud's database while its API is down.

It is placement's own application with its own rules, called without a socket.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
import webob
from alembic.script import ScriptDirectory
from oslo_config import cfg
from oslo_db.exception import DBError
from placement import conf as placement_conf
from placement import db_api, deploy, policy
from placement.db.sqlalchemy import migration
from requests.adapters import BaseAdapter
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from agent.connect.adapters import EMBEDDED_URL, open_embedded
from agent.errors import ConfigError, StateError
from agent.settings.resolve import literal
from reportclient.keystone import Sender

CONNECTS = 3  # attempts to connect to a database
_FILE = "placement.sqlite"
_ERRORS = (SQLAlchemyError, DBError, OSError)
_DRIVERS = {"postgresql": "postgresql+psycopg2", "mysql": "mysql+pymysql", "mariadb": "mysql+pymysql"}


def open_file(folder: Path, *, writes: bool) -> Sender:
    """
    Return a sender to placement on a SQLite file in a folder; both are made if ``writes``, else it may be an empty one.

    Call it once per process: placement keeps its database in global state.

    Raises:
        StateError: the file cannot be used.
    """
    if set(str(folder)) & set("%?#"):
        raise StateError(
            f"--embedded-dir: {folder} has a %, ? or # in it, which a database URL cannot have: name another folder"
        )
    with _usable(f"the embedded placement in {folder}", "name another --embedded-dir"):
        if writes:
            folder.mkdir(parents=True, exist_ok=True)
        file = f"/{folder / _FILE}" if writes or (folder / _FILE).exists() else ""  # empty: in memory
        barred = next((one for one in (folder, folder / _FILE) if one.exists() and not os.access(one, os.W_OK)), None)
        return _sender(deploy.loadapp(_configure(f"sqlite://{file}", make_tables=True)), barred)


def open_database(database: str) -> tuple[Sender, str]:
    """
    Return a sender to placement on the cloud's own database, and the database's name for messages.

    It makes and upgrades nothing in the database, not even standard traits. Call it once per process.

    Raises:
        ConfigError: the URL names no database, or the Python package of its driver is not installed.
        StateError: the database cannot be used, or is not of the installed release of placement.
    """
    try:
        name = f"the placement database {name_of(database)}"
    except (*_ERRORS, ValueError) as error:
        raise ConfigError(
            "--database names no database: write it as postgresql://USER:PASSWORD@HOST/placement, with an @ in "
            "the password as %40 and a / as %2F"
        ) from error
    with _usable(name, "does it run, and may this user read and write it?"):
        conf = _configure(_with_driver(database), make_tables=False)
        stands = migration.version()
        made_for = ScriptDirectory.from_config(migration._alembic_config()).get_current_head()
        if stands != made_for:
            raise StateError(
                f"{name} is not used: its schema is {stands or 'none'}, and the openstack-placement installed here "
                f"needs {made_for}, that of 2023.2 to 2026.2: start the cloud's placement and leave out --database, "
                f"or upgrade its database first"
            )
        policy.init(conf)
        return _sender(deploy.deploy(conf)), name


@contextmanager
def _usable(name: str, advice: str) -> Iterator[None]:
    """Say in one sentence why a database cannot be used."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"{name} needs the Python package {error.name}: pip install 'compute-node-agent[offline]'"
        ) from error
    except _ERRORS as error:
        cause = " ".join(str(error).partition("(Background on")[0].split())[:200]
        raise StateError(f"{name} cannot be used: {cause}: {advice}") from error


def name_of(database: str) -> str:
    """
    Return a database's URL without its password, for messages.

    Raises:
        ValueError: the URL names no database, or its password has an @ that is not escaped.
    """
    url = make_url(database)
    if not url.drivername or (url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file()):
        raise ValueError("no database of this name")
    if "@" in (url.host or ""):  # the end of a password, which the driver would show as a host name in its error
        raise ValueError("a password with an @ in it")
    secret = {key: "***" for key in url.query if "passw" in key.lower()}
    return url.update_query_dict(secret).render_as_string(hide_password=True)


def _with_driver(database: str) -> str:
    """Return the URL; if it names no driver, with the one that the extra ``offline`` installs."""
    made = make_url(database)
    return made.set(drivername=_DRIVERS.get(made.drivername, made.drivername)).render_as_string(hide_password=False)


def _configure(connection: str, *, make_tables: bool) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    placement_conf.register_opts(conf)
    conf.set_override("auth_strategy", "noauth2", group="api")
    conf.set_override("connection", literal(connection), group="placement_database")
    conf.set_override("sync_on_startup", make_tables, group="placement_database")
    conf.set_override("max_retries", CONNECTS, group="placement_database")
    conf.set_override("retry_interval", 1, group="placement_database")
    conf([], project="placement", default_config_files=[], default_config_dirs=[])
    db_api.configure(conf)
    return conf


def _sender(application: Any, barred: Path | None = None) -> Sender:
    session = requests.Session()
    session.mount(EMBEDDED_URL, _InProcess(application, barred))
    return open_embedded(session)


class _InProcess(BaseAdapter):
    """Passes requests to a WSGI application in this process, but no write where a file of its is ``barred``."""

    def __init__(self, application: Any, barred: Path | None) -> None:
        super().__init__()
        self._application, self._barred = application, barred

    def send(self, request: requests.PreparedRequest, *_: object, **__: object) -> requests.Response:
        if self._barred and request.method != "GET":
            raise StateError(f"{self._barred} cannot be written: run as its owner, or name another --embedded-dir")
        body = request.body or b""
        data = body.encode() if isinstance(body, str) else bytes(body)
        asked = webob.Request.blank(request.url, method=request.method, headers=dict(request.headers), body=data)
        told = asked.send(self._application)
        response = requests.Response()
        response.status_code = told.status_code
        response.headers.update(told.headers)
        response.url = request.url or ""
        response.request = request
        response._content = told.body
        return response

    def close(self) -> None:
        """Do nothing: no connection is open."""
