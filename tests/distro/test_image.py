"""The container image: what is in it, and what podman makes of it, as its own user with no rights."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beds import placement, podman
from beds.by_hand import ByHand
from beds.login import asking, auth_conf
from beds.podman import Podman
from beds.process import BedError, wait_until
from beds.root import PROJECT, Root, changeable
from beds.synthetic import bed
from beds.synthetic.bed import Host
from beds.synthetic.hosts import QUEENS_FIRST
from beds.upgrades import write_config

pytestmark = pytest.mark.live

PATIENCE_S = 60
LIBVIRT = 64999  # a group that no user of the image is in
COMPUTE_ID = "7c3f9a52-0d3e-4b55-9f0a-2f6f6b1d8e10"
NOVA = 42436  # the number of nova's user in kolla's images
KOLLA = """\
[DEFAULT]
log_dir = /var/log/kolla/nova
state_path = /var/lib/nova
compute_driver = libvirt.LibvirtDriver
[libvirt]
connection_uri = "{uri}"
virt_type = qemu
num_pcie_ports = 16
[oslo_concurrency]
lock_path = /var/lib/nova/tmp
"""  # what kolla-ansible writes, and the agent heeds or must not stumble over
HOST = PROJECT / "tests/hosts/four-cells"


@pytest.fixture(scope="module")
def image() -> Path:
    """The image of this tree."""
    python = sys._base_executable  # type: ignore[attr-defined]
    deb = _told([str(PROJECT / "tools/deb.sh"), python])
    made = PROJECT / _told([str(PROJECT / "tools/image.sh"), deb])
    print(f"\n{made.name}: {made.stat().st_size >> 20} MiB")
    return made


@pytest.fixture(scope="module")
def blobs(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image, unpacked: a folder with ``index.json`` and its blobs."""
    folder = tmp_path_factory.mktemp("image")
    subprocess.run(["tar", "--extract", "--file", str(image), "--directory", str(folder)], check=True)
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


def test_it_has_the_list_of_all_options_and_makes_it_anew(root: Root) -> None:
    pages = "/usr/share/doc/compute-node-agent"
    stands = (root.folder / pages[1:] / "compute-node-agent.conf.sample").read_text(encoding="utf-8")
    generator = "/usr/lib/compute-node-agent/bin/oslo-config-generator"

    listed = root.run(generator, "--config-file", f"{pages}/generator.conf")

    assert options_in(listed) == options_in(stands)
    assert "[agent] role" in options_in(listed)
    assert (root.folder / pages[1:] / "examples").is_dir()


def options_in(sample: str) -> set[str]:
    """Each option of such a list, with its group."""
    found, group = set[str](), ""
    for line in sample.splitlines():
        group = line if line.startswith("[") else group
        if option := re.match(r"#(\w+) = ", line):
            found.add(f"{group} {option[1]}")
    return found


def test_it_reports_a_host_as_the_same_code_outside_does(root: Root) -> None:
    shutil.copytree(HOST / "archive", root.folder / "srv/host")
    root.put(HOST / "agent.conf", "/srv")
    options = ("--host", "/srv/host", "--config-file", "/srv/agent.conf", "--format", "json")

    found = root.run("runuser", "-u", "compute-node-agent", "--", "compute-node-agent", "discover", *options)

    names = json.loads(found)["providers"].keys()
    assert names == json.loads((HOST / "devices.json").read_text(encoding="utf-8"))["providers"].keys()


