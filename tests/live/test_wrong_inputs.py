"""What users can get wrong: one clear line, the right exit code, no traceback, and placement as it was."""

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from beds import proxy
from beds.agents import COMMAND, Result, run_agent
from beds.by_hand import ByHand
from beds.fixtures import Cloud
from beds.keystone import AGENT_ADMIN, AGENT_READER, create_application_credential, delete_application_credential
from beds.libvirtd import Libvirtd
from beds.placement import PlacementServer
from beds.process import free_port
from beds.service import mounted, noauth
from drivers.fake import write_host

pytestmark = pytest.mark.live

Write = Callable[..., Path]
Report = Callable[..., Result]
Section = dict[str, object]
NOBODY = 65534


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A recorded host with a name and an identity of its own."""
    folder = write_host(tmp_path / "hosts", seed=uuid.uuid4().int, shape="small").root
    return folder.rename(tmp_path / "archive")


@pytest.fixture
def here(placement_server: PlacementServer) -> Section:
    """The [placement] section for a placement without authentication."""
    return noauth(placement_server.url)


@pytest.fixture
def placement(placement_server: PlacementServer) -> ByHand:
    return ByHand(placement_server.url)


@pytest.fixture
def password(cloud: Cloud) -> Section:
    """The [placement] section of a cloud's compute node."""
    return cloud.login | {"region_name": "RegionOne", "valid_interfaces": "internal"}


@pytest.fixture
def report(write_config: Write, archive: Path, tmp_path: Path) -> Report:
    """Runs a verb for the recorded host with this [placement] section."""

    def run(placement: Section, verb: str = "sync", *more: object, **groups: dict[str, object]) -> Result:
        agent = {"state_directory": tmp_path / "state", **groups.pop("agent", {})}
        config = write_config(**groups, placement=placement, agent=agent)
        return run_agent(verb, "--host", archive, "--config-file", config, *more)

    return run


def is_refused(result: Result, *words: str, code: int = 1) -> None:
    """One line on standard error, with these words, nothing on standard output."""
    assert result.code == code, result.err
    assert len(result.err.strip().splitlines()) == 1, result.err
    assert result.out == ""
    for word in words:
        assert word in result.err, result.err


# -- no way to placement ----------------------------------------------------------------------------------------------


def test_no_configuration_at_all_shows_the_three_ways(archive: Path) -> None:
    refused = run_agent("sync", "--host", archive)

    assert refused.code == 1
    for way in ("--embedded", "auth_type = none", "auth_type = password"):
        assert way in refused.err


def test_a_cloud_is_reported_to_over_tls_with_keystone(report: Report, password: Section) -> None:
    """The good case beside the bad ones: the same section, unspoilt."""
    assert report(password, "sync").code == 0
    assert report(password, "sync", "--format", "json").json["outcome"] == "unchanged"
    assert report(password, "check").code == 0


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        pytest.param({"password": "wrong"}, ("refused the credentials", "[placement]"), id="wrong password"),
        pytest.param({"cafile": "/nowhere/ca.pem"}, ("/nowhere/ca.pem", "cafile"), id="wrong CA path"),
        pytest.param({"cafile": None}, ("not trusted", "cafile"), id="no CA"),
        pytest.param({"region_name": "Elsewhere"}, ("region_name",), id="wrong region"),
        pytest.param({"project_name": "nothing"}, ("refused the credentials",), id="no such project"),
        pytest.param(
            {"auth_url": "https://127.0.0.1:9/v3"},
            ("Keystone gives no token", "does it run"),
            id="Keystone away",
        ),
    ],
)
def test_wrong_credentials(report: Report, password: Section, spoil: dict[str, object], words: tuple[str, ...]) -> None:
    is_refused(report({**password, **spoil}), *words)


def test_a_keystone_that_asks_for_a_token_before_it_gives_one(report: Report, password: Section) -> None:
    with proxy.Proxy("http://127.0.0.1:1", hook=lambda *_: proxy.Answer(401, (), b"")) as front:
        is_refused(report({**password, "auth_url": front.url}), "Keystone gives no token", "auth_url")


def test_http_to_a_tls_port(report: Report, cloud: Cloud, password: Section) -> None:
    url = cloud.placement.url.replace("https:", "http:")

    is_refused(report({**password, "endpoint_override": url}), "http or https")


def test_an_application_credential_that_expired(report: Report, cloud: Cloud, password: Section) -> None:
    credential = create_application_credential(cloud.keystone, expires_in=3.0)
    time.sleep(3)

    is_refused(report(_by_credential(password, credential.id, credential.secret)), "refused the credentials", "expire")


