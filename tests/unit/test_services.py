"""Signs of another service on a host: processes, and systemd units."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drivers.errors import DiscoveryError
from drivers.host.services import probe_service

UNITS = "lib/systemd/system"
WANTS = "etc/systemd/system/multi-user.target.wants"
QUADLETS, OWN, MADE = "run/systemd/generator", "usr/lib/systemd/system", "etc/systemd/system"


class Listed:
    """A process as psutil lists it."""

    def __init__(self, pid: int, command: list[str] | None, status: str | None = "sleeping") -> None:
        self.pid = pid
        self.info = {"cmdline": command, "status": status}


def enable(root: Path, unit: str, installed: str | None = None, folder: str = UNITS, wants: str = WANTS) -> None:
    (root / folder).mkdir(parents=True, exist_ok=True)
    (root / wants).mkdir(parents=True, exist_ok=True)
    (root / folder / (installed or unit)).touch()
    (root / wants / unit).symlink_to(f"/{folder}/{installed or unit}")


@pytest.mark.parametrize(
    ("unit", "others"),
    [
        ("nova-compute.service", ()),
        ("openstack-nova-compute.service", ()),
        ("kolla-nova_compute-container.service", ()),
        ("edpm_nova_compute.service", ()),
        ("devstack@n-cpu.service", ("devstack@.service",)),
        pytest.param("nova-compute.service", (None, QUADLETS, f"{QUADLETS}/multi-user.target.wants"), id="a Quadlet"),
        pytest.param("nova-compute.service", (None, OWN, f"{OWN}/multi-user.target.wants"), id="by its package"),
        pytest.param("nova-compute.service", (None, MADE, f"{MADE}/multi-user.target.upholds"), id="upheld"),
    ],
)
def test_an_enabled_unit_of_nova_compute_is_a_sign(tmp_path: Path, unit: str, others: tuple[Any, ...]) -> None:
    enable(tmp_path, unit, *others)

    assert probe_service("nova-compute", tmp_path).units == (unit,)


@pytest.mark.parametrize(
    "unit",
    [
        "nova-api.service",
        "compute-node-agent.service",
        "nova_compute_ironic.service",
        "my-nova-computers.service",
        "neutron-openvswitch-agent.service",
    ],
)
def test_other_units_are_none(tmp_path: Path, unit: str) -> None:
    enable(tmp_path, unit)

    assert probe_service("nova-compute", tmp_path).units == ()


def test_a_unit_that_is_masked_or_removed_is_none(tmp_path: Path) -> None:
    enable(tmp_path, "nova-compute.service")
    (tmp_path / "etc/systemd/system/nova-compute.service").symlink_to("/dev/null")
    enable(tmp_path, "openstack-nova-compute.service")
    (tmp_path / UNITS / "openstack-nova-compute.service").unlink()

    assert probe_service("nova-compute", tmp_path).units == ()


def test_a_host_without_systemd_has_no_units(tmp_path: Path) -> None:
    assert probe_service("nova-compute", tmp_path).units == ()


def test_a_process_is_known_by_its_program_or_its_script() -> None:
    with subprocess.Popen(["bash", "-c", "exec -a /usr/bin/a-service-of-ours sleep 60"]) as process:
        try:
            for _ in range(500):
                if found := probe_service("a-service-of-ours").processes:
                    break
            assert found == (process.pid,)
        finally:
            process.kill()


@pytest.mark.parametrize("options", [(), ("-s",), ("-E", "-X", "utf8", "-Wignore", "-W", "ignore")])
def test_the_script_of_an_interpreter_is_known_behind_its_options(tmp_path: Path, options: tuple[str, ...]) -> None:
    """#!/usr/bin/python3 -s is how packages of RPM begin their scripts."""
    script = tmp_path / "another-service-of-ours"
    script.write_text("import time\nprint('runs', flush=True)\ntime.sleep(60)\n", encoding="utf-8")
    command = [sys.executable, *options, str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == b"runs\n"
            assert probe_service(script.name).processes == (process.pid,)
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("command", "is_found"),
    [
        pytest.param(["python3", "-m", "a.service.of.ours"], True, id="a module"),
        pytest.param(["/usr/libexec/platform-python3.6", "/usr/bin/a.service.of.ours"], True, id="another Python"),
        pytest.param(["journalctl", "-u", "a.service.of.ours", "-f"], False, id="somebody who reads its log"),
        pytest.param(["grep", "-r", "a.service.of.ours", "/etc"], False, id="somebody who looks for it"),
    ],
)
def test_a_command_that_only_names_a_service_is_no_sign_of_it(
    monkeypatch: pytest.MonkeyPatch, command: list[str], is_found: bool
) -> None:
    listed = [Listed(1, ["init"]), Listed(7, command)]
    monkeypatch.setattr("psutil.process_iter", lambda _: listed)

    assert probe_service("a.service.of.ours").processes == ((7,) if is_found else ())


@pytest.mark.parametrize(
    ("listed", "hidden"),
    [
        pytest.param([(1, ["init"], "sleeping"), (9, None, "zombie")], False, id="all are seen"),
        pytest.param([(1, None, None), (9, ["sleep"], "sleeping")], True, id="hidepid=1"),
        pytest.param([(9, ["sleep"], "sleeping")], True, id="hidepid=2"),
    ],
)
def test_processes_that_this_user_may_not_see_are_told(
    monkeypatch: pytest.MonkeyPatch, listed: list[tuple[int, list[str] | None, str | None]], hidden: bool
) -> None:
    monkeypatch.setattr("psutil.process_iter", lambda _: [Listed(*one) for one in listed])

    assert probe_service("a-service").hidden == hidden


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(PermissionError(13, "Permission denied", "/etc/systemd/system"), id="not allowed"),
        pytest.param(OSError(5, "Input/output error", "/etc/systemd/system"), id="a disk that fails"),
    ],
)
def test_a_folder_that_cannot_be_read_is_no_host_without_nova(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    enable(tmp_path, "nova-compute.service")
    listed = Path.iterdir

    def broken(folder: Path) -> Iterator[Path]:
        if folder.name == "multi-user.target.wants":
            raise error
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", broken)

    with pytest.raises(DiscoveryError, match=f"/etc/systemd/system: {error.strerror}"):
        probe_service("nova-compute", tmp_path)