@pytest.fixture(scope="module")
def containers(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    with podman.loaded(tmp_path_factory.mktemp("podman"), image) as found:
        yield found


def let_in(host: Host, containers: Podman) -> None:
    """The host's libvirtd knows the image's user, and its socket is open to the image's group."""
    known = host.libvirtd.socket.parent / "passwd"
    known.write_text(containers.once("/usr/bin/cat", "/etc/passwd"), encoding="utf-8")
    subprocess.run([*host.libvirtd.inside, "mount", "--bind", str(known), "/etc/passwd"], check=True)
    os.chown(host.libvirtd.socket, 0, LIBVIRT)
    host.libvirtd.socket.chmod(0o770)


def test_the_service_in_a_container_reports_its_host_and_is_healthy(
    containers: Podman, placement_template: Path, tmp_path: Path
) -> None:
    config, state = tmp_path / "etc", tmp_path / "state"
    config.mkdir()
    state.mkdir()
    user, group = containers.once("/usr/bin/id", "-u").strip(), containers.once("/usr/bin/id", "-g").strip()
    os.chown(state, int(user), int(group))
    with (
        placement.serving(tmp_path / "placement", placement_template) as server,
        bed.serving(tmp_path / "host", QUEENS_FIRST) as host,
    ):
        let_in(host, containers)
        groups: dict[str, dict[str, object]] = {
            "placement": {"auth_type": "none", "endpoint": server.url},
            "agent": {"interval": 2, "start_spread": 0},
            "libvirt": {"virt_type": "qemu"},
            "pci": {"discover": "all"},
        }
        write_config(groups, config / "compute-node-agent.conf")
        volumes = {
            config: "/etc/compute-node-agent:ro",
            state: "/var/lib/compute-node-agent",
            host.libvirtd.socket.parent: "/run/libvirt",
            host.files.root / "sys": "/sys:ro",
        }
        with podman.started(containers, volumes, "--env=SYSTEMD_DEVICE_VERIFY_SYSFS=0", f"--group-add={LIBVIRT}"):
            wait_until(containers.healthy, PATIENCE_S, containers.logs, pause_s=0.5)

            names = {f"{QUEENS_FIRST.name}_{nic.address}" for nic in QUEENS_FIRST.nics}
            assert ByHand(server.url).providers().keys() == names | {QUEENS_FIRST.name}
            containers.run("stop", podman.NAME)
            assert containers.run("wait", podman.NAME).strip() == "0"


def test_on_a_host_of_kolla_it_reads_novas_files_and_logs_in_to_libvirt(containers: Podman, tmp_path: Path) -> None:
    """As docs/kolla.md says: root, with the rights to read what others own, and to act as they do."""
    nova, volume, state = tmp_path / "nova", tmp_path / "volume", tmp_path / "state"
    for folder in (nova, volume, volume / "instances", state):
        folder.mkdir()
    (volume / "compute_id").write_text(COMPUTE_ID, encoding="utf-8")
    with asking(tmp_path / "bed", "digest-md5") as uri:
        config = KOLLA.format(uri=uri)
        (nova / "nova.conf").write_text(config, encoding="utf-8")
        auth_conf(nova / "auth.conf")
        for path in (nova / "nova.conf", nova / "auth.conf", volume / "compute_id"):
            os.chown(path, NOVA, NOVA)
            path.chmod(0o600)
        volumes = {nova: "/etc/kolla/nova-compute:ro", volume: "/var/lib/nova:ro", state: "/var/lib/compute-node-agent"}

        found = containers.run(
            "run",
            "--rm",
            *podman.OPTIONS,
            *podman.LIMITS,
            "--user=0:0",
            "--cap-add=dac_read_search,setuid,setgid",
            "--env=LIBVIRT_AUTH_FILE=/etc/kolla/nova-compute/auth.conf",
            *(f"--volume={ours}:{place}" for ours, place in volumes.items()),
            containers.image,
            "discover",
            "--config-file=/etc/kolla/nova-compute/nova.conf",
            "--format=json",
        )

    root = next(iter(json.loads(found)["providers"].values()))
    assert root["inventories"].keys() >= {"VCPU", "MEMORY_MB", "DISK_GB"}


def test_podman_of_debian_13_makes_a_unit_of_the_quadlet(blobs: Path, tmp_path: Path) -> None:
    (named,) = json.loads((blobs / "index.json").read_text(encoding="utf-8"))["manifests"]
    with changeable("trixie", tmp_path, kernel=True) as root:
        root.run("apt-get", "update", "-q")
        root.run("apt-get", "install", "-q", "-y", "--no-install-recommends", "podman")
        root.run("mkdir", "-p", "/etc/containers/systemd")
        root.put(PROJECT / "etc/containers/compute-node-agent.container", "/etc/containers/systemd")

        unit = root.run("/usr/lib/systemd/system-generators/podman-system-generator", "--dryrun")

    started = next(line.replace("=", " ") for line in unit.splitlines() if line.startswith("ExecStart="))
    assert started.endswith(f" localhost/{named['annotations']['org.opencontainers.image.ref.name']}")
    assert [option for option in podman.OPTIONS if f" {option.replace('=', ' ')} " not in started] == []


def test_its_health_command_is_there_and_fails_while_no_service_runs(root: Root) -> None:
    said = root.run("runuser", "-u", "compute-node-agent", "--", "compute-node-agent", "status", check=False)

    assert "the service never ran with this state directory" in said
