"""Recorded hosts with the trees that are expected of them: ``tests/hosts/NAME/``."""

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from beds.agents import run_here
from drivers.policy import Layout

HOSTS = Path(__file__).parents[1] / "hosts"
LAYOUTS = get_args(Layout)


@dataclass(frozen=True, slots=True)
class GoldenHost:
    """A host archive, the configuration of its story, and the expected tree in each layout, or why it is refused."""

    folder: Path

    @property
    def archive(self) -> Path:
        return self.folder / "archive"

    @property
    def config(self) -> Path:
        return self.folder / "agent.conf"

    def expected(self, layout: str) -> Path:
        return self.folder / f"{layout}.json"

    def read(self, layout: str) -> Any:
        return json.loads(self.expected(layout).read_text(encoding="utf-8"))

    @property
    def layouts(self) -> tuple[str, ...]:
        """Those in which it is reported; of the others the file has a sentence in place of the providers."""
        return tuple(layout for layout in LAYOUTS if "providers" in self.read(layout))

    def write(self, layout: str, tree: Any) -> None:
        text = json.dumps(tree, indent=1, sort_keys=True) + "\n"
        self.expected(layout).write_text(text, encoding="utf-8")


def golden_hosts() -> Iterator[GoldenHost]:
    """All of them, by name."""
    return (GoldenHost(folder) for folder in sorted(HOSTS.iterdir()) if folder.is_dir())


def write_layout(layout: str, folder: Path) -> Path:
    """A configuration file that says nothing but the layout."""
    path = folder / f"{layout}.conf"
    path.write_text(f"[compute]\nlayout = {layout}\n", encoding="utf-8")
    return path


def discover(golden: GoldenHost, layout: str, folder: Path) -> Any:
    """The tree of a recorded host, or why this layout is refused; ``folder`` gets a file of configuration."""
    options = ("--config-file", golden.config, "--config-file", write_layout(layout, folder), "--format", "json")
    shown = run_here("discover", "--host", golden.archive, *options)
    if shown.code:
        return {"refused": shown.err.strip()}
    return {"providers": shown.json["providers"]}


def differences(found: str, expected: Path, *, update: bool) -> str:
    """What differs from the text in a file, as a diff; with ``update`` the file becomes what was found."""
    if update:
        expected.write_text(found, encoding="utf-8")
    before = expected.read_text(encoding="utf-8").splitlines()
    return "\n".join(difflib.unified_diff(before, found.splitlines(), "expected", "found", lineterm=""))


def beyond_the_machine(tree: Any, *, apart_from: tuple[str, ...] = ("DISK_GB",)) -> dict[str, Any]:
    """A tree without what a host of the test beds has of the machine it runs on: these classes, and root traits."""
    return {
        name: {
            **provider,
            "traits": provider["traits"] if provider["parent"] else None,
            "inventories": {key: stock for key, stock in provider["inventories"].items() if key not in apart_from},
        }
        for name, provider in tree["providers"].items()
    }


def sums(tree: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for provider in tree["providers"].values():
        for name, stock in provider["inventories"].items():
            found[name] = found.get(name, 0) + stock["total"]
    return found
