"""
Runs for long what make test runs once, three steps at a time: services one by one, and laws beside them.

SOAK_SEED repeats a seed, SOAK_ONLY=18,19 runs these steps: all of them take more than three hours on two cores.
"""

import os
import random
import subprocess
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

EXAMPLES = 20_000  # as the profile "soak" in tests/conftest.py says
UNIT_LAWS = (  # in parts that take about as long
    ("diff", "state", "hold"),
    ("nodedev", "sysfs", "parse"),
    ("moves", "ironic", "nodes"),
    ("settings", "shape", "layouts"),
    ("foreign", "case", "beside"),
)
LATE = "tests/live/test_audit.py::test_a_consumer_whose_guest_may_be_on_its_way_is_not_judged"
KILLED = "tests/live/test_daemon.py::test_it_recovers_from_a_kill_at_any_moment"


@dataclass(frozen=True)
class Step:
    """One run of pytest, and how much of what it is to do."""

    what: str
    arguments: tuple[str, ...]
    much: dict[str, str] = field(default_factory=dict)


# What only computes.
LAWS = (  # the longest first: so the lanes end at about the same time
    *(
        Step(
            f"laws of {', '.join(part)}, {EXAMPLES} examples each",
            ("--hypothesis-profile=soak", "tests/unit", "-k", " or ".join(f"test_{name}" for name in part)),
            {"SETTINGS_EXAMPLES": "2000"},
        )
        for part in UNIT_LAWS
    ),
    *(
        Step(
            f"law of guests on the move, {EXAMPLES} worlds: {what}",
            ("tests/contract/test_moving.py", "-k", name),
            {"WORLDS": str(EXAMPLES)},
        )
        for name, what in (
            ("comes_on_offer", "no pinned CPU comes on offer as PCPU"),
            ("own_verbs", "what our own verbs make is not repaired too early"),
            ("repair_writes", "a repair writes what was shown"),
        )
    ),
    Step(
        "2,000 requests of candidates, beside placement itself",
        ("tests/contract/test_candidacy.py",),
        {"REQUESTS": "2000"},
    ),
    Step(
        "10,000 histories of guests in memory, 300 on placement's own application",
        ("-s", "tests/contract/test_histories.py"),
        {"HISTORIES": "10000", "REAL_HISTORIES": "300"},
    ),
    *(
        Step(
            f"law of whole passes, {EXAMPLES} worlds: {what}",
            ("tests/contract/test_worlds.py", "-k", name),
            {"WORLDS": str(EXAMPLES)},
        )
        for name, what in (
            ("identity", "there and back is identity for what operators set"),
            ("hypervisors_word", "no guest's row goes against the hypervisor's word"),
            ("two_forms", "no unit is on offer in two forms"),
            ("others_put", "what others put stays"),
            ("takes_away", "what a boot takes away comes back as it was"),
        )
    ),
    Step(  # a world of it costs as much as one of each other law
        "law of whole passes, 5,000 worlds: memory only adds doubt",
        ("tests/contract/test_worlds.py", "-k", "only_adds_doubt"),
        {"WORLDS": "5000"},
    ),
)
# What starts services.
SERVICES = (
    Step(
        "eight clients and two auditors on PostgreSQL for 300 s",
        ("-s", "tests/live/test_crowd.py", LATE),
        {"CROWD_S": "300", "LATE_S": "30"},
    ),
    Step("10,000 bare-metal nodes", ("-s", "tests/live/test_ironic.py", "-k", "quiet_pass"), {"NODES": "10000"}),
    Step(
        "conversions killed at every request, and 200 turns under schedulers",
        ("-s", "tests/live/test_reshape_races.py"),
        {"RESHAPE_KILLS": "all", "RESHAPE_TURNS": "200"},
    ),
    Step("the service killed 500 times", ("-s", KILLED), {"KILLS": "500"}),
    Step("a day of the service, a second a minute", ("-s", "tests/soak/test_day.py"), {"HOURS": "24"}),
)

# What has the machine for itself: services that compute only while no other process does.
FLEETS = (
    Step(
        "1,000 services on one placement, restarted again and again, and at rest",
        ("-s", "tests/soak/test_fleet.py"),
        {"AGENTS": "1000"},
    ),
)


@dataclass(frozen=True)
class Result:
    """How one step went."""

    number: int
    step: Step
    passed: bool
    seconds: float


def run(number: int, step: Step, seed: str) -> Result:
    """One step to its end; what it printed is shown in one piece, as several steps run at a time."""
    tell(f"{time.strftime('%H:%M:%S')} {number}. begins: {step.what}")
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "--color=no", f"--hypothesis-seed={seed}", *step.arguments]
    if step in LAWS:
        command = ["nice", *command]  # services go first: some of their tests tell how long things take
    done = subprocess.run(
        command,
        check=False,
        env=os.environ | step.much | {"SOAK_SEED": seed},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    result = Result(number, step, done.returncode == 0, time.monotonic() - began)
    tell(f"\n{done.stdout}{time.strftime('%H:%M:%S')} {line(result)}\n")
    return result


def line(result: Result) -> str:
    return f"{result.number}. {'passed' if result.passed else 'FAILED'} {result.seconds:6.0f} s  {result.step.what}"


def tell(text: str) -> None:
    print(f"{text}\n", end="", flush=True)  # in one piece: several lanes tell at a time


def main() -> int:
    """Every step, even after one that failed; the seed makes a failure repeatable."""
    seed = os.environ.get("SOAK_SEED") or str(random.SystemRandom().randrange(2**32))
    only = os.environ.get("SOAK_ONLY", "").replace(",", " ").split()
    tell(f"seed {seed}; repeat with SOAK_SEED={seed} make soak, some steps with SOAK_ONLY=NUMBER,NUMBER")
    chosen = [
        (number, step) for number, step in enumerate((*LAWS, *SERVICES, *FLEETS), 1) if not only or str(number) in only
    ]
    laws, services, fleets = (deque(one for one in chosen if one[1] in kind) for kind in (LAWS, SERVICES, FLEETS))
    results: list[Result] = []

    def work(*queues: deque[tuple[int, Step]]) -> None:
        for queue in queues:
            while queue:
                results.append(run(*queue.popleft(), seed))

    with ThreadPoolExecutor(3) as pool:
        lanes = [pool.submit(work, services, laws), pool.submit(work, laws), pool.submit(work, laws)]
    for lane in lanes:
        lane.result()
    work(fleets)
    tell("")
    for result in sorted(results, key=lambda one: one.number):
        tell(line(result))
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
