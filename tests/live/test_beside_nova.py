"""A host on which nova-compute is installed: on the root that nova reports, nothing is written without a word."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from beds.agents import run_agent
from beds.golden import GoldenHost, write_layout
from beds.synthetic.bed import Host
from beds.synthetic.hosts import QUEENS_FIRST
from beds.synthetic.model import Machine

pytestmark = pytest.mark.live

Start = Callable[[Machine], Host]
Write = Callable[..., Path]
FOLDERS = """
set -e
mkdir -p /etc/systemd
mount -t tmpfs tmpfs /etc/systemd
mkdir -p /etc/systemd/system/multi-user.target.wants
"""
ENABLE = """
set -e
touch "/etc/systemd/system/$1"
ln -s "/etc/systemd/system/$1" "/etc/systemd/system/multi-user.target.wants/$1"
"""


@contextmanager
def units_of_its_own(host: Host) -> Iterator[Callable[[str], None]]:
    """A folder of units that only this host sees; yields what enables a unit there."""

    def inside(script: str, *arguments: str) -> None:
        subprocess.run([*host.inside, "sh", "-c", script, "sh", *arguments], check=True)

    inside(FOLDERS)
    try:
        yield lambda unit: inside(ENABLE, unit)
    finally:
        inside("umount /etc/systemd")


def test_a_root_that_an_enabled_nova_compute_will_report_is_written_only_on_a_persons_word(
    synthetic: Start, write_config: Write, tmp_path: Path
) -> None:
    host = synthetic(QUEENS_FIRST)
    config = write_config(libvirt={"connection_uri": host.libvirtd.uri, "virt_type": "qemu"})
    options = ("--config-file", config, "--embedded-dir", tmp_path / "run", "--format", "json")
    cells = (*options, "--config-file", write_layout("numa", tmp_path))
    with units_of_its_own(host) as enable:
        enable("nova-compute.service")

        refused = host.run("sync", *options)
        assert (refused.code, refused.json["outcome"]) == (4, "contested")
        assert "the unit nova-compute.service is enabled on this host" in refused.json["notes"][0]
        assert not host.run("show", *options).json["providers"]
        assert host.run("check", *options).code == 3

        taken = host.run("sync", *options, "--take-over")
        assert (taken.code, taken.json["outcome"]) == (0, "changed")
        assert "when nova-compute starts, it writes its own values" in taken.json["notes"][0]
        stands = host.run("show", *options).json

        converted = host.run("reshape", *cells, "--apply")
        assert (converted.code, converted.json["outcome"]) == (0, "changed")  # the person's word was remembered
        assert "puts VCPU and MEMORY_MB on" in converted.json["notes"][0]

        enable("kolla-nova_compute-container.service")
        again = host.run("reshape", *options, "--apply")
        assert (again.code, again.json["outcome"]) == (4, "contested")
        assert "nova-compute.service is" not in again.json["notes"][0]
        assert host.run("retire", *options).code == 4
        assert len(host.run("show", *options).json["providers"]) > len(stands["providers"])

        assert host.run("reshape", *options, "--apply", "--take-over").code == 0
    assert host.run("show", *options).json["providers"].keys() == stands["providers"].keys()


def test_in_the_role_audit_a_host_is_audited_and_not_written(tmp_path: Path) -> None:
    golden = GoldenHost(Path(__file__).parents[1] / "hosts" / QUEENS_FIRST.name)
    host = ("--host", golden.archive, "--config-file", golden.config)
    sole = (*host, "--embedded-dir", tmp_path / "run", "--format", "json")
    assert run_agent("sync", *sole).code == 0
    stands = run_agent("show", *sole).json["providers"]
    role = tmp_path / "role.conf"
    role.write_text("[agent]\nrole = audit\n")
    options = (*sole, "--config-file", role, "--config-file", write_layout("numa", tmp_path))

    for verb in (("sync",), ("sync", "--take-over", "--force"), ("reshape", "--apply"), ("retire",), ("hand-over",)):
        done = run_agent(verb[0], *options, *verb[1:])
        assert done.code == 4, done.out
        assert "[agent] role = audit" in done.json["notes"][0]
    assert run_agent("plan", *options).code == 3
    assert run_agent("check", *options).code == 0
    assert run_agent("audit", *sole, "--config-file", role).code == 0
    assert run_agent("show", *sole).json["providers"] == stands
