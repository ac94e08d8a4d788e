"""The rpm beside the deb: the same files with the same owners and modes, in two equal roots of Debian 12."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from beds.process import BedError
from beds.root import PROJECT, Root, changeable

pytestmark = pytest.mark.live

NAME = "compute-node-agent"
CONFIG, STATE = f"/etc/{NAME}/{NAME}.conf", f"/var/lib/{NAME}"
OF_THE_DEB = (f"/usr/share/doc/{NAME}/copyright", f"/usr/share/doc/{NAME}/changelog.gz", "/usr/share/lintian")
OF_THE_RPM = "/usr/share/licenses"
ZSH = ("/usr/share/zsh/vendor-completions", "/usr/share/zsh/site-functions")  # where Debian's looks, and where Rocky's
# What the tools for packages and for users keep for themselves; the users' names are compared, not their numbers.
KEPT = ("/var/lib/dpkg", "/var/lib/rpm", "/var/log", "/var/cache", "/root", "/tmp", "/etc/ld.so.cache", "/etc/passwd",
        "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/subuid", "/etc/subgid")  # fmt: skip


def told(*command: str) -> str:
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BedError(f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


@pytest.fixture(scope="module")
def packages() -> tuple[Path, Path]:
    """The deb and the rpm of this tree."""
    python = sys._base_executable  # type: ignore[attr-defined]
    deb, rpm = (PROJECT / told(f"tools/{kind}.sh", python).split()[-1] for kind in ("deb", "rpm"))
    return deb, rpm


@pytest.fixture
def roots(packages: tuple[Path, Path], tmp_path: Path) -> Iterator[tuple[Root, Root]]:
    """Two roots: in the first the deb is installed, in the second the rpm, with its scripts."""
    deb, rpm = packages
    with (
        changeable("bookworm", tmp_path / "deb", kernel=False) as one,
        changeable("bookworm", tmp_path / "rpm", kernel=False) as other,
    ):
        one.run("dpkg", "-i", one.put(deb))
        install(rpm, other)
        yield one, other


def install(rpm: Path, root: Root, *options: str) -> None:
    """Debian has no packages by the names that the rpm requires."""
    told("rpm", "--root", str(root.folder), "--dbpath", "/var/lib/rpm", "--nodeps", *options, "-U", str(rpm))


def contents(root: Root) -> dict[str, str]:
    """Each file by its path as Debian has it: owner, mode, and what is in it."""
    return {
        path.replace(ZSH[1], ZSH[0]): f"{state} {digest(root.folder / path.lstrip('/'))}"
        for path, state in root.files().items()
        if not path.startswith((*KEPT, *OF_THE_DEB, OF_THE_RPM)) and path not in {"/usr/share", "/usr/share/zsh", *ZSH}
    }


def digest(file: Path) -> str:
    if file.is_symlink():
        return str(file.readlink())
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def test_both_packages_leave_the_same_files_with_the_same_owners_and_modes(roots: tuple[Root, Root]) -> None:
    deb, rpm = map(contents, roots)

    ours = [path for path in rpm if NAME in path]
    print(f"\n{len(ours)} files and folders")
    assert len(ours) > 3000
    assert {
        path: (deb.get(path), rpm.get(path)) for path in deb.keys() | rpm.keys() if deb.get(path) != rpm.get(path)
    } == {}
    for path, state in {CONFIG: f"root:{NAME} -rw-r-----", STATE: f"{NAME}:{NAME} drwx--x--x"}.items():
        assert rpm[path].startswith(state)


def test_the_command_of_the_rpm_works(roots: tuple[Root, Root]) -> None:
    _, root = roots
    made_up = root.folder / "tmp/made-up.conf"
    made_up.write_text("[DEFAULT]\ncompute_driver = fake.FakeDriver\n", encoding="utf-8")

    assert root.run(NAME, "--version").startswith(f"{NAME} ")
    found = root.run("runuser", "-u", NAME, "--", NAME, "discover", "--config-file", f"/tmp/{made_up.name}")
    assert "VCPU" in found


def test_an_upgrade_keeps_the_configuration_and_removal_the_state(packages: tuple[Path, Path], tmp_path: Path) -> None:
    rpm = packages[1]
    with changeable("bookworm", tmp_path, kernel=False) as root:
        root.run("mkdir", "-p", f"{STATE}/audits")
        helper = root.folder / "usr/lib/systemd/systemd-update-helper"  # Rocky's systemd has it, Debian's does not
        helper.write_text('#!/bin/sh\necho "$@" >> /var/log/helper\n', encoding="utf-8")
        helper.chmod(0o755)
        install(rpm, root)
        assert root.run("stat", "-c", "%U:%G", f"{STATE}/audits").strip() == f"{NAME}:{NAME}"
        config = root.folder / CONFIG.lstrip("/")
        config.write_text(mine := config.read_text(encoding="utf-8") + "interval = 30\n", encoding="utf-8")
        install(rpm, root, "--replacepkgs")
        assert config.read_text(encoding="utf-8") == mine
        assert root.run("stat", "-c", "%U:%G %a", CONFIG).strip() == f"root:{NAME} 640"

        root.run(NAME, "--version")  # Python leaves its caches
        told("rpm", "--root", str(root.folder), "--dbpath", "/var/lib/rpm", "--nodeps", "-e", NAME)

        assert (root.folder / "var/log/helper").read_text(encoding="utf-8").splitlines() == [
            f"install-system-units {NAME}.service",
            f"mark-restart-system-units {NAME}.service",
            f"remove-system-units {NAME}.service {NAME}-reshape.service",
        ]
        left = {path for path in root.files() if NAME in path and not path.startswith(KEPT)}
        assert left == {f"/etc/{NAME}", f"{CONFIG}.rpmsave", STATE, f"{STATE}/audits"}


def test_it_requires_what_rocky_and_rhel_call_by_these_names(packages: tuple[Path, Path]) -> None:
    rpm = packages[1]
    minor = rpm.name.rpartition(".py3")[2].partition(".")[0]
    required = set(told("rpm", "-qp", "--requires", str(rpm)).splitlines())

    assert {f"/usr/bin/python3.{minor}", "libvirt-libs", "shadow-utils", "systemd"} <= required
    symbols = [one.split("GLIBC_")[1].split(")")[0] for one in required if one.startswith("libc.so.6(GLIBC_")]
    assert max(tuple(map(int, one.split("."))) for one in symbols) <= (2, 34)  # what release 9 has
    private = [one for one in required if "site-packages" in one or "dist(" in one or "/lib/compute-node-agent" in one]
    assert private == []


def test_rpmlint_finds_nothing(packages: tuple[Path, Path]) -> None:
    said = told("rpmlint", "--strict", "--config", str(PROJECT / "tools/rpm/rpmlint.toml"), str(packages[1]))

    assert "0 errors, 0 warnings" in said
