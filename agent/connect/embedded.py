"""
Runs placement in this process: on a SQLite file for trials and tests, or on a cloud's database while its API is down.

It is placement's own application with its own rules, called without a socket.
"""

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

from agent.settings.resolve import literal

DATABASE = "placement.sqlite"
DATABASE_ERRORS = (SQLAlchemyError, DBError, OSError)
CONNECTS = 3  # attempts to connect to a database
_DRIVERS = {"postgresql": "postgresql+psycopg2", "mysql": "mysql+pymysql", "mariadb": "mysql+pymysql"}


class WrongSchema(Exception):
    """The database's schema is not that of the installed release of placement, so the agent must not use it."""


def open_application(folder: Path | None, url: str) -> requests.Session:
    """
    Return a requests session whose requests to ``url`` are answered by placement on a SQLite file in ``folder``.

    ``folder`` None: an empty database in memory. A missing file is made, with its tables. Call it once per process:
    placement keeps its database in global state.
    """
    file = f"/{folder / DATABASE}" if folder else ""
    conf = _configure(f"sqlite://{file}", make_tables=True)
    return _session(url, deploy.loadapp(conf))


def open_database(database: str, url: str) -> requests.Session:
    """
    Return a requests session whose requests to ``url`` are answered by placement on the cloud's own database.

    It makes and upgrades nothing in the database, not even standard traits. Call it once per process.

    Raises:
        WrongSchema: the database is not of the installed release of placement.
        DATABASE_ERRORS: the database cannot be used.
        ImportError: the Python package of the database's driver is not installed.
    """
    conf = _configure(_with_driver(database), make_tables=False)
    stands = migration.version()
    made_for = ScriptDirectory.from_config(migration._alembic_config()).get_current_head()
    if stands != made_for:
        raise WrongSchema(
            f"its schema is {stands or 'none'}, and the openstack-placement installed here needs {made_for}: "
            f"install the cloud's release of openstack-placement here, or upgrade the cloud's placement database first"
        )
    policy.init(conf)
    return _session(url, deploy.deploy(conf))


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


def _session(url: str, application: Any) -> requests.Session:
    session = requests.Session()
    session.mount(url, _InProcess(application))
    return session


class _InProcess(BaseAdapter):
    """Passes requests to a WSGI application in this process, and returns its answers."""

    def __init__(self, application: Any) -> None:
        super().__init__()
        self._application = application

    def send(self, request: requests.PreparedRequest, *_: object, **__: object) -> requests.Response:
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
