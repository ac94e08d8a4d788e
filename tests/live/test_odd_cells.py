"""Recorded hosts with oddly divided CPUs and memory, on the command and a placement of its own."""

import json
import re
import shutil
from pathlib import Path

import pytest

from beds.agents import Result, run_agent
from beds.golden import HOSTS, GoldenHost, write_layout

pytestmark = pytest.mark.live

HALF, APART, GPU = (GoldenHost(HOSTS / name) for name in ("half-without-cell", "cpus-without-cell", "gpu-memory"))


def run(verb: str, host: GoldenHost, layout: str, folder: Path, *more: object, archive: Path | None = None) -> Result:
    state = folder / "state.conf"
    state.write_text(f"[agent]\nstate_directory = {folder}/state\n", encoding="utf-8")
    files = (host.config, state, write_layout(layout, folder))
    options = [option for file in files for option in ("--config-file", file)]
    placed = () if verb == "discover" else ("--embedded-dir", folder / "placement")
    return run_agent(verb, "--host", archive or host.archive, *options, *placed, *more, "--format", "json")


@pytest.mark.parametrize("layout", ["cells", "numa"])
def test_a_tree_whose_cpus_are_not_in_cells_has_no_finding_and_its_own_layout(layout: str, tmp_path: Path) -> None:
    for host in (HALF, APART):
        folder = tmp_path / host.folder.name
        folder.mkdir()
        assert run("sync", host, layout, folder).code == 0

        audit, plan = run("audit", host, layout, folder), run("plan", host, layout, folder)

        assert (audit.code, audit.json["findings"]) == (0, [])
        assert plan.code == 0


@pytest.mark.parametrize("layout", ["cells", "numa"])
def test_a_loss_of_all_cpus_in_cells_is_refused_though_the_root_has_as_many(layout: str, tmp_path: Path) -> None:
    assert run("sync", HALF, layout, tmp_path).code == 0
    lost = shutil.copytree(HALF.archive, tmp_path / "lost")
    capabilities = lost / "libvirt/capabilities.xml"
    text = re.sub(r"<cpus num=.8.>.*?</cpus>", '<cpus num="0"/>', capabilities.read_text(), flags=re.DOTALL)
    capabilities.write_text(text, encoding="utf-8")
    (lost / "libvirt/cpumap.json").write_text(json.dumps({"total": 24, "online": list(range(4, 22, 2))}))

    refused = run("sync", HALF, layout, tmp_path, archive=lost)

    assert refused.code == 4
    assert "VCPU would shrink from 17 to 9, more than 30%" in refused.json["notes"][0]


def test_each_cell_can_be_reserved_whole_also_by_nova_s_own_option(tmp_path: Path) -> None:
    own = tmp_path / "own.conf"
    own.write_text(
        "[agent]\nreserved_cells = none\n[DEFAULT]\nreserved_huge_pages = node:250,size:4,count:3932160\n",
        encoding="utf-8",
    )

    found = run("discover", GPU, "cells", tmp_path, "--config-file", own)

    stock = {name: one["inventories"].get("MEMORY_MB") for name, one in found.json["providers"].items()}
    reserved = {name.partition("_NUMA")[2]: one["reserved"] for name, one in stock.items() if one}
    assert reserved == {"0": 252, "8": 260, "250": 15360, "251": 0, "252": 0, "253": 0, "254": 0, "255": 0}
