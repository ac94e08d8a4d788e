"""Each bed is the real thing: a test which passes against it has met what an operator has."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from keystoneauth1.adapter import Adapter

from beds.fixtures import Cloud
from beds.keystone import AGENT, AGENT_ADMIN, AGENT_READER, Login, logged_in
from beds.placement import NOAUTH_HEADERS, PlacementServer
from beds.placement import serving as serving_placement
from beds.process import BedError, free_port, running
from beds.proxy import Cache, Proxy

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


def reshape(http: requests.Session, server: PlacementServer, roles: str) -> requests.Response:
    return http.post(f"{server.url}/reshaper", json={}, headers={"X-Roles": roles})


@pytest.mark.parametrize(
    ("login", "expected"),
    [
        pytest.param(AGENT, 400, id="service is let in and the empty body refused"),
        pytest.param(AGENT_ADMIN, 403, id="admin alone is refused"),
        pytest.param(AGENT_READER, 403, id="reader is refused"),
    ],
)
def test_the_reshaper_asks_for_the_service_role_of_keystone(cloud: Cloud, login: Login, expected: int) -> None:
    with logged_in(cloud.keystone, login) as session:
        placement = Adapter(session, service_type="placement", interface="internal", default_microversion=LATEST)
        assert placement.request("/reshaper", "POST", json={}, raise_exc=False).status_code == expected


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


def test_a_server_which_dies_is_an_error_with_its_log(tmp_path: Path) -> None:
    url, log = f"http://127.0.0.1:{free_port()}", tmp_path / "log"
    dying = running(["sh", "-c", "echo no such database; exit 3"], directory=tmp_path, log=log, url=url)
    with pytest.raises(BedError, match=r"(?s)ended with 3.*no such database"), dying:
        pass
