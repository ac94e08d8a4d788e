"""``upgrade check``: the codes of nova-status, whatever is found."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.service.status import ServiceProcess, ServiceStatus, write_status
from beds.agents import Result, run_agent
from beds.golden import HOSTS
from beds.placement import PlacementServer
from beds.upgrades import UPGRADES, Story, Upgrade

pytestmark = pytest.mark.live

HOST = HOSTS / "four-cells"
Look = Callable[..., Result]


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """Checks a host that reports itself in the layout devices."""
    db = tmp_path / "placement"
    base = ("--host", HOST / "archive", "--embedded-dir", db, "--config-file", HOST / "agent.conf")
    assert run_agent("sync", *base).code == 0

    def check(*more: object) -> Result:
        return run_agent("upgrade", "check", *base, *more, "--format", "json")

    return check


def results(found: Result) -> dict[str, Any]:
    return {one["check"]: one["result"] for one in found.json["checks"] if one["result"] != "success"}


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        pytest.param("", 0, {}, id="a host that is ready"),
        pytest.param("[compute]\nlayuot = numa\n", 1, {"configuration": "warning"}, id="a name that looks misspelt"),
        pytest.param("[compute]\nlayout = round\n", 2, {"configuration": "failure"}, id="what stops the service"),
    ],
)
def test_the_code_is_of_the_worst(text: str, code: int, expected: dict[str, str], look: Look, tmp_path: Path) -> None:
    more = tmp_path / "more.conf"
    more.write_text(text)

    found = look("--config-file", more)

    assert (found.code, results(found)) == (code, expected)


def test_a_service_of_another_version_is_to_be_restarted(look: Look, tmp_path: Path) -> None:
    write_status(tmp_path / "placement", ServiceStatus(process=ServiceProcess("0.0.9", 1, 0.0)))

    found = look()

    assert (found.code, results(found)) == (1, {"service": "warning"})
    assert "the service that runs is 0.0.9" in found.out


def test_a_damaged_status_is_told(look: Look, tmp_path: Path) -> None:
    (tmp_path / "placement/status.json").write_text('{"version":1')

    found = look()

    assert (found.code, results(found)) == (1, {"service": "warning"})
    assert "is not a status file of this version" in found.out


def test_another_word_than_check_is_a_wrong_use() -> None:
    found = run_agent("upgrade", "chekc")

    assert found.code == 2
    assert "invalid choice: 'chekc'" in found.err


def test_a_placement_that_does_not_answer_is_a_failure(tmp_path: Path) -> None:
    config = tmp_path / "agent.conf"
    config.write_text("[placement]\nauth_type = none\nendpoint = http://127.0.0.1:9\n")
    files = ("--config-file", HOST / "agent.conf", "--config-file", config)

    found = run_agent("upgrade", "check", "--host", HOST / "archive", *files, "--format", "json")

    assert found.code == 2
    assert results(found)["placement"] == "failure"


def test_a_conversion_that_nobody_approved_is_a_warning(placement_server: PlacementServer, tmp_path: Path) -> None:
    story = Story(UPGRADES / "01-flat-vgpu-to-gpus")
    lab = Upgrade(story.data, placement_server.url, tmp_path)

    found = run_agent("upgrade", "check", *lab.options, "--format", "json")

    assert (found.code, results(found)) == (1, {"tree": "warning"}), found.out
    assert "reshape-needed" in found.out
