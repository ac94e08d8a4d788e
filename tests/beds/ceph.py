"""A real Ceph cluster on loopback from Debian's packages: one monitor, one manager, and disks that are files."""

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beds.process import LOOPBACK, BedError, Child, free_port, run, start, stop, wait_until

USER, POOL = "nova", "vms"
DISK_GIB = 10
PATIENCE_S = 120
CONFIG = """\
[global]
fsid = {fsid}
mon_host = [v2:{address}:{v2}/0,v1:{address}:{v1}/0]
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
mon_data_avail_crit = 1
public_network = 127.0.0.0/8
run_dir = {folder}/run
log_file = {folder}/log/$name.log
admin_socket = {folder}/run/$name.asok
keyring = {folder}/keyring
mon_data = {folder}/mon
mgr_data = {folder}/mgr
osd_data = {folder}/osd.$id
osd_objectstore = bluestore
bluestore_block_size = {disk_bytes}
osd_memory_target = 939524096
ms_bind_ipv6 = false
[client.{user}]
keyring = {folder}/client.{user}.keyring
"""
ALL = ("--cap", "mon", "allow *", "--cap", "osd", "allow *", "--cap", "mds", "allow *", "--cap", "mgr", "allow *")
OF_NOVA = ("mon", "profile rbd", "osd", f"profile rbd pool={POOL}")  # as Ceph's guide for OpenStack has them


@dataclass
class Ceph:
    """A running cluster with the pool ``POOL``, which the user ``USER`` may use as nova does."""

    folder: Path
    stack: ExitStack
    monitor: Child | None = None
    disks: list[int] = field(default_factory=list)

    @property
    def config(self) -> Path:
        return self.folder / "ceph.conf"

    def ask(self, *arguments: str) -> Any:
        """The answer to an administrator's command, None where there is none."""
        answer = self._tell("--format", "json", *arguments)
        return json.loads(answer) if answer.strip() else None

    def _tell(self, *arguments: str) -> str:
        command = ["ceph", "--conf", str(self.config), "--connect-timeout", "20", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        if done.returncode:
            raise BedError(f"{' '.join(command)}: {done.stderr}")
        return done.stdout

    def start_monitor(self) -> None:
        self.monitor = self._start("ceph-mon", "a")

    def stop_monitor(self) -> None:
        if self.monitor:
            stop(self.monitor)
        self.monitor = None

    @contextmanager
    def silent(self) -> Iterator[None]:
        """The cluster answers nobody, for as long as the context lasts."""
        self.stop_monitor()
        try:
            yield
        finally:
            self.start_monitor()
            self.ask("df")

    def start_manager(self) -> None:
        (self.folder / "mgr").mkdir()
        caps = ("mon", "allow profile mgr", "osd", "allow *", "mds", "allow *")
        self._make_key("mgr.x", self.folder / "mgr/keyring", *caps)
        self.stack.callback(stop, self._start("ceph-mgr", "x", "--keyring", str(self.folder / "mgr/keyring")))

    def add_disk(self) -> None:
        """A disk more, of ``DISK_GIB``, once the cluster counts it."""
        number = self.ask("osd", "create")["osdid"]
        folder = self.folder / f"osd.{number}"
        folder.mkdir()
        key = folder / "keyring"
        self._make_key(f"osd.{number}", key, "mon", "allow profile osd", "mgr", "allow profile osd", "osd", "allow *")
        self._make("ceph-osd", str(number), "--keyring", str(key), "--osd-uuid", str(uuid.uuid4()))
        self.stack.callback(stop, self._start("ceph-osd", str(number), "--keyring", str(key)))
        self.ask("osd", "crush", "add", f"osd.{number}", "1", "root=default", "host=here")
        self.disks.append(number)
        self.wait(lambda found: found["stats"]["total_bytes"] == len(self.disks) * DISK_GIB << 30)

    def make_pool(self) -> None:
        self.ask("osd", "pool", "create", POOL, "8", "8")
        self._make_key(f"client.{USER}", self.folder / f"client.{USER}.keyring", *OF_NOVA)
        self.wait(lambda found: self.stats(found)["max_avail"] > 0)

    def keep_twice(self) -> None:
        """The pool keeps each byte on two disks from now on."""
        before = self.stats(self.ask("df"))["max_avail"]
        self.ask("osd", "pool", "set", POOL, "size", "2")
        self.wait(lambda found: self.stats(found)["max_avail"] < 0.6 * before)

    def stats(self, found: Any) -> Any:
        """The pool's part of what ``ceph df`` answers."""
        return next((pool["stats"] for pool in found["pools"] if pool["name"] == POOL), {"stored": 0, "max_avail": 0})

    def wait(self, holds: Callable[[Any], bool]) -> None:
        """Until what ``ceph df`` answers holds: the manager counts every few seconds."""
        wait_until(lambda: holds(self.ask("df")), PATIENCE_S, lambda: f"Ceph answers {self.ask('df')}", pause_s=0.5)

    def _make_key(self, name: str, file: Path, *caps: str) -> None:
        self._tell("auth", "get-or-create", name, *caps, "-o", str(file))

    def _make(self, program: str, name: str, *options: str) -> None:
        """Make the data of a daemon."""
        command = [program, "--conf", str(self.config), "--mkfs", "-i", name, *options]
        run(command, directory=self.folder, log=self.folder / "make.log")

    def _start(self, program: str, name: str, *options: str) -> Child:
        command = [program, "-f", "--conf", str(self.config), "-i", name, *options]
        return start(command, directory=self.folder, log=self.folder / f"{program}.{name}.out")


@contextmanager
def serving(folder: Path) -> Iterator[Ceph]:
    """A cluster with one disk and one pool, for as long as the context lasts."""
    for name in ("run", "log", "mon"):
        (folder / name).mkdir(parents=True)
    fsid, v2, v1 = uuid.uuid4(), free_port(), free_port()
    with ExitStack() as stack:
        ceph = Ceph(folder, stack)
        text = CONFIG.format(
            fsid=fsid, address=LOOPBACK, v2=v2, v1=v1, folder=folder, user=USER, disk_bytes=DISK_GIB << 30
        )
        ceph.config.write_text(text, encoding="utf-8")
        log, keys, map_ = folder / "make.log", str(folder / "keyring"), str(folder / "monmap")
        address = f"[v2:{LOOPBACK}:{v2},v1:{LOOPBACK}:{v1}]"
        for command in (
            ["ceph-authtool", "--create-keyring", keys, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *"],
            ["ceph-authtool", keys, "--gen-key", "-n", "client.admin", *ALL],
            ["monmaptool", "--create", "--addv", "a", address, "--fsid", str(fsid), map_],
            ["ceph-mon", "--conf", str(ceph.config), "--mkfs", "-i", "a", "--monmap", map_, "--keyring", keys],
        ):
            run(command, directory=folder, log=log)
        stack.callback(ceph.stop_monitor)
        ceph.start_monitor()
        ceph.start_manager()
        ceph.add_disk()
        ceph.make_pool()
        yield ceph
