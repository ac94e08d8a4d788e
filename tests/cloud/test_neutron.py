"""Beside a real nova and a real Neutron: three writers below one root, and none writes what is another's."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from beds.cloud import sriov
from beds.cloud.lab import CARD, NAME, Lab, serving

pytestmark = pytest.mark.live

PORT = "ens2"  # the network port of CARD
KBPS = 10_000_000
CHILD = f"{NAME}_{CARD}"
OF_NEUTRON = {f"{NAME}:NIC Switch agent", f"{NAME}:NIC Switch agent:{PORT}"}


@pytest.fixture(scope="module")
def lab(bed_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with (
        serving(tmp_path_factory.mktemp("cloud"), bed_cache, with_neutron=True) as lab,
        sriov.sriov_agent(lab.folder / "sriov", lab.cloud.where, lab.host, PORT, KBPS) as log,
    ):
        lab.cloud.wait(lambda: lab.generations().keys() >= OF_NEUTRON, "Neutron's providers", log)
        lab.cloud.wait(lambda: _at_rest(lab), "the end of Neutron's writes", log)
        yield lab


def _at_rest(lab: Lab) -> bool:
    """Whether no provider is written for some seconds: Neutron writes one request after the other."""
    before = lab.generations()
    time.sleep(5)
    return lab.generations() == before


def test_nova_neutron_and_the_agent_leave_each_others_providers_alone(lab: Lab) -> None:
    stock = lab.cloud.stocks()[f"{NAME}:NIC Switch agent:{PORT}"]
    assert {name: one["total"] for name, one in stock.items()} == {
        "NET_BW_EGR_KILOBIT_PER_SEC": KBPS,
        "NET_BW_IGR_KILOBIT_PER_SEC": KBPS,
    }
    before = lab.generations()

    assert lab.agent("sync", role="beside").json["outcome"] == "changed"

    after = lab.generations()
    assert after.keys() - before.keys() == {CHILD}
    assert {name: after[name] for name in before} == before
    for _ in range(2):
        lab.restart_nova()
        lab.wait_for_nova()
        assert lab.agent("sync", role="beside").json["outcome"] == "unchanged"
        assert lab.findings() == []
    ended = lab.generations()
    assert {name: ended[name] for name in (*OF_NEUTRON, CHILD)} == {name: after[name] for name in (*OF_NEUTRON, CHILD)}
