"""Each bed is the real thing: a test which passes against it has met what an operator has."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from keystoneauth1 import exceptions
from keystoneauth1.adapter import Adapter

from beds.fixtures import Cloud
from beds.keystone import (
    AGENT,
    AGENT_ADMIN,
    AGENT_READER,
    ApplicationCredential,
    Login,
    create_application_credential,
    delete_application_credential,
    logged_in,
)
from beds.placement import NOAUTH_HEADERS, PlacementServer
from beds.placement import serving as serving_placement
from beds.process import BedError, free_port, running
from beds.proxy import Answer, Cache, Forward, Proxy, Request, Seen

pytestmark = pytest.mark.live

CLASSES = "/resource_classes"
LATEST = "1.39"


@pytest.fixture
def http() -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        session.headers.update(NOAUTH_HEADERS)
        session.headers["OpenStack-API-Version"] = f"placement {LATEST}"
        yield session


def status(cloud: Cloud, login: Login | ApplicationCredential, method: str, path: str, body: object = None) -> int:
    """What the placement of the catalog answers to a user, both over TLS."""
    with logged_in(cloud.keystone, login) as session:
        placement = Adapter(session, service_type="placement", interface="internal", default_microversion=LATEST)
        return int(placement.request(path, method, json=body, raise_exc=False).status_code)


def reshape(http: requests.Session, server: PlacementServer, roles: str) -> requests.Response:
    return http.post(f"{server.url}/reshaper", json={}, headers={"X-Roles": roles})


def test_a_token_of_keystone_opens_the_placement_of_its_catalog(cloud: Cloud) -> None:
    assert cloud.keystone.url.startswith("https://")
    assert cloud.placement.url.startswith("https://")
    assert status(cloud, AGENT, "GET", CLASSES) == 200


@pytest.mark.parametrize(
    ("login", "expected"),
    [
        pytest.param(AGENT, 400, id="service is let in and the empty body refused"),
        pytest.param(AGENT_ADMIN, 403, id="admin alone is refused"),
        pytest.param(AGENT_READER, 403, id="reader is refused"),
    ],
)
def test_the_reshaper_asks_for_the_service_role_of_keystone(cloud: Cloud, login: Login, expected: int) -> None:
    assert status(cloud, login, "POST", "/reshaper", {}) == expected


def test_an_application_credential_works_until_it_is_deleted(cloud: Cloud) -> None:
    credential = create_application_credential(cloud.keystone)
    assert status(cloud, credential, "GET", CLASSES) == 200
    delete_application_credential(cloud.keystone, credential)
    with pytest.raises(exceptions.NotFound):  # keystone's answer, and not Unauthorized
        status(cloud, credential, "GET", CLASSES)


def test_an_application_credential_can_expire(cloud: Cloud) -> None:
    credential = create_application_credential(cloud.keystone, expires_in=3.0)
    time.sleep(3)
    with pytest.raises(exceptions.Unauthorized):
        status(cloud, credential, "GET", CLASSES)


def test_a_client_which_does_not_trust_our_authority_gets_no_answer(cloud: Cloud, http: requests.Session) -> None:
    with pytest.raises(requests.exceptions.SSLError):
        http.get(cloud.placement.url)


def test_noauth_believes_the_roles_header(placement_server: PlacementServer, http: requests.Session) -> None:
    assert reshape(http, placement_server, "service").status_code == 400
    assert reshape(http, placement_server, "admin").status_code == 403


def test_a_placement_keeps_its_data_over_a_restart(
    placement_template: Path, tmp_path: Path, http: requests.Session
) -> None:
    port = free_port()
    with serving_placement(tmp_path / "server", placement_template, port=port) as server:
        assert http.put(f"{server.url}{CLASSES}/CUSTOM_KEPT").status_code == 201
    with serving_placement(tmp_path / "server", placement_template, port=port) as server:
        assert http.get(f"{server.url}{CLASSES}/CUSTOM_KEPT").status_code == 200


def test_the_proxy_records_what_passes(placement_server: PlacementServer, http: requests.Session) -> None:
    with Proxy(placement_server.url) as proxy:
        created = http.put(f"{proxy.url}{CLASSES}/CUSTOM_SEEN")
        http.get(f"{proxy.url}/resource_providers?name=nobody")
    assert created.headers["Location"] == f"{proxy.url}{CLASSES}/CUSTOM_SEEN"
    assert proxy.seen == [
        Seen("PUT", f"{CLASSES}/CUSTOM_SEEN", 201),
        Seen("GET", "/resource_providers?name=nobody", 200),
    ]


@pytest.mark.parametrize(
    ("stubborn", "ages"),
    [
        pytest.param(False, [None, "7", None], id="honours no-cache"),
        pytest.param(True, [None, "7", "7"], id="stubborn"),
    ],
)
def test_the_cache_tells_the_age_of_what_it_kept(
    placement_server: PlacementServer, http: requests.Session, stubborn: bool, ages: list[str | None]
) -> None:
    now = 0.0
    with Proxy(placement_server.url, hook=Cache(stubborn=stubborn, clock=lambda: now)) as proxy:
        first = http.get(f"{proxy.url}{CLASSES}")
        http.put(f"{placement_server.url}{CLASSES}/CUSTOM_UNSEEN")
        now = 7.9
        second = http.get(f"{proxy.url}{CLASSES}")
        third = http.get(f"{proxy.url}{CLASSES}", headers={"Cache-Control": "no-cache"})
    assert [reply.headers.get("Age") for reply in (first, second, third)] == ages
    assert second.headers["Last-Modified"] == first.headers["Last-Modified"]
    assert ("CUSTOM_UNSEEN" in third.text) is not stubborn


def test_a_hook_may_answer_instead(placement_server: PlacementServer, http: requests.Session) -> None:
    page = Answer(503, (("Content-Type", "text/html"),), b"<h1>Come back later</h1>")
    with Proxy(placement_server.url, hook=lambda request, forward: page) as proxy:
        reply = http.get(proxy.url)
    assert (reply.status_code, reply.headers["Content-Type"], reply.content) == (503, "text/html", page.body)


def test_a_hook_may_lose_the_answer_of_a_request_which_was_done(
    placement_server: PlacementServer, http: requests.Session
) -> None:
    def lose(request: Request, forward: Forward) -> Answer:
        forward(request)
        raise ConnectionError("the answer is lost")

    with Proxy(placement_server.url, hook=lose) as proxy, pytest.raises(requests.ConnectionError):
        http.put(f"{proxy.url}{CLASSES}/CUSTOM_LOST")
    assert proxy.seen == [Seen("PUT", f"{CLASSES}/CUSTOM_LOST", None)]
    assert http.get(f"{placement_server.url}{CLASSES}/CUSTOM_LOST").status_code == 200


def test_a_server_which_dies_is_an_error_with_its_log(tmp_path: Path) -> None:
    url, log = f"http://127.0.0.1:{free_port()}", tmp_path / "log"
    dying = running(["sh", "-c", "echo no such database; exit 3"], directory=tmp_path, log=log, url=url)
    with pytest.raises(BedError, match=r"(?s)ended with 3.*no such database"), dying:
        pass
