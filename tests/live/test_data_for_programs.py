"""What the command prints for programs, also when it fails, and what a cloud's logs can be searched for."""

import json
from pathlib import Path

import pytest

from agent import VERSION
from beds.agents import run_agent
from beds.placement import PlacementServer
from beds.proxy import Answer, Forward, Proxy, Request
from beds.upgrades import UPGRADES, Story, Upgrade

pytestmark = pytest.mark.live


@pytest.fixture
def host(placement_server: PlacementServer, tmp_path: Path) -> Upgrade:
    return Upgrade(Story(UPGRADES / "05-devices-to-numa").data, placement_server.url, tmp_path)


def config_of(host: Upgrade) -> Path:
    return Path(str(host.options[-1]))


def test_data_say_what_they_are_about(host: Upgrade) -> None:
    for verb in ("discover", "show", "plan", "reshape", "audit", "check", "status"):
        about = host.run(verb).whole["about"]

        assert (about["verb"], about["version"], about["layout"]) == (verb, VERSION, "numa")
        assert about["nodes"] == ([] if verb == "status" else ["four-cells"])
        asked = verb not in ("discover", "status")
        assert (about["placement"] or "").startswith("placement at http://127") is asked
        assert about["time"].endswith("+00:00")


def test_a_plan_says_how_a_pass_would_end_and_why_and_for_another_layout_names_both(host: Upgrade) -> None:
    told, other = host.run("plan").json, host.run("reshape", "--to", "cells").json

    assert told["outcome"] == "reshape-needed"
    assert "must move" in told["notes"][0]
    assert any("must move" in line for line in told["remarks"])
    assert (other["about"]["layout"], other["about"]["target"]) == ("numa", "cells")
    assert (other["node"], other["outcome"], other["notes"]) == ("four-cells", "changed", [])


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_failure_is_data_too(host: Upgrade, form: str) -> None:
    import yaml

    done = run_agent("plan", "--host", "/nowhere", "--config-file", config_of(host), "--format", form)

    assert done.code == 1
    told = yaml.safe_load(done.out)
    assert told["error"]["message"] == done.err.strip()
    assert (told["error"]["kind"], told["error"]["exit"]) == ("DiscoveryError", 1)
    assert (told["about"]["verb"], told["about"]["layout"]) == ("plan", "numa")


def test_a_wrong_configuration_is_data_too(tmp_path: Path) -> None:
    done = run_agent("plan", "--config-file", tmp_path / "none.conf", "--format", "json")

    assert (done.code, done.json["error"]["kind"], done.json["about"]["layout"]) == (1, "ConfigError", None)


def test_all_requests_of_a_run_have_one_id_and_name_the_version(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    seen: list[Request] = []

    def watch(request: Request, forward: Forward) -> Answer:
        seen.append(request)
        return forward(request)

    with Proxy(placement_server.url, hook=watch) as proxy:
        host = Upgrade(Story(UPGRADES / "05-devices-to-numa").data, placement_server.url, tmp_path)
        config = config_of(host)
        config.write_text(config.read_text(encoding="utf-8").replace(placement_server.url, proxy.url), encoding="utf-8")
        told = [
            host.run("plan").whole["about"]["request_id"],
            host.run("reshape", "--apply").whole["about"]["request_id"],
        ]

    sent = [one.header("X-OpenStack-Request-ID") for one in seen]
    assert list(dict.fromkeys(sent)) == told
    assert all(one.header("User-Agent").startswith(f"compute-node-agent/{VERSION} ") for one in seen)
    assert json.dumps(told).count("req-") == 2
