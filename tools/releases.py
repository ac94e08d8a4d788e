"""
Our live tests on each release of placement that users run, one after another; ``make releases-test``.

A release has an environment of its own in ``.releases/``, with the libraries of its time, and serves from there.
RELEASES="2023.1 2025.2" runs these only, PYTEST_ADDOPTS="-k crowd" a part of the tests. The command that is tested is
always ours, with the libraries of ``.venv``.
"""

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(".releases").resolve()
# By pip, and as the upper constraints of the release have them (openstack/requirements), but for setuptools: newer ones
# have no pkg_resources. Of a library that is not here the newest, and of all for a release whose column is empty.
FITTING = """
release               2023.1  2023.2  2024.1  2024.2  2025.1  2025.2  2026.1  2026.2
openstack-placement   9.*     10.*    11.*    12.*    13.*    14.*    15.*    16.*
SQLAlchemy            1.4.41  1.4.41  1.4.51  2.0.32  2.0.38  2.0.42  2.0.46  -
alembic               1.8.1   1.9.4   1.9.4   1.13.2  1.14.1  1.16.4  1.18.4  -
jsonschema            4.16.0  4.17.3  4.19.2  4.19.2  4.23.0  4.25.0  4.26.0  -
keystoneauth1         5.1.3   5.3.1   5.6.1   5.8.1   5.10.0  5.12.0  5.13.1  -
keystonemiddleware    10.2.0  10.4.1  10.6.0  10.7.2  10.9.1  10.12.1 12.0.0  -
os-traits             2.10.0  3.0.0   3.0.0   3.1.0   3.3.0   3.5.0   3.6.0   -
oslo.concurrency      5.1.1   5.2.0   6.0.0   6.1.0   7.1.0   7.2.0   7.4.1   -
oslo.config           9.1.1   9.2.0   9.4.0   9.6.1   9.7.2   10.0.0  10.3.0  -
oslo.context          5.1.1   5.2.0   5.5.0   5.6.0   5.7.1   6.1.0   6.3.0   -
oslo.db               12.3.3  14.1.1  15.0.0  16.0.0  17.2.1  17.4.0  18.0.0  -
oslo.i18n             6.0.0   6.1.1   6.3.0   6.4.0   6.5.1   6.6.0   6.7.2   -
oslo.log              5.2.1   5.3.2   5.5.1   6.1.2   7.1.0   7.2.1   8.1.0   -
oslo.middleware       5.1.1   5.2.0   6.1.0   6.2.0   6.3.1   6.6.0   8.0.0   -
oslo.policy           4.1.1   4.2.1   4.3.0   4.4.0   4.5.1   4.6.0   5.0.0   -
oslo.serialization    5.1.2   5.2.1   5.4.1   5.5.0   5.7.0   5.8.0   5.9.1   -
oslo.upgradecheck     2.1.1   2.2.0   2.3.0   2.4.0   2.5.0   2.6.0   2.7.1   -
oslo.utils            6.1.0   6.2.1   7.1.0   7.3.0   8.2.0   9.1.0   10.0.1  -
stevedore             5.0.0   5.1.0   5.2.0   5.3.0   5.4.1   5.5.0   5.7.0   -
setuptools            80.9.0  80.9.0  80.9.0  80.9.0  80.9.0  80.9.0  80.9.0  -
"""
BESIDE = ("gunicorn", "psycopg2-binary", "PyMySQL")  # what serves it, and its databases
STORY = "tests/live/test_undo.py::test_a_conversion_is_taken_back_whole_or_not_at_all"
TURNS = "test_a_host_that_is_turned_back_and_forth_under_schedulers_never_has_a_wrong_sum[with faults]"
TESTS = (
    "tests/live/test_passes.py",
    "tests/live/test_crowd.py",  # claims of eight clients on PostgreSQL, under audits that heal
    "tests/live/test_in_use.py",
    *(f"{STORY}[{one}]" for one in ("05-devices-to-numa", "07-nova-tree-to-numa", "10-numa-to-cells")),
    f"tests/live/test_reshape_races.py::{TURNS}",
    "tests/live/test_audit.py",
    "tests/live/test_candidates.py",
    "tests/live/test_foreign.py",
)
LACKS = "it lacks standard traits of that host, so a pass asks once more which it knows: one request more"
LATER = (  # what a release is not asked: the oldest that is, the test, why
    ("2025.2", "tests/live/test_passes.py::test_what_passes_cost_in_requests", LACKS),
    ("2025.2", "tests/live/test_passes.py::test_the_same_behind_a_caching_proxy", LACKS),
)


@dataclass(frozen=True)
class Result:
    """How one release went."""

    release: str
    versions: tuple[str, ...]
    counts: dict[str, int]
    seconds: float
    ok: bool


def fitting() -> dict[str, dict[str, str]]:
    """The requirements of each release, oldest first: name -> version."""
    rows = [line.split() for line in FITTING.split("\n") if line]
    return {
        release: {name: one for name, *versions in rows[1:] if (one := versions[number]) != "-"}
        for number, release in enumerate(rows[0][1:])
    }


def python_of(release: str, wanted: dict[str, str]) -> Path:
    """The Python of its environment, which is made if it is not there with all that is wanted."""
    root = FOLDER / release
    needs = [f"{name}=={version}" for name, version in wanted.items()] + list(BESIDE)
    stamp, python = root / "wanted", root / "bin/python"
    if not stamp.exists() or stamp.read_text() != "\n".join(needs):
        print(f"making {root}, about a minute", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", root], check=True)
        done = subprocess.run(
            [python, "-m", "pip", "install", *needs],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            sys.exit(f"{done.stdout[-3000:]}\npip could not install placement of {release}")
        stamp.write_text("\n".join(needs))
    return python


def run(release: str, python: Path) -> Result:
    """All tests of one release; what they print is shown."""
    ask = "from importlib.metadata import version as v; print(*map(v, {!r}))".format(
        ("openstack-placement", "SQLAlchemy", "os-traits")
    )
    versions = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.split()
    print(f"\n== {release}: placement {versions[0]}", flush=True)
    began = time.monotonic()
    left_out = [f"--deselect={test}" for oldest, test, _ in LATER if release < oldest]
    command = [sys.executable, "-m", "pytest", "-v", "--color=no", *TESTS, *left_out]
    last = ""
    environment = os.environ | {"PLACEMENT_PYTHON": str(python)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for last in process.stdout:
            print(last, end="", flush=True)
    counts = {name: int(number) for number, name in re.findall(r"(\d+) (passed|failed|deselected|error)", last)}
    return Result(release, tuple(versions), counts, time.monotonic() - began, process.returncode == 0)


def main() -> int:
    """Every release, even after one that failed; all environments first."""
    known = fitting()
    chosen = os.environ.get("RELEASES", "").split() or list(known)
    if unknown := [release for release in chosen if release not in known]:
        sys.exit(f"RELEASES has {' '.join(unknown)}; there are {' '.join(known)}")
    pythons = {release: python_of(release, known[release]) for release in chosen}
    results = [run(release, python) for release, python in pythons.items()]
    print("\n| release | placement | SQLAlchemy | os-traits | passed | failed | left out | seconds |")
    print("| --- " * 8 + "|")
    for one in results:
        passed, failed, error, out = (one.counts.get(name, 0) for name in ("passed", "failed", "error", "deselected"))
        row = (one.release, *one.versions, passed, failed + error, out, round(one.seconds))
        print("|", " | ".join(map(str, row)), "|")
    for oldest, test, why in LATER:
        if min(chosen) < oldest:
            print(f"before {oldest}, left out: {test}: {why}")
    return 0 if all(one.ok for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
