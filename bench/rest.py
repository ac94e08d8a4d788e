"""The service at rest: its memory, and what a quiet pass takes of CPU, beside nova's compute modules loaded alone."""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from beds import libvirtd
from beds.placement import PlacementServer
from beds.placement import serving as serving_placement
from beds.service import Service, noauth, serving
from bench.goals import Goal, print_table
from bench.lab import HERE, BenchError, run, run_nova, write_config

PASSES = 60
ENVIRONMENT = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "requests_ca_bundle", "curl_ca_bundle")
MOST = {
    "unique memory, to nova's modules loaded alone": 0.45,
    "CPU of a quiet pass, to nova's": 0.7,
    "requests of a quiet pass, to nova's": 1.0,
}
LOOK_S = 0.5
UNIT = {"WATCHDOG_USEC": "300000000"}  # what systemd tells a unit's process besides its socket
CAUSES = 3  # that are shown of each figure
PROFILED = 40  # passes
KIN = {
    **dict.fromkeys(("agent", "drivers", "reportclient"), "the agent's own"),
    **dict.fromkeys(("_ssl", "ssl", "_hashlib"), "OpenSSL"),
    **dict.fromkeys(("keystoneauth1", "requests", "urllib3", "http"), "keystoneauth1, requests, urllib3"),
}
MODULES = (
    "agent.command.arguments",
    "agent.command.carry_out",
    "agent.command.service_verbs",
    "agent.service.loop",
    "agent.connect.adapters",
    "drivers.libvirt.driver",
    "drivers.host.udev",
)


def measure_rest(scratch: Path, template: Path) -> tuple[Goal, ...]:
    """Both at once on one libvirtd of our own over this host, each with an empty placement of its own."""
    folder = scratch / "rest"
    folder.mkdir()
    with as_in_a_unit(), libvirtd.serving(folder / "libvirtd") as hypervisor:
        libvirt = {"virt_type": "qemu", "connection_uri": hypervisor.uri}
        config = write_config(folder, libvirt=libvirt)
        with (
            serving_placement(folder / "for-nova", template) as novas,
            serving_placement(folder / "for-us", template) as server,
            serving(folder / "service", _configuration(folder, libvirt, server.url), environment=UNIT) as service,
            ThreadPoolExecutor(1) as aside,
        ):
            service.wait(lambda: service.passes() >= 3, 120)
            measured = aside.submit(run_nova, "nova_rest.py", config, novas.url, PASSES)
            looks = [_look(service, server, novas)]
            while not measured.done():
                time.sleep(LOOK_S)
                looks.append(_look(service, server, novas))
            nova, ours, log = measured.result().json, service.memory_kib(), service.lines()
            service.process.terminate()
            service.process.wait()
            first_s = _start_again(folder, _configuration(folder, libvirt, server.url))
            causes = run([sys.executable, "-W", "ignore", HERE / "causes.py", service.config, PROFILED]).json
    if log.count("outcome=") != 1:  # but for the first pass, which reports the host
        raise BenchError(f"the service was not at rest:\n{log}")
    began, *_, ended = [one for one in looks if nova["window_s"][0] <= one.moment_s <= nova["window_s"][1]]
    passes = ended.passes - began.passes
    cpu_s = (ended.cpu_s - began.cpu_s) / passes
    counts = (ended.requests - began.requests) / passes, (ended.of_nova - began.of_nova) / PASSES
    requests, of_nova = (round(count, 1) for count in counts)  # a look may come between a pass and its request
    rows = [
        ("nova's modules, loaded", *_memory(nova["loaded"]), "-", "-"),
        ("nova's, at rest", *_memory(nova["at_rest"]), _ms(nova["cpu_s"]), f"{of_nova:.1f}"),
        ("the service, at rest", *_memory(ours), _ms(cpu_s), f"{requests:.1f}"),
    ]
    columns = ("who", "unique MiB", "resident MiB", f"CPU ms a quiet pass, of {PASSES} and {passes}", "its requests")
    print_table(columns, rows)
    print("A pass of the service is its audit too; nova's is without its database and its bus.\n")
    print(f"From the start of the service to its first pass, on a host that it reported before: {first_s:.2f} s.\n")
    _print_causes(causes)
    _print_imports()
    ratios = (ours["unique"] / nova["loaded"]["unique"], cpu_s / nova["cpu_s"], requests / of_nova)
    return tuple(
        Goal(what, f"{one:.2f}", f"at most {most}", one <= most)
        for (what, most), one in zip(MOST.items(), ratios, strict=True)
    )


