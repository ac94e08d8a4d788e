"""Refuse a coverage report (JSON) of the unit tests in which a module that touches nothing is below 95 %."""

import json
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

CONTRACT = "what is pure touches nothing"  # the import contract of pyproject.toml that lists them
LEAST = 95.0  # per cent of lines and branches
TOP = Path(__file__).resolve().parent.parent


def pure_modules(pyproject: str) -> tuple[str, ...]:
    """Return the modules and packages that the import contract names."""
    contracts: list[dict[str, Any]] = tomllib.loads(pyproject)["tool"]["importlinter"]["contracts"]
    (found,) = (contract["source_modules"] for contract in contracts if contract["name"] == CONTRACT)
    return tuple(found)


def files_of(modules: Iterable[str], top: Path) -> frozenset[str]:
    """
    Return the files of modules, and all files of packages, below ``top``.

    Raises:
        ValueError: there is no such module.
    """
    found: set[str] = set()
    for module in modules:
        path = top / module.replace(".", "/")
        files = [*path.rglob("*.py")] if path.is_dir() else [path.with_suffix(".py")]
        if not all(file.is_file() for file in files) or not files:
            raise ValueError(f"pyproject.toml: the import contract names {module}, which is no module")
        found |= {str(file.relative_to(top)) for file in files}
    return frozenset(found)


def short_of(report: dict[str, Any], files: Iterable[str]) -> tuple[str, ...]:
    """Return a sentence for each file below ``LEAST``; a file that the report lacks has nothing."""
    sentences = []
    for name in sorted(files):
        summary = report["files"].get(name, {}).get("summary", {"percent_covered": 0.0})
        if summary["percent_covered"] < LEAST:
            sentences.append(f"{name}: {summary['percent_covered']:.2f} %, and {LEAST:g} % is the least")
    return tuple(sentences)


def main(report: str) -> int:
    """Print the modules below ``LEAST``; 1 if there are any."""
    files = files_of(pure_modules((TOP / "pyproject.toml").read_text()), TOP)
    sentences = short_of(json.loads(Path(report).read_text()), files)
    print("\n".join(sentences) or f"unit tests reach at least {LEAST:g} % of each of {len(files)} pure modules")
    if sentences:
        print(".venv/bin/coverage report -m shows the lines and branches that no unit test reaches")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
