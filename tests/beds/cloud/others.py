"""A real Cyborg with its fake and its PCI driver, and Blazar's own code for placement: both write below our root."""

import json
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
from beds.synthetic.bed import EMULATOR, Host
from beds.synthetic.emulator import HIDDEN, QEMU
from beds.upgrades import write_config

BENCH = Path(__file__).parents[3] / ".bench"
CYBORG, BLAZAR = BENCH / "cyborg/bin", BENCH / "blazar/bin"
HERE = Path(__file__).parent
PASSED = "0000:01:00.0"  # a card that Cyborg's PCI driver gives to guests whole
PROFILES = {  # device profile, which flavors name as ``accel:device_profile`` -> one unit of a card
    "accelerated": {"resources:FPGA": "1", "trait:CUSTOM_FAKE_DEVICE": "required"},
    "passed": {"resources:CUSTOM_PCI": "1", "trait:CUSTOM_PCI_INTEL": "required"},
}


def cyborgs_cards(host: str) -> dict[str, str]:
    """The name of the provider that each of ``PROFILES`` is of."""
    return {"accelerated": f"{host}_FakeDevice", "passed": f"{host}_{PASSED}"}


@contextmanager
def cyborg(folder: Path, cloud: Cloud, database: str, host: Host) -> Iterator[None]:
    """Cyborg's API and conductor, and its agent on a synthetic host, whose guests can have a card without a kernel."""
    folder.mkdir(parents=True)
    name = host.machine.name
    config = write_config(_cyborg(cloud.where, folder, database, name), folder / "cyborg.conf")
    run([str(CYBORG / "cyborg-dbsync"), "--config-file", str(config), "upgrade"], directory=folder, log=folder / "sync")
    _replace_qemu(host, folder)
    children = []
    environment = {"APP": "cyborg", "PYTHONPATH": str(HERE), "CYBORG_CONFIG": str(config)}
    try:
        for one, where in (("conductor", ()), ("agent", host.with_its_devices)):
            command = [*where, str(CYBORG / f"cyborg-{one}"), "--config-file", str(config)]
            children.append(start(command, directory=folder, log=folder / f"{one}.out"))
        with wsgi.serving(
            "wsgi_apps:application",
            directory=folder,
            port=urlsplit(cloud.where.cyborg).port or 0,
            tls=None,
            environment=environment,
            threads=4,
            python=CYBORG / "python",
        ):
            cards = {*cyborgs_cards(name).values()}
            cloud.wait(lambda: cards <= cloud.stocks().keys(), "Cyborg's providers", folder / "conductor.out")
            api = Adapter(cloud.nova.session, endpoint_override=cloud.where.cyborg, service_type="accelerator")
            for profile, group in PROFILES.items():
                api.post("/device_profiles", json=[{"name": profile, "groups": [group]}])
            yield
    finally:
        for child in children:
            stop(child)


def _replace_qemu(host: Host, folder: Path) -> None:
    """Have nova's guests on a synthetic host run as ``Host.running`` runs its own."""
    mount = f'touch {HIDDEN} && mount --bind "$0" {HIDDEN} && mount --bind "$1" "$0"'
    run([*host.inside, "sh", "-c", mount, QEMU, str(EMULATOR)], directory=folder, log=folder / "qemu.log")


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
        "agent": {"enabled_drivers": "fake_driver,pci_driver", "resource_provider_name": host},
        "pci": {"passthrough_whitelist": json.dumps({"address": PASSED})},
        "cyborg_sys_admin": {"helper_command": f"{CYBORG}/privsep-helper --config-file {folder}/cyborg.conf"},
        "api": {"api_paste_config": CYBORG.parent / "etc/cyborg/api-paste.ini"},
        "database": {"connection": database},
        "keystone_authtoken": login(where, www_authenticate_uri=where.keystone),
        "placement": login(where, endpoint_override=where.placement),
        "nova": login(where, endpoint_override=where.nova),
        "glance": login(where, endpoint_override=where.glance),
        "service_user": login(where, send_service_user_token=True),
        "oslo_concurrency": {"lock_path": folder / "lock"},
    }
