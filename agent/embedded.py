"""
Placement in this process, on a SQLite file: for a first look and for tests.

It is placement's own application, with its own rules; only the socket is missing.
"""

import io
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import requests
from oslo_config import cfg
from oslo_db.exception import DBError
from placement import conf as placement_conf
from placement import db_api, deploy
from requests.adapters import BaseAdapter
from sqlalchemy.exc import SQLAlchemyError

DATABASE = "placement.sqlite"
DATABASE_ERRORS = (SQLAlchemyError, DBError, OSError)


def open_application(folder: Path | None, url: str) -> requests.Session:
    """
    A requests session whose requests to ``url`` are answered by placement on the SQLite file in ``folder`` (None: an
    empty database in memory).

    The file is made, with its tables, on first use. Once per process: placement keeps its database globally.
    """
    conf = cfg.ConfigOpts()
    placement_conf.register_opts(conf)
    conf.set_override("auth_strategy", "noauth2", group="api")
    file = f"/{folder / DATABASE}" if folder else ""
    conf.set_override("connection", f"sqlite://{file}", group="placement_database")
    conf.set_override("sync_on_startup", True, group="placement_database")
    conf([], project="placement", default_config_files=[], default_config_dirs=[])
    db_api.configure(conf)
    session = requests.Session()
    session.mount(url, _InProcess(deploy.loadapp(conf)))
    return session


class _InProcess(BaseAdapter):
    """Carries requests to a WSGI application and its answers back."""

    def __init__(self, application: Any) -> None:
        super().__init__()
        self._application = application

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        status: list[Any] = []
        chunks = self._application(_environment(request), lambda *given: status.extend(given))
        try:
            body = b"".join(chunks)
        finally:
            if hasattr(chunks, "close"):
                chunks.close()
        response = requests.Response()
        response.status_code = int(status[0].split()[0])
        response.headers.update(dict(status[1]))
        response.url = request.url or ""
        response.request = request
        response._content = body
        return response

    def close(self) -> None:
        """Nothing is open."""


def _environment(request: requests.PreparedRequest) -> dict[str, Any]:
    """The WSGI environment (PEP 3333) of a request."""
    url = urlsplit(request.url or "")
    body = request.body or b""
    data = body.encode() if isinstance(body, str) else bytes(body)
    headers = {
        "HTTP_" + name.upper().replace("-", "_"): value.decode() if isinstance(value, bytes) else value
        for name, value in request.headers.items()
    }
    return headers | {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote(url.path),
        "QUERY_STRING": url.query,
        "SERVER_NAME": url.hostname,
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        "CONTENT_LENGTH": str(len(data)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(data),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
