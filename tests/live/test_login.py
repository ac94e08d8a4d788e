"""A libvirtd that asks who comes: a password, by SASL from auth.conf, and certificates."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from beds.agents import Result, run_agent
from beds.login import asking, auth_conf, client_keys
from beds.tls import make_certificates

pytestmark = pytest.mark.live

Look = Callable[..., Result]


@pytest.fixture
def look(write_config: Callable[..., Path], tmp_path: Path) -> Look:
    """Discovers this machine through the libvirtd at a URI; LIBVIRT_AUTH_FILE is ``auth_file``, else an empty one."""
    empty = tmp_path / "empty.conf"
    empty.touch()

    def run(uri: str, auth_file: Path = empty) -> Result:
        config = write_config(
            DEFAULT={"instances_path": tmp_path}, libvirt={"connection_uri": uri, "virt_type": "qemu"}
        )
        return run_agent("discover", "--format", "json", "--config-file", config, LIBVIRT_AUTH_FILE=str(auth_file))

    return run


def test_the_password_of_auth_conf_opens_libvirt_by_tcp(look: Look, tmp_path: Path) -> None:
    with asking(tmp_path / "bed", "digest-md5") as uri:
        right = look(uri, auth_conf(tmp_path / "auth.conf"))
        wrong = look(uri, auth_conf(tmp_path / "wrong.conf", "another"))
        none = look(uri)

    assert right.code == 0, right.err
    assert {"VCPU", "MEMORY_MB"} <= next(iter(right.json["providers"].values()))["inventories"].keys()
    for refused, file in ((wrong, "wrong.conf"), (none, "empty.conf")):
        assert refused.code == 1
        assert refused.err.count("\n") == 1
        assert f"libvirt at {uri}" in refused.err
        assert refused.err.endswith(f"in {tmp_path / file}\n")


def test_the_password_of_auth_conf_opens_libvirt_by_tls(look: Look, tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    keys = client_keys(tmp_path / "keys", certificates)
    with asking(tmp_path / "bed", "scram-sha-256", certificates) as uri:
        right = look(f"{uri}?pkipath={keys}", auth_conf(tmp_path / "auth.conf"))
        wrong = look(f"{uri}?pkipath={keys}", auth_conf(tmp_path / "wrong.conf", "another"))

    assert right.code == 0, right.err
    assert wrong.code == 1
    assert wrong.err.endswith(f"in {tmp_path / 'wrong.conf'}\n")


def test_a_certificate_opens_libvirt_until_it_expires(look: Look, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    certificates = make_certificates(tmp_path)
    expired = make_certificates(tmp_path / "old", timedelta(minutes=-1))
    with asking(tmp_path / "bed", certificates=certificates) as uri:
        right = look(f"{uri}?pkipath={client_keys(tmp_path / 'keys', certificates)}")
        refused = look(f"{uri}?pkipath={client_keys(tmp_path / 'old-keys', expired)}")

    assert right.code == 0, right.err
    assert refused.code == 1
    assert refused.err.count("\n") == 1
    assert "expired" in refused.err
