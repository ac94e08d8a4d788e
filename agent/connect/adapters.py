"""Makes keystoneauth adapters for placement, Ironic and nova: with Keystone, without it, or in this process."""

import re
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import requests
from keystoneauth1 import exceptions, loading
from keystoneauth1.adapter import Adapter
from keystoneauth1.noauth import NoAuth
from keystoneauth1.plugin import FixedEndpointPlugin
from keystoneauth1.session import Session
from oslo_config import cfg

from agent import VERSION
from agent.connect.guarded import GuardedSession
from agent.connect.tokens import look_after
from agent.errors import ConfigError
from agent.settings.read import Settings
from agent.settings.values import unknown_login
from reportclient.errors import mask, shorten
from reportclient.keystone import FAILURES

REDIRECTS = 3  # of one request, all within one server
LOOK_S = 3.0  # wait for an answer of an API that should not run
NO_API = (502, 503)  # a proxy's answers for a service that is down; with 504 the service took the request
REQUEST_ID = "x-openstack-request-id"  # header of every answer of an OpenStack API
STOP = "stop placement's API first, or leave out --database"
MAKE_SURE = "make sure that no placement API runs, and add --api-is-down"
NOAUTH_HEADERS = {"X-Auth-Token": "admin", "X-Roles": "service"}  # give the rights at a placement with noauth2
EMBEDDED_URL = "http://embedded.placement"

_URL = re.compile(r"https?://([^/@]*@)?[^@]*")

NO_PLACEMENT = (
    "no placement is configured; choose one of three ways",
    "  --embedded                      a placement of your own in a file, to try the agent; needs no configuration",
    "  [placement] auth_type = none    a lab's placement without Keystone; endpoint = its URL",
    "  [placement] auth_type = password, auth_url, username, password, project_name, ...",
    "                                  a cloud's placement; the host's nova.conf can be used as it is",
    "and name the file: compute-node-agent VERB --config-file /etc/nova/nova.conf",
)
SERVICES: Mapping[str, tuple[str, str, str]] = {
    "placement": ("placement", "placement", "endpoint"),
    "ironic": ("Ironic", "baremetal", "endpoint_override"),
    "nova": ("nova", "compute", "endpoint_override"),
}
"""By group of options: name, type in the catalog, and the option that one without Keystone needs."""


def open_service(settings: Settings, group: str) -> tuple[Adapter, str]:
    """
    Return an adapter for the service of a group of options, and its name for messages. Sends nothing yet.

    Raises:
        ConfigError: no such service is configured, or keystoneauth does not accept the options.
    """
    name, kind, option = SERVICES[group]
    conf, wanted = settings.apis.source, f"{option} = URL of {name}"
    if unknown := unknown_login(conf, group):
        raise ConfigError(unknown)
    try:
        auth = loading.load_auth_from_conf_options(conf, group)
        if auth is None:
            missing = (
                f"no {name} is configured: set [{group}] auth_type = password, auth_url, username, password, "
                f"project_name, ..., as in nova's own configuration, or for a lab auth_type = none and {wanted}"
            )
            raise ConfigError(*(NO_PLACEMENT if group == "placement" else [missing]))
        _check_url(conf, group)
        section = conf[conf[group].auth_section or group]
        if "password" in section and section.password is None:  # keystoneauth has no class for that error
            raise ConfigError(
                f"[{group}] auth_type = {section.auth_type} needs password: set it, or give it by LoadCredential= in "
                f"the systemd unit (docs/service.md)"
            )
        guarded = GuardedSession(settings.apis.node_workers)
        session = loading.load_session_from_conf_options(conf, group, auth=auth, session=guarded)
        adapter = loading.load_adapter_from_conf_options(conf, group, session=session)
        session.app_name, session.app_version = "compute-node-agent", VERSION
        session.redirect = REDIRECTS
        look_after(auth, group)
    except (exceptions.ClientException, cfg.Error, ValueError, TypeError, RecursionError, ImportError) as error:
        raise ConfigError(f"[{group}]: {' '.join(str(error).split())}") from error
    adapter.service_type = adapter.service_type or kind
    own = conf[group]
    catalog = f"the endpoint in the catalog of Keystone at {own.auth_url}" if "auth_url" in own else "its endpoint"
    place = adapter.endpoint_override
    if isinstance(auth, FixedEndpointPlugin):
        place = place or auth.endpoint
        if not place:
            chosen = conf[own.auth_section or group].auth_type
            raise ConfigError(f"[{group}] auth_type = {chosen} needs {wanted}")
    if group == "placement" and isinstance(auth, NoAuth):
        session.additional_headers.update(NOAUTH_HEADERS)
    return _answering(adapter), f"{name} at {mask(place or catalog).rstrip('/')}"


