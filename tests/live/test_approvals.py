"""The conversion before each start of the service: what the configuration allows, or a person approved, and no more."""

import json
import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from agent.service.status import ServiceProcess, ServiceStatus, write_status
from beds.agents import COMMAND, Result, run_agent
from beds.inventory import make_hosts
from beds.placement import PlacementServer
from beds.proxy import Answer, Forward, Hook, Proxy, Request, pass_on, refusing
from beds.trees import add_consumer, identity
from beds.upgrades import UPGRADES, Story, Upgrade, write_config

pytestmark = pytest.mark.live

UNIT = Path(__file__).parents[2] / "systemd/compute-node-agent-reshape.service"
STORY = Story(UPGRADES / "01-flat-vgpu-to-gpus")
CONVERTED = {key: STORY.expected[key] for key in ("providers", "consumers")}


@pytest.fixture
def lab(placement_server: PlacementServer, tmp_path: Path) -> Upgrade:
    """A host that is configured for another shape than the one that its guests have in placement."""
    return Upgrade(STORY.data, placement_server.url, tmp_path)


def start_command(lab: Upgrade) -> tuple[object, ...]:
    """What the unit runs before each start of the service, on this host and with its configuration."""
    (line,) = [line for line in UNIT.read_text(encoding="utf-8").splitlines() if line.startswith("ExecStart=")]
    _command, verb, *options = shlex.split(line.removeprefix("ExecStart="))
    cut = options.index("--config-file")
    return (verb, *options[:cut], *options[cut + 2 :], *lab.options)


def at_start(lab: Upgrade, *more: object) -> Result:
    return run_agent(*start_command(lab), *more, "--format", "json")


def approve(lab: Upgrade, digest: str | None = None) -> str:
    digest = digest or lab.run("reshape").json["digest"]
    done = lab.run("reshape", "--approve", "--digest", digest)
    assert (done.code, done.json["approval"], "[compute] layout" in done.err) == (0, "approved", False), done.err
    return digest


def approvals(folder: Path) -> list[Path]:
    return sorted((folder / "state" / "approvals").glob("*.json"))


def test_a_start_converts_nothing_that_nobody_approved(lab: Upgrade, tmp_path: Path) -> None:
    before = lab.stands()

    started = at_start(lab, "--picture", tmp_path / "start.html")

    assert (started.code, started.json["outcome"]) == (3, "reshape-needed"), started.out + started.err
    assert lab.stands() == before
    (note,) = started.json["notes"]
    assert "2 consumers must move" in note
    assert "reshape --approve --digest" in note
    assert "reshape --approve --digest" in (tmp_path / "start.html").read_text(encoding="utf-8")


def test_a_start_converts_what_a_person_approved_once(lab: Upgrade, tmp_path: Path) -> None:
    digest = approve(lab)
    (path,) = approvals(tmp_path)
    body = json.loads(path.read_text())["body"]

    started = at_start(lab)
    again = at_start(lab)

    assert (body["node"], body["digest"]) == ("four-cells", digest)
    assert lab.placement  # the approval names the placement that it is about
    assert body["where"].startswith("placement at http")
    assert (started.code, started.json["outcome"], started.json["digest"]) == (0, "changed", digest)
    assert lab.stands() == CONVERTED
    assert (again.code, again.json["outcome"]) == (0, "unchanged")
    assert approvals(tmp_path) == []


def test_an_approval_of_another_layout_says_what_to_configure_before_the_start(lab: Upgrade, tmp_path: Path) -> None:
    options = ("reshape", "--to", "numa")
    digest = lab.run(*options).json["digest"]

    approved = lab.run(*options, "--approve", "--digest", digest)
    unlike = at_start(lab)
    numa = write_config({"compute": {"layout": "numa"}}, tmp_path / "numa.conf")
    followed = at_start(lab, "--config-file", numa)

    assert approved.code == 0, approved.out + approved.err
    assert "set [compute] layout = numa before the service starts the next time" in approved.err
    assert (unlike.code, unlike.json["outcome"]) == (4, "other-plan"), unlike.out + unlike.err
    assert (followed.code, followed.json["digest"]) == (0, digest), followed.out + followed.err


