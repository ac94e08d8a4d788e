"""
Each parser of text that comes from elsewhere, on real files that were changed: no traceback, little memory, at once.

``FUZZ_S`` says how many seconds are spent in all; without it each parser gets a few files.
"""

import faulthandler
import io
import json
import os
import resource
import signal
import sys
import tarfile
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from agent.command.arguments import main
from agent.state.files import seal
from beds.agents import run_agent
from beds.costs import Cost, cost
from beds.golden import golden_hosts
from beds.mutation import Edit, changed, changed_json, changed_line, edits, packed
from beds.nodes import make_nodes
from beds.nova import HOST, FakeNova, as_json, refused, serving_nova
from beds.placement import serving
from beds.proxy import Answer, Proxy, Request
from beds.trees import identity
from beds.upgrades import UPGRADES, Story, Upgrade, write_config

pytestmark = [
    pytest.mark.live,
    # WebOb, below placement, leaves the temporary file of a long body to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed file <_io.(FileIO|BufferedRandom):ResourceWarning"),
]

MOST_S, MOST_MIB = 5.0, 200.0  # of CPU time, and of memory, for one input
FUZZ_S = float(os.environ.get("FUZZ_S", "0"))
EXAMPLES = 50 if FUZZ_S else 10  # of each parser; with FUZZ_S in each round
OURS = ("/agent/", "/drivers/", "/reportclient/")
FOUR_CELLS = next(host for host in golden_hosts() if host.folder.name == "four-cells")
PACKAGES = Path(__file__).parents[2]


# -- what a parser may cost -------------------------------------------------------------------------------------------


class Slow(BaseException):
    """The time of an input is over."""


class Breach(AssertionError):
    """An input after which the law does not hold."""


@dataclass
class Watch:
    """What the inputs of one parser have cost, and the faults that were found so far, by where they are."""

    name: str
    began_s: float = field(default_factory=time.monotonic)
    examples: int = 0
    most_mib: float = 0.0
    slowest_s: float = 0.0
    slowest: str = ""
    endings: Counter[str] = field(default_factory=Counter)  # by exit code
    found: dict[str, str] = field(default_factory=dict)

    def look(self, act: Callable[[], object], shown: str) -> None:
        """Call ``act`` and keep the law, but for faults that are known; ``shown`` tells the input."""
        self.examples += 1
        try:
            with _limits():
                took = cost(act)
        except Slow:
            took = Cost("", 30.0, 0.0)
        ending = took.ending
        why = _place(ending) if isinstance(ending, Exception) else ""
        self.endings[str(ending)[:1]] += not why
        self.most_mib = max(self.most_mib, took.mib)
        if took.seconds > self.slowest_s:
            self.slowest_s, self.slowest = took.seconds, shown
        why = why or ("much memory" if took.mib > MOST_MIB else "") or ("slow" if took.seconds > MOST_S else "")
        if why and why not in self.found:
            raise Breach(f"{why} after {took.seconds:.1f} s, {took.mib:.0f} MiB: {shown}", why)

    def __str__(self) -> str:
        spent_s = time.monotonic() - self.began_s
        return (
            f"{self.name:22} {self.examples:6} examples in {spent_s:4.0f} s, at most {self.most_mib:3.0f} MiB and "
            f"{self.slowest_s:.2f} s: {self.slowest[:200]} {dict(self.endings)}"
        )


@contextmanager
def _limits() -> Iterator[None]:
    """End what takes more than 30 s, or more memory than this machine can spare."""

    def end(*_: object) -> None:
        raise Slow

    before = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    handler = signal.signal(signal.SIGVTALRM, end)
    faulthandler.dump_traceback_later(300, exit=True)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (now + (2 << 30), before[1]))
        signal.setitimer(signal.ITIMER_VIRTUAL, 30)
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        faulthandler.cancel_dump_traceback_later()
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGVTALRM, handler)


