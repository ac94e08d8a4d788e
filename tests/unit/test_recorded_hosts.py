"""Recorded hosts have their expected trees, and a reason for each number and trait."""

from pathlib import Path

import pytest

from beds.agents import run_here
from beds.golden import LAYOUTS, GoldenHost, differences, discover, golden_hosts, sums, write_layout

every_host = pytest.mark.parametrize("golden", [pytest.param(one, id=one.folder.name) for one in golden_hosts()])
every_layout = pytest.mark.parametrize("layout", LAYOUTS)


@every_host
@every_layout
def test_a_recorded_host_has_its_expected_tree(golden: GoldenHost, layout: str, tmp_path: Path) -> None:
    assert discover(golden, layout, tmp_path) == golden.read(layout)


@every_host
def test_the_layouts_agree_class_by_class(golden: GoldenHost) -> None:
    flat, *others = (sums(golden.read(layout)) for layout in golden.layouts)

    assert all(other == flat for other in others)


@every_host
@every_layout
def test_all_that_is_reported_is_explained_as_ever(
    golden: GoldenHost, layout: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """With --update-golden what is told is written: review the diff."""
    options = (
        "--host",
        golden.archive,
        "--config-file",
        golden.config,
        "--config-file",
        write_layout(layout, tmp_path),
    )
    told = run_here("discover", *options).out
    for name in golden.read(layout).get("providers", ()):
        told += run_here("explain", name, *options).out
    expected = golden.folder / f"{layout}.explained"

    assert not differences(told, expected, update=request.config.getoption("--update-golden"))
