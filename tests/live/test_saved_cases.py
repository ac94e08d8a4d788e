"""Cases: what a look read, saved in one file, and the same look once more from that alone."""

import json
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from beds.agents import lasting, run_agent
from beds.golden import write_layout
from beds.libvirtd import Libvirtd
from beds.placement import PlacementServer
from beds.service import made_up, noauth, serving
from beds.synthetic.bed import Host
from beds.synthetic.hosts import FOUR_CELLS as MACHINE
from beds.synthetic.model import Machine

pytestmark = pytest.mark.live

Write = Callable[..., Path]
HOSTS = Path(__file__).parents[1] / "hosts"
SETTINGS = HOSTS / "four-cells/agent.conf"
FOUR_CELLS = ("--host", HOSTS / "four-cells/archive", "--config-file", SETTINGS)
BARRED = """\
import datetime, socket, sys, time
sys.modules["libvirt"] = None
from agent.command.arguments import main
import agent.command.carry_out
OURS, moment = ("agent", "drivers", "reportclient"), time.time
def barred(*_arguments, **_more):
    raise AssertionError("barred")
def clock():
    if sys._getframe(1).f_globals.get("__name__", "").partition(".")[0] in OURS:
        raise AssertionError("the clock is barred")
    return moment()
socket.socket = socket.create_connection = socket.getaddrinfo = barred
time.time = clock
sys.exit(main(sys.argv[1:]))
"""


def replayed(case: Path) -> tuple[int, str, str]:
    """Code, output and errors of a replay in a process that has no libvirt, no network and no clock."""
    done = subprocess.run(
        [sys.executable, "-c", BARRED, "plan", "--replay", str(case), "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, lasting(done.stdout), done.stderr


def saved(case: Path, verb: str, *options: object) -> tuple[int, str, str]:
    done = run_agent(verb, *options, "--format", "json", "--save", case)
    return done.code, lasting(done.out), done.err


@pytest.mark.parametrize("verb", [("reshape", "--to", "numa"), ("audit", "--light")])
def test_a_look_at_an_archive_is_done_again_from_its_case(verb: tuple[str, ...], tmp_path: Path) -> None:
    options = (*FOUR_CELLS, "--embedded-dir", tmp_path / "run")
    assert run_agent("sync", *options).code == 0

    first = saved(tmp_path / "case.tar.gz", *verb, *options)

    assert first[0] in (0, 3), first[2]
    assert replayed(tmp_path / "case.tar.gz") == first


def test_a_first_plan_of_this_very_host_is_done_again_from_its_case(
    hypervisor: Libvirtd, write_config: Write, tmp_path: Path
) -> None:
    config = write_config(libvirt={"connection_uri": hypervisor.uri, "virt_type": "qemu"})
    case = tmp_path / "case.tar.gz"

    first = saved(case, "plan", "--config-file", config, "--embedded-dir", tmp_path / "run")

    assert first[0] == 3, first[2]
    assert replayed(case) == first


def test_a_first_plan_of_a_live_host_with_cells_and_cards_is_done_again_from_its_case(
    synthetic: Callable[[Machine], Host], write_config: Write, tmp_path: Path
) -> None:
    host, case = synthetic(MACHINE), tmp_path / "case.tar.gz"
    connection = write_config(libvirt={"connection_uri": host.libvirtd.uri, "virt_type": "qemu"})
    layout = write_layout("numa", tmp_path)
    files = [option for file in (SETTINGS, connection, layout) for option in ("--config-file", file)]

    first = host.run("plan", *files, "--embedded-dir", tmp_path / "run", "--format", "json", "--save", case)

    assert first.code == 3, first.err
    assert len(json.loads(first.out)["operations"]) > 40
    assert replayed(case) == (first.code, lasting(first.out), first.err)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"meta: {schema_version: '1.0'}\nproviders: [{}]\n", "files/wrong.yaml", id="a wrong provider"),
        pytest.param(b"meta: {schema_version: '1.0'}\n# f\xfcr\n", "wrong.yaml: it is no text", id="no text"),
    ],
)
def test_a_refused_file_of_an_operator_is_refused_alike_from_its_case(data: bytes, words: str, tmp_path: Path) -> None:
    options = (*FOUR_CELLS, "--embedded-dir", tmp_path / "run")
    assert run_agent("sync", *options).code == 0
    (tmp_path / "files").mkdir()
    (tmp_path / "files/wrong.yaml").write_bytes(data)
    more = tmp_path / "more.conf"
    more.write_text(f"[compute]\nprovider_config_location = {tmp_path}/files\n")

    first = saved(tmp_path / "case.tar.gz", "plan", *options, "--config-file", more)

    assert first[0] == 1
    assert words in first[2]
    assert replayed(tmp_path / "case.tar.gz") == first