def test_a_start_does_not_convert_a_manual_conversion_back(lab: Upgrade, tmp_path: Path) -> None:
    """The approval of the first plan is used up, and another one is not made by what a person does by hand."""
    approve(lab)
    assert at_start(lab).code == 0
    back = lab.run("reshape", "--to", "flat", "--apply")
    assert back.code == 0, back.out + back.err
    before = lab.stands()

    started = at_start(lab)

    assert (started.code, started.json["outcome"]) == (3, "reshape-needed")
    assert lab.stands() == before


def test_an_approval_is_void_once_the_host_was_converted_by_hand(lab: Upgrade, tmp_path: Path) -> None:
    digest = approve(lab)
    assert lab.run("reshape", "--apply", "--digest", digest).code == 0
    assert approvals(tmp_path) == []
    assert lab.run("reshape", "--to", "flat", "--apply").code == 0

    assert at_start(lab).code == 3


def test_a_start_refuses_another_plan_than_the_approved_one(lab: Upgrade, tmp_path: Path) -> None:
    digest = approve(lab)
    before = lab.stands()
    changed = write_config({"DEFAULT": {"reserved_host_memory_mb": 2048}}, tmp_path / "changed.conf")

    started = at_start(lab, "--config-file", changed)

    assert (started.code, started.json["outcome"]) == (4, "other-plan")
    (note,) = started.json["notes"]
    assert digest in note
    assert "--approve" in note
    assert lab.stands() == before
    assert len(approvals(tmp_path)) == 1


def test_a_start_says_that_an_approved_plan_is_not_carried_out_in_the_layout_that_stands(
    lab: Upgrade, tmp_path: Path
) -> None:
    digest = approve(lab)
    before = lab.stands()
    standing = write_config({"compute": {"layout": "flat"}}, tmp_path / "standing.conf")

    started = at_start(lab, "--config-file", standing)

    assert (started.code, started.json["outcome"]) == (4, "other-plan"), started.out + started.err
    assert f"the approved plan {digest} is not carried out" in started.json["notes"][0]
    assert lab.stands() == before
    assert len(approvals(tmp_path)) == 1


def test_a_start_after_which_no_guest_is_left_to_move_needs_no_approval(lab: Upgrade) -> None:
    approve(lab)
    for name in ("one", "two", "none"):
        lab.placement.send("DELETE", f"/allocations/{identity(name)}")

    started = at_start(lab)

    assert (started.code, started.json["outcome"]) == (0, "unchanged"), started.out + started.err
    assert "the next pass carries out the plan" in started.json["notes"][0]


def test_a_start_converts_whatever_is_right_where_the_configuration_allows_it(lab: Upgrade, tmp_path: Path) -> None:
    allowed = write_config({"agent": {"allow_reshape": True}}, tmp_path / "allowed.conf")

    started = at_start(lab, "--config-file", allowed)

    assert (started.code, started.json["outcome"]) == (0, "changed"), started.out + started.err
    assert lab.stands() == CONVERTED


def test_a_start_leaves_to_the_service_what_moves_nobody(lab: Upgrade, tmp_path: Path) -> None:
    for name in ("one", "two", "none"):
        lab.placement.send("DELETE", f"/allocations/{identity(name)}")
    before = lab.stands()

    approved = lab.run("reshape", "--approve", "--digest", lab.run("reshape").json["digest"])
    started = at_start(lab)

    assert (approved.code, approved.json["approval"]) == (0, "not-needed")
    assert "no allocation has to move" in approved.err
    assert approvals(tmp_path) == []

    assert (started.code, started.json["outcome"]) == (0, "unchanged"), started.out + started.err
    assert "the next pass" in started.json["notes"][0]
    assert lab.stands() == before


def test_only_the_plan_of_now_can_be_approved(lab: Upgrade, tmp_path: Path) -> None:
    read = lab.run("reshape").json["digest"]
    add_consumer(lab.placement, "three", {"allocations": {"four-cells": {"VGPU": 1}}})

    refused = lab.run("reshape", "--approve", "--digest", read)

    assert (refused.code, refused.json["approval"]) == (4, "refused")
    assert f"no plan has the digest {read}; the plan now has " in refused.err
    assert approvals(tmp_path) == []


