"""What nova reports for a host and a configuration, we report too: the cases, through the installed command."""

import json
from pathlib import Path
from typing import Any

import pytest

from beds.agents import run_agent
from beds.cases import write_archive, write_config
from beds.differences import CLASSES

pytestmark = pytest.mark.live

CASES = sorted((Path(__file__).parents[1] / "cases").glob("*.json"))


def read_case(path: Path) -> dict[str, Any]:
    case: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return case


def inventories(tree: dict[str, Any]) -> dict[str, Any]:
    """Providers with parent and stock, without what differs by design."""
    by_design = tuple(CLASSES)
    return {
        name: (
            provider["parent"],
            {key: stock for key, stock in provider["inventories"].items() if not key.startswith(by_design)},
        )
        for name, provider in tree["providers"].items()
    }


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in CASES if read_case(path)["steps"]])
def test_the_first_step_is_what_discover_shows(path: Path, tmp_path: Path) -> None:
    step = read_case(path)["steps"][0]
    archive = write_archive(step["host"], step["host_name"], tmp_path / "host")
    config = write_config(step["conf"], tmp_path / "nova.conf")

    result = run_agent("discover", "--host", archive, "--config-file", config, "--format", "json")

    assert result.code == 0, result.err
    assert inventories(result.json) == inventories(step["after"])


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=path.stem) for path in CASES if len(read_case(path)["steps"]) > 1]
)
def test_every_step_is_what_sync_leaves_in_placement(path: Path, tmp_path: Path) -> None:
    host: dict[str, Any] = {}
    conf: dict[str, Any] = {}
    for step in read_case(path)["steps"]:
        host = host if step["host"] == "same" else step["host"]
        conf = conf if step["conf"] == "same" else step["conf"]
        archive = write_archive(host, step["host_name"], tmp_path / "host")
        config = write_config(conf, tmp_path / "nova.conf")
        options = ("--host", archive, "--config-file", config, "--embedded-dir", tmp_path / "placement")

        synced = run_agent("sync", *options)
        shown = run_agent("show", *options, "--format", "json")

        assert (synced.code, shown.code) == (0, 0), synced.err + shown.err
        assert inventories(shown.json) == inventories(step["after"]), f"step {step['n']}"


def test_a_shared_set_that_names_offline_cpus_is_refused_and_nothing_is_reported(tmp_path: Path) -> None:
    """Case cpu_shared_offline: nova logs an error and reports no provider at all."""
    spec = read_case(next(path for path in CASES if path.stem == "cpu_shared_offline"))["observed_from"]["spec"]
    sample = read_case(next(path for path in CASES if path.stem == "cpu_both_sets"))["steps"][0]
    host = sample["host"] | {"online_cpus": spec["online_cpus"]}
    archive = write_archive(host, "compute1", tmp_path / "host")
    config = write_config(spec["conf"], tmp_path / "nova.conf")
    options = ("--host", archive, "--config-file", config, "--embedded-dir", tmp_path / "placement")

    refused = run_agent("sync", *options)
    shown = run_agent("show", *options, "--format", "json")

    assert refused.code == 1
    assert "cpu_shared_set names CPU 6-7" in refused.err
    assert len(refused.err.splitlines()) == 1
    assert shown.json["providers"] == {}
