"""The project's own papers: what they say is there, is there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent.command.verbs import VERBS

ROOT = Path(__file__).parents[2]
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def test_every_test_that_the_mission_names_exists() -> None:
    named = NAMED_TEST.findall((ROOT / "docs/mission.md").read_text())

    assert named
    for path, function in named:
        text = (ROOT / path).read_text()
        assert not function or f"def {function}(" in text, f"{path}::{function}"


def test_every_row_of_the_mission_is_shown_or_listed_as_not_yet_built() -> None:
    rows = [line for line in (ROOT / "docs/mission.md").read_text().splitlines() if re.match(r"\| [A-Z]\d+ ", line)]

    assert len(rows) == len({row.split(" ")[1] for row in rows}) == 34
    for row in rows:
        assert "not yet built" in row or NAMED_TEST.search(row), row


def test_the_sample_configuration_is_current(tmp_path: Path) -> None:
    sample = tmp_path / "sample"
    generator = Path(sys.executable).parent / "oslo-config-generator"
    config = ROOT / "etc/compute-node-agent/generator.conf"
    options = ["--config-file", str(config), "--output-file", str(sample)]

    subprocess.run([str(generator), *options], check=True, capture_output=True)

    current = ROOT / "etc/compute-node-agent/compute-node-agent.conf.sample"
    assert sample.read_text() == current.read_text(), "run make sample"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).is_file(), target


def test_the_readme_links_every_other_page() -> None:
    linked = {(ROOT / target).resolve() for target in LINK.findall((ROOT / "README.md").read_text())}

    assert linked == {page.resolve() for page in PAGES if page.name != "README.md"}


def test_the_readme_names_every_verb() -> None:
    text = (ROOT / "README.md").read_text()

    assert [name for name in VERBS if not re.search(rf"`(compute-node-agent )?{name}\b", text)] == []


@pytest.mark.parametrize(
    "target",
    [
        "venv",
        "run",
        "test",
        "check",
        "soak",
        "bench",
        "service-test",
        "guest-test",
        "sample",
        "deb",
        "nova-driver",
        "nova-test",
    ],
)
def test_make_has_the_documented_targets(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
