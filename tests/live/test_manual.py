"""The manual pages and completions, made from the command line's own parsers, read and used as people do."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent.command.verbs import VERBS
from beds.agents import COMMAND

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("manual")
    subprocess.run(
        [sys.executable, ROOT / "tools" / "manual.py", folder],
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return folder


def completed(made: Path, *words: str, path: str = "") -> set[str]:
    """What bash offers for the last of these words after the command's name."""
    line = " ".join(("compute-node-agent", *words))
    split = [part for word in words for part in re.split("(:)", word)]  # as bash itself does
    environment = {**os.environ, "LINE": line, "PATH": f"{path}:{os.environ['PATH']}"}
    script = (
        f"source /usr/share/bash-completion/bash_completion; source {made}/bash/compute-node-agent\n"
        'COMP_LINE="$LINE"; COMP_POINT=${#LINE}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()\n'
        "_compute_node_agent\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    found = subprocess.run(
        ["bash", "-c", script, "bash", "compute-node-agent", *split],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    return {line.strip() for line in found.stdout.splitlines() if line.strip()}


def test_each_verb_has_a_page_that_man_can_read(made: Path) -> None:
    pages = made / "man8"

    assert {path.name for path in pages.iterdir()} == {
        "compute-node-agent.8",
        *(f"compute-node-agent-{name}.8" for name in VERBS),
    }
    shown = subprocess.run(
        ["man", "--warnings", "-l", pages / "compute-node-agent-reshape.8"],
        capture_output=True, text=True, check=True, env={**os.environ, "MANWIDTH": "100", "MANPAGER": "cat"},
    )  # fmt: skip
    assert shown.stderr == ""
    for part in ("compute-node-agent-reshape - convert", "--digest D", "EXIT STATUS", "refused: the plan is unsafe"):
        assert part in " ".join(shown.stdout.split()), part


def test_the_overview_lists_each_verb(made: Path) -> None:
    text = (made / "man8" / "compute-node-agent.8").read_text(encoding="utf-8").replace("\\-", "-")

    assert all(f".B {verb.name}\n{verb.help.replace(chr(92), '')}" in text for verb in VERBS.values())


def test_bash_completes_verbs_and_options(made: Path) -> None:
    assert completed(made, "res") == {"reshape"}
    assert completed(made, "reshape", "--app") == {"--apply", "--approve", "--approved"}
    assert completed(made, "reshape", "--to", "") == {"flat", "devices", "cells", "numa"}


def test_bash_completes_names_of_providers(made: Path, tmp_path: Path) -> None:
    names = tmp_path / "compute-node-agent"
    host = ROOT / "tests/hosts/four-cells"
    options = f"--host {host}/archive --config-file {host}/agent.conf"
    names.write_text(f'#!/bin/sh\nexec {COMMAND} "$@" {options}\n', encoding="utf-8")
    names.chmod(0o755)

    cards = completed(made, "explain", "four-cells_pci", path=str(tmp_path))
    behind_a_colon = completed(made, "explain", "four-cells_0000:8", path=str(tmp_path))

    assert cards == {"four-cells_pci_0000_06_00_0", "four-cells_pci_0000_86_00_0"}
    assert behind_a_colon == {"81:00.0"}


def test_zsh_gets_a_function_for_the_command(made: Path) -> None:
    text = (made / "zsh" / "_compute-node-agent").read_text(encoding="utf-8")

    assert text.startswith("#compdef compute-node-agent")
    assert all(verb in text for verb in VERBS)
