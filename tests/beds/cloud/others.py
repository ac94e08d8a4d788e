"""A real Cyborg with its fake driver, and Blazar's own code for placement: two services that write below our root."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from keystoneauth1.adapter import Adapter

from beds import wsgi
from beds.cloud.cloud import Cloud
from beds.cloud.settings import Where, login
from beds.keystone import NOVA, REGION
from beds.process import run, start, stop
from beds.upgrades import write_config

BENCH = Path(__file__).parents[3] / ".bench"
CYBORG, BLAZAR = BENCH / "cyborg/bin", BENCH / "blazar/bin"
HERE = Path(__file__).parent
PROFILE = "accelerated"  # one FPGA of the fake driver's card


@contextmanager
def cyborg(folder: Path, cloud: Cloud, database: str, host: str) -> Iterator[str]:
    """
    Cyborg's API and conductor, and its agent for ``host``; yields the name of the provider of its one card.

    There is a device profile ``PROFILE``, which flavors name as ``accel:device_profile``.
    """
    folder.mkdir(parents=True)
    config = write_config(_cyborg(cloud.where, folder, database, host), folder / "cyborg.conf")
    run([str(CYBORG / "cyborg-dbsync"), "--config-file", str(config), "upgrade"], directory=folder, log=folder / "sync")
    children = []
    environment = {"APP": "cyborg", "PYTHONPATH": str(HERE), "CYBORG_CONFIG": str(config)}
    try:
        for name in ("conductor", "agent"):
            command = [str(CYBORG / f"cyborg-{name}"), "--config-file", str(config)]
            children.append(start(command, directory=folder, log=folder / f"{name}.out"))
        with wsgi.serving(
            "wsgi_apps:application",
            directory=folder,
            port=urlsplit(cloud.where.cyborg).port or 0,
            tls=None,
            environment=environment,
            threads=4,
            python=CYBORG / "python",
        ):
            card = f"{host}_FakeDevice"
            cloud.wait(lambda: card in cloud.stocks(), "Cyborg's provider", folder / "conductor.out")
            api = Adapter(cloud.nova.session, endpoint_override=cloud.where.cyborg, service_type="accelerator")
            group = {"resources:FPGA": "1", "trait:CUSTOM_FAKE_DEVICE": "required"}
            api.post("/device_profiles", json=[{"name": PROFILE, "groups": [group]}])
            yield card
    finally:
        for one in children:
            stop(one)


def reserve(folder: Path, where: Where, host: str, reservation: str, amount: int) -> None:
    """Have Blazar's code for placement reserve so many units on a host, as its host and instance plugins do."""
    keystone = urlsplit(where.keystone)
    options = {
        "os_auth_host": keystone.hostname,
        "os_auth_port": keystone.port,
        "os_admin_username": NOVA.username,
        "os_admin_password": NOVA.password,
        "os_admin_project_name": NOVA.project,
        "os_region_name": REGION,
    }
    config = write_config({"DEFAULT": options}, folder / "blazar.conf")
    command = [str(BLAZAR / "python"), "-P", str(HERE / "blazar_reserves.py"), str(config)]
    run([*command, host, reservation, str(amount)], directory=folder, log=folder / "blazar.log")


def _cyborg(where: Where, folder: Path, database: str, host: str) -> dict[str, dict[str, object]]:
    return {
        "DEFAULT": {
            "transport_url": where.rabbit,
            "host": host,
            "state_path": folder,
            "log_dir": folder,
            "use_stderr": False,
            "periodic_interval": 5,
        },
        "agent": {"enabled_drivers": "fake_driver", "resource_provider_name": host},
        "api": {"api_paste_config": CYBORG.parent / "etc/cyborg/api-paste.ini"},
        "database": {"connection": database},
        "keystone_authtoken": login(where, www_authenticate_uri=where.keystone),
        "placement": login(where, endpoint_override=where.placement),
        "nova": login(where, endpoint_override=where.nova),
        "glance": login(where, endpoint_override=where.glance),
        "service_user": login(where, send_service_user_token=True),
        "oslo_concurrency": {"lock_path": folder / "lock"},
    }
