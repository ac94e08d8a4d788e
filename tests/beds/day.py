"""
A day of a hypervisor, a second for each minute: hot-plug, guests that come and go, and everything that may fail.

The service is the real one, on a synthetic host's real libvirtd, with Keystone and a placement on PostgreSQL; what it
reads and writes is compared with what was done to the host.
"""

import os
import random
import signal
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keystoneauth1.adapter import Adapter

from beds import databases, keystone, placement
from beds.by_hand import ByHand
from beds.guests import GuestSpec, domain_xml
from beds.keystone import ADMIN, AGENT, PLACEMENT, logged_in, login_options
from beds.placement import KeystoneAuth
from beds.process import free_port
from beds.proxy import Answer, Forward, Proxy, Request, pass_on
from beds.service import Service, a_clock_to_set, end, mounted, serving
from beds.synthetic.bed import EMULATOR, Host
from beds.synthetic.hosts import T4_TYPES
from beds.synthetic.model import Gpu, Nic
from beds.upgrades import write_config

HERE = Path(__file__).parent
HOUR_S = 60.0
TOKEN_S = 180  # keystoneauth asks for another one two minutes before: once an hour of that day
STATE_BYTES = 2 << 20
NIC = Nic(address="0000:41:00.0", cell=1, name="ens9", vfs=8)
GPU = Gpu(address="0000:46:00.0", cell=1, types=T4_TYPES)
ROOM = 6  # guests at a time
PATIENCE_S = 60


def gone(_request: Request, _forward: Forward) -> Answer:
    raise ConnectionError("gone")