def test_an_application_credential_that_was_deleted(report: Report, cloud: Cloud, password: Section) -> None:
    credential = create_application_credential(cloud.keystone)
    section = _by_credential(password, credential.id, credential.secret)
    assert report(section).code == 0
    delete_application_credential(cloud.keystone, credential)

    is_refused(report(section), "application credential deleted")


def test_a_user_who_may_only_read(report: Report, password: Section) -> None:
    is_refused(
        report({**password, "username": AGENT_READER.username, "password": AGENT_READER.password}), "role service"
    )


def test_check_tells_admin_without_service_from_both(report: Report, password: Section) -> None:
    section = {**password, "username": AGENT_ADMIN.username, "password": AGENT_ADMIN.password}

    checked = report(section, "check", "--format", "json")

    assert checked.code == 3
    (finding,) = (one for one in checked.json["checks"] if not one["ok"])
    assert finding["check"] == "role"
    assert "but not reshape: give it the role service" in finding["detail"]


def _by_credential(password: Section, identity: str, secret: str) -> Section:
    kept = {key: password[key] for key in ("auth_url", "region_name", "valid_interfaces", "cafile")}
    return kept | {
        "auth_type": "v3applicationcredential",
        "application_credential_id": identity,
        "application_credential_secret": secret,
    }


# -- no way to the host -----------------------------------------------------------------------------------------------


def test_libvirtd_down(write_config: Write, here: Section, placement: ByHand, tmp_path: Path) -> None:
    config = write_config(
        placement=here,
        agent={"state_directory": tmp_path / "state"},
        libvirt={"connection_uri": f"qemu:///system?socket={tmp_path}/no-socket"},
    )

    is_refused(run_agent("sync", "--config-file", config), "no-socket", "start libvirtd (systemctl start libvirtd)")
    assert placement.providers() == {}


def test_a_socket_without_permission(hypervisor: Libvirtd, write_config: Write, tmp_path: Path) -> None:
    config = write_config(libvirt={"connection_uri": hypervisor.uri})
    config.chmod(0o644)
    for folder in (tmp_path, *tmp_path.parents, *hypervisor.socket.parents):
        if str(folder).startswith("/tmp/"):
            folder.chmod(0o755)

    is_refused(as_nobody("discover", "--config-file", config), "ermission denied", "group libvirt")


