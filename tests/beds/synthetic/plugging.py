"""Rounds of hot-plug on a synthetic host under the service, timed from the event to what placement answers."""

import signal
import subprocess
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import requests

from beds.placement import NOAUTH_HEADERS
from beds.process import tail, wait_until
from beds.synthetic.bed import Host
from beds.synthetic.hosts import T4_TYPES
from beds.synthetic.model import Gpu, Nic

NIC = Nic(address="0000:41:00.0", cell=1, name="ens9", vfs=8)
GPU = Gpu(address="0000:46:00.0", cell=1, types=T4_TYPES)
VERSION = {"OpenStack-API-Version": "placement 1.39"}
POLL_S = 0.03  # placement answers one request at a time here: asking more often would keep the agent waiting


class Plugging:
    """The service on a host; each round plugs and unplugs, and waits for placement to show it."""

    def __init__(self, host: Host, placement: str, folder: Path) -> None:
        self._host, self._url, self._folder = host, placement, folder
        self._http = requests.Session()
        self._http.trust_env = False
        self._http.headers.update({**NOAUTH_HEADERS, **VERSION})
        self._log = folder / "run.log"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        inside = self._stack.enter_context(self._host.doorway(self._url))
        config = self._folder / "run.conf"
        config.write_text(
            f"[libvirt]\nconnection_uri = {self._host.libvirtd.uri}\nvirt_type = qemu\n"
            f"[pci]\ndiscover = all\n[devices]\nenabled_mdev_types = nvidia-222\n"
            f"[placement]\nauth_type = none\nendpoint = {inside}\n"
            f"[agent]\nstate_directory = {self._folder}/state\nstart_spread = 0\n"
            f"expect_timeout = 0\n"  # this machine may have booted a moment ago
        )
        log = self._stack.enter_context(self._log.open("w"))
        process = self._host.start("run", "--config-file", config, log=log)
        self._stack.callback(self._end, process)
        self._wait(lambda: self._stock(self._name("0000:01:00.0")) == {"SRIOV_NET_VF": 8})
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stack.close()
        self._http.close()

    def round(self) -> dict[str, float]:
        """Seconds until placement shows each change."""
        return self._plug_card() | self._plug_gpu()

    def _plug_card(self) -> dict[str, float]:
        host, card = self._host, self._name(NIC.address)
        seconds = {}
        seconds["a card with 8 VFs appears"] = self._timed(
            lambda: host.announce("add", host.files.add_nic(NIC)), lambda: self._stock(card) == {"SRIOV_NET_VF": 8}
        )
        _, gone = host.files.set_vfs(NIC, 3)
        seconds["5 of its VFs go"] = self._timed(
            lambda: host.announce("remove", gone), lambda: self._stock(card) == {"SRIOV_NET_VF": 3}
        )
        seconds["the card goes"] = self._timed(
            lambda: host.announce("remove", host.files.remove_nic(NIC)), lambda: self._stock(card) is None
        )
        return seconds

    def _plug_gpu(self) -> dict[str, float]:
        """A card that offers one type can make none of it while a vGPU of another exists."""
        host, card = self._host, self._name("pci_0000_46_00_0")
        mdev = str(uuid.uuid4())
        seconds = {}
        seconds["a GPU appears"] = self._timed(
            lambda: host.announce("add", host.files.add_gpu(GPU)), lambda: self._stock(card) == {"VGPU": 16}
        )
        seconds["an mdev of another type is made"] = self._timed(
            lambda: host.announce("add", [host.files.add_mdev(GPU, mdev, "nvidia-223")]),
            lambda: self._stock(card) is None,
        )
        seconds["it is removed"] = self._timed(
            lambda: host.announce("remove", [host.files.remove_mdev(GPU, mdev)]),
            lambda: self._stock(card) == {"VGPU": 16},
        )
        seconds["the GPU goes"] = self._timed(
            lambda: host.announce("remove", host.files.remove_gpu(GPU)), lambda: self._stock(card) is None
        )
        return seconds

    def _timed(self, act: Callable[[], object], done: Callable[[], bool]) -> float:
        started = time.monotonic()
        act()
        self._wait(done)
        return time.monotonic() - started

    def _wait(self, done: Callable[[], bool]) -> None:
        wait_until(done, 30, lambda: f"{tail(self._log)}\nplacement does not show what was plugged", pause_s=POLL_S)

    def _name(self, suffix: str) -> str:
        return f"{self._host.machine.name}_{suffix}"

    def _stock(self, name: str) -> dict[str, int] | None:
        """Class -> total of one provider; None when placement has no such provider."""
        found = self._get(f"/resource_providers?name={name}")["resource_providers"]
        if not found:
            return None
        body = self._get(f"/resource_providers/{found[0]['uuid']}/inventories", missing={"inventories": {}})
        return {key: stock["total"] for key, stock in body["inventories"].items()}

    def _get(self, path: str, missing: Any = None) -> Any:
        answer = self._http.get(f"{self._url}{path}", timeout=30)
        if answer.status_code == 404 and missing is not None:
            return missing
        assert answer.status_code == 200, answer.text
        return answer.json()

    @staticmethod
    def _end(process: "subprocess.Popen[str]") -> None:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