@dataclass
class Day:
    """All that runs; ``told`` says of each incident what came of it."""

    host: Host
    folder: Path
    state: Path  # a small disk
    seed: int
    stack: ExitStack
    told: list[str] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    guests: dict[str, str] = field(default_factory=dict)  # by uuid: its name

    def open(self, template: tuple[Path, Path]) -> None:
        """Start it all: ``template`` has Keystone's and placement's."""
        self.random = random.Random(self.seed)
        enter = self.stack.enter_context
        port = free_port()
        self.placement_port = port
        self.placement_url = f"http://127.0.0.1:{port}"
        self.proxy = enter(Proxy(self.placement_url))
        self.identity = enter(
            keystone.serving(self.folder / "keystone", template[0], placement_url=self.proxy.url, token_s=TOKEN_S)
        )
        self.to_keystone = enter(Proxy(self.identity.url.removesuffix("/v3")))
        self.database = databases.with_driver(enter(databases.postgresql(self.folder / "database")))
        self.server = self._start_placement()
        session = enter(logged_in(self.identity, PLACEMENT))
        self.by_hand = ByHand(Adapter(session, endpoint_override=self.placement_url, service_type="placement",
                                      connect_retries=3, status_code_retries=3))  # fmt: skip
        self.clock = self.folder / "clock"
        self.clock.write_text("0", encoding="utf-8")
        self.log = self.folder / "agent.log"
        (self.folder / "heal.yaml").write_text("heal: [orphaned]\ngrace_s: 20\nmove_s: 20\nagain_s: 2\nlimit: 20\n")
        inside = enter(self.host.doorway(self.proxy.url)), enter(self.host.doorway(self.to_keystone.url))
        self.conf: dict[str, dict[str, object]] = {
            "DEFAULT": {"log_file": self.log, "use_stderr": False},
            "libvirt": {"connection_uri": self.host.libvirtd.uri, "virt_type": "qemu"},
            "pci": {"discover": "all"},
            "devices": {"enabled_mdev_types": "nvidia-222"},
            "placement": login_options(f"{inside[1]}/v3", AGENT, endpoint_override=inside[0], timeout=10),
            "agent": {
                "state_directory": self.state,
                "interval": 1,
                "full_audit_interval": int(HOUR_S),
                "start_spread": 0,
                "audit_grace": 1,
                "heal_policy": self.folder / "heal.yaml",
            },
        }
        preload = a_clock_to_set(self.folder, self.clock)
        self.service: Service = enter(
            serving(self.folder / "service", self.conf, host=self.host, state=self.state, environment=preload)
        )
        self.service.wait(lambda: self.service.passes() >= 1, PATIENCE_S)
        self.stack.callback(self.host.libvirtd.destroy_all)

    # -- what an ordinary day has --------------------------------------------------------------------------------------

    def live(self, hours: float) -> None:
        """Something every few minutes."""
        until = time.monotonic() + hours * HOUR_S
        while time.monotonic() < until:
            act = self.random.choice((self.start_guest, self.start_guest, self.end_guest, self.lose_guest,
                                      self.plug_card, self.plug_gpu, self.change_vfs))  # fmt: skip
            act()
            self.done[act.__name__] += 1
            time.sleep(self.random.uniform(1, 4))

    def start_guest(self) -> None:
        if len(self.guests) >= ROOM:
            return self.end_guest()
        identity, name = str(uuid.uuid4()), f"guest-{self.done['start_guest']}-{self.random.randrange(10**6)}"
        root = self.by_hand.providers()[self.host.machine.name]
        self.by_hand.claim(identity, {root["uuid"]: {"VCPU": 1, "MEMORY_MB": 32}})
        self.host.libvirtd.virsh(
            "create", "/dev/stdin", text=domain_xml(identity, name, GuestSpec(), emulator=str(EMULATOR))
        )
        self.guests[identity] = name
        return None

    def end_guest(self) -> None:
        if self.guests:
            identity, _ = self.guests.popitem()
            self.host.libvirtd.virsh("destroy", identity)
            self.by_hand.send("DELETE", f"/allocations/{identity}")

    def lose_guest(self) -> None:
        """Its service dies before it lets go of the allocation: an audit is to find that."""
        if self.guests:
            identity, _ = self.guests.popitem()
            self.host.libvirtd.virsh("destroy", identity)

    def plug_card(self) -> None:
        files = self.host.files
        if files.device(NIC.address).exists():
            self.host.announce("remove", files.remove_nic(NIC))
        else:
            self.host.announce("add", files.add_nic(NIC))

    def plug_gpu(self) -> None:
        files = self.host.files
        if files.device(GPU.address).exists():
            self.host.announce("remove", files.remove_gpu(GPU))
        else:
            self.host.announce("add", files.add_gpu(GPU))

    def change_vfs(self) -> None:
        if self.host.files.device(NIC.address).exists():
            added, removed = self.host.files.set_vfs(NIC, self.random.randrange(1, 9))
            self.host.announce("add", added)
            self.host.announce("remove", removed)

    # -- what goes wrong -----------------------------------------------------------------------------------------------

    def restart_placement(self) -> None:
        with self.incident("placement restarted"):
            self.server.close()
            self.server = self._start_placement()

    def lose_placement(self) -> None:
        """For an hour of that day."""
        with self.incident("placement away for an hour"):
            before = self.tree()
            self.proxy.hook = gone
            time.sleep(HOUR_S)
            assert self.tree() == before
            self.proxy.hook = pass_on

    def lose_keystone(self) -> None:
        with self.incident("Keystone away for half an hour, tokens revoked meanwhile"):
            self.revoke()
            self.to_keystone.hook = gone
            time.sleep(HOUR_S / 2)
            self.to_keystone.hook = pass_on

    def revoke_token(self) -> None:
        with self.incident("its token revoked"):
            self.revoke()
            time.sleep(8)  # placement believes in it for some seconds more

    def revoke(self) -> None:
        """The token that the service sent last."""
        tokens: list[str] = []

        def note(request: Request, forward: Forward) -> Answer:
            tokens.append(request.header("X-Auth-Token"))
            return forward(request)

        self.proxy.hook = note
        self.service.wait(lambda: bool(tokens), PATIENCE_S)
        self.proxy.hook = pass_on
        with logged_in(self.identity, ADMIN) as session:
            headers = {"X-Subject-Token": tokens[-1]}
            Adapter(session, endpoint_override=self.identity.url).delete("/auth/tokens", headers=headers)

    def set_clock_ahead(self) -> None:
        self._set_clock("two hours ahead", 7200)

    def set_clock_back(self) -> None:
        self._set_clock("two hours back", -7200)

    def _set_clock(self, name: str, seconds: int) -> None:
        with self.incident(f"the clock {name}, and right again ten minutes later"):
            self.clock.write_text(str(seconds), encoding="utf-8")
            time.sleep(HOUR_S / 6)
            self.clock.write_text("0", encoding="utf-8")

    def fill_disk(self) -> None:
        with self.incident("the disk full for twenty minutes"):
            filler = self.state / "filler"
            subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=4k"], check=False, capture_output=True)
            self.plug_card()  # which must be refused as long as it cannot be remembered
            time.sleep(HOUR_S / 3)
            filler.unlink()

    def rotate_log(self) -> None:
        with self.incident("the log rotated"):
            self.log.rename(self.log.with_suffix(f".{len(self.told)}"))
            self.service.process.send_signal(signal.SIGHUP)
            self.service.wait(self.log.exists)

    def kill_libvirtd(self) -> None:
        """Dead for ten minutes of that day."""
        with self.incident("libvirtd killed, another one ten minutes later"):
            before = self.tree()
            pid = self.host.libvirtd.pid
            os.kill(pid, signal.SIGKILL)
            time.sleep(HOUR_S / 6)
            assert self.tree() == before
            self.stack.callback(end, self.host.restart_libvirtd())
            self.stack.callback(self.host.libvirtd.destroy_all)  # before it ends

    def change_password(self) -> None:
        with self.incident("the password changed in Keystone, and ten minutes later here with SIGHUP"):
            with logged_in(self.identity, ADMIN) as session:
                adapter = Adapter(session, endpoint_override=self.identity.url)
                (user,) = adapter.get(f"/users?name={AGENT.username}").json()["users"]
                adapter.patch(f"/users/{user['id']}", json={"user": {"password": "another"}})
            time.sleep(HOUR_S / 6)
            self.conf["placement"]["password"] = "another"
            self.service.configure(self.conf)
            self.service.process.send_signal(signal.SIGHUP)

    @contextmanager
    def incident(self, name: str) -> Iterator[None]:
        """What was logged and asked meanwhile, and how long it took to be well again after it was over."""
        lines, asked, passes = self._lines(), len(self.proxy.seen), self.service.passes()
        yield
        over = time.monotonic()
        passes_then = self.service.passes()
        self.service.wait(lambda: self.service.passes() > passes_then and self.service.is_ready(), PATIENCE_S)
        seconds = time.monotonic() - over
        logged = self._lines()[len(lines) :] if len(self._lines()) >= len(lines) else self._lines()
        warnings = [line for line in logged if " WARNING " in line or " ERROR " in line]
        told = f"{name}: well again after {seconds:.1f} s; passes {passes_then - passes} meanwhile, requests "
        told += f"{len(self.proxy.seen) - asked}, lines logged {len(logged)}, of them warnings {len(warnings)}"
        self.told.append("\n    ".join([told, *(line[:200] for line in warnings[:4])]))

    # -- what there is -------------------------------------------------------------------------------------------------

    def tree(self) -> dict[str, Any]:
        """Each provider's stock in placement, by name."""
        stocks = {name: self.by_hand.stock(row["uuid"]) for name, row in self.by_hand.providers().items()}
        return {name: {kind: one["total"] for kind, one in stock.items()} for name, stock in stocks.items()}

    def wanted(self) -> dict[str, Any]:
        """The same as the host has it."""
        groups = {name: self.conf[name] for name in ("libvirt", "pci", "devices")}
        config = write_config(groups, self.folder / "discover.conf")
        found = self.host.run("discover", "--config-file", config, "--format", "json").json["providers"]
        return {
            name: {kind: stock["total"] for kind, stock in one["inventories"].items()} for name, one in found.items()
        }

    def holders(self) -> set[str]:
        """Who holds anything in placement."""
        found: set[str] = set()
        for row in self.by_hand.providers().values():
            held = self.by_hand.send("GET", f"/resource_providers/{row['uuid']}/allocations")
            found |= held["allocations"].keys()
        return found

    def figures(self) -> dict[str, int]:
        """Memory (KiB), threads, sockets and other file descriptors of the service."""
        service = self.service
        return {**service.memory_kib(), "threads": service.threads(), **service.lasting()}

    def _lines(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []

    def _start_placement(self) -> ExitStack:
        """A placement on the database, in a stack of its own that ends it."""
        user = PLACEMENT
        auth = KeystoneAuth(self.identity.url, user.username, user.password, user.project, None, token_cache_seconds=5)
        own = ExitStack()
        own.enter_context(
            placement.serving_on(self.database, self.folder / "placement", port=self.placement_port, auth=auth)
        )
        self.stack.callback(own.close)
        return own


def small_disk(folder: Path) -> AbstractContextManager[Path]:
    """A file system of its own, to be mounted before a host's namespaces are made, which see it then."""
    return mounted(folder, f"size={STATE_BYTES}")