def _place(error: Exception) -> str:
    """Return the kind of an error, and where in our own code it came from."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if any(part in one.filename for part in OURS)]
    where = f"{Path(frames[-1].filename).relative_to(PACKAGES)}:{frames[-1].name}" if frames else "elsewhere"
    return (
        f"{type(error).__name__} in {where}: {str(error)[:100]!r}"
        if not frames
        else f"{type(error).__name__} in {where}"
    )


def run(*arguments: object) -> int:
    """Run a verb in this process; only what a user can read may come out of it."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=how) for how in ("strict", "backslashreplace"))
    before, descriptor = (sys.stdout, sys.stderr), os.dup(1)
    try:
        sys.stdout, sys.stderr = out, err
        code = main([*map(str, arguments)])
        out.flush()
    finally:
        sys.stdout, sys.stderr = before
        os.dup2(descriptor, 1)
        os.close(descriptor)
        err.flush()
        told = err.buffer.getvalue().decode()
    for word in ("Traceback", "reading or printing failed", "\x1b", "\0"):
        if word in told:
            raise Breach(f"{word!r} in {told[-300:]}")
    return int(code)


# -- real files -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seed:
    """A folder of real files, and the verb that reads it."""

    files: Mapping[str, bytes]
    arguments: tuple[object, ...]  # before the folder or its .tar.gz

    def named(self, *parts: str) -> list[str]:
        """The files in whose names one of these parts is."""
        return [name for name in self.files if any(part in name for part in parts)]


@dataclass(frozen=True)
class World:
    """What the parsers are fed with."""

    folder: Path
    hosts: tuple[Seed, ...]
    cases: tuple[Seed, ...]
    ironic: Seed
    nova: Seed
    embedded: tuple[object, ...]  # options for an up-to-date host
    root: str  # uuid of that host


def unpacked(case: Path) -> Seed:
    with tarfile.open(case) as tar:
        files = {one.name.partition("/")[2]: tar.extractfile(one).read() for one in tar if one.isfile()}  # type: ignore[union-attr]
    return Seed(files, ("plan", "--replay"))


@pytest.fixture(scope="module")
def world(placement_template: Path) -> Iterator[World]:
    """Hosts of the tests, and cases of conversions with guests, of an audit that asks nova, and of bare-metal nodes."""
    shm = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None) as name:
        folder = Path(name)
        hosts = tuple(
            Seed(
                {
                    str(one.relative_to(host.archive)): one.read_bytes()
                    for one in host.archive.rglob("*")
                    if one.is_file()
                },
                ("discover", "--config-file", host.config, "--host"),
            )
            for host in golden_hosts()
        )
        cases = []
        for number, story in enumerate(("05-devices-to-numa", "01-flat-vgpu-to-gpus", "06-numa-to-devices")):
            (place := folder / f"story{number}").mkdir()
            with serving(place / "placement", placement_template) as server:
                one = Upgrade(Story(UPGRADES / story).data, server.url, place)
                for verb in ("plan", "reshape", "audit"):
                    done = one.run(verb, "--save", place / f"{verb}.tar.gz")
                    assert (place / f"{verb}.tar.gz").exists(), done.err
                    cases.append(unpacked(place / f"{verb}.tar.gz"))
        options = ("--host", FOUR_CELLS.archive, "--config-file", FOUR_CELLS.config, "--embedded-dir", folder / "run")
        assert run_agent("sync", *options).code == 0
        root = run_agent("show", *options, "--format", "json").json["providers"]["four-cells"]["uuid"]
        yield World(
            folder, hosts, tuple(cases), _ironic_case(folder), _nova_case(folder, placement_template), options, root
        )


