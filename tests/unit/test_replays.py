"""Saved cases are decided and told as ever: recorded hosts in a placement that others write to, too."""

import re
from pathlib import Path

import pytest

from agent.command.arguments import main
from beds.agents import lasting
from beds.golden import differences

CASES = sorted((Path(__file__).parents[1] / "replays").glob("*.tar.gz"))
DRAWN = [case for case in CASES if case.name[0].isdigit()]


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


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name.removesuffix(".tar.gz")) for case in DRAWN])
def test_a_saved_case_is_drawn_as_ever(
    case: Path, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The old trees of ``tests/upgrades``, and their audits; of each page no style, and no footer."""
    main(["plan", "--replay", str(case), "--picture", str(tmp_path / "picture.html")])
    capsys.readouterr()

    page = (tmp_path / "picture.html").read_text(encoding="utf-8")
    found = re.sub("<style>.*?</style>|<footer>.*</footer>|sha256-[^']*", "", page, flags=re.DOTALL)
    expected = case.with_name(case.name.replace(".tar.gz", ".html"))
    assert not differences(found, expected, update=request.config.getoption("--update-golden"))