@dataclass(frozen=True, slots=True)
class _Look:
    """At the service, at one moment (monotonic)."""

    moment_s: float
    cpu_s: float
    passes: int
    requests: int  # of the service so far
    of_nova: int  # requests so far


def _look(service: Service, server: PlacementServer, novas: PlacementServer) -> _Look:
    asked = (one.log.read_text(errors="replace").count("placement.requestlog") for one in (server, novas))
    return _Look(time.monotonic(), service.cpu_s(), service.passes(), *asked)


def _start_again(folder: Path, configuration: Mapping[str, Mapping[str, object]]) -> float:
    """Seconds from the start of another service to the end of its first pass, where libvirtd is warm."""
    with serving(folder / "again", configuration, state=folder / "service/state", environment=UNIT) as service:
        seconds = service.wait(lambda: service.status().get("pid") == service.process.pid and service.passes() > 0)
        service.process.terminate()
        service.process.wait()
    return seconds


def _configuration(folder: Path, libvirt: Mapping[str, object], url: str) -> dict[str, Mapping[str, object]]:
    return {
        "DEFAULT": {"state_path": folder / "nova", "instances_path": folder / "nova"},
        "libvirt": libvirt,
        "placement": noauth(url),
        "agent": {"state_directory": folder / "service/state", "interval": 1, "start_spread": 0},
    }


@contextmanager
def as_in_a_unit() -> Iterator[None]:
    """Without what a shell may have told requests of proxies and certificates: a unit's environment has none of it."""
    kept = {name: os.environ.pop(name) for name in list(os.environ) if name.lower() in ENVIRONMENT}
    try:
        yield
    finally:
        os.environ.update(kept)


def _print_causes(causes: Mapping[str, list[tuple[str, float]]]) -> None:
    """The largest parts of the CPU from the start to the first pass, and of a quiet pass."""
    for what, title in (("start", "CPU to the first pass"), ("quiet", "CPU of a quiet pass")):
        rows = _largest(causes[what])
        print_table((title, "ms"), [(name, f"{ms:.1f}") for name, ms in rows])
        print()


def _print_imports() -> None:
    """What the service imports, and what of it is large."""
    found = run([sys.executable, "-W", "ignore", HERE / "imports.py", *MODULES]).json
    bare = subprocess.run(
        [sys.executable, "-c", "print(open('/proc/self/statm').read().split()[1])"],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [(name, _mib(round(kib))) for name, kib in _largest(_joined(found))]
    print_table(("import", "MiB"), [*rows, ("a bare interpreter", _mib(int(bare.stdout) * 4))])


def _joined(found: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """The same with our three packages as one, and OpenSSL's modules as one."""
    sums: Counter[str] = Counter()
    for name, kib in found:
        sums[KIN.get(name, name)] += round(kib)
    return [(name, kib) for name, kib in sums.most_common()]


def _largest(found: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """The largest of all, and the sum of the others."""
    ordered = sorted(found, key=lambda one: -one[1])
    return [*ordered[:CAUSES], ("all others", sum(size for _, size in ordered[CAUSES:]))]


def _memory(kib: Mapping[str, int]) -> tuple[str, str]:
    return _mib(kib["unique"]), _mib(kib["resident"])


def _mib(kib: int) -> str:
    return f"{kib / 1024:.1f}"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}"
