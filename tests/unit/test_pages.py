"""The pages: made from the code where they repeat it, and nothing on them that is no longer there."""

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.audit.decide.findings import Kind
from agent.command.check import doubtful_names
from agent.command.verbs import VERBS
from agent.service.metrics import Metrics
from agent.service.status import ServiceProcess, ServiceStatus
from agent.settings.read import load_settings

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
EXAMPLES = sorted((ROOT / "etc/compute-node-agent/examples").glob("*.conf"))
COMMAND = re.compile(r"(?m)(?:^\s*|[$;] |&& |-- )compute-node-agent ([a-z][a-z-]*)((?: [^\n`|;&>]*)?)")
OURS = ("--help", "--config-file", "--config-dir", "--format", "--all", "--verbose")  # of every command


def commands(page: Path) -> Iterator[tuple[str, str]]:
    """Each command on a page: its verb, and the rest of the line up to a comment."""
    for block in re.findall(r"```[a-z]*\n(.*?)```|`([^`\n]+)`", page.read_text(encoding="utf-8"), re.DOTALL):
        for found in COMMAND.finditer("".join(block) if page.stem != "messages" else ""):
            yield found[1], found[2].split("#")[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_on_a_page_exists_with_its_options(page: Path) -> None:
    for verb, rest in commands(page):
        assert verb in VERBS, f"{page.name}: compute-node-agent {verb}"
        known = {one.name for one in VERBS[verb].options}
        try:
            words = shlex.split(rest)
        except ValueError:
            words = rest.split()
        named = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert named <= known.union(OURS), f"{page.name}: compute-node-agent {verb}{rest}"


@pytest.mark.parametrize("tool", ["messages", "options", "verbs"])
def test_what_is_made_from_the_code_is_current(tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    made = importlib.import_module(tool)
    page = made.document(ROOT) if tool == "messages" else made.document()

    assert page == (ROOT / f"docs/{tool}.md").read_text(encoding="utf-8"), "run make sample"


def test_every_page_is_in_the_contents_of_the_site() -> None:
    contents = set((ROOT / "docs/index.md").read_text(encoding="utf-8").split("\n"))

    assert {page.stem for page in ROOT.glob("docs/*.md")} - {"index"} <= contents


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_file_for_each_kind_of_host_is_read_without_a_doubt(path: Path) -> None:
    settings = load_settings([path], environment=False)

    assert [*doubtful_names(settings)] == []
    assert f"examples/{path.name}" in (ROOT / "docs/kinds.md").read_text(encoding="utf-8")


def test_every_kind_of_finding_is_on_its_page() -> None:
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")

    assert re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE) == [kind.value for kind in Kind]


def test_every_alert_leads_to_a_part_of_the_page_of_questions() -> None:
    rules = (ROOT / "etc/prometheus/compute-node-agent.rules.yaml").read_text(encoding="utf-8")
    page = (ROOT / "docs/questions.md").read_text(encoding="utf-8")
    parts = {
        re.sub("[^a-z ]", "", head.lower()).replace(" ", "-") for head in re.findall("^## (.*)", page, re.MULTILINE)
    }
    led = re.findall(r"runbook_url: \S+/docs/questions\.md#(\S+)", rules)

    assert len(led) == rules.count("alert: ")
    assert {*led} <= parts


def test_every_metric_and_alert_is_on_its_page() -> None:
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    alerts = re.findall(r"alert: (\w+)", (ROOT / "etc/prometheus/compute-node-agent.rules.yaml").read_text())
    status = ServiceStatus(process=ServiceProcess("1", 1, 0.0))
    names = [metric.name for metric in Metrics(lambda: status).registry.collect()]

    assert [name for name in (*names, *alerts) if name not in page] == []
