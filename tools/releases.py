"""
Our tests on releases of placement, Keystone, Ironic and nova that users run, one by one; ``make releases-test``.

A release of a service has an environment of its own in ``.releases/``, with the libraries of its time, and serves from
there. RELEASES="2023.1 2025.2" runs these only, SERVICES="nova" the tests of this service, PYTEST_ADDOPTS="-k crowd" a
part of them. The command that is tested is always ours, with the libraries of ``.venv``.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(".releases").resolve()
# As the upper constraints of the release have them (openstack/requirements), but for setuptools: newer ones have no
# pkg_resources. Of a library without a version here pip takes the newest. A service without one is not tested.
FITTING = """
release                2023.1  2023.2  2024.1  2024.2  2025.1  2025.2   2026.1  2026.2
openstack-placement    9.*     10.*    11.*    12.*    13.*    14.*     15.*    16.*
nova                   -       -       29.*    -       31.*    32.*     33.*    -
glance                 -       -       28.*    -       30.*    31.*     32.*    -
keystone               23.*    -       -       -       27.*    -        -       -
ironic                 21.*    -       -       -       29.*    -        -       -
alembic                1.8.1   1.9.4   1.9.4   1.13.2  1.14.1  1.16.4   1.18.4  -
bcrypt                 4.0.0   -       -       -       4.0.1   -        -       -
dnspython              2.2.1   -       2.5.0   -       2.7.0   2.7.0    2.8.0   -
dogpile.cache          1.1.8   -       -       -       1.3.4   -        -       -
eventlet               0.33.1  -       0.35.1  -       0.39.0  0.40.2   0.40.4  -
Flask                  2.2.2   -       -       -       3.1.0   -        -       -
glance-store           4.3.3   -       4.7.1   -       4.9.1   5.2.0    5.4.0   -
ironic-lib             5.4.1   -       -       -       7.0.0   -        -       -
jsonschema             4.16.0  4.17.3  4.19.2  4.19.2  4.23.0  4.25.0   4.26.0  -
keystoneauth1          5.1.3   5.3.1   5.6.1   5.8.1   5.10.0  5.12.0   5.13.1  -
keystonemiddleware     10.2.0  10.4.1  10.6.0  10.7.2  10.9.1  10.12.1  12.0.0  -
openstacksdk           1.0.2   -       3.0.0   -       4.4.0   4.7.2    4.10.0  -
os-brick               6.2.5   -       6.7.3   -       6.11.1  6.13.0   7.0.0   -
os-traits              2.10.0  3.0.0   3.0.0   3.1.0   3.3.0   3.5.0    3.6.0   -
os-vif                 3.1.1   -       3.5.0   -       4.1.0   4.2.1    4.3.0   -
oslo.cache             3.3.1   -       3.7.0   -       3.10.2  3.12.0   4.1.1   -
oslo.concurrency       5.1.1   5.2.0   6.0.0   6.1.0   7.1.0   7.2.0    7.4.1   -
oslo.config            9.1.1   9.2.0   9.4.0   9.6.1   9.7.2   10.0.0   10.3.0  -
oslo.context           5.1.1   5.2.0   5.5.0   5.6.0   5.7.1   6.1.0    6.3.0   -
oslo.db                12.3.3  14.1.1  15.0.0  16.0.0  17.2.1  17.4.0   18.0.0  -
oslo.i18n              6.0.0   6.1.1   6.3.0   6.4.0   6.5.1   6.6.0    6.7.2   -
oslo.limit             2.1.0   -       2.4.0   -       2.6.1   2.8.0    2.10.0  -
oslo.log               5.2.1   5.3.2   5.5.1   6.1.2   7.1.0   7.2.1    8.1.0   -
oslo.messaging         14.2.5  -       14.7.2  -       16.1.2  17.1.0   17.3.0  -
oslo.middleware        5.1.1   5.2.0   6.1.0   6.2.0   6.3.1   6.6.0    8.0.0   -
oslo.policy            4.1.1   4.2.1   4.3.0   4.4.0   4.5.1   4.6.0    5.0.0   -
oslo.privsep           3.1.0   -       3.3.0   -       3.6.0   3.8.0    3.10.1  -
oslo.reports           3.0.0   -       3.3.0   -       3.5.1   3.6.0    3.7.0   -
oslo.rootwrap          7.0.1   -       7.2.0   -       7.5.1   7.7.0    7.9.0   -
oslo.serialization     5.1.2   5.2.1   5.4.1   5.5.0   5.7.0   5.8.0    5.9.1   -
oslo.service           3.1.2   -       3.4.1   -       4.1.2   4.3.0    4.5.1   -
oslo.upgradecheck      2.1.1   2.2.0   2.3.0   2.4.0   2.5.0   2.6.0    2.7.1   -
oslo.utils             6.1.0   6.2.1   7.1.0   7.3.0   8.2.0   9.1.0    10.0.1  -
oslo.versionedobjects  3.1.0   -       3.3.0   -       3.6.0   3.8.0    3.9.0   -
pecan                  1.4.2   -       -       -       1.5.1   -        -       -
python-cinderclient    9.3.0   -       9.5.0   -       9.7.0   9.8.0    9.9.0   -
python-glanceclient    4.3.2   -       4.5.0   -       4.8.0   4.10.0   4.11.0  -
python-neutronclient   9.0.0   -       11.2.0  -       11.4.1  11.6.0   11.8.0  -
SQLAlchemy             1.4.41  1.4.41  1.4.51  2.0.32  2.0.38  2.0.42   2.0.46  -
stevedore              5.0.0   5.1.0   5.2.0   5.3.0   5.4.1   5.5.0    5.7.0   -
sushy                  4.4.3   -       -       -       5.5.1   -        -       -
taskflow               5.1.1   -       5.6.0   -       5.12.0  6.0.2    6.2.0   -
tooz                   3.2.0   -       6.2.0   -       6.3.0   7.0.0    8.1.0   -
Werkzeug               2.2.2   -       -       -       3.1.3   -        -       -
setuptools             80.9.0  80.9.0  80.9.0  80.9.0  80.9.0  80.9.0   80.9.0  -
"""
PLACEMENT, KEYSTONE, IRONIC, NOVA = "openstack-placement", "keystone", "ironic", "nova"
PACKAGES = {  # what is installed for a service
    PLACEMENT: (PLACEMENT, "setuptools", "gunicorn", "psycopg2-binary", "PyMySQL"),
    KEYSTONE: (KEYSTONE, "setuptools", "gunicorn"),
    IRONIC: (IRONIC, "setuptools"),
    NOVA: (NOVA, "glance", "libvirt-python>=9,<13", "setuptools", "gunicorn", "PyMySQL"),
}
PYTHON_OF = {  # the variable that tells the tests the Python of a service
    PLACEMENT: "PLACEMENT_PYTHON",
    KEYSTONE: "KEYSTONE_PYTHON",
    IRONIC: "IRONIC_PYTHON",
    NOVA: "NOVA_PYTHON",
}
STORY = "tests/live/test_undo.py::test_a_conversion_is_taken_back_whole_or_not_at_all"
TURNS = "test_a_host_that_is_turned_back_and_forth_under_schedulers_never_has_a_wrong_sum[with faults]"
OFFLINE = "tests/live/test_offline.py::test_a_host_is_converted_while_the_api_is_down_and_the_api_agrees_afterwards"
TESTS = {
    PLACEMENT: (
        "tests/live/test_passes.py",
        "tests/live/test_crowd.py",  # claims of eight clients on PostgreSQL, under audits that heal
        "tests/live/test_in_use.py",
        *(f"{STORY}[{one}]" for one in ("05-devices-to-numa", "07-nova-tree-to-numa", "10-numa-to-cells")),
        f"tests/live/test_reshape_races.py::{TURNS}",
        *(f"{OFFLINE}[{one}]" for one in ("PostgreSQL", "MariaDB")),
        "tests/live/test_audit.py",
        "tests/live/test_candidates.py",
        "tests/live/test_foreign.py",
    ),
    KEYSTONE: (
        "tests/live/test_wrong_inputs.py",
        "tests/live/test_daemon.py::test_a_password_that_was_changed_is_taken_by_sighup",
        "tests/live/test_daemon.py::test_a_service_that_is_restarted_goes_on_with_its_token",
    ),
    IRONIC: ("tests/live/test_ironic.py",),
    NOVA: ("tests/cloud/test_beside_nova.py", "tests/cloud/test_roles.py", "tests/cloud/test_lifecycle.py"),
}
SCHEMA = "its database has another schema than that of 2026.2, which reshape --database needs"
LACKS = "it lacks standard traits of that host, so a pass asks once more which it knows: one request more"
LATER = (  # what a release of placement is not asked: the oldest that is, the test, why
    ("2025.2", "tests/live/test_passes.py::test_what_passes_cost_in_requests", LACKS),
    ("2025.2", "tests/live/test_passes.py::test_the_same_behind_a_caching_proxy", LACKS),
    *(("2023.2", f"{OFFLINE}[{one}]", SCHEMA) for one in ("PostgreSQL", "MariaDB")),
)


@dataclass(frozen=True)
class Result:
    """How one release of a service went; ``versions``: of the service and of SQLAlchemy."""

    release: str
    service: str
    versions: tuple[str, ...]
    counts: dict[str, int]
    seconds: float
    ok: bool


def fitting() -> dict[str, dict[str, str]]:
    """The versions of each release, oldest first: name -> version."""
    rows = [line.split() for line in FITTING.split("\n") if line]
    return {
        release: {name: one for name, *versions in rows[1:] if (one := versions[number]) != "-"}
        for number, release in enumerate(rows[0][1:])
    }


def python_of(release: str, service: str, versions: dict[str, str]) -> Path:
    """The Python of a service's environment, which is made if it is not there as it is wanted."""
    root = FOLDER / f"{release}-{service}"
    stamp, python = root / "constraints", root / "bin/python"
    wanted = "".join(f"{name}=={version}\n" for name, version in versions.items())
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"making {root}, about a minute", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", root], check=True)
        unfinished = root / "unfinished"
        unfinished.write_text(wanted)
        done = subprocess.run(
            [python, "-m", "pip", "install", "-c", unfinished, *PACKAGES[service]],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            sys.exit(f"{done.stdout[-3000:]}\npip could not install {service} of {release}")
        if service == NOVA:  # nova and Glance look for their files below the folder of their packages
            (next(root.glob("lib/python3*/site-packages")) / "etc").symlink_to(root / "etc")
        unfinished.rename(stamp)
    return python


def needed(service: str) -> tuple[str, ...]:
    """The services of a release that the tests of this one use; a nova has the placement of its release."""
    return (service, PLACEMENT) if service == NOVA else (service,)


def run(release: str, service: str, pythons: dict[str, Path]) -> Result:
    """All tests of one release of a service; what they print is shown."""
    ask = f"from importlib.metadata import version as v; print(v({service!r}), v('SQLAlchemy'))"
    versions = subprocess.run([pythons[service], "-c", ask], check=True, capture_output=True, text=True).stdout.split()
    print(f"\n== {release}: {service} {versions[0]}", flush=True)
    began = time.monotonic()
    left_out = [f"--deselect={test}" for oldest, test, _ in LATER if release < oldest]
    command = [sys.executable, "-m", "pytest", "-v", "--color=no", *TESTS[service], *left_out]
    last = ""
    environment = os.environ | {PYTHON_OF[one]: str(pythons[one]) for one in needed(service)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for last in process.stdout:
            print(last, end="", flush=True)
    counts = {name: int(number) for number, name in re.findall(r"(\d+) (passed|failed|deselected|error)", last)}
    return Result(release, service, tuple(versions), counts, time.monotonic() - began, process.returncode == 0)


def chosen(variable: str, known: Iterable[str]) -> list[str]:
    """What a variable of the environment names of all that is known; everything, if it names nothing."""
    found = os.environ.get(variable, "").split() or list(known)
    if unknown := set(found) - set(known):
        sys.exit(f"{variable} has {' '.join(sorted(unknown))}; there are {' '.join(known)}")
    return found


def main() -> int:
    """Every release, even after one that failed; all environments first."""
    known = fitting()
    services = chosen("SERVICES", PACKAGES)
    releases = chosen("RELEASES", known)
    pairs = [(release, service) for service in services for release in releases if service in known[release]]
    pythons: dict[str, dict[str, Path]] = {release: {} for release in releases}
    for release, service in pairs:
        pythons[release] |= {one: python_of(release, one, known[release]) for one in needed(service)}
    results = [run(release, service, pythons[release]) for release, service in pairs]
    print("\n| release | service | version | SQLAlchemy | passed | failed | left out | seconds |")
    print("| --- " * 8 + "|")
    for one in results:
        passed, failed, error, out = (one.counts.get(name, 0) for name in ("passed", "failed", "error", "deselected"))
        row = (one.release, one.service, *one.versions, passed, failed + error, out, round(one.seconds))
        print("|", " | ".join(map(str, row)), "|")
    for oldest, test, why in LATER:
        if PLACEMENT in services and min(releases) < oldest:
            print(f"before {oldest}, left out: {test}: {why}")
    return 0 if all(one.ok for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