def api_in_the_way(settings: Settings, *, said_down: bool = False) -> str:
    """
    Return why placement's database must not be written: its API runs, or that is not known; empty: it does not run.

    One request without a token, within seconds. The API runs if the answer has OpenStack's request id. It does not run
    if its port is closed, or a proxy answers so. Anything else, also no answer, can have other reasons than a stopped
    API; then a person's word counts, ``said_down``.

    Raises:
        ConfigError: as ``open_service``.
    """
    if not settings.apis.placement_chosen:
        return "" if said_down else f"no placement API is configured, so the agent could not look for it: {MAKE_SURE}"
    adapter, where = open_service(settings, "placement")
    adapter.session.timeout = LOOK_S
    url = ""
    try:
        url = adapter.endpoint_override or adapter.get_endpoint() or ""
        if not url:
            raise exceptions.EndpointNotFound("Keystone's catalog has no endpoint for it")
        how: dict[str, Any] = {"authenticated": False, "raise_exc": False, "redirect": False, "timeout": LOOK_S}
        answer = adapter.session.request(url, "GET", connect_retries=0, status_code_retries=0, **how)
        if REQUEST_ID in answer.headers:
            return f"{where} answers ({answer.status_code}): {STOP}"
        if answer.status_code in NO_API and not requests.utils.get_environ_proxies(url):
            return ""
        why = f"the answer ({answer.status_code}) does not come from an OpenStack API"
    except exceptions.ConnectTimeout:
        why = f"no answer in {LOOK_S:g} s"
    except FAILURES as error:
        if url and _is_refused(error):
            return ""
        why = shorten(str(error))
    return "" if said_down else f"cannot find out whether {where} runs: {why}: {MAKE_SURE}, or leave out --database"


def _is_refused(error: BaseException | None) -> bool:
    """Whether a connection failed because the port is closed; false for a proxy's port, which is not the API's."""
    while error and not isinstance(error, requests.exceptions.ProxyError):
        if isinstance(error, ConnectionRefusedError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _check_url(conf: cfg.ConfigOpts, group: str) -> None:
    """
    Refuse URLs that keystoneauth would take for a Keystone without a catalog, or for another host.

    Raises:
        ConfigError: a URL is wrong. A URL with an @ is not shown, as it may have a password at an unexpected place.
    """
    section = conf[group].auth_section or group
    for name in ("auth_url", "endpoint", "endpoint_override"):
        place = group if name in conf[group] and conf[group][name] else section
        url = str(conf[place][name] or "") if name in conf[place] else ""
        if url and not _URL.fullmatch(url):
            shown = "" if "@" in url else f" = {url}"
            raise ConfigError(
                f"[{place}] {name}{shown} is no URL: it must begin with http:// or https://, and in a user or password "
                f"an @ is written as %40 and a / as %2F"
            )


def open_embedded(requests_session: requests.Session) -> Adapter:
    """Return an adapter for a placement in this process, which the requests session calls."""
    session = Session(auth=NoAuth(endpoint=EMBEDDED_URL), session=requests_session)
    session.additional_headers.update(NOAUTH_HEADERS)
    return _answering(Adapter(session, service_type="placement"))


def _answering(adapter: Adapter) -> Adapter:
    """Return the adapter as a ``Sender``: it asks for JSON, and returns answers whatever their status is."""
    adapter.raise_exc = False
    adapter.additional_headers["Accept"] = "application/json"
    # keystoneauth's own semaphore waits by the wall clock: for hours when that was set back
    adapter._rate_semaphore = nullcontext()  # type: ignore[assignment]
    return adapter