def as_nobody(*arguments: object) -> Result:
    """Run a command as a user without any rights."""
    code = f"""\
# Loaded before, as nobody may not look into the clone.
import os, sys, agent.command.allocation_verbs, agent.command.carry_out, agent.connect.embedded, libvirt
import drivers.host.disk, drivers.libvirt.driver
from agent.command.arguments import main
os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})
sys.exit(main({[str(one) for one in arguments]}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/")
    return Result(done.returncode, done.stdout, done.stderr)


def test_an_embedded_placement_that_another_user_may_not_write(
    archive: Path, write_config: Write, tmp_path: Path
) -> None:
    config, own, guest = write_config(), tmp_path / "own", str(uuid.uuid4())
    options = ("--config-file", config, "--embedded-dir", own)
    shown = run_agent("sync", "--host", archive, *options, "--format", "json").json
    request = tmp_path / "request"
    request.write_text(json.dumps({"allocations": {shown["operations"][0]["uuid"]: {"resources": {"VCPU": 1}}}}))
    who = ("--project", "p", "--user", "u", "--type", "INSTANCE")
    assert run_agent("claim", guest, *who, "--request", request, *options).code == 0
    for folder in (own, tmp_path, *tmp_path.parents):
        if str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    config.chmod(0o644)

    refused = as_nobody("release", guest, *options)

    is_refused(refused, "cannot be written: run as its owner, or name another --embedded-dir")


# -- configuration ----------------------------------------------------------------------------------------------------


def test_check_shows_every_configuration_problem_with_file_and_line(write_config: Write) -> None:
    config = write_config(DEFAULT={"reserved_host_memory_mb": "x"}, libvirt={"images_type": "ploop"})

    checked = run_agent("check", "--config-file", config, "--format", "json")

    assert checked.code == 3
    details = [one["detail"] for one in checked.json["checks"]]
    assert {detail.split(" ")[0] for detail in details} == {f"{config}:2:", f"{config}:4:"}


# -- identity ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["discover", "sync"])
def test_what_is_probably_a_mistake_is_told_beside_the_numbers(
    verb: str, archive: Path, write_config: Write, tmp_path: Path
) -> None:
    """Each kind of mistake at once; unit tests have more of each."""
    config = write_config(
        placment={"region_name": "a"},
        devices={"enabled_mdev_types": "nvidia-8"},
        pci={"device_spec": '{"vendor_id": "8086", "resouce_class": "CUSTOM_A"}', "report_in_placement": True},
        agent={"state_directory": tmp_path / "state"},
        **{"mdev_nvidia-9": {"max_instances": 2}},
    )
    placement = () if verb == "discover" else ("--embedded-dir", tmp_path / "own")

    done = run_agent(verb, "--host", archive, "--config-file", config, *placement)

    assert done.code in (0, 3), done.err
    for sentence in (
        "is [placement] meant?",
        "the group [mdev_nvidia-9] is not read: is [mdev_nvidia-8] meant?",
        "rule 1 has resouce_class, which is not read: is resource_class meant?",
        "has nvidia-8, which no card of this host can make",
    ):
        assert sentence in done.err


def test_our_name_with_another_uuid(report: Report, archive: Path, here: Section, placement: ByHand) -> None:
    assert report(here).code == 0
    before = placement.providers()
    (archive / "compute_id").write_text(str(uuid.uuid4()))

    is_refused(report(here), *(one["uuid"] for one in before.values()), "compute_id")
    assert placement.providers() == before


# -- this machine's own files -----------------------------------------------------------------------------------------


def test_a_full_disk_for_the_state_file(report: Report, here: Section, placement: ByHand, tmp_path: Path) -> None:
    """A file system of one page, filled: placement is not written, as the pass could not be remembered."""
    with mounted(tmp_path / "full", "size=16k") as full:
        refused = report(here, "sync", agent={"state_directory": full})

    is_refused(refused, "No space left", "nothing was sent to placement")
    assert placement.providers() == {}


def state_checked(done: Result) -> tuple[bool, str]:
    (state,) = (one for one in done.json["checks"] if one["check"] == "state")
    return state["ok"], state["detail"]


@pytest.mark.parametrize(
    ("options", "below", "why"),
    [
        pytest.param("size=32k", "", "No space left on device", id="full"),
        pytest.param("size=32k", "is/not/there/yet", "No space left on device", id="a folder that is still to be made"),
        pytest.param("size=1m,ro", "", "Read-only file system", id="read-only"),
    ],
)
def test_a_check_finds_a_disk_that_takes_no_state(
    report: Report, here: Section, tmp_path: Path, options: str, below: str, why: str
) -> None:
    with mounted(tmp_path / "full", options) as full:
        done = report(here, "check", "--format", "json", agent={"state_directory": full / below})
        left = list(full.iterdir())

    ok, detail = state_checked(done)
    assert (done.code, ok, left) == (3, False, [])
    assert f"64 KiB cannot be written below {full}: {why}: " in detail
    assert "state_directory" in detail


def test_a_check_leaves_nothing_in_a_folder_with_room(report: Report, here: Section, tmp_path: Path) -> None:
    with mounted(tmp_path / "roomy", "size=1m") as folder:
        done = report(here, "check", "--format", "json", agent={"state_directory": folder / "new"})
        left = list(folder.iterdir())

    assert (state_checked(done), left) == ((True, f"{folder}/new can be made"), [])


# -- a placement that is none, or unwell ------------------------------------------------------------------------------


def test_https_for_a_placement_that_speaks_http(report: Report, placement_server: PlacementServer) -> None:
    with proxy.Proxy(placement_server.url) as front:  # it answers at once; some servers wait for a line of HTTP
        is_refused(report(noauth(front.url.replace("http:", "https:"))), "answers without TLS", "is https right")


def test_a_slow_placement(report: Report, placement_server: PlacementServer) -> None:
    with proxy.Proxy(placement_server.url, hook=proxy.slowly(2)) as front:
        is_refused(report(noauth(front.url, timeout=1)), "no answer in time", "timeout")


# -- the command ------------------------------------------------------------------------------------------------------


def test_a_reader_that_goes_away_is_no_error_message(archive: Path) -> None:
    head = shutil.which("head")
    assert head
    done = subprocess.run(
        f"{COMMAND} discover --host {archive} | {head} -c 1", shell=True, capture_output=True, text=True, check=False,
        env=os.environ,
    )  # fmt: skip

    assert done.stderr == ""


def test_nobody_listens(report: Report) -> None:
    is_refused(report(noauth(f"http://127.0.0.1:{free_port()}")), "does it run")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        pytest.param(
            "[DEFAULT]\ndebug = true\n[agent]\ninterval = 30\n[placement]\nauth_url = http://k\n", 0, id="good"
        ),
        pytest.param("[agent]\nintervall = 30\n", 1, id="misspelt"),
    ],
)
def test_oslos_own_validator_knows_every_option(text: str, code: int, tmp_path: Path) -> None:
    path = tmp_path / "agent.conf"
    path.write_text(text, encoding="utf-8")
    command = [str(COMMAND.with_name("oslo-config-validator")), "--input-file", str(path)]
    names = ["--namespace", "compute-node-agent", "--namespace", "oslo.log"]

    done = subprocess.run([*command, *names], capture_output=True, text=True, check=False)

    assert done.returncode == code, done.stdout + done.stderr
