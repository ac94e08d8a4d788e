"""
Old trees that live on as data: ``tests/upgrades/NN-STORY/``.

``README.md`` tells the story; ``story.json`` has the golden host that it plays on, the configuration, the guests that
run there, and what placement holds before; ``expected.json`` what it holds afterwards and who was moved where.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beds.agents import Result, run_agent
from beds.by_hand import ByHand
from beds.cases import write_sev
from beds.golden import HOSTS
from beds.guests import add_guests, read_spec
from beds.trees import add_consumer, identity, lay_down, read_back

UPGRADES = Path(__file__).parents[1] / "upgrades"


@dataclass(frozen=True, slots=True)
class Story:
    """One upgrade."""

    folder: Path

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "story.json").read_text(encoding="utf-8"))
        return found

    @property
    def expected(self) -> Any:
        return json.loads((self.folder / "expected.json").read_text(encoding="utf-8"))

    def write_expected(self, record: Mapping[str, Any]) -> None:
        text = json.dumps(record, indent=1, sort_keys=True) + "\n"
        (self.folder / "expected.json").write_text(text, encoding="utf-8")


def stories() -> Iterator[Story]:
    """All of them, in the order of their numbers."""
    return (Story(folder) for folder in sorted(UPGRADES.iterdir()) if folder.is_dir())


class Upgrade:
    """One story laid down in the placement at a URL, and the command on its host."""

    def __init__(self, data: Mapping[str, Any], url: str, folder: Path) -> None:
        self.data = data
        self.before = self.data["before"]
        self.placement = ByHand(url)
        self._url = url
        self.folder = folder
        archive = write_host(self.data, folder)
        self.options = ("--host", archive, "--config-file", self.configured(self.data["config"]))
        lay_down(self.placement, self.before["providers"])
        if first := self.data.get("first"):
            config = self.configured(first, "first.conf")
            done = run_agent("sync", "--host", archive, "--config-file", config)
            assert done.code == 0, done.out + done.err
        for name, consumer in self.before["consumers"].items():
            add_consumer(self.placement, name, consumer)

    def configured(self, conf: Mapping[str, Mapping[str, Any]], name: str = "agent.conf") -> Path:
        own = {
            "placement": {"auth_type": "none", "endpoint": self._url},
            "agent": {"state_directory": str(self.folder / "state"), **conf.get("agent", {})},
        }
        return write_config({**conf, **own}, self.folder / name)

    def run(self, verb: str, *more: object) -> Result:
        return run_agent(verb, *self.options, *more, "--format", "json")

    def stands(self) -> Any:
        return read_back(self.placement, self.before["consumers"])


def recorded_host(
    url: str,
    folder: Path,
    *,
    story: str = "01-flat-vgpu-to-gpus",
    guests: Mapping[str, Mapping[str, Any]] | None = None,
    providers: Mapping[str, Any] | None = None,
    consumers: Mapping[str, Any] | None = None,
    synced: bool = True,
    **groups: Mapping[str, Any],
) -> Upgrade:
    """
    A story's host with other guests, of 512 MiB unless they say more, and with other options in these groups.

    A consumer without ``allocations`` is its allocations; ``synced``: the host is up to date before consumers come.
    """
    data = Story(UPGRADES / story).data
    config = data["config"] | {name: data["config"].get(name, {}) | dict(group) for name, group in groups.items()}
    rows = {name: one if "allocations" in one else {"allocations": one} for name, one in (consumers or {}).items()}
    data["config"], data["first"] = config, config if synced else None
    data["guests"] = {name: {"memory_mib": 512, **guest} for name, guest in (guests or {}).items()}
    data["before"] = {"providers": providers or {}, "consumers": rows}
    return Upgrade(data, url, folder)


def write_host(story: Mapping[str, Any], folder: Path) -> Path:
    """The story's host as an archive: a golden one with its own guests, and with the identity that placement knows."""
    archive = folder / "host"
    shutil.rmtree(archive, ignore_errors=True)
    shutil.copytree(HOSTS / story["host"] / "archive", archive)
    if story.get("sev"):
        write_sev(archive, story["sev"])
    add_guests(archive, {identity(name): read_spec(guest) for name, guest in story["guests"].items()})
    (archive / "compute_id").write_text(identity(story["host"]) + "\n", encoding="utf-8")
    host = json.loads((archive / "host.json").read_text(encoding="utf-8"))
    host.pop("files", None)
    (archive / "host.json").write_text(json.dumps(host), encoding="utf-8")
    return archive


def write_config(conf: Mapping[str, Mapping[str, Any]], path: Path) -> Path:
    """Groups of options as a file; an option with a list stands once for each of its values."""
    lines = []
    for group, options in conf.items():
        lines.append(f"[{group}]")
        for option, value in options.items():
            lines += [f"{option} = {one}" for one in (value if isinstance(value, list) else [value])]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
