"""A name that another service wrote into placement acts on no terminal, and forges no line of a log."""

import re
import tarfile
from pathlib import Path

import pytest

from beds.agents import run_agent
from beds.placement import PlacementServer
from beds.trees import identity
from beds.upgrades import recorded_host

pytestmark = pytest.mark.live

EVIL = "four-cells_\x1b[2J\x9b31m\u202eevil\nERROR forged\u2028line"
SHOWN = r"four-cells_\x1b[2J\x9b31m\u202eevil\nERROR forged\u2028line"
ACTS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2028]")
VERBS = (
    "show --all",
    "plan",
    "sync",
    "sync -vv",
    "audit",
    "reshape --to numa",
    "reshape --to flat",
    "explain VCPU",
    "check",
    "status",
    "hand-over",
    "retire",
)


def test_no_verb_prints_a_character_that_acts(placement_server: PlacementServer, tmp_path: Path) -> None:
    one = recorded_host(placement_server.url, tmp_path)
    one.placement.add_child(identity("four-cells"), EVIL, "VGPU", 4, "HW_NIC_SRIOV")

    printed = {}
    for verb in VERBS:
        name, *more = verb.split()
        done = run_agent(name, *(one.options if name != "status" else one.options[2:]), *more)
        printed[verb] = done.out + done.err

    assert {verb for verb, text in printed.items() if ACTS.search(text)} == set()
    assert {verb for verb, text in printed.items() if re.search("^ERROR forged", text, re.MULTILINE)} == set()
    assert {"audit", "plan", "show --all"} <= {verb for verb, text in printed.items() if SHOWN in text}


def test_an_error_about_a_file_of_somebody_else_is_one_line(tmp_path: Path) -> None:
    (policy := tmp_path / "policy.yaml").write_text('heal: []\n"a\\nERROR forged\\u2028line": 1\n', encoding="utf-8")
    with tarfile.open(tmp_path / "host.tar.gz", "w:gz") as tar:
        fifo = tarfile.TarInfo("a\nERROR forged")
        fifo.type = tarfile.FIFOTYPE
        tar.addfile(fifo)

    for command in (("audit", "--policy", policy), ("discover", "--host", tmp_path / "host.tar.gz")):
        done = run_agent(*command)
        assert done.code == 1
        assert re.fullmatch(r"[^\n]*a\\nERROR forged[^\n]*\n", done.err), done.err
