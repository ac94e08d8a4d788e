"""The Debian package on each release of Debian that it is built for: installed, used, and gone without a trace."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from beds.root import PROJECT, Root, changeable

pytestmark = pytest.mark.live

RELEASES = {"bookworm": ("3.11", "deb12"), "trixie": ("3.13", "deb13")}  # its Python, and the mark of its packages
BUILD = ("gcc", "libc6-dev", "libvirt-dev", "pkg-config", "python3-dev", "python3-venv")
CONFIG = "/etc/compute-node-agent/compute-node-agent.conf"
# What dpkg and the tools for users keep for themselves.
KEPT = ("/var/lib/dpkg", "/var/log", "/var/cache", "/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-",
        "/etc/ld.so.cache", "/etc/.pwd.lock", "/etc/subuid", "/etc/subgid", "/root", "/tmp")  # fmt: skip


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def package(release: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, built on that release from what the project has."""
    folder = tmp_path_factory.mktemp(f"build-{release}")
    with changeable(release, folder, kernel=True) as root:
        root.run("apt-get", "update", "-q")
        root.run("apt-get", "install", "-q", "-y", "--no-install-recommends", *BUILD)
        place = root.put_project()
        said = root.run("bash", f"{place}/tools/deb.sh", "/usr/bin/python3")
        built = root.folder / place.lstrip("/") / said.split()[-1]
        return Path(shutil.copy(built, folder))


@pytest.fixture
def root(release: str, tmp_path: Path) -> Iterator[Root]:
    """A fresh root without /proc, as whoever makes an image has it."""
    with changeable(release, tmp_path, kernel=False) as root:
        yield root


def test_it_is_for_the_release_that_it_was_built_on(package: Path, release: str) -> None:
    python, mark = RELEASES[release]
    shown = subprocess.run(["dpkg-deb", "-f", str(package)], check=True, capture_output=True, text=True).stdout
    fields = dict(line.split(": ", 1) for line in shown.splitlines() if ": " in line)

    assert fields["Version"].endswith(f"+{mark}")
    major, minor = python.split(".")
    assert f"python3 (>= {python}), python3 (<< {major}.{int(minor) + 1}~)" in fields["Depends"]


def test_lintian_finds_no_error(package: Path) -> None:
    done = subprocess.run(["lintian", "--fail-on", "error", str(package)], check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout


def test_it_installs_without_proc_works_and_leaves_nothing_when_it_is_purged(package: Path, root: Root) -> None:
    before = root.files()
    root.run("dpkg", "-i", root.put(package))
    assert root.run("stat", "-c", "%U:%G %a", CONFIG).strip() == "root:compute-node-agent 640"
    assert "compute-node-agent" in root.run("getent", "passwd", "compute-node-agent")
    enabled = root.run("find", "/etc/systemd/system", "-name", "compute-node-agent*", check=False)
    assert enabled.strip() == ""  # nothing that was not asked for

    assert root.run("compute-node-agent", "--version").startswith("compute-node-agent ")
    found = root.run("runuser", "-u", "compute-node-agent", "--", "compute-node-agent", "discover", "--config-file",
                     made_up(root))  # fmt: skip
    assert "VCPU" in found
    root.run("ln", "-s", "/usr/lib/systemd/system/compute-node-agent.service", wanted())
    root.run("dpkg", "--purge", "compute-node-agent")

    after = root.files()
    assert {path: state for path, state in after.items() if path not in before and not path.startswith(KEPT)} == {}
    assert before.keys() - after.keys() == set()
    assert root.run("getent", "passwd", "compute-node-agent", check=False) == ""
    assert root.run("getent", "group", "compute-node-agent", check=False) == ""


def test_it_takes_over_what_root_left_in_the_state_directory(package: Path, root: Root) -> None:
    """A first look as root, before the package: its files were root's for ever, and the service could not write."""
    state, secret = "/var/lib/compute-node-agent", "/etc/secret"
    root.run("mkdir", "-p", f"{state}/audits", "/etc/others")
    root.run("touch", f"{state}/compute_id", f"{state}/audits/root.json", secret)
    root.run("ln", secret, f"{state}/second-name")
    root.run("ln", "-s", "/etc/others", f"{state}/link")

    root.run("dpkg", "-i", root.put(package))

    owners = root.run("find", state, "/etc/others", secret, "-printf", "%p %u:%g\\n").splitlines()
    kept = {f"{state}/second-name", secret, "/etc/others"}
    assert {line for line in owners if line.endswith(" root:root")} == {f"{one} root:root" for one in kept}
    assert {line.split()[1] for line in owners if line.split()[0] not in kept} == {
        "compute-node-agent:compute-node-agent"
    }


def test_what_an_administrator_changed_survives_an_upgrade(package: Path, root: Root) -> None:
    deb = root.put(package)
    root.run("dpkg", "-i", deb)
    config = root.folder / CONFIG.lstrip("/")
    config.write_text(config.read_text(encoding="utf-8") + "interval = 30\n", encoding="utf-8")
    mine = config.read_text(encoding="utf-8")

    root.run("dpkg", "-i", deb)

    assert config.read_text(encoding="utf-8") == mine
    assert root.run("stat", "-c", "%U:%G %a", CONFIG).strip() == "root:compute-node-agent 640"


def wanted() -> str:
    """The link that enables the service."""
    return "/etc/systemd/system/multi-user.target.wants/compute-node-agent.service"


def made_up(root: Root) -> str:
    """A configuration of a made-up host."""
    file = root.folder / "tmp/made-up.conf"
    file.write_text("[DEFAULT]\ncompute_driver = fake.FakeDriver\n", encoding="utf-8")
    file.chmod(0o644)
    return f"/tmp/{file.name}"


def test_the_project_has_no_root_of_its_own_in_its_tree() -> None:
    ignored = subprocess.run(["git", "check-ignore", ".distro"], cwd=PROJECT, check=False)

    assert ignored.returncode == 0
