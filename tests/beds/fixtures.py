"""The beds as pytest fixtures; everything which they start ends with them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from beds import ironic, keystone, libvirtd, placement
from beds.keystone import KeystoneServer
from beds.libvirtd import Libvirtd
from beds.placement import KeystoneAuth, PlacementServer
from beds.process import free_port
from beds.tls import Certificates, make_certificates
from beds.wsgi import base_url


@dataclass(frozen=True, slots=True)
class Cloud:
    """Keystone and a placement which trusts it, both over TLS, each in the catalog."""

    keystone: KeystoneServer
    placement: PlacementServer
    certificates: Certificates

    @property
    def login(self) -> dict[str, object]:
        """How the agent's user logs in, as [placement] has it."""
        return keystone.login_options(self.keystone.url, keystone.AGENT, cafile=str(self.keystone.cafile))


@pytest.fixture(scope="session")
def bed_cache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where templates live: in pytest's cache, or for this session only when that is switched off."""
    cache: pytest.Cache | None = getattr(request.config, "cache", None)
    return cache.mkdir("beds") if cache else tmp_path_factory.mktemp("beds")


@pytest.fixture(scope="session")
def placement_template(bed_cache: Path) -> Path:
    """A placement database to copy."""
    return placement.placement_template(bed_cache)


@pytest.fixture
def placement_server(placement_template: Path, tmp_path: Path) -> Iterator[PlacementServer]:
    """An empty placement without authentication, for one test."""
    with placement.serving(tmp_path / "placement", placement_template) as server:
        yield server


@pytest.fixture(scope="session")
def cloud(bed_cache: Path, placement_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """One cloud for the whole session: tests share its placement, so each uses names of its own."""
    directory = tmp_path_factory.mktemp("cloud")
    certificates = make_certificates(directory)
    port = free_port()
    with keystone.serving(
        directory / "keystone",
        keystone.keystone_template(bed_cache),
        placement_url=base_url(port, certificates),
        tls=certificates,
    ) as identity:
        user = keystone.PLACEMENT
        auth = KeystoneAuth(identity.url, user.username, user.password, user.project, certificates.ca)
        with placement.serving(
            directory / "placement", placement_template, auth=auth, tls=certificates, port=port
        ) as server:
            yield Cloud(identity, server, certificates)


@pytest.fixture(scope="session")
def ironic_template(bed_cache: Path) -> Path:
    """An Ironic database to copy."""
    return ironic.ironic_template(bed_cache)


@pytest.fixture(scope="session")
def hypervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Libvirtd]:
    """A real libvirtd of our own over this machine."""
    with libvirtd.serving(tmp_path_factory.mktemp("libvirtd")) as server:
        yield server
