"""``bundle`` on a synthetic host: no secret in it, and one can work with it."""

import io
import json
import tarfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.service.status import ServiceProcess, ServiceStatus, write_status
from beds.agents import lasting, run_agent
from beds.placement import PlacementServer
from beds.synthetic.bed import EMULATOR, Host
from beds.synthetic.hosts import FOUR_CELLS
from beds.synthetic.model import Machine

pytestmark = pytest.mark.live

Write = Callable[..., Path]
SECRET, SHOWN, FORMED, BUS = "Tr0ub4dor+3", "urlpass99", "f0rmedByName", "busPass"
SECRETS = (SECRET, SHOWN, FORMED, BUS)
SERVICE = "compute-zoe"  # the host's name in nova
GUEST, USER, PROJECT, FLAVOR = "payroll-db", "alice.liddell", "wonderland", "m1.rabbit"
NOVA = "http://openstack.org/xmlns/libvirt/nova/1.1"
DOMAIN = f"""<domain type='qemu'><name>{GUEST}</name><uuid>%s</uuid>
<metadata><nova:instance xmlns:nova='{NOVA}'><nova:name>{GUEST}</nova:name>
<nova:flavor name='{FLAVOR}'><nova:memory>32</nova:memory><nova:vcpus>1</nova:vcpus></nova:flavor>
<nova:owner><nova:user uuid='{uuid.uuid4()}'>{USER}</nova:user>
<nova:project uuid='{uuid.uuid4()}'>{PROJECT}</nova:project></nova:owner><nova:root type='volume'/></nova:instance>
<x:note xmlns:x='urn:x'>{SECRET}</x:note></metadata>
<memory unit='MiB'>32</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os>
<devices><emulator>{EMULATOR}</emulator><memballoon model='none'/>
<hostdev mode='subsystem' type='pci' managed='yes'><source>
<address domain='0x0000' bus='0x81' slot='0x10' function='0x0'/></source></hostdev></devices></domain>"""


@pytest.fixture
def lab(
    synthetic: Callable[[Machine], Host], placement_server: PlacementServer, write_config: Write, tmp_path: Path
) -> Iterator["Lab"]:
    host = synthetic(FOUR_CELLS)
    with host.doorway(placement_server.url) as url:
        log = tmp_path / "agent.log"
        log.write_text(
            f"login as agent:{SECRET} at http://agent:{SHOWN}@keystone:5000 failed on {FOUR_CELLS.name}\n"
            f"X-Auth-Token: {FORMED}\nbus {BUS} lost on {SERVICE}\n"
        )
        (tmp_path / "providers").mkdir()
        (tmp_path / "providers/old.yml").write_bytes(b"# \xff password: " + FORMED.encode())
        config = write_config(
            libvirt={"connection_uri": host.libvirtd.uri, "virt_type": "qemu"},
            pci={"discover": "all"},
            devices={"enabled_mdev_types": "nvidia-231"},
            placement={"auth_type": "none", "endpoint": url},
            nova={"auth_type": "password", "auth_url": "http://127.0.0.1:1", "username": "n", "password": SECRET},
            compute={"provider_config_location": tmp_path / "providers"},
            agent={"state_directory": tmp_path / "state"},
            DEFAULT={
                "log_file": log,
                "state_path": tmp_path / "state",
                "host": SERVICE,
                "transport_url": f"rabbit://n:{BUS}@mq",
            },
        )
        yield Lab(host, config, tmp_path)


class Lab:
    """A host whose guest, options, log, status and last case have something to hide."""

    def __init__(self, host: Host, config: Path, folder: Path) -> None:
        self.host, self.config, self.folder = host, config, folder
        (folder / "state/cases").mkdir(parents=True)
        write_status(folder / "state", ServiceStatus(process=ServiceProcess("1", 1, 0.0), notes=(f"token {SECRET}",)))

    @contextmanager
    def with_a_guest(self) -> Iterator[None]:
        own = str(uuid.uuid4())
        self.host.libvirtd.virsh("create", "/dev/stdin", text=DOMAIN % own)
        try:
            yield
        finally:
            self.host.libvirtd.virsh("destroy", own)

    def bundle(self, *options: str) -> Any:
        return self.host.run("bundle", self.folder / "bundle.tar.gz", "--config-file", self.config, *options)

    def files(self) -> dict[str, str]:
        """All files of the bundle, also those in its cases, by path."""
        return dict(_unpacked((self.folder / "bundle.tar.gz").read_bytes()))


def _unpacked(data: bytes) -> Iterator[tuple[str, str]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar:
            stream = tar.extractfile(member)
            assert stream
            found = stream.read()
            if member.name.endswith(".tar.gz"):
                yield from ((f"{member.name}/{name}", text) for name, text in _unpacked(found))
            else:
                yield member.name.partition("/")[2], found.decode()


def test_nothing_is_written_without_a_yes(lab: Lab) -> None:
    shown = lab.bundle()

    assert shown.code == 3
    assert "nothing was written: --yes writes it" in shown.err
    assert "host/" in shown.out
    assert "the service's last status" in shown.out
    assert not (lab.folder / "bundle.tar.gz").exists()


def test_no_secret_is_inside_and_what_is_inside_plans(lab: Lab) -> None:
    with lab.with_a_guest():
        saved = lab.folder / "state/cases/000001-20261124T000000Z-unsafe.tar.gz"
        assert lab.host.run("plan", "--config-file", lab.config, "--save", saved).code == 3
        done = lab.bundle("--yes", "--format", "json")
        assert done.code == 0, done.err
    files = lab.files()

    assert not [path for path, text in files.items() if any(one in text for one in SECRETS)]
    assert "\ufffd password" in files["provider_config/old.yml"]
    assert {one["what"]: one["missing"] for one in done.json["parts"] if one["missing"]}.keys() <= {
        "the service's journal",
    }
    assert {path.partition("/")[0] for path in files} >= {
        "host",
        "agent.conf",
        "status.json",
        "log.txt",
        "versions.txt",
    }
    assert GUEST in next(text for path, text in files.items() if path.startswith("host/libvirt/domains/"))
    plan = planned(files, lab.folder / "plain")
    assert len(plan["providers"]) > 1
    assert replayed(lab).code == 3


def replayed(lab: Lab) -> Any:
    """The plan of the bundle's only case, made again elsewhere."""
    path = lab.folder / "case.tar.gz"
    with tarfile.open(lab.folder / "bundle.tar.gz") as tar:
        (name,) = [one for one in tar.getnames() if one.startswith("bundle/cases/")]
        stream = tar.extractfile(name)
        assert stream
        path.write_bytes(stream.read())
    return run_agent("plan", "--replay", path)


def planned(files: dict[str, str], folder: Path) -> Any:
    """The tree that a bundle's host would report, with the bundle's options."""
    for path, text in files.items():
        if path.startswith("host/") or path == "agent.conf":
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
    shown = run_agent("discover", "--host", folder / "host", "--config-file", folder / "agent.conf", "--format", "json")
    assert shown.code == 0, shown.err
    return json.loads(lasting(shown.out))