def test_a_placement_that_does_not_answer_is_so_from_its_case(write_config: Write, tmp_path: Path) -> None:
    closed = {"auth_type": "none", "endpoint": "http://127.0.0.1:9", "connect_retries": 0}
    config = write_config(placement=closed, agent={"state_directory": tmp_path / "state"})

    first = saved(tmp_path / "case.tar.gz", "plan", *FOUR_CELLS, "--config-file", config)

    assert (first[0], json.loads(first[1])["error"]["kind"]) == (1, "Unavailable")
    assert replayed(tmp_path / "case.tar.gz") == first


def test_no_secret_is_in_a_case(placement_server: PlacementServer, write_config: Write, tmp_path: Path) -> None:
    secrets = ("very-secret-password", "hidden-in-a-url", "a-secret-of-ironic")
    config = write_config(
        placement={"auth_type": "none", "endpoint": placement_server.url, "password": secrets[0]},
        ironic={"password": secrets[2]},
        libvirt={"connection_uri": f"qemu+tcp://u:{secrets[1]}@there/system"},
        agent={"state_directory": tmp_path / "state"},
    )
    first = saved(tmp_path / "case.tar.gz", "plan", *FOUR_CELLS, "--config-file", config)
    assert first[0] in (0, 3), first[2]

    with tarfile.open(tmp_path / "case.tar.gz") as tar:
        texts = [tar.extractfile(member).read().decode() for member in tar if member.isfile()]  # type: ignore[union-attr]

    assert not [secret for secret in secrets for text in texts if secret in text]
    assert json.loads(next(text for text in texts if '"verb"' in text))["verb"] == "plan"


def test_a_case_of_a_libvirt_that_does_not_answer_has_no_look_and_no_password(
    write_config: Write, tmp_path: Path
) -> None:
    config = write_config(libvirt={"connection_uri": "qemu+tcp://root:very-secret@127.0.0.1:1/system"})
    case = tmp_path / "case.tar.gz"

    first = saved(case, "plan", "--config-file", config, "--embedded-dir", tmp_path / "run")

    assert first[0] == 1
    assert "qemu+tcp://***@127.0.0.1:1/system" in first[2]
    assert "the command that saved it could not read the host" in replayed(case)[2]
    with tarfile.open(case) as tar:
        assert not [member for member in tar if b"very-secret" in tar.extractfile(member).read()]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        pytest.param(FOUR_CELLS[:2], "the case has no placement: the command that saved it failed", id="no placement"),
        pytest.param(
            ("--host", "/nonexistent", "--embedded-dir", "run"), "the case has no node: the command", id="no host"
        ),
    ],
)
def test_a_case_from_before_the_first_answer_is_refused_in_one_line(
    more: tuple[str, ...], words: str, write_config: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = write_config(agent={"state_directory": tmp_path / "state"})
    first = saved(tmp_path / "case.tar.gz", "plan", "--config-file", config, *more)
    assert first[0] == 1

    code, out, err = replayed(tmp_path / "case.tar.gz")

    assert (code, err.count("\n")) == (1, 1)
    assert words in err
    assert words in json.loads(out)["error"]["message"]


def test_the_service_keeps_the_case_of_each_refused_plan_once_and_status_names_it(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    """After the first refusal what is gone is reserved, so that the next plan is another one."""
    conf = made_up(tmp_path, noauth(placement_server.url), keep_cases=9)
    with serving(tmp_path, conf) as service:
        service.wait(lambda: service.passes() >= 2)
        assert not list((tmp_path / "state/cases").glob("*"))
        service.configure(conf | {"compute": {"cpu_shared_set": 0}})  # three CPUs of four
        service.process.send_signal(signal.SIGHUP)
        service.wait(lambda: service.status()["outcomes"] == {"fake-0-small": "unsafe"})
        service.wait(lambda: service.status()["outcomes"] != {"fake-0-small": "unsafe"})
        case, _ = sorted((tmp_path / "state/cases").glob("*.tar.gz"))
        told = run_agent("status", "--config-file", service.config)

    code, out, err = replayed(case)

    assert case.name.startswith("000001-")
    assert case.stat().st_mode & 0o777 == 0o600
    assert str(case) in told.out.replace("\n", "")
    assert code == 3, err
    assert "sync would refuse this" in err
    assert "seen 1 of 3 times in a row" in err
    assert json.loads(out)["operations"]