def test_an_approval_that_cannot_be_trusted_is_none(lab: Upgrade, tmp_path: Path) -> None:
    approve(lab)
    (path,) = approvals(tmp_path)
    path.write_text(path.read_text().replace("four-cells", "five-cells"))
    before = lab.stands()

    started = at_start(lab)

    assert started.code == 3
    assert "reshape --approve" in started.json["notes"][0]
    assert lab.stands() == before
    assert approve(lab)
    assert at_start(lab).code == 0


@pytest.mark.parametrize(
    ("method", "path", "after"),
    [
        pytest.param("POST", "/reshaper", False, id="before the reshape"),
        pytest.param("POST", "/reshaper", True, id="after the reshape"),
    ],
)
def test_a_start_that_is_cut_off_is_completed_by_the_next_ones_and_the_approval_is_used_once(
    method: str, path: str, after: bool, placement_server: PlacementServer, tmp_path: Path
) -> None:
    with Proxy(placement_server.url) as proxy:
        lab = Upgrade(STORY.data, proxy.url, tmp_path)
        approve(lab)
        with subprocess.Popen([str(COMMAND), *map(str, start_command(lab))], stdout=subprocess.DEVNULL) as process:
            proxy.hook = cut_off(process, method, path, after=after)
            process.wait(timeout=60)
        proxy.hook = pass_on
        assert process.returncode == -signal.SIGKILL
        (approval,) = approvals(tmp_path)
        assert json.loads(approval.read_text())["body"]["begun"]

        again = at_start(lab)
        synced = lab.run("sync")

        assert (again.code, synced.code) == (0, 0), again.out + again.err + synced.out + synced.err
        assert lab.stands() == CONVERTED
        assert approvals(tmp_path) == []
        assert lab.run("reshape", "--to", "flat", "--apply").code == 0
        assert at_start(lab).code == 3


def cut_off(process: "subprocess.Popen[bytes]", method: str, path: str, *, after: bool) -> Hook:
    """A hook that kills the command right before or after the first such request is processed."""

    def hook(request: Request, forward: Forward) -> Answer:
        if (request.method, request.path) != (method, path):
            return forward(request)
        if after:
            forward(request)
        process.kill()
        raise ConnectionError("the client was killed")

    return hook


def test_status_and_check_name_an_approval_that_waits(lab: Upgrade, tmp_path: Path) -> None:
    digest = approve(lab)
    (path,) = approvals(tmp_path)
    write_status(tmp_path / "state", ServiceStatus(process=ServiceProcess("1", os.getpid(), 0.0)))
    options = ("--config-file", tmp_path / "agent.conf")

    (sentence,) = run_agent("status", *options, "--format", "json").json["approvals"]

    assert digest in sentence
    assert digest in run_agent("status", *options).out
    checks = {one["check"]: one for one in lab.run("check").json["checks"]}
    assert checks["approval"]["ok"]
    assert digest in checks["approval"]["detail"]
    assert str(path) in checks["approval"]["detail"]


def test_the_rest_of_a_plan_that_was_cut_off_is_carried_out_by_its_digest(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    with Proxy(placement_server.url, hook=refusing("/reshaper")) as proxy:
        (host,) = make_hosts(tmp_path / "hosts", proxy.url, 1)
        digest = host.run("reshape", "--to", "numa").json["digest"]
        assert host.run("reshape", "--to", "numa", "--approve", "--digest", digest).code == 0
        cut_off = host.run("reshape", "--to", "numa", "--apply", "--digest", digest)
        proxy.hook = pass_on
        again = host.run("reshape", "--to", "numa", "--approve", "--digest", digest)
        done = host.run("reshape", "--to", "numa", "--apply", "--digest", digest)

    assert (cut_off.code, again.code, done.code) == (1, 0, 0), again.err + done.out
    assert "its rest is still approved" in again.err
    assert done.json["outcome"] == "changed"
