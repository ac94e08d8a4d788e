"""A real Neutron with ML2 and the SR-IOV agent of a synthetic host, which reports the bandwidth of the host's ports."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from beds import wsgi
from beds.cloud.settings import Where, login
from beds.process import run, start, stop
from beds.synthetic.bed import Host
from beds.upgrades import write_config

VENV = Path(__file__).parents[3] / ".bench" / "neutron"
BIN = VENV / "bin"
NETWORK = "physnet0"
HERE = Path(__file__).parent


@contextmanager
def serving(folder: Path, where: Where, database: str, port: int) -> Iterator[None]:
    """Neutron's API and its RPC server; ``database`` is one of its own."""
    folder.mkdir(parents=True)
    config = write_config(_server(where, folder, database), folder / "neutron.conf")
    migrate = [str(BIN / "neutron-db-manage"), "--config-file", str(config), "upgrade", "heads"]
    run(migrate, directory=folder, log=folder / "sync.log")
    environment = {
        "APP": "neutron",
        "PYTHONPATH": str(HERE),
        "OS_NEUTRON_CONFIG_DIR": str(folder),
        "OS_NEUTRON_CONFIG_FILES": config.name,
    }
    rpc = start([str(BIN / "neutron-rpc-server"), "--config-file", str(config)], directory=folder, log=folder / "rpc")
    try:
        with wsgi.serving(
            "wsgi_apps:application",
            directory=folder,
            port=port,
            tls=None,
            environment=environment,
            threads=4,
            python=BIN / "python",
        ):
            yield
    finally:
        stop(rpc)


@contextmanager
def sriov_agent(folder: Path, where: Where, host: Host, port: str, kbps: int) -> Iterator[Path]:
    """Neutron's SR-IOV agent on a host, for one network ``port`` of it with a bandwidth; yields its log."""
    folder.mkdir(parents=True)
    rabbit = urlsplit(where.rabbit)
    # The synthetic host shows the port in /sys alone; the agent asks its kernel too, which any interface answers.
    run([*host.inside, "ip", "link", "add", port, "type", "bridge"], directory=folder, log=folder / "link.log")
    with host.doorway(f"http://{rabbit.hostname}:{rabbit.port}") as doorway:
        relayed = rabbit._replace(netloc=rabbit.netloc.replace(f":{rabbit.port}", f":{urlsplit(doorway).port}"))
        config = write_config(
            {
                "DEFAULT": {
                    "transport_url": relayed.geturl(),
                    "host": host.machine.name,
                    "state_path": folder,
                    "log_file": folder / "agent.log",
                    "use_stderr": False,
                },
                "agent": {"report_interval": 2, "polling_interval": 2, "root_helper": "env"},
                "sriov_nic": {
                    "physical_device_mappings": f"{NETWORK}:{port}",
                    "resource_provider_bandwidths": f"{port}:{kbps}:{kbps}",
                },
                "securitygroup": {"enable_security_group": False, "firewall_driver": "noop"},
                "oslo_concurrency": {"lock_path": folder / "lock"},
            },
            folder / "agent.conf",
        )
        command = [*host.inside, str(BIN / "neutron-sriov-nic-agent"), "--config-file", str(config)]
        found = {"PATH": f"{BIN}:{os.environ['PATH']}"}
        child = start(command, directory=folder, log=folder / "out.log", environment=found)
        try:
            yield folder / "agent.log"
        finally:
            stop(child)


def _server(where: Where, folder: Path, database: str) -> Mapping[str, Mapping[str, object]]:
    return {
        "DEFAULT": {
            "core_plugin": "ml2",
            "service_plugins": "placement",
            "transport_url": where.rabbit,
            "auth_strategy": "keystone",
            "api_paste_config": VENV / "etc/neutron/api-paste.ini",
            "state_path": folder,
            "log_dir": folder,
            "use_stderr": False,
            "dhcp_agent_notification": False,
            "notify_nova_on_port_status_changes": False,
            "notify_nova_on_port_data_changes": False,
            "rpc_workers": 1,
        },
        "database": {"connection": database},
        "keystone_authtoken": login(where, www_authenticate_uri=where.keystone),
        "placement": login(where),
        "oslo_concurrency": {"lock_path": folder / "lock"},
        "ml2": {"type_drivers": "flat,vlan", "tenant_network_types": "vlan", "mechanism_drivers": "sriovnicswitch"},
        "ml2_type_flat": {"flat_networks": NETWORK},
        "ml2_type_vlan": {"network_vlan_ranges": f"{NETWORK}:100:200"},
        "securitygroup": {"enable_security_group": True},
    }