def _nova_case(folder: Path, template: Path) -> Seed:
    """An audit that asks nova about consumers whose guests are not on the host."""
    fake = FakeNova(hypervisors={identity("four-cells"): HOST})
    fake.add_server(identity("lost"))
    fake.add_server(identity("elsewhere"), host="other-nova-host")
    fake.add_migration(identity("move"), identity("lost"), "finished")
    (place := folder / "nova").mkdir()
    rows = {"four-cells": {"VCPU": 1, "MEMORY_MB": 512}}
    story = Story(UPGRADES / "01-flat-vgpu-to-gpus").data
    with serving_nova(fake) as url, serving(place / "placement", template) as server:
        config = {
            **story["config"],
            "agent": {"audit_grace": 0},
            "nova": {"auth_type": "none", "endpoint_override": url},
        }
        consumers = {name: {"type": None, "allocations": rows} for name in ("lost", "elsewhere", "move", "gone")}
        before = {"providers": {}, "consumers": consumers}
        one = Upgrade({**story, "config": config, "first": config, "guests": {}, "before": before}, server.url, place)
        done = one.run("audit", "--save", place / "nova.tar.gz")
    found = unpacked(place / "nova.tar.gz")
    assert len(found.files["nova.jsonl"].splitlines()) > 3, done
    return found


def _ironic_case(folder: Path) -> Seed:
    nodes = make_nodes(20)

    def answer(request: Request, _forward: object) -> Answer:
        if request.path.startswith("/v1/nodes?"):
            return as_json(200, {"nodes": [] if "marker=" in request.path else nodes})
        return refused(404)

    with Proxy("http://unused", hook=answer) as proxy:
        conf = {
            "DEFAULT": {"compute_driver": "ironic.IronicDriver"},
            "ironic": {"auth_type": "none", "endpoint_override": proxy.url},
        }
        path, case = write_config(conf, folder / "ironic.conf"), folder / "ironic.tar.gz"
        options = ("--config-file", path, "--embedded-dir", folder / "metal")
        assert run_agent("sync", *options).code == 0
        nodes = make_nodes(25)
        done = run_agent("plan", *options, "--save", case)
        assert done.code == 3, done.err
    return unpacked(case)


# -- the parsers ------------------------------------------------------------------------------------------------------

Drawn = tuple[int, int, list[Edit]]  # number of a seed, of a file in it, what is changed


def replayed(
    world: World, seeds: tuple[Seed, ...], parts: tuple[str, ...], drawn: Drawn
) -> tuple[Callable[[], object], str]:
    """One file of a host or of a case is changed, and the verb reads it."""
    seed, name = _chosen(seeds, parts, drawn)
    files = {**seed.files, name: changed(name, seed.files[name], drawn[2])}
    return partial(_read, world, seed, packed(files, ())), f"{name} {drawn[2]}"


def repacked(world: World, seeds: tuple[Seed, ...], drawn: Drawn) -> tuple[Callable[[], object], str]:
    """Members of the archive are changed, and sometimes a file in it too."""
    seed, name = _chosen(seeds, ("",), drawn)
    more = {name: changed(name, seed.files[name], drawn[2][1:])} if len(drawn[2]) > 1 else {}
    return partial(_read, world, seed, packed({**seed.files, **more}, drawn[2][:1])), f"members {drawn}"


def answered(world: World, seeds: tuple[Seed, ...], service: str, drawn: Drawn) -> tuple[Callable[[], object], str]:
    """One answer of a service is changed: its text, its status or a header."""
    seed = seeds[drawn[0] % len(seeds)]
    name = f"{service}.jsonl"
    lines = seed.files[name].decode().splitlines()
    at = drawn[1] % len(lines)
    lines[at] = changed_line(lines[at], drawn[2])
    files = {**seed.files, name: ("\n".join(lines) + "\n").encode(errors="surrogatepass")}
    return partial(
        _read, world, seed, packed(files, ())
    ), f"{service} {json.loads(seed.files[name].splitlines()[at])['path']} {drawn[2]}"


def _chosen(seeds: tuple[Seed, ...], parts: tuple[str, ...], drawn: Drawn) -> tuple[Seed, str]:
    having = [seed for seed in seeds if seed.named(*parts)]
    seed = having[drawn[0] % len(having)]
    names = seed.named(*parts)
    return seed, names[drawn[1] % len(names)]


