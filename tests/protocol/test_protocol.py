"""A conversion as a model for SPIN: its laws in all interleavings, and the steps of the real client in it."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from beds.agents import Result, run_agent
from beds.by_hand import ByHand
from beds.gpu_host import GpuGuest, GpuHost, make_host, write_archive, write_config_of
from beds.placement import PlacementServer
from beds.proxy import Answer, Forward, Proxy, Request

pytestmark = pytest.mark.live

MODEL = Path(__file__).parent / "conversion.pml"
FAIR = ("-a", "-f")  # endless runs too, in which each process that can go on does so at some time
BOUNDS = {
    "a pass beside nova": "AGENTS=1 CLAIMS=3 CRASHES=2 LOSSES=2",
    "two agents beside nova": "AGENTS=2 CLAIMS=1 CRASHES=0 LOSSES=1",
    "two agents that crash": "AGENTS=2 CLAIMS=0 CRASHES=1 LOSSES=1",
}
ENDS = {"a pass": "AGENTS=1 CLAIMS=2 CRASHES=1 LOSSES=1", "two agents": "AGENTS=2 CLAIMS=0 CRASHES=1 LOSSES=0"}


def search(folder: Path, macros: str, *options: str, compiled: str = "") -> str:
    """What the checker says of the model with these macros."""
    defined = [f"-D{one}" for one in macros.split()]
    run(folder, ["spin", "-a", *defined, str(MODEL)])
    run(folder, ["gcc", "-w", "-O2", "-DCOLLAPSE", *compiled.split(), "-o", "pan", "pan.c"])
    return run(folder, ["./pan", "-m1000000", *options])


def run(folder: Path, command: list[str]) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def errors(told: str) -> int:
    return int(re.search(r"errors: (\d+)", told)[1])  # type: ignore[index]


def states(told: str) -> int:
    return int(re.search(r"(\d+) states, stored", told)[1])  # type: ignore[index]


@pytest.mark.parametrize("way", ["", "BACK"], ids=["there", "back"])
@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS.keys())
def test_in_every_interleaving_no_sum_changes_no_unit_has_two_guests_and_no_row_is_lost(
    bounds: str, way: str, tmp_path: Path
) -> None:
    told = search(tmp_path, f"{bounds} {way}", compiled="-DSAFETY -DNOCLAIM")

    print(f"\n{bounds} {way}: {states(told)} states, {errors(told)} errors", file=sys.stderr)
    assert errors(told) == 0, told
    assert "max search depth too small" not in told
    assert states(told) > 100_000


@pytest.mark.parametrize("way", ["", "BACK"], ids=["there", "back"])
@pytest.mark.parametrize("bounds", ENDS.values(), ids=ENDS.keys())
def test_every_conversion_ends(bounds: str, way: str, tmp_path: Path) -> None:
    told = search(tmp_path, f"{bounds} {way}", *FAIR)

    print(f"\n{bounds} {way}: ends; {states(told)} states, {errors(told)} errors", file=sys.stderr)
    assert errors(told) == 0, told
    assert "max search depth too small" not in told


@pytest.mark.parametrize("fault", ["DROP_GENERATION", "CREATE_AFTER_RESHAPE", "LOSE_FOREIGN"])
def test_a_fault_is_found(fault: str, tmp_path: Path) -> None:
    told = search(tmp_path, f"AGENTS=1 {fault}", compiled="-DSAFETY -DNOCLAIM")

    assert errors(told) == 1
    assert "assertion violated" in told


@dataclass
class Trace:
    """The steps of the model that requests of the real client are, in the order in which placement got them."""

    host: GpuHost
    steps: list[tuple[str, int]] = field(default_factory=list)
    disturb: dict[str, Callable[[], None]] = field(default_factory=dict)  # before the first step of this kind
    lose: str = ""  # the answer of the first step of this kind is lost
    crash: str = ""  # the first step of this kind is never sent
    uuids: dict[str, int] = field(default_factory=dict)
    ended: bool = False

    def __call__(self, request: Request, forward: Forward) -> Answer:
        found = self.step(request)
        if not found:
            return forward(request)
        kind, _ = found
        if kind == self.crash:
            self.crash = ""
            self.steps.append(("fault", 0))
            raise ConnectionError
        if before := self.disturb.pop(kind, None):
            before()
        self.fill(kind, request)
        self.steps.append(found)
        answer = forward(request)
        if kind == "reshape" and answer.status == 204:
            self.ended = True
        if kind == self.lose:
            self.lose = ""
            raise ConnectionError
        return answer

    def step(self, request: Request) -> tuple[str, int] | None:
        """The step of a request; None: the model has none for it."""
        path = request.path.partition("?")[0]
        parts = path.strip("/").split("/")
        if "in_tree=" in request.path:
            return None if self.ended else ("list", 0)
        if request.method == "POST" and path == "/resource_providers":
            name = re.search(rb'"name": "([^"]*)"', request.body)[1].decode()  # type: ignore[index]
            own = re.search(rb'"uuid": "([^"]*)"', request.body)[1].decode()  # type: ignore[index]
            if self.crash != "create":
                self.uuids[own] = 1 + [f"{self.host.name}_{card.libvirt_name}" for card in self.host.cards].index(name)
            return "create", self.uuids.get(own, 0)
        if path == "/reshaper":
            return "reshape", 0
        if parts[0] == "allocations" and request.method == "GET":
            return "consumer", [guest.uuid for guest in self.host.guests].index(parts[1])
        if parts[0] != "resource_providers" or len(parts) < 2 or (self.ended and request.method == "GET"):
            return None
        provider = self.provider(parts[1])
        match request.method, parts[2:]:
            case "GET", ["inventories"]:
                return "read", provider
            case "GET", ["allocations"]:
                return "allocations", provider
            case "PUT", ["traits"] if provider:
                return "describe", provider
            case "DELETE", []:
                return "delete", provider
        return None

    def provider(self, own: str) -> int:
        return 0 if own == self.host.identity else self.uuids[own]

    def fill(self, kind: str, request: Request) -> None:
        """
        Add the reads that the client need not repeat, as it knows what they would answer.

        Within a pass it uses what it read again, while the generation in the listing stays the same.
        """
        if kind in ("read", "list", "fault"):
            return
        since = max((at for at, one in enumerate(self.steps) if one[0] in ("list", "fault")), default=0)
        now = self.steps[since:]
        if not any(one == "allocations" for one, _ in now):
            for provider in (0, *sorted(self.uuids.values())):
                if ("read", provider) not in now:
                    self.steps.append(("read", provider))
        if kind == "reshape":
            for number, guest in enumerate(self.host.guests):
                if guest.uuid.encode() in request.body and ("consumer", number) not in now:
                    made = sum(one in ("create", "describe") for one, _ in now)
                    self.steps.insert(len(self.steps) - made, ("consumer", number))


@dataclass
class Lab:
    """A host with two cards and three guests, between the layouts flat and devices; the third does not run yet."""

    url: str
    folder: Path
    placement: ByHand
    host: GpuHost
    archive: Path

    def config(self, url: str, layout: str, who: str = "one") -> Path:
        folder = self.folder / who
        folder.mkdir(exist_ok=True)
        placement = {"auth_type": "none", "endpoint": url, "connect_retries": 0, "status_code_retries": 0}
        agent = {"state_directory": folder, "node_workers": 1}
        return write_config_of(self.host, folder, url, layout, placement=placement, agent=agent)

    def run(self, url: str, layout: str, *words: str, who: str = "one") -> Result:
        config = self.config(url, layout, who)
        return run_agent(*words, "--host", self.archive, "--config-file", config, "--format", "json")

    def claim(self, guest: GpuGuest) -> None:
        self.placement.claim(guest.uuid, {self.host.identity: self.host.flat(guest)[self.host.name]})

    def release(self, guest: GpuGuest) -> None:
        self.placement.send("DELETE", f"/allocations/{guest.uuid}")


@pytest.fixture
def lab(placement_server: PlacementServer, tmp_path: Path) -> Lab:
    host = make_host("model", 2, 3)
    running = replace(host, guests=host.guests[:2])
    archive = write_archive(tmp_path / "host", running).root
    lab = Lab(placement_server.url, tmp_path, ByHand(placement_server.url), host, archive)
    assert lab.run(lab.url, "flat", "sync").code == 0
    for guest in running.guests:
        lab.claim(guest)
    return lab


@pytest.fixture
def trace(lab: Lab) -> Trace:
    return Trace(lab.host)


def convert(lab: Lab, trace: Trace, layout: str = "devices", *, passes: int = 1) -> None:
    """Convert by the real command; runs that placement or the guests stop are followed by another one."""
    with Proxy(lab.url, hook=trace) as proxy:
        for left in reversed(range(passes)):
            trace.ended = False
            done = lab.run(proxy.url, layout, "reshape", "--apply", "--patience", "0")
            assert (done.code == 0) == (left == 0), done.out + done.err


def accepts(folder: Path, steps: list[tuple[str, int]], macros: str) -> bool:
    """Whether the model can take these steps."""
    (folder / "steps.pml").write_text("".join(f"    step ? {kind}, {which};\n" for kind, which in steps))
    (folder / "conversion.pml").write_text(MODEL.read_text())
    defined = [f"-D{one}" for one in f"REPLAY {macros}".split()]
    run(folder, ["spin", "-a", *defined, "conversion.pml"])
    run(folder, ["gcc", "-w", "-O2", "-DSAFETY", "-DNOCLAIM", "-o", "pan", "pan.c"])
    told = run(folder, ["./pan", "-m1000000", "-E"])
    return errors(told) == 1 and "assertion violated 0" in told


ALONE = "AGENTS=1 CLAIMS=2 CRASHES=1 LOSSES=1"


def test_the_client_takes_the_steps_of_the_model(lab: Lab, trace: Trace, tmp_path: Path) -> None:
    convert(lab, trace)

    assert [kind for kind, _ in trace.steps] == [
        *("list", "read", "allocations", "consumer", "consumer"),
        *("create", "create", "describe", "describe", "reshape"),
    ]
    assert accepts(tmp_path, trace.steps, ALONE)


def test_the_model_refuses_steps_in_another_order(lab: Lab, trace: Trace, tmp_path: Path) -> None:
    convert(lab, trace)
    steps = trace.steps

    assert not accepts(tmp_path, [*steps[:3], *steps[4:]], ALONE)  # a consumer that is not read
    assert not accepts(tmp_path, [*steps[:5], steps[-1], *steps[5:-1]], ALONE)  # providers after the reshape
    assert not accepts(tmp_path, steps[1:], ALONE)


def test_so_it_does_when_a_guest_is_claimed_meanwhile(lab: Lab, trace: Trace, tmp_path: Path) -> None:
    newcomer = lab.host.guests[2]

    def claim() -> None:
        lab.claim(newcomer)
        trace.steps.append(("claim", 0))

    trace.disturb["reshape"] = claim
    convert(lab, trace)

    assert ("consumer", 2) in trace.steps
    assert accepts(tmp_path, trace.steps, ALONE)


def test_so_it_does_when_a_guest_ends_meanwhile(lab: Lab, trace: Trace, tmp_path: Path) -> None:
    first = lab.host.guests[0]

    def release() -> None:
        lab.release(first)
        trace.steps += [("release_read", 0), ("release", 0)]

    trace.disturb["reshape"] = release
    convert(lab, trace)

    assert trace.steps.count(("reshape", 0)) == 2
    assert accepts(tmp_path, trace.steps, ALONE)


@pytest.mark.parametrize("kind", ["consumer", "create", "describe"])
def test_so_it_does_after_a_crash(kind: str, lab: Lab, trace: Trace, tmp_path: Path) -> None:
    trace.crash = kind
    convert(lab, trace, passes=2)

    assert ("fault", 0) in trace.steps
    assert accepts(tmp_path, trace.steps, ALONE)


def test_so_it_does_after_a_lost_answer(lab: Lab, trace: Trace, tmp_path: Path) -> None:
    trace.lose = "reshape"
    convert(lab, trace, passes=2)

    assert accepts(tmp_path, trace.steps, ALONE)


def test_so_do_two_agents_on_one_host(lab: Lab, trace: Trace, tmp_path: Path) -> None:
    def other() -> None:
        with Proxy(lab.url, hook=second) as proxy:
            done = lab.run(proxy.url, "devices", "reshape", "--apply", "--patience", "0", who="other")
            assert done.code == 0, done.out + done.err

    second = Trace(lab.host, trace.steps, uuids=trace.uuids)
    trace.disturb["reshape"] = other
    convert(lab, trace)

    assert trace.steps.count(("reshape", 0)) == 2
    assert accepts(tmp_path, trace.steps, "AGENTS=2 CLAIMS=0 CRASHES=0 LOSSES=0")


def test_so_it_does_on_the_way_back(lab: Lab, trace: Trace, tmp_path: Path) -> None:
    convert(lab, trace)
    back = Trace(lab.host, uuids=trace.uuids)
    convert(lab, back, "flat")

    assert [kind for kind, _ in back.steps][-3:] == ["reshape", "delete", "delete"]
    assert accepts(tmp_path, back.steps, f"BACK {ALONE}")
