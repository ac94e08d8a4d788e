"""The tests that need no service of their own, on a release of Debian newer than the one that all tests run on."""

from collections.abc import Iterator

import pytest

from beds.root import Root, changeable

pytestmark = pytest.mark.live

RELEASE = "trixie"
PYTHON = "/srv/agent/.venv/bin/python"
LIVE = ("tests/live/test_offline.py", "tests/live/test_wrong_inputs.py", "tests/live/test_host.py")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:
    """A root with the project and its environment, made as the README says."""
    with changeable(RELEASE, tmp_path_factory.mktemp("suite"), kernel=True) as root:
        root.run("apt-get", "update", "-q")
        root.run("apt-get", "install", "-q", "-y", "--no-install-recommends", "git", "make", "procps")
        root.put_project()
        root.run("make", "-C", "/srv/agent", "venv")
        yield root


@pytest.mark.parametrize("which", ["tests/unit", "tests/contract", *LIVE])
def test_there_too_the_tests_pass(root: Root, which: str) -> None:
    said = root.run("env", "-C", "/srv/agent", PYTHON, "-m", "pytest", "-q", "-n", "2", which, check=False)
    print(f"\n{RELEASE}, {which}: {said.splitlines()[-1]}")

    assert " passed" in said.splitlines()[-1]
    assert " failed" not in said.splitlines()[-1], said[-3000:]
    assert " error" not in said.splitlines()[-1], said[-3000:]


def test_there_too_make_run_does_the_main_job(root: Root) -> None:
    said = root.run("make", "-C", "/srv/agent", "run")
    print(said)

    assert "VCPU" in said


def test_the_python_is_that_of_the_release(root: Root) -> None:
    assert root.run(PYTHON, "--version").startswith("Python 3.13")