def _read(world: World, seed: Seed, data: bytes) -> int:
    path = world.folder / "input.tar.gz"
    path.write_bytes(data)
    return run(*seed.arguments, path)


def _resealed(text: str, drawn: Drawn) -> bytes:
    """A sealed file that is changed; mostly sealed anew, as somebody does who means it."""
    if drawn[0] % 8 == 0:
        return changed("x.json", text.encode(), drawn[2])
    body = changed_json(json.dumps(json.loads(text)["body"]), drawn[2])
    try:
        return seal(json.loads(body), form=1).encode(errors="surrogatepass")
    except (ValueError, RecursionError):
        return ('{"format": 1, "checksum": "", "body": ' + body + "}").encode(errors="surrogatepass")


APPROVAL = {
    "node": "four-cells",
    "where": "",
    "digest": "0123456789ab",
    "approved": "2026-11-26T00:00:00+00:00",
    "begun": False,
    "outline": {"steps": ["create a"], "traits": [["u", ["CUSTOM_A"]]], "moves": "abc"},
}
STATUS = {
    **{"format": 1, "version": "1", "pid": 1, "started_s": 1.0, "passes": 1, "last_pass_s": 1.0, "took_s": 0.1},
    **{"interval_s": 60, "outcomes": {"host": "unsafe"}, "notes": ["one"], "findings": {"orphaned": 1}},
    **{"sources": {"host": {"ok_s": 1.0, "error": "gone"}}, "sentence": "up to date", "ready": True},
}


def approval(world: World, drawn: Drawn) -> tuple[Callable[[], object], str]:
    """An approval, or the status that the service left, as verbs read them."""
    state = world.folder / "run"
    path = state / "approvals" / f"{world.root}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    where = f"the embedded placement in {world.folder / 'run'}"
    path.write_bytes(_resealed(seal({**APPROVAL, "where": where}, form=1), drawn))
    status = json.dumps(STATUS)
    (state / "status.json").write_text(
        changed_json(status, drawn[2]) if drawn[1] % 4 == 0 else status, errors="replace"
    )
    if drawn[1] % 2:
        return partial(run, "reshape", "--apply", "--approved", *world.embedded), str(drawn[2])
    return partial(run, "status", *world.embedded[2:]), str(drawn[2])


ADDITIONS = """\
meta: {schema_version: '1.0'}
providers:
  - identification: {uuid: $COMPUTE_NODE}
    inventories:
      additional:
        - CUSTOM_LICENCE: {total: 10, reserved: 1, min_unit: 1, max_unit: 5, step_size: 1, allocation_ratio: 1.0}
    traits: {additional: [CUSTOM_RACK_1]}
  - identification: {name: four-cells_NUMA0}
    traits: {additional: [CUSTOM_FAST]}
"""
POLICY = "heal: [orphaned, wrong-provider]\ngrace_s: 600\nagain_s: 60.5\nuntyped: true\nat_once: false\nlimit: 5\n"


def yaml_file(world: World, drawn: Drawn) -> tuple[Callable[[], object], str]:
    """provider.yaml or a heal policy; as JSON, which is YAML, or as text."""
    import yaml

    (path := world.folder / "yaml").mkdir(exist_ok=True)
    which, text = drawn[0] % 2, (ADDITIONS, POLICY)[drawn[0] % 2]
    name = ("x.json", "x.yaml")[drawn[1] % 2]
    data = changed(name, (json.dumps(yaml.safe_load(text)) if drawn[1] % 2 == 0 else text).encode(), drawn[2])
    (path / "file.yaml").write_bytes(data)
    shown = f"{('provider.yaml', 'policy')[which]} {drawn[2]}"
    if which == 1:
        return partial(run, "audit", "--policy", path / "file.yaml", *world.embedded), shown
    more = write_config({"compute": {"provider_config_location": path}}, world.folder / "more.conf")
    return partial(run, "discover", *world.embedded[:4], "--config-file", more), shown


