"""The container image: what is in it works as its own user. Run by chroot, as not every machine runs containers."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beds.process import BedError
from beds.root import PROJECT, Root

pytestmark = pytest.mark.live

HOST = PROJECT / "tests/hosts/four-cells"


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image of this tree, unpacked: a folder with ``index.json`` and its blobs."""
    python = sys._base_executable  # type: ignore[attr-defined]
    deb = _told([str(PROJECT / "tools/deb.sh"), python])
    image = _told([str(PROJECT / "tools/image.sh"), deb])
    folder = tmp_path_factory.mktemp("image")
    subprocess.run(["tar", "--extract", "--file", image, "--directory", str(folder)], cwd=PROJECT, check=True)
    print(f"\n{image}: {(PROJECT / image).stat().st_size >> 20} MiB")
    return folder


def _told(command: list[str]) -> str:
    """The last word that a script prints: the file that it made."""
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BedError(done.stderr[-2000:])
    return done.stdout.split()[-1]


def read(folder: Path, named: dict[str, Any]) -> Any:
    return json.loads(blob(folder, named).read_text(encoding="utf-8"))


def blob(folder: Path, named: dict[str, Any]) -> Path:
    """The file of a blob, which is what its name says."""
    file = folder / "blobs" / str(named["digest"]).replace(":", "/")
    assert file.stat().st_size == named["size"]
    assert hashlib.sha256(file.read_bytes()).hexdigest() == file.name
    return file


@pytest.fixture(scope="module")
def manifest(blobs: Path) -> Any:
    (named,) = json.loads((blobs / "index.json").read_text(encoding="utf-8"))["manifests"]
    return read(blobs, named)


@pytest.fixture(scope="module")
def root(blobs: Path, manifest: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:
    folder = tmp_path_factory.mktemp("root")
    (layer,) = manifest["layers"]
    subprocess.run(
        ["tar", "--extract", "--gzip", "--file", str(blob(blobs, layer)), "--directory", str(folder)], check=True
    )
    yield Root(folder)
    shutil.rmtree(folder)


def test_it_runs_the_service_as_a_user_without_rights(blobs: Path, manifest: Any) -> None:
    config = read(blobs, manifest["config"])

    assert config["config"]["User"] == "compute-node-agent"
    assert [*config["config"]["Entrypoint"], *config["config"]["Cmd"]] == ["/usr/bin/compute-node-agent", "run"]


def test_it_reports_a_host_as_the_same_code_outside_does(root: Root) -> None:
    shutil.copytree(HOST / "archive", root.folder / "srv/host")
    root.put(HOST / "agent.conf", "/srv")
    options = ("--host", "/srv/host", "--config-file", "/srv/agent.conf", "--format", "json")

    found = root.run("runuser", "-u", "compute-node-agent", "--", "compute-node-agent", "discover", *options)

    names = json.loads(found)["providers"].keys()
    assert names == json.loads((HOST / "devices.json").read_text(encoding="utf-8"))["providers"].keys()


def test_its_health_command_is_there_and_fails_while_no_service_runs(root: Root) -> None:
    said = root.run("runuser", "-u", "compute-node-agent", "--", "compute-node-agent", "status", check=False)

    assert "the service never ran with this state directory" in said
