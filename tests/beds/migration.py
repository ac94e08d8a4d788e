"""Two real libvirtds on this machine, each a host with a name of its own, between which guests migrate live."""

import os
import signal
import socket
import subprocess
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from beds import libvirtd
from beds.guests import METADATA, GuestSpec, domain_xml
from beds.libvirtd import Libvirtd
from beds.process import BedError
from beds.upgrades import write_config

SOURCE, DESTINATION = "source.test", "destination.test"  # with a dot: a bare name libvirt would ask the resolver for
STREAM = "migration.sock"  # in /var/lib/libvirt, which is another folder for each of the two
FIRST_BYTES = 4096  # of the stream: an idle guest's has 800 KiB, of which the sockets' buffers take some 250
PATIENCE_S = 60


@dataclass(frozen=True, slots=True)
class Host:
    """One of the two; its agent's configuration, identity and state are in ``folder``."""

    hostname: str
    libvirtd: Libvirtd
    folder: Path

    def config(self, placement_url: str, **groups: Mapping[str, object]) -> Path:
        """An agent's configuration for this host and a placement without authentication; ``groups`` are laid over."""
        usual: dict[str, dict[str, object]] = {
            "DEFAULT": {"state_path": self.folder / "nova"},  # not there, so the identity is the agent's own
            "libvirt": {"connection_uri": self.libvirtd.uri, "virt_type": "qemu"},
            "placement": {"auth_type": "none", "endpoint": placement_url},
            "agent": {"state_directory": self.folder / "state"},
        }
        laid_over = {name: {**usual.get(name, {}), **groups.get(name, {})} for name in usual | groups}
        return write_config(laid_over, self.folder / "agent.conf")

    def guests(self) -> dict[str, str]:
        """Every guest by uuid: ``running``, or ``paused``, as one is that has yet to arrive."""
        listed = {state: self.libvirtd.virsh("list", "--uuid", f"--state-{state}") for state in ("running", "paused")}
        return {one: state for state, uuids in listed.items() for one in uuids.split()}

    def start(self, guest: str, *, vcpus: int = 1, memory_mib: int = 128, project: str = "p", user: str = "u") -> None:
        """A guest without a disk, of that uuid, which nova's metadata tell of; it ends with its host."""
        metadata = METADATA.format(vcpus=vcpus, memory_mib=memory_mib, project=project, user=user)
        spec = GuestSpec(vcpus=vcpus, memory_mib=memory_mib, metadata=metadata)
        self.libvirtd.virsh("create", "/dev/stdin", text=domain_xml(guest, _name(guest), spec))

    def process(self, guest: str) -> int:
        """The process id of a guest's QEMU on this host."""
        return int((self.libvirtd.socket.parent / "qemu" / f"{_name(guest)}.pid").read_text())


@dataclass(frozen=True, slots=True)
class Migration:
    """A live migration under way from one host to the other: held in its middle until somebody lets it go."""

    guest: str
    destination: Host
    virsh: "subprocess.Popen[str]"
    stream: "_Stream"

    def let_go(self) -> None:
        """
        Let it come to its end, and wait for that.

        Raises:
            BedError: it failed.
        """
        self.stream.opened.set()
        if complaint := self._ended():
            raise BedError(f"the migration of {self.guest}: {complaint}")

    def kill_destination(self) -> str:
        """Kill the destination's QEMU and wait until libvirt has given the migration up; its complaint."""
        os.kill(self.destination.process(self.guest), signal.SIGKILL)
        if complaint := self._ended():
            return complaint
        raise BedError(f"the migration of {self.guest} came through without its destination")

    def _ended(self) -> str:
        """What virsh complained of, empty when it was content."""
        _, complaint = self.virsh.communicate(timeout=PATIENCE_S)
        return (complaint.strip() or f"status {self.virsh.returncode}") if self.virsh.returncode else ""


@contextmanager
def two_hosts(folder: Path) -> Iterator[tuple[Host, Host]]:
    """
    A source and a destination over this machine, new each time; their guests end with them.

    The sockets in ``folder`` take 40 characters of the 107 that the kernel leaves for a path.
    """
    with _host(folder / "source", SOURCE) as source, _host(folder / "destination", DESTINATION) as other:
        yield source, other


def migrate(source: Host, destination: Host, guest: str) -> None:
    """
    Migrate a guest live, to the end.

    Raises:
        BedError: it failed.
    """
    with migrating(source, destination, guest) as migration:
        migration.let_go()


@contextmanager
def migrating(source: Host, destination: Host, guest: str) -> Iterator[Migration]:
    """
    A live migration in its middle: the guest runs at the source, and the destination waits for most of its memory.

    It stays there, for as long as you like, until it is let go or its destination is killed; at the latest with the end
    of the context it is let go.
    """
    address = destination.libvirtd.uri.replace("qemu:", "qemu+unix:", 1)  # without +unix: "the same host"
    options = ("--live", "--p2p", "--migrateuri", f"unix:///var/lib/libvirt/{STREAM}")  # nova's way, peer to peer
    command = ["virsh", "-q", "-c", source.libvirtd.uri, "migrate", *options, guest, address]
    with _stream(source, destination) as stream:
        virsh = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            _wait_until_held(stream, virsh)
            yield Migration(guest, destination, virsh, stream)
        finally:
            stream.opened.set()
            _end(virsh)


class _Stream:
    """
    Stands between the two QEMUs, which each know one path: the source connects to ours, we to the destination's.

    Passes the first bytes on, then nothing until it is ``opened``. One end that closes closes the other.
    """

    def __init__(self, door: socket.socket, destination: Path) -> None:
        self.held, self.opened = threading.Event(), threading.Event()
        self._door, self._destination = door, destination

    def relay(self) -> None:
        with suppress(OSError):
            near, _ = self._door.accept()
            with near, socket.socket(socket.AF_UNIX) as far:
                far.connect(str(self._destination))
                back = threading.Thread(target=_pump, args=(far, near), daemon=True)
                back.start()
                far.sendall(near.recv(FIRST_BYTES))
                self.held.set()
                self.opened.wait()
                _pump(near, far)
                back.join()


@contextmanager
def _stream(source: Host, destination: Host) -> Iterator[_Stream]:
    """Listens where the source's QEMU will look for the destination's."""
    ours, theirs = (host.folder / "libvirtd/lib" / STREAM for host in (source, destination))
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(ours))
        door.listen()
        stream = _Stream(door, theirs)
        thread = threading.Thread(target=stream.relay, daemon=True)
        thread.start()
        try:
            yield stream
        finally:
            stream.opened.set()
            door.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE_S)
            ours.unlink()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def _wait_until_held(stream: _Stream, virsh: "subprocess.Popen[str]") -> None:
    for _ in range(PATIENCE_S * 20):
        if stream.held.wait(0.05):
            return
        if virsh.poll() is not None:
            raise BedError(f"the migration did not get to its middle: {virsh.communicate()[1]}")
    raise BedError(f"the migration did not get to its middle in {PATIENCE_S} s")


def _end(virsh: "subprocess.Popen[str]") -> None:
    try:
        virsh.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        virsh.kill()
        virsh.communicate()


@contextmanager
def _host(folder: Path, hostname: str) -> Iterator[Host]:
    identity = str(uuid.uuid5(uuid.NAMESPACE_DNS, hostname))
    with libvirtd.serving(folder / "libvirtd", name=hostname, host_uuid=identity) as server:
        try:
            yield Host(hostname, server, folder)
        finally:
            server.destroy_all()


def _name(guest: str) -> str:
    return f"guest-{guest[:8]}"