QUERY = (
    "GET /placement/allocation_candidates?resources=VCPU:1,MEMORY_MB:512&required=HW_CPU_X86_AVX,!CUSTOM_X&resources_A="
    "VGPU:1&required_A=in:CUSTOM_A,CUSTOM_B&member_of=in:00000000-0000-0000-0000-000000000001&group_policy=none"
    "&same_subtree=_A,_B&resources_B=SRIOV_NET_VF:1&root_required=HW_NUMA_ROOT&limit=10&in_tree="
)
CLAIM = {
    "allocations": {"00000000-0000-0000-0000-000000000001": {"resources": {"VCPU": 1, "MEMORY_MB": 64}}},
    "mappings": {"": ["a"]},
}


def request_file(world: World, drawn: Drawn) -> tuple[Callable[[], object], str]:
    """A query for ``explain``, or an allocation request for ``claim``, whose provider placement does not have."""
    path = world.folder / "request"
    if drawn[0] % 2:
        path.write_bytes(changed("x.txt", (QUERY + world.root).encode(), drawn[2]))
        return partial(run, "explain", "--request", path, *world.embedded), f"query {drawn[2]}"
    path.write_bytes(changed("x.json", json.dumps(CLAIM).encode(), drawn[2]))
    guest = ("00000000-0000-0000-0000-00000000000a", "--project", "p", "--user", "u")
    return partial(run, "claim", *guest, "--request", path, *world.embedded), f"claim {drawn[2]}"


TARGETS: Mapping[str, Callable[[World, Drawn], tuple[Callable[[], object], str]]] = {
    "archive of a host": lambda world, drawn: replayed(world, world.hosts, ("",), drawn),
    "members of an archive": lambda world, drawn: repacked(world, world.hosts, drawn),
    "case": lambda world, drawn: replayed(world, (*world.cases, world.ironic, world.nova), ("",), drawn),
    "members of a case": lambda world, drawn: repacked(world, (*world.cases, world.ironic, world.nova), drawn),
    "guest XML": lambda world, drawn: replayed(world, (*world.cases, *world.hosts), ("domains/",), drawn),
    "node device XML": lambda world, drawn: replayed(world, (*world.cases, *world.hosts), ("nodedevs/",), drawn),
    "answers of placement": lambda world, drawn: answered(world, world.cases, "placement", drawn),
    "answers of Ironic": lambda world, drawn: answered(world, (world.ironic,), "ironic", drawn),
    "answers of nova": lambda world, drawn: answered(world, (world.nova,), "nova", drawn),
    "approval and status": approval,
    "YAML files": yaml_file,
    "request file": request_file,
}


@pytest.mark.parametrize("name", TARGETS)
def test_text_from_elsewhere_ends_in_an_answer_or_one_line_quickly(name: str, world: World) -> None:
    watch, end_s = Watch(name), time.monotonic() + FUZZ_S / len(TARGETS)

    @settings(
        max_examples=EXAMPLES,
        derandomize=not FUZZ_S,  # the suite tries the same few each time
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 9999), st.integers(0, 9999), edits)
    def examples(seed: int, number: int, these: list[Edit]) -> None:
        watch.look(*TARGETS[name](world, (seed, number, these)))

    watch.look(*TARGETS[name](world, (1, 1, [])))
    assert watch.endings.keys() <= {"0", "3"}, "the file is none even before it is changed"
    while True:
        try:
            examples()
        except Breach as breach:
            watch.found[breach.args[1]] = breach.args[0]
        except Flaky as flaky:  # it was slow only once
            print(f"\n{name}: {flaky}"[:600])
        if time.monotonic() >= end_s:
            break
    print(f"\n{watch}")
    for why, shown in watch.found.items():
        print(f"   {why}\n      {shown[:600]}")
    assert not watch.found
