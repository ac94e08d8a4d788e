"""What takes away asks first on a terminal; a program is not asked, and neither is --yes."""

import os
import pty
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from agent.command import audit_verb, result
from beds.agents import COMMAND, run_here
from beds.placement import PlacementServer
from beds.trees import identity
from beds.upgrades import Upgrade, recorded_host

pytestmark = pytest.mark.live

ROOT = "four-cells"
SMALL = {"VCPU": 1, "MEMORY_MB": 512}


@pytest.fixture
def host(placement_server: PlacementServer, tmp_path: Path) -> Upgrade:
    """A host that is up to date, without guests, and a consumer of nobody's on it."""
    return recorded_host(placement_server.url, tmp_path, agent={"audit_grace": 0}, consumers={"gone": {ROOT: SMALL}})


def answer(host: Upgrade, said: str, verb: str, *more: object) -> tuple[int, str]:
    """Run a verb on a terminal with this answer, and return its exit code and all that the terminal showed."""
    near, far = pty.openpty()
    command = [COMMAND, verb, *host.options, *more]
    running = subprocess.Popen([*map(str, command)], stdin=far, stdout=far, stderr=far)
    os.close(far)
    os.write(near, f"{said}\n".encode())
    seen = b""
    while True:
        try:
            seen += os.read(near, 65536)
        except OSError:  # the other side is closed
            break
    os.close(near)
    return running.wait(), seen.decode()


def test_a_guest_keeps_its_allocations_unless_the_answer_is_yes(host: Upgrade) -> None:
    code, shown = answer(host, "no", "release", identity("gone"))

    assert (code, "512 MEMORY_MB" in shown) == (3, True), shown
    assert "nothing was written" in shown
    assert host.stands()["consumers"]["gone"]["allocations"]

    assert answer(host, "y", "release", identity("gone"))[0] == 0
    assert not host.stands()["consumers"]["gone"]["allocations"]


@pytest.mark.parametrize(("verb", "question"), [("retire", "remove all this"), ("hand-over", "hand this host over?")])
def test_a_host_stays_unless_the_answer_is_yes(host: Upgrade, verb: str, question: str) -> None:
    assert host.run("release", identity("gone")).code == 0  # no terminal: no question
    before = host.stands()

    code, shown = answer(host, "", verb)

    assert (code, question in shown, "nothing was written" in shown) == (3, True, True), shown
    assert host.stands() == before

    code, shown = answer(host, "", verb, "--yes")
    assert (code, question in shown) == (0, False), shown
    assert host.stands() != before


def test_a_plan_that_is_refused_is_no_question(host: Upgrade) -> None:
    code, shown = answer(host, "y", "retire")

    assert (code, "[y/N]" in shown) == (4, False), shown
    assert "consumers hold allocations here" in shown


def test_the_question_says_what_a_guest_that_runs_here_uses(placement_server: PlacementServer, tmp_path: Path) -> None:
    host = recorded_host(
        placement_server.url,
        tmp_path,
        guests={"runs": {}},
        consumers={"runs": {ROOT: SMALL}},
        compute={"layout": "flat"},
    )

    code, shown = answer(host, "n", "release", identity("runs"), "--force")

    assert (code, "runs on this host" in shown) == (3, True), shown
    assert host.stands()["consumers"]["runs"]["allocations"]


@pytest.mark.parametrize(("said", "code"), [("y\n", 0), ("n\n", 3)])
def test_a_repair_waits_for_a_yes(host: Upgrade, monkeypatch: pytest.MonkeyPatch, said: str, code: int) -> None:
    monkeypatch.setattr(audit_verb, "_BY_HAND", replace(audit_verb._BY_HAND, grace_s=0, again_s=0, move_s=0))
    for module in (audit_verb, result):
        monkeypatch.setattr(module, "can_ask", lambda: True)
    monkeypatch.setattr(sys, "stdin", StringIO(said))
    host.run("audit")

    done = run_here("audit", "--heal", *host.options)

    assert done.code == code, done.out + done.err
    assert "carry out 1 repair? [y/N]" in done.err
    assert "it writes:" in done.err
    assert bool(host.stands()["consumers"]["gone"]["allocations"]) == bool(code)
    assert ("nobody agreed to it" in done.out) == bool(code)


def test_a_program_needs_a_policy_or_says_yes(host: Upgrade, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_verb, "_BY_HAND", replace(audit_verb._BY_HAND, grace_s=0, again_s=0, move_s=0))
    host.run("audit")

    done = host.run("audit", "--heal")
    assert done.code == 2
    assert "--heal needs --policy FILE, --yes, or a terminal" in done.err
    assert host.stands()["consumers"]["gone"]["allocations"]

    assert run_here("audit", "--heal", "--yes", *host.options).code == 0
    assert not host.stands()["consumers"]["gone"]["allocations"]
