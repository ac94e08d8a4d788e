"""The tests that need no service of their own, on releases of Debian newer than the one that all tests run on."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from beds.agents import run_agent
from beds.root import Root, changeable

pytestmark = pytest.mark.live

RELEASES = {"trixie": (3, 13), "sid": (3, 14)}  # the Python that each has, at least
PYTHON = "/srv/agent/.venv/bin/python"
DIFFERENCES = {  # traits that releases of Debian have otherwise, with the reason
    "COMPUTE_NET_VIF_MODEL_IGB": "QEMU has this card from 8.0 on",
    "COMPUTE_SOUND_MODEL_VIRTIO": "QEMU has this card from 8.2 on",
    "COMPUTE_GRAPHICS_MODEL_QXL": "from Debian 13 on in a package of its own, qemu-system-modules-spice",
}
LIVE = ("tests/live/test_offline.py", "tests/live/test_wrong_inputs.py", "tests/live/test_host.py")


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def root(release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:
    """A root with the project and its environment, made as the README says."""
    with changeable(release, tmp_path_factory.mktemp(f"suite-{release}"), kernel=True) as root:
        root.run("apt-get", "update", "-q")
        root.run("apt-get", "install", "-q", "-y", "--no-install-recommends", "git", "make", "procps")
        root.put_project()
        root.run("make", "-C", "/srv/agent", "venv")
        yield root


@pytest.mark.parametrize("which", ["tests/unit", "tests/contract", *LIVE])
def test_there_too_the_tests_pass(root: Root, release: str, which: str) -> None:
    said = root.run("env", "-C", "/srv/agent", PYTHON, "-m", "pytest", "-q", "-n", "2", which, check=False)
    print(f"\n{release}, {which}: {said.splitlines()[-1]}")

    assert " passed" in said.splitlines()[-1]
    assert " failed" not in said.splitlines()[-1], said[-3000:]
    assert " error" not in said.splitlines()[-1], said[-3000:]


def test_there_too_make_run_does_the_main_job(root: Root, release: str) -> None:
    began = time.monotonic()
    said = root.run("make", "-C", "/srv/agent", "run")
    libvirt = root.run("libvirtd", "--version").strip()
    print(f"\n{release}, make run, {libvirt}, {time.monotonic() - began:.0f} s\n{said}")

    assert "VCPU" in said


def test_the_traits_are_those_of_debian_12_but_for_what_newer_releases_add(root: Root, tmp_path: Path) -> None:
    """The same machine through the libvirt and the QEMU of each; whether a user there may use KVM is the machine's."""
    emulated = tmp_path / "emulated.conf"
    emulated.write_text("[libvirt]\nvirt_type = qemu\n")
    options = ("discover", "--format", "json", "--config-file")
    here = traits(run_agent(*options, emulated).out)
    root.run("make", "-C", "/srv/agent", "run")  # it starts libvirtd

    there = traits(root.run("/srv/agent/.venv/bin/compute-node-agent", *options, root.put(emulated)))

    assert here ^ there <= DIFFERENCES.keys(), here ^ there


def traits(told: str) -> set[str]:
    (host,) = json.loads(told)["providers"].values()
    return set(host["traits"])


def test_the_python_is_that_of_the_release(root: Root, release: str) -> None:
    version = root.run(PYTHON, "--version").split()[1]

    assert tuple(map(int, version.split(".")[:2])) >= RELEASES[release]
