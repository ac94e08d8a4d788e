"""
Record what the verbs print about all hosts in tests/, with exit codes and requests; compare two such records.

Usage: tools/behaviour.py record FOLDER [CHECKOUT [WORDS]]   the code of this checkout, and worlds with such a name
       tools/behaviour.py compare FOLDER FOLDER

Hosts, cases, upgrades and made-up hosts each get a placement in the process. A run of a verb is one file of the
record. Eight minutes of CPU.
"""

import difflib
import json
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROCESSES = 2
LAYOUTS = ("flat", "devices", "cells", "numa")
WHOLE = ("full-guest", "four-cells", "04-flat-to-numa", "10-numa-to-cells")  # worlds of every verb
GUEST, MOVE = "4a5f7e9c-0d27-4e43-8f6f-2a3b1c9d8e70", "b7c1d2e3-5f64-4a08-9b1a-6c7d8e9f0a12"
HEAL = "heal: [wrong-amount, wrong-provider, orphaned, missing]\n" + "".join(
    f"{name}: 0\n" for name in ("grace_s", "again_s", "move_s")
)
QUERIES = (
    "resources=VCPU:1,MEMORY_MB:64,DISK_GB:1",
    "resources=VCPU:100000",
    "resources=VCPU:1&required=HW_CPU_X86_SGX",
    "resources_1=VCPU:1,MEMORY_MB:64&resources_2=SRIOV_NET_VF:1&group_policy=none&same_subtree=_1,_2",
    "resources=VCPU:1&resources_1=VGPU:2&resources_2=VGPU:1&group_policy=isolate",
    "resources=VCPU:1&in_tree=4a5f7e9c-0d27-4e43-8f6f-2a3b1c9d8e70",
)
OTHERWISE = (  # what differs at each run -> what stands in its place
    (r'\n  "(time|request_id)": [^\n]*', ""),
    (r"\d{8}T\d{6}\.\d+Z", "TIME"),
    (r'"checksum": "[0-9a-f]+"', "CHECKSUM"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?", "TIME"),
    (r"req-[0-9a-f-]{36}", "REQUEST"),
    (r"\d+\.\d+ s\b", "SECONDS"),
)


class World:
    """One host with a placement of its own; each verb and each write by hand runs in a process of its own."""

    def __init__(self, name: str, record: Path, scratch: Path, template: Path) -> None:
        self.folder = scratch / name
        self.folder.mkdir()
        (self.folder / "kept").mkdir()
        shutil.copy(template, self.folder / "kept")
        self.write("clock.conf", "[agent]\naudit_grace = 0\n")  # how long ago a claim was differs at each run
        self._record = record / name
        self._record.mkdir(parents=True)
        self._count = 0
        self.options: list[object] = []

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def run(self, verb: str, *more: object, form: str = "json") -> Any:
        """Run a verb and record it; its JSON, None where there is none."""
        self._count += 1
        options = [] if verb in ("discover", "record", "bundle") else ["--embedded", "--embedded-dir", "kept"]
        chosen = [] if "--replay" in more else [*self.options, "--config-file", "clock.conf", *options]
        words = [verb, *more, *chosen, "--format", form]
        code, out, err, requests = self._forked(partial(_command, [str(one) for one in words]))
        text = json.dumps({"command": [str(one) for one in words], "exit": code, "err": err.split("\n")}, indent=1)
        files = [self.folder / str(after) for one, after in pairwise(more) if one in ("--picture", "--out")]
        written = [path.read_text(encoding="utf-8") for path in files if path.exists()]
        text = "\n".join((text, "requests:", *requests, "out:", out, *written))
        for pattern, put in ((re.escape(str(self.folder)), "WORLD"), *OTHERWISE):
            text = re.sub(pattern, put, text)
        shown = "-".join(str(one) for one in (verb, *more) if re.fullmatch(r"-?-?[a-z][a-z-]*", str(one)))
        (self._record / f"{self._count:02}-{shown}-{form}").write_text(text, encoding="utf-8")
        try:
            return json.loads(out)
        except ValueError:
            return None

    def set_up(self, act: Callable[[Any], object]) -> None:
        """Write to placement by hand."""
        code, _, err, _ = self._forked(lambda _: act(by_hand(self.folder / "kept")))
        assert not code, err

    def _forked(self, act: Callable[[list[str]], object]) -> tuple[int, str, str, list[str]]:
        sys.stdout.flush()
        files = [self.folder / name for name in ("out", "err", "requests")]
        pid = os.fork()
        if not pid:
            _become(act, self.folder, *files)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out, err, requests = (path.read_text(encoding="utf-8") for path in files)
        return code, out, err, requests.splitlines()


def by_hand(folder: Path) -> Any:
    """Requests by hand to a placement in this process, as those of the recorded code to one with an address."""
    from agent.connect.embedded import open_file
    from beds.by_hand import ByHand

    return ByHand(open_file(folder, writes=True))


def _become(act: Callable[[list[str]], object], folder: Path, out: Path, err: Path, requests: Path) -> None:
    """Carry out an act in this forked process, whose exit code it returns."""
    seen: list[str] = []
    code: object = 1
    os.chdir(folder)
    for descriptor, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    try:
        code = act(seen)
    except SystemExit as ending:
        code = ending.code
    except BaseException:  # it is the record of a fault
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    requests.write_text("\n".join(seen), encoding="utf-8")
    os._exit(code if isinstance(code, int) else 0)


def _command(words: list[str], seen: list[str]) -> object:
    """Run the command, with all requests that placement gets in ``seen``."""
    from placement import deploy

    from agent.command.arguments import main

    load = deploy.loadapp

    def counted(conf: Any) -> Any:
        application = load(conf)

        def answer(environment: Any, start: Any) -> Any:
            query = environment["QUERY_STRING"]
            seen.append(f"{environment['REQUEST_METHOD']} {environment['PATH_INFO']}{query and '?' + query}")
            return application(environment, start)

        return answer

    deploy.loadapp = counted
    sys.argv = ["compute-node-agent", *words]
    return main()


def golden(folder: Path, world: World) -> None:
    """A recorded host in all layouts, converted from one to the next and back."""
    archive, own = folder / "archive", folder / "agent.conf"
    files = {layout: world.write(f"{layout}.conf", f"[compute]\nlayout = {layout}\n") for layout in LAYOUTS}

    def use(layout: str) -> None:
        world.options = ["--host", archive, "--config-file", own, "--config-file", files[layout]]

    for layout in LAYOUTS:
        use(layout)
        world.run("discover")
    fit = [one for one in LAYOUTS if "providers" in json.loads((folder / f"{one}.json").read_text(encoding="utf-8"))]
    first = sum(folder.name.encode()) % len(fit)
    before, after = fit[first], fit[(first + 1) % len(fit)]
    use(before)
    for words in (("check",), ("plan",), ("sync",), ("audit", "--heal", "--policy", world.write("heal.yaml", HEAL))):
        world.run(*words)
    use(after)
    for words in (("sync",), ("reshape", "--apply"), ("show",), ("audit",), ("undo", "--apply"), ("plan",)):
        world.run(*words)
    if folder.name in WHOLE:
        every_verb(world)


def every_verb(world: World) -> None:
    """All verbs on a host that is reported, also as tables."""
    world.run("plan", "--save", "case.tar.gz", "--picture", "picture.html")
    world.run("plan", "--replay", "case.tar.gz")
    world.run("plan", "--out", "plan.json")
    world.run("sync", "--plan", "plan.json")
    shown = world.run("show")
    root = next((one for one in shown["providers"].values() if not one["parent"]), None)
    name = next((key for key, one in shown["providers"].items() if not one["parent"]), "")
    for query in QUERIES:
        world.run("explain", "--request", world.write("query", query))
    for provider in list(shown["providers"])[:4]:
        world.run("explain", provider)
    world.run("explain", name, "VCPU")
    if root:
        slots = {root["uuid"]: {"resources": {"DISK_GB": 1}}}
        request = world.write("request", json.dumps({"allocations": slots}))
        who = ("--project", "p", "--user", "u", "--type", "INSTANCE", "--request", request)
        world.run("claim", GUEST, *who)
        world.run("claim", GUEST, *who)
        world.run("move", GUEST, "--migration", MOVE, "--request", request)
        world.run("audit")
        world.run("show", form="table")
        keep, world.options = world.options, world.options[2:]  # revert takes no host
        world.run("revert", GUEST, "--migration", MOVE)
        world.options = keep
        world.run("move", GUEST, "--migration", MOVE, "--request", request)
        world.run("confirm", MOVE)
        world.run("show", "--project", "p")
        world.run("release", GUEST)
    for verb in ("discover", "plan", "audit", "check", "status", "show"):
        world.run(verb, form="table")
    for words in (("undo", "--list"), ("upgrade", "check")):
        world.run(*words)
        world.run(*words, form="table")
    for words in (("explain", name), ("explain", "--request", world.folder / "query"), ("release", GUEST)):
        world.run(*words, form="table")
    world.run("show", "--project", "p", form="table")
    world.run("reshape", "--withdraw")
    world.run("status")
    world.run("retire", "--dry-run")
    world.run("hand-over", "--dry-run", form="table")
    world.run("hand-over")
    world.run("sync")
    world.run("retire")
    world.run("show")


def upgrade(folder: Path, world: World) -> None:
    """An old tree, converted and taken back; its guests are claimed before."""
    from beds.trees import add_consumer, lay_down
    from beds.upgrades import write_config, write_host

    story = json.loads((folder / "story.json").read_text(encoding="utf-8"))
    archive, before = write_host(story, world.folder), story["before"]

    def use(conf: Mapping[str, Any], name: str) -> None:
        world.options = ["--host", archive, "--config-file", write_config(conf, world.folder / name)]

    world.set_up(lambda placement: lay_down(placement, before["providers"]))
    if first := story.get("first"):
        use(first, "first.conf")
        world.run("sync")
    for name, consumer in before["consumers"].items():
        world.set_up(partial(add_consumer, name=name, consumer=consumer))
    use(story["config"], "agent.conf")
    world.run("sync")
    world.run("reshape", form="table")
    world.run("reshape", "--save", "case.tar.gz", "--picture", "picture.html")
    for words in (("plan", "--replay", "case.tar.gz"), ("reshape", "--apply"), ("audit",), ("undo", "--apply")):
        world.run(*words)
    world.run("audit", form="table")
    if folder.name in WHOLE:
        world.run("reshape", "--apply")
        for layout in LAYOUTS:
            world.run("reshape", "--to", layout)
        every_verb(world)


def case(path: Path, world: World) -> None:
    """What nova reported step by step, with its allocations, by our passes."""
    from beds import cases

    host: dict[str, Any] = {}
    conf: dict[str, Any] = {}
    for number, step in enumerate(json.loads(path.read_text(encoding="utf-8"))["steps"]):
        host = host if step.get("host", "same") == "same" else step["host"]
        conf = conf if step.get("conf", "same") == "same" else step["conf"]
        archive = cases.write_archive(host, step["host_name"], world.folder / "host")
        world.options = ["--host", archive, "--config-file", cases.write_config(conf, world.folder / "nova.conf")]
        if number and "allocations" in step.get("after", {}):
            world.set_up(partial(_step, after=step["after"]))
        for verb in ("discover", "sync", "plan"):
            world.run(verb)


def _step(placement: Any, after: dict[str, Any]) -> None:
    """Allocations become those of a step, as far as placement has what they need."""
    from beds import cases

    cases.ByHand = lambda _: placement  # type: ignore[assignment,misc]
    try:
        cases.set_by_hand("", after, traits=True)
    except (AssertionError, KeyError) as error:  # nova's host or its providers are not ours
        print(error, file=sys.stderr)


def made_up(shape: str, world: World) -> None:
    """A made-up host of one shape."""
    fake = f"[DEFAULT]\ncompute_driver = fake.FakeDriver\n[fake]\nshape = {shape}\n"
    world.options = ["--config-file", world.write("agent.conf", fake)]
    for verb in ("discover", "plan", "sync", "show", "audit", "plan"):
        world.run(verb)
    for verb in ("plan", "show"):
        world.run(verb, form="table")
    world.run("reshape", "--to", "numa")
    world.run("reshape", "--to", "numa", "--apply")


def worlds() -> Iterator[tuple[str, Callable[[World], None]]]:
    """All of them by name, the longest first."""
    tests = ROOT / "tests"
    for folder in sorted(path for path in (tests / "hosts").iterdir() if path.is_dir()):
        yield f"host-{folder.name}", partial(golden, folder)
    for folder in sorted(path for path in (tests / "upgrades").iterdir() if path.is_dir()):
        yield f"upgrade-{folder.name}", partial(upgrade, folder)
    for path in sorted((tests / "cases").glob("*.json")):
        yield f"case-{path.stem}", partial(case, path)
    for shape in ("small", "mixed"):
        yield f"made-up-{shape}", partial(made_up, shape)


def play(name: str, record: Path, scratch: Path, template: Path) -> str:
    """Play one world; a fault of the script is a file of the record too."""
    world = World(name, record, scratch, template)
    try:
        dict(worlds())[name](world)
    except Exception:
        (record / name / "fault").write_text(traceback.format_exc(), encoding="utf-8")
        return f"{name}: FAULT"
    return name


def new_placement(scratch: Path) -> Path:
    """The database of a placement that is empty, to be copied."""
    pid = os.fork()
    if not pid:
        _become(lambda _: by_hand(scratch) and None, scratch, *(scratch / name for name in ("o", "e", "r")))
    os.waitpid(pid, 0)
    return scratch / "placement.sqlite"


def record(folder: Path, words: str) -> None:
    """Play all worlds with a name that has these words into a new folder."""
    # What most runs need is imported once, before the processes fork.
    import placement.deploy  # noqa: F401

    import agent.command.allocation_verbs
    import agent.command.audit_verb
    import agent.command.host_verbs  # noqa: F401
    import drivers.libvirt.driver  # noqa: F401

    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="behaviour-") as path:
        scratch = Path(path)
        os.environ |= {"HOME": path, "COLUMNS": "160", "NO_COLOR": "1"}
        act = partial(play, record=folder, scratch=scratch, template=new_placement(scratch))
        with multiprocessing.get_context("fork").Pool(PROCESSES, maxtasksperchild=1) as pool:
            for name in pool.imap_unordered(act, [name for name, _ in worlds() if words in name]):
                print(name, flush=True)


def compare(one: Path, other: Path) -> int:
    """Print every difference; how many files differ."""
    names = sorted({str(path.relative_to(each)) for each in (one, other) for path in each.rglob("*") if path.is_file()})
    wrong = 0
    for name in names:
        before, after = (each / name if (each / name).exists() else None for each in (one, other))
        texts = [path.read_text(encoding="utf-8").splitlines() if path else [] for path in (before, after)]
        if texts[0] != texts[1]:
            wrong += 1
            print(*difflib.unified_diff(*texts, f"{one}/{name}", f"{other}/{name}", lineterm="", n=1), sep="\n")
    print(f"{len(names)} runs, {wrong} differ")
    return wrong


if __name__ == "__main__":
    if sys.argv[1:2] == ["compare"]:
        raise SystemExit(bool(compare(Path(sys.argv[2]), Path(sys.argv[3]))))
    chosen = dict(enumerate(sys.argv))
    sys.path[:0] = [str(Path(chosen.get(3, ROOT)).resolve()), str(ROOT / "tests")]
    record(Path(sys.argv[2]).resolve(), chosen.get(4, ""))
