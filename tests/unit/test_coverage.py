"""What make unit says of modules that touch nothing and that no unit test reaches."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "coverage.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """By its path: by its name it would stand before the package coverage."""
    spec = importlib.util.spec_from_file_location("tools_coverage", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def report(**percents: float) -> dict[str, Any]:
    return {"files": {f"{name}.py": {"summary": {"percent_covered": percent}} for name, percent in percents.items()}}


def test_the_import_contract_tells_which_modules_are_pure(tool: ModuleType) -> None:
    files = tool.files_of(tool.pure_modules((TOOL.parents[1] / "pyproject.toml").read_text()), TOOL.parents[1])

    assert {"agent/sync/decide/checks.py", "reportclient/plan.py", "drivers/devices/__init__.py"} <= files
    assert not {"reportclient/client.py", "drivers/libvirt/connection.py"} & files


def test_a_module_that_is_not_there_is_an_error(tool: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"names agent\.gone, which is no module"):
        tool.files_of(["agent.gone"], tmp_path)


@pytest.mark.parametrize(
    ("found", "sentences"),
    [
        pytest.param(report(a=95.0, b=100.0, other=0.0), (), id="enough"),
        pytest.param(report(a=94.96, b=100.0), ("a.py: 94.96 %, and 95 % is the least",), id="almost"),
        pytest.param(report(b=95.0), ("a.py: 0.00 %, and 95 % is the least",), id="one that is not in the report"),
    ],
)
def test_each_pure_module_that_falls_short_is_named(
    tool: ModuleType, found: dict[str, Any], sentences: tuple[str, ...]
) -> None:
    assert tool.short_of(found, ["b.py", "a.py"]) == sentences


def test_it_ends_with_1_where_a_module_falls_short(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = tool.files_of(tool.pure_modules((TOOL.parents[1] / "pyproject.toml").read_text()), TOOL.parents[1])
    whole = {name: {"summary": {"percent_covered": 100.0}} for name in files}
    written = tmp_path / "report.json"

    written.write_text(json.dumps({"files": whole}))
    assert tool.main(str(written)) == 0

    whole["reportclient/plan.py"]["summary"]["percent_covered"] = 90.0
    written.write_text(json.dumps({"files": whole}))
    assert tool.main(str(written)) == 1
    assert "reportclient/plan.py: 90.00 %, and 95 % is the least" in capsys.readouterr().out
