"""The agent on a host of a real nova cloud: it writes nothing of nova's, and nova nothing of the agent's."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from beds import keystone
from beds.agents import Result
from beds.cloud import cloud as clouds
from beds.cloud.cloud import Cloud, Compute
from beds.keystone import ADMIN, AGENT, Login
from beds.synthetic import bed
from beds.synthetic.bed import Host
from beds.synthetic.hosts import FOUR_CELLS
from beds.upgrades import write_config

pytestmark = pytest.mark.live

NAME = FOUR_CELLS.name
MARK = "CUSTOM_OWNER_COMPUTE_NODE_AGENT"
CARD = "0000:81:00.0"
PERIOD_S = 20  # between two writes of nova-compute, as configured here
NETWORKS = {"address": CARD, "product_id": "10ed", "physical_network": "physnet0"}
GPUS: dict[str, object] = {"enabled_mdev_types": "nvidia-222"}
PACE: dict[str, object] = {"update_resources_interval": PERIOD_S}


@dataclass
class Lab:
    """A cloud with one host, and the agent on that host."""

    cloud: Cloud
    host: Host
    compute: Compute
    folder: Path
    logins: Mapping[str, dict[str, object]]

    def agent(self, verb: str, *more: object, role: str | None = None, layout: str = "devices") -> Result:
        groups: dict[str, dict[str, object]] = {
            "DEFAULT": {"state_path": self.compute.folder},
            "libvirt": {"connection_uri": self.host.libvirtd.uri, "virt_type": "qemu"},
            "compute": {"layout": layout},
            "pci": {"device_spec": json.dumps(NETWORKS), "report_in_placement": True},
            "devices": GPUS,
            "agent": {"state_directory": self.folder / "state", **({"role": role} if role else {})},
            **self.logins,
        }
        config = write_config(groups, self.folder / f"agent-{role}-{layout}.conf")
        return self.host.run(verb, "--config-file", config, "--format", "json", *more)

    def wait_for_nova(self, periods: int = 2) -> None:
        """As long as nova-compute needs to write so many times."""
        time.sleep(periods * PERIOD_S + 5)

    def of_nova(self) -> dict[str, tuple[int, dict[str, Any]]]:
        """Generation and stock of all that does not carry our mark, by name."""
        stocks = self.cloud.stocks()
        return {
            one["name"]: (one["generation"], stocks[one["name"]])
            for one in self.cloud.providers()
            if MARK not in self.cloud.traits(one["uuid"])
        }

    def own(self) -> dict[str, dict[str, int]]:
        """Totals of all that carries our mark, by name."""
        stocks = self.cloud.stocks()
        return {
            one["name"]: {name: stock["total"] for name, stock in stocks[one["name"]].items()}
            for one in self.cloud.providers()
            if MARK in self.cloud.traits(one["uuid"])
        }


def login(url: str, user: Login, **more: object) -> dict[str, object]:
    return {
        "auth_type": "password",
        "auth_url": url,
        "username": user.username,
        "password": user.password,
        "project_name": user.project,
        "user_domain_id": "default",
        "project_domain_id": "default",
        **more,
    }


@pytest.fixture(scope="module")
def lab(bed_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("cloud")
    began = time.monotonic()
    with (
        bed.serving(folder / "host", FOUR_CELLS) as host,
        clouds.serving(folder / "cloud", keystone.keystone_template(bed_cache)) as cloud,
    ):
        compute = cloud.add_compute(host, DEFAULT=PACE, devices=GPUS)
        cloud.add_flavor("small")
        print(f"\nthe cloud stands after {time.monotonic() - began:.0f} s")
        with (
            host.doorway(cloud.where.keystone.removesuffix("/v3")) as identity,
            host.doorway(cloud.where.placement) as placement,
            host.doorway(str(cloud.nova.endpoint_override).removesuffix("/v2.1")) as nova,
        ):
            logins = {
                "placement": login(f"{identity}/v3", AGENT, endpoint_override=placement),
                "nova": login(f"{identity}/v3", ADMIN, endpoint_override=f"{nova}/v2.1"),
            }
            yield Lab(cloud, host, compute, folder, logins)


def test_beside_nova_each_leaves_the_others_providers_alone(lab: Lab) -> None:
    before = lab.of_nova()

    done = lab.agent("sync", role="beside")

    assert (done.code, done.json["outcome"]) == (0, "changed"), done.out
    assert lab.own() == {f"{NAME}_{CARD}": {"CUSTOM_PCI_8086_10ED": 8}}
    assert lab.of_nova() == before
    own = lab.own()
    for _ in range(3):
        lab.compute.start(DEFAULT=PACE, devices=GPUS)
        lab.wait_for_nova()
        assert lab.own() == own
        assert lab.agent("sync", role="beside").json["outcome"] == "unchanged"
