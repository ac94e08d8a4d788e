"""Secrets: none of the configuration files is left in a bundle, and none whose form shows it."""

import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote
from xml.sax.saxutils import escape

import pytest

from agent.bundle.collect import collect
from agent.bundle.secrets import hide, secrets_of
from agent.settings.read import load_settings

NOVA_CONF = """[DEFAULT]
transport_url = rabbit://nova:RabbitA@mq-1:5672,nova:RabbitB@mq-2:5672/v
[libvirt]
connection_uri = qemu+tcp://ring:Ring%2FC@there/system
[placement]
auth_type = password
password = PlaceD
[neutron]
metadata_proxy_shared_secret = NeutronE
[cinder]
password: CinderF
[keystone_authtoken]
token_cache_time = 300
[barbican]
verify_token = true
[manila]
password = 123456
[pci]
passthrough_whitelist = {"address": "0000:81:00.0"}
"""


def test_secrets_of_all_groups_are_found_also_the_passwords_of_logins_alone(tmp_path: Path) -> None:
    (tmp_path / "nova.conf").write_text(NOVA_CONF)

    found = secrets_of(load_settings([tmp_path / "nova.conf"], environment=False))

    assert found >= {"RabbitA", "RabbitB", "Ring%2FC", "Ring/C", "PlaceD", "NeutronE", "CinderF", "123456"}
    assert not found & {"true", "300", '{"address": "0000:81:00.0"}'}


def test_all_options_are_shown_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "nova.conf").write_text(NOVA_CONF + "[libvirt]\nconnection_uri = qemu+tcp://me:InUrl@host/system\n")
    settings = load_settings([tmp_path / "nova.conf"], environment=False, service=True)

    part = next(one for one in collect(settings, dict) if "configuration.txt" in one.files)
    text = hide(part.files, secrets_of(settings))["configuration.txt"]

    assert not [secret for secret in ("PlaceD", "InUrl", "Ring%2FC") if secret in text]
    assert "[placement]" in text
    assert "\nlayout = devices\n" in text


@pytest.mark.parametrize("form", [json.dumps, escape, quote, lambda one: b64encode(one.encode()).decode()])
def test_known_secrets_go_as_other_formats_spell_them(form: Callable[[str], str]) -> None:
    secret = 'pä"ss<&%w/rd'

    assert "***" in hide({"status.json": f"x {form(secret)} y"}, {secret})["status.json"]


def test_known_secrets_and_logins_go_wherever_they_stand() -> None:
    text = "login with S3cr3t+ failed at https://agent:other@keystone:5000/v3"

    for path in ("journal.txt", "host/libvirt/domains/1.xml"):
        assert hide({path: text}, {"S3cr3t+", ""})[path] == "login with *** failed at https://***@keystone:5000/v3"
    assert hide({"a": "b"}, ()) == {"a": "b"}


@pytest.mark.parametrize(
    "text",
    [
        "mysql://root:half@SECRET@db/x",
        "rabbit://nova:pw/SECRET@mq",
        "https://:SECRET@host",
        "https://SECRET@host/x",
        "password=SECRET",
        "line\nPASSWORD = half a SECRET\nline",
        "run --os-password SECRET --debug",
        "user_pass: SECRET",
        "Set-Cookie: SECRET",
        "auth_key: SECRET",
        "<password>SECRET</password>",
        "db password: SECRET",
        "admin_password = 'SECRET with a blank'",
        '{"auth": {"password": "SECRET", "user": "u"}}',
        'body="{\\"password\\": \\"SECRET\\"}"',
        "{'passwd': 'SECRET'}",
        'password="a\\"SECRET"',
        "X-Auth-Token: SECRET",
        'curl -H "X-Subject-Token: SECRET"',
        "Authorization: Bearer SECRET",
        "?token=SECRET&limit=1",
        "got gAAAABmSECRET-xyz0123",
    ],
)
def test_what_its_form_shows_to_be_a_secret_goes_from_logs_and_files_of_people(text: str) -> None:
    shown = hide({"log.txt": f"before {text} after"}, ())["log.txt"]

    assert "SECRET" not in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")


@pytest.mark.parametrize(
    "text",
    [
        "no token expired, and the password is right",
        "GET http://placement/resource_providers?name=a&limit=1 -> 200",
        "tokenless request took 3 ms",
        '{"passes": 3, "keys": 4}',
    ],
)
def test_what_is_none_stays(text: str) -> None:
    assert hide({"log.txt": text}, ()) == {"log.txt": text}


def test_what_is_recorded_from_the_host_stays_whole() -> None:
    xml = "<secret type='ceph' uuid='1'/><x token='kept'/>"

    assert hide({"host/libvirt/domains/1.xml": xml}, ()) == {"host/libvirt/domains/1.xml": xml}
