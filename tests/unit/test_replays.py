"""Saved cases are decided and told as ever: recorded hosts in a placement that others write to, too."""

from pathlib import Path

import pytest

from agent.command.arguments import main
from beds.agents import lasting
from beds.golden import differences

CASES = sorted((Path(__file__).parents[1] / "replays").glob("*.tar.gz"))


@pytest.mark.parametrize("form", ["table", "json"])
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name.removesuffix(".tar.gz")) for case in CASES])
def test_a_saved_case_is_decided_and_told_as_ever(
    case: Path,
    form: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """``tools/replays.py`` makes the cases; with --update-golden what is told is written: review the diff."""
    monkeypatch.setenv("COLUMNS", "120")

    code = main(["plan", "--replay", str(case), "--format", form])

    told = capsys.readouterr()
    found = f"{lasting(told.out)}{told.err.replace(str(case), case.name)}exit code {code}\n"
    expected = case.with_name(case.name.replace(".tar.gz", f".{form}"))
    assert not differences(found, expected, update=request.config.getoption("--update-golden"))
