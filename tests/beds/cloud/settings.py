"""The configuration files of the cloud's services."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from beds.keystone import NOVA, REGION, login_options

Groups = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Where each service listens; URLs without a slash at the end."""

    keystone: str  # with /v3
    placement: str
    glance: str
    neutron: str
    nova: str  # with /v2.1
    cyborg: str  # with /accelerator/v2
    rabbit: str
    database: str  # of nova's first database; the others differ in their names


def login(where: Where, **more: object) -> dict[str, object]:
    """How nova logs in anywhere."""
    return login_options(where.keystone, NOVA, region_name=REGION, **more)


def glance(where: Where, folder: Path, database: str, paste: Path) -> dict[str, dict[str, object]]:
    return {
        "DEFAULT": {"log_file": folder / "glance.log", "use_stderr": False, "enabled_backends": "files:file"},
        "glance_store": {"default_backend": "files"},
        "files": {"filesystem_store_datadir": folder / "images"},
        "os_glance_staging_store": {"filesystem_store_datadir": folder / "staging"},
        "os_glance_tasks_store": {"filesystem_store_datadir": folder / "tasks"},
        "database": {"connection": database},
        "keystone_authtoken": login(where, www_authenticate_uri=where.keystone),
        "paste_deploy": {"flavor": "keystone", "config_file": paste},
    }


def nova(where: Where, folder: Path) -> dict[str, dict[str, object]]:
    """What all services of nova have; ``folder`` has the state of one of them."""
    return {
        "DEFAULT": {
            "transport_url": where.rabbit,
            "state_path": folder,
            "my_ip": "127.0.0.1",
            "use_stderr": False,
            "log_dir": folder,
            "allow_resize_to_same_host": True,
            "shutdown_timeout": 1,  # guests without an operating system do not shut down
            "manager_shutdown_timeout": 3,
            "graceful_shutdown_timeout": 5,
        },
        "oslo_concurrency": {"lock_path": folder / "lock"},
        "placement": login(where),
        "glance": login(where, api_servers=where.glance),
        "keystone": login(where),
        "service_user": login(where, send_service_user_token=True),
        "neutron": login(where, endpoint_override=where.neutron),
        "cinder": login(where),
        "cyborg": login(where, endpoint_override=where.cyborg),
        "vnc": {"enabled": False},
    }


def control(where: Where, folder: Path, api_database: str) -> dict[str, dict[str, object]]:
    """API, conductor and scheduler."""
    filters = "ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,NUMATopologyFilter,PciPassthroughFilter"
    return {
        **nova(where, folder),
        "api_database": {"connection": api_database},
        "database": {"connection": where.database},
        "api": {"auth_strategy": "keystone"},
        "keystone_authtoken": login(where, www_authenticate_uri=where.keystone),
        "filter_scheduler": {"enabled_filters": filters, "track_instance_changes": True, "pci_in_placement": True},
        "scheduler": {"discover_hosts_in_cells_interval": 10, "workers": 1},
        "conductor": {"workers": 1},
        "quota": {"instances": -1, "cores": -1, "ram": -1},
    }


def compute(where: Where, folder: Path, libvirt_uri: str, helper: str, more: Groups) -> dict[str, dict[str, object]]:
    """nova-compute on one host; ``more`` is what the test wants otherwise."""
    made = nova(where, folder)
    made["DEFAULT"] |= {"compute_driver": "libvirt.LibvirtDriver"}
    made |= {
        "libvirt": {"virt_type": "qemu", "connection_uri": libvirt_uri},
        "nova_sys_admin": {"helper_command": helper},
        "compute": {"provider_config_location": folder / "provider_config"},
    }
    for group, options in more.items():
        made[group] = {**made.get(group, {}), **options}
    return made
