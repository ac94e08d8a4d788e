"""The service as a process: what it tells systemd, what it does when others go away, what it never tells."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
from keystoneauth1.adapter import Adapter

from beds import libvirtd
from beds.agents import run_agent
from beds.by_hand import ByHand
from beds.fixtures import Cloud
from beds.keystone import ADMIN, AGENT, create_application_credential, logged_in
from beds.placement import PlacementServer
from beds.process import free_port
from beds.proxy import Answer, Forward, Proxy, Request, pass_on
from beds.service import PATIENCE_S, Service, a_clock_to_set, end, made_up, mounted, noauth, serving
from beds.synthetic import bed
from beds.synthetic.hosts import QUEENS_FIRST
from beds.upgrades import write_config

pytestmark = pytest.mark.live


Groups = dict[str, dict[str, object]]


@pytest.fixture
def placement(placement_server: PlacementServer) -> ByHand:
    return ByHand(placement_server.url)


@pytest.fixture
def conf(placement_server: PlacementServer, tmp_path: Path) -> Groups:
    return made_up(tmp_path, noauth(placement_server.url))


@pytest.fixture
def service(conf: Groups, tmp_path: Path) -> Iterator[Service]:
    """A service after its first pass."""
    with serving(tmp_path, conf) as running:
        running.wait(lambda: running.passes() >= 1)
        yield running


@pytest.fixture
def proxy(placement_server: PlacementServer) -> Iterator[Proxy]:
    with Proxy(placement_server.url) as front:
        yield front


@pytest.fixture
def proxied(proxy: Proxy, tmp_path: Path) -> Iterator[Service]:
    """A service that reports through the proxy, after its first pass."""
    with serving(tmp_path, made_up(tmp_path, noauth(proxy.url))) as running:
        running.wait(lambda: running.passes() >= 1)
        yield running


def down(_request: Request, _forward: Forward) -> Answer:
    """A hook of a proxy before a server that is not there."""
    raise ConnectionError("down")


def test_it_tells_systemd_of_its_life(service: Service) -> None:
    service.wait_for_passes(1)
    told = list(service.told)
    assert told.index("READY=1") < told.index("STATUS=up to date, 1 pass")
    assert "WATCHDOG=1" in told

    service.process.send_signal(signal.SIGHUP)
    service.wait(lambda: "RELOADING=1" in service.told and service.told.count("READY=1") == 2)
    service.wait_for_passes(1)

    service.process.terminate()
    assert service.process.wait(PATIENCE_S) == 0
    assert "STOPPING=1" in service.told
    done = run_agent("status", "--config-file", service.config)
    assert (done.code, done.out.splitlines()[0][:12]) == (3, "not running;")
    assert "the first pass is done" in service.lines()
    assert [line for line in service.lines().splitlines() if "WARNING" in line] == []


def test_where_the_threads_are_is_printed_at_once_in_the_middle_of_a_pass(proxied: Service, proxy: Proxy) -> None:
    asked, answered = threading.Event(), threading.Event()

    def hold(request: Request, forward: Forward) -> Answer:
        asked.set()
        assert answered.wait(PATIENCE_S)
        return pass_on(request, forward)

    proxy.hook = hold
    assert asked.wait(PATIENCE_S)

    proxied.process.send_signal(signal.SIGUSR2)
    proxied.wait(lambda: "in take" in proxied.lines())
    proxy.hook = pass_on
    answered.set()
    proxied.wait_for_passes(2)


def test_a_quiet_service_asks_once_a_pass_and_logs_nothing(proxied: Service, proxy: Proxy) -> None:
    proxied.wait(lambda: proxied.passes() >= 2)
    size, before = proxied.log.stat().st_size, proxied.passes()
    proxy.seen.clear()
    proxied.wait(lambda: proxied.passes() >= before + 3)
    asked, passes = len(proxy.seen), proxied.passes() - before

    assert asked <= passes + 1
    assert proxied.log.stat().st_size == size


def test_placement_that_goes_away_is_told_once_and_recovered_from(
    proxied: Service, proxy: Proxy, placement: ByHand
) -> None:
    stood = placement.providers()
    proxy.hook = down
    proxied.wait(lambda: not proxied.is_ready())
    time.sleep(3)
    status = proxied.status()
    assert status["sentence"].startswith("degraded: ")
    assert status["sources"]["host"]["error"] == ""
    assert run_agent("status", "--config-file", proxied.config).code == 3
    proxy.hook = pass_on
    proxied.wait(proxied.is_ready)

    assert proxied.lines().count("degraded source=placement") == 1
    assert proxied.lines().count("recovered from=") == 1
    assert placement.providers() == stood


def test_a_server_that_asks_for_time_gets_it(proxied: Service, proxy: Proxy) -> None:
    """Although the service is told to make a pass each second."""
    asked: list[float] = []

    def put_off(request: Request, forward: Forward) -> Answer:
        asked.append(time.monotonic())
        return Answer(503, (("Retry-After", "4"),), b"") if len(asked) == 1 else forward(request)

    proxy.hook = put_off
    proxied.wait(lambda: len(asked) > 1 and proxied.is_ready())

    assert asked[1] - asked[0] >= 4


def test_libvirtd_that_dies_leaves_the_tree_and_its_successor_is_found(
    placement_server: PlacementServer, placement: ByHand, tmp_path: Path
) -> None:
    """Dead for some seconds, then another one: told once, nothing written, and events are heard again."""
    with bed.serving(tmp_path / "host", QUEENS_FIRST) as host, host.doorway(placement_server.url) as url:
        conf = made_up(
            tmp_path, noauth(url), interval=60, expect_timeout=0
        ) | {  # whatever is quicker was asked for by an event
            "DEFAULT": {},
            "libvirt": {"connection_uri": host.libvirtd.uri, "virt_type": "qemu"},
            "pci": {"discover": "all"},
        }
        with serving(tmp_path, conf, host=host) as service:
            service.wait(lambda: service.passes() >= 1, 60)
            stood = placement.providers()
            os.kill(host.libvirtd.pid, signal.SIGKILL)
            service.wait(lambda: not service.is_ready())
            time.sleep(3)
            during = service.status()
            again = host.restart_libvirtd()
            try:
                seconds = service.wait(service.is_ready, 60)
                print(f"\nlibvirtd is back: recovered after {seconds:.1f} s")
                assert service.lines().count("degraded source=host") <= 2  # it answers otherwise while it ends
                assert service.lines().count("recovered from=") == 1
                assert during["sources"]["host"]["ok_s"] is not None
                assert during["sources"]["placement"]["error"] == ""
                assert placement.providers() == stood
                first, other = (f"{QUEENS_FIRST.name}_{nic.address}" for nic in QUEENS_FIRST.nics)
                card = stood[first]["uuid"]
                _, gone = host.files.set_vfs(QUEENS_FIRST.nics[0], 5)
                host.announce("remove", gone)
                service.wait(lambda: placement.stock(card)["SRIOV_NET_VF"]["total"] == 5)

                host.announce("remove", host.files.remove_nic(QUEENS_FIRST.nics[1]))
                service.wait(lambda: other not in placement.providers())  # more than the limit at once
                assert "would shrink" not in service.lines()
            finally:
                end(again)


def test_guests_that_end_do_not_make_a_loss_that_nobody_announced_believed_sooner(
    placement_server: PlacementServer, placement: ByHand, tmp_path: Path
) -> None:
    """A tap interface goes three times a second while a look lacks a card: that takes three regular passes still."""
    nic, period_s = QUEENS_FIRST.nics[1], 4
    with bed.serving(tmp_path / "host", QUEENS_FIRST) as host, host.doorway(placement_server.url) as url:
        conf = made_up(tmp_path, noauth(url), interval=period_s, expect_timeout=0) | {
            "DEFAULT": {},
            "libvirt": {"connection_uri": host.libvirtd.uri, "virt_type": "qemu"},
            "pci": {"discover": "all"},
        }
        with serving(tmp_path, conf, host=host) as service:
            service.wait(lambda: service.passes() >= 1, 60)
            host.files.remove_nic(nic)
            again = host.restart_libvirtd()
            try:
                service.wait(lambda: "unsafe" in service.status()["outcomes"].values(), 60)
                began, passes = time.monotonic(), service.passes()
                tap = host.files.root / "sys/devices/virtual/net/vnet0"
                while f"{QUEENS_FIRST.name}_{nic.address}" in placement.providers():
                    host.announce("remove", [tap])
                    time.sleep(0.3)
                    assert time.monotonic() - began < 60
                seconds, looks = time.monotonic() - began, service.passes() - passes
            finally:
                end(again)

    assert looks > 5  # each event asked for a look
    # Three regular passes are two gaps of half a period at least, as the first may come late: libvirtd was away. The
    # first was noticed a moment later. Looks after events alone would be done within a second.
    assert seconds > 0.75 * period_s


def test_a_service_whose_libvirtd_hangs_hears_what_it_is_told(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    """To read its configuration anew, and in the middle of a call that hangs to end."""
    with libvirtd.serving(tmp_path / "libvirtd") as hypervisor:
        conf = made_up(tmp_path, noauth(placement_server.url)) | {
            "DEFAULT": {"state_path": tmp_path, "instances_path": tmp_path},
            "libvirt": {"connection_uri": hypervisor.uri, "virt_type": "qemu"},
        }
        with serving(tmp_path, conf) as service:
            service.wait(lambda: service.passes() >= 1, 60)
            os.kill(hypervisor.pid, signal.SIGSTOP)
            try:
                service.process.send_signal(signal.SIGHUP)
                service.wait(lambda: service.told.count("READY=1") == 2, 40)
            finally:
                os.kill(hypervisor.pid, signal.SIGCONT)
            service.wait(service.is_ready, 40)
            assert service.lines().count("degraded source=host") <= 1
            passes = service.passes()
            service.wait(lambda: service.passes() > passes)
            os.kill(hypervisor.pid, signal.SIGSTOP)
            try:
                time.sleep(2)  # a pass each second: the next one hangs in libvirt by now
                began = time.monotonic()
                service.process.terminate()
                assert service.process.wait(PATIENCE_S) == 1
                assert time.monotonic() - began < 18  # the call itself goes on for 20
            finally:
                os.kill(hypervisor.pid, signal.SIGCONT)


def test_a_password_that_was_changed_is_taken_by_sighup(cloud: Cloud, tmp_path: Path) -> None:
    """Keystone refuses the old one at once, and its tokens too; nothing that placement has is touched meanwhile."""
    with renamed_password(cloud) as change:
        conf = made_up(tmp_path, login(cloud))
        with serving(tmp_path, conf) as service:
            service.wait(lambda: service.passes() >= 1)
            change("another-password")
            service.wait(lambda: not service.is_ready(), 30)
            assert "check user, password" in service.status()["sentence"]

            # Keystone counts in whole seconds: what it issues in the second of the change, it revokes with the rest.
            time.sleep(1.1)
            service.configure(conf | {"placement": login(cloud) | {"password": "another-password"}})
            service.process.send_signal(signal.SIGHUP)
            seconds = service.wait(service.is_ready)
            print(f"\nthe new password: recovered after {seconds:.1f} s")
            assert service.lines().count("degraded source=placement") == 1
            assert service.lines().count("recovered from=") == 1


def test_a_service_that_is_restarted_goes_on_with_its_token(cloud: Cloud, tmp_path: Path) -> None:
    """A fleet that is restarted would else log in all at once, which takes Keystone a quarter of a second for each."""

    def logins() -> int:
        return cloud.keystone.log.read_text(encoding="utf-8", errors="replace").count("POST /v3/auth/tokens")

    (runtime := tmp_path / "runtime").mkdir()
    environment = {"RUNTIME_DIRECTORY": str(runtime)}
    with serving(tmp_path, made_up(tmp_path, login(cloud)), environment=environment) as service:
        service.wait(lambda: service.passes() >= 1)
    kept, before = (runtime / "placement-token.json").stat(), logins()
    with serving(tmp_path, made_up(tmp_path, login(cloud)), environment=environment) as service:
        service.wait(lambda: service.passes() >= 2 and service.is_ready())

    assert before > 0
    assert logins() == before
    assert (kept.st_mode & 0o777, [one.name for one in runtime.iterdir()]) == (0o600, ["placement-token.json"])


@contextmanager
def renamed_password(cloud: Cloud) -> Iterator[Callable[[str], None]]:
    """Changes the agent's password; in the end it is the old one again."""
    with logged_in(cloud.keystone, ADMIN) as session:
        keystone = Adapter(session, endpoint_override=cloud.keystone.url)
        (user,) = keystone.get(f"/users?name={AGENT.username}").json()["users"]

        def change(password: str) -> None:
            keystone.patch(f"/users/{user['id']}", json={"user": {"password": password}})

        try:
            yield change
        finally:
            change(AGENT.password)


def login(cloud: Cloud) -> dict[str, object]:
    return cloud.login | {"endpoint_override": cloud.placement.url}


def test_a_configuration_that_is_wrong_when_it_is_read_anew_leaves_the_old_one(service: Service) -> None:
    service.config.write_text("[compute]\nlayout = square\n", encoding="utf-8")
    service.process.send_signal(signal.SIGHUP)
    service.wait(lambda: "the old one stays" in service.lines())
    service.wait_for_passes(1)
    assert service.lines().count("layout is not valid") == 1
    assert "read again\n" not in service.lines()
    assert "degraded: the old one stays" in service.status()["sentence"]
    assert not service.is_ready()


def test_what_a_running_service_cannot_change_is_said_when_it_is_read_anew(
    service: Service, conf: Groups, tmp_path: Path
) -> None:
    conf["agent"]["state_directory"] = tmp_path / "elsewhere"
    service.configure(conf)
    service.process.send_signal(signal.SIGHUP)
    service.wait(lambda: "has changed: restart" in service.lines())
    service.wait_for_passes(1)
    assert not (tmp_path / "elsewhere").exists()


def test_a_clock_that_is_set_keeps_nobody_waiting(conf: Groups, tmp_path: Path) -> None:
    """keystoneauth, for one, waits for the wall clock. And a group that is not read is told once, at the start."""
    clock = tmp_path / "clock"
    clock.write_text("0", encoding="utf-8")
    with serving(tmp_path, conf | {"agnet": {"interval": 5}}, environment=a_clock_to_set(tmp_path, clock)) as service:
        service.wait(lambda: service.passes() >= 1)
        for seconds in (-7200, 7200, 0):
            clock.write_text(str(seconds), encoding="utf-8")
            service.wait_for_passes(2)
        assert service.is_ready()
        assert service.lines().count("the group [agnet] is not read: is [agent] meant?") == 1


def test_a_log_that_was_rotated_is_opened_anew_by_sighup(conf: Groups, tmp_path: Path) -> None:
    log, rotated = tmp_path / "agent.log", tmp_path / "agent.log.1"
    conf["DEFAULT"] |= {"log_file": log, "use_stderr": False}
    with serving(tmp_path, conf) as service:
        service.wait(lambda: service.passes() >= 2)
        descriptors = service.descriptors()
        log.rename(rotated)
        for _ in range(3):
            service.told.clear()
            service.process.send_signal(signal.SIGHUP)
            service.wait(lambda: "READY=1" in service.told)
        service.wait(lambda: "configuration read again" in log.read_text(encoding="utf-8"))
        service.wait_for_passes(2)

        assert "configuration read again" not in rotated.read_text(encoding="utf-8")
        service.wait(lambda: service.descriptors() <= descriptors)  # it may be in the middle of a pass


def test_a_log_of_novas_that_it_may_not_write_keeps_no_service_from_starting(conf: Groups, tmp_path: Path) -> None:
    """As packages of nova and kolla have it in nova.conf; the unit's sandbox may write nothing there."""
    conf["DEFAULT"] |= {"log_dir": tmp_path / "nova", "use_stderr": False}
    with serving(tmp_path, conf) as service:
        service.wait(lambda: service.passes() >= 2)
        assert service.lines().count("the log goes to standard error, as it cannot go where [DEFAULT] says") == 1
        (tmp_path / "nova").mkdir()
        service.told.clear()
        service.process.send_signal(signal.SIGHUP)
        service.wait(lambda: "READY=1" in service.told)
        service.wait((tmp_path / "nova/compute-node-agent.log").exists)


@pytest.mark.parametrize(("option", "value"), [("use_journal", "true"), ("log_config_append", "/nowhere/logging.conf")])
def test_neither_does_another_place_that_is_not_there(conf: Groups, tmp_path: Path, option: str, value: str) -> None:
    conf["DEFAULT"] |= {option: value}
    with serving(tmp_path, conf) as service:
        service.wait(lambda: service.passes() >= 1)
        assert service.lines().count("the log goes to standard error, as it cannot go where [DEFAULT] says") == 1


def test_a_full_disk_is_told_once_and_loses_nothing(
    placement_server: PlacementServer, placement: ByHand, tmp_path: Path
) -> None:
    with mounted(tmp_path / "small", "size=256k") as state:
        conf = made_up(tmp_path, noauth(placement_server.url), state_directory=state)
        with serving(tmp_path, conf, state=state) as service:
            service.wait(lambda: service.passes() >= 2)
            stood = placement.providers()
            filler = state / "filler"
            subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=4k"], check=False, capture_output=True)
            service.wait(lambda: "cannot write" in service.lines())
            time.sleep(3)
            assert service.lines().count("No space left") <= 2  # the status, and the audit's memory
            filler.unlink()
            service.wait(service.is_ready)
            service.wait_for_passes(2)

            assert placement.providers() == stood
            assert "Traceback" not in service.lines()


def test_an_answer_that_is_none_of_keystones_ends_nothing(tmp_path: Path) -> None:
    def nonsense(_request: Request, _forward: Forward) -> Answer:
        return Answer(201, (("X-Subject-Token", "t"), ("Content-Type", "application/json")), b'{"token": 5}')

    with Proxy("http://127.0.0.1:1", hook=nonsense) as proxy:
        login = {"auth_type": "v3password", "auth_url": f"{proxy.url}/v3", "username": "u", "password": "p"}
        login["user_domain_id"] = "default"
        with serving(tmp_path, made_up(tmp_path, login)) as service:
            service.wait(lambda: "Keystone's form" in service.status()["sentence"])
            time.sleep(2)
            assert service.process.poll() is None
            assert service.lines().count("degraded") == 1


def test_a_second_service_with_the_same_folder_is_refused_and_commands_never_write_at_once(service: Service) -> None:
    done = run_agent("run", "--config-file", service.config)
    results = [run_agent("sync", "--config-file", service.config, "--format", "json") for _ in range(3)]

    assert done.code == 1
    assert "the service runs already" in done.err.splitlines()[-1]
    assert [(one.code, one.json["outcome"]) for one in results] == [(0, "unchanged")] * 3
    service.wait_for_passes(1)


def test_health_and_metrics_are_served_on_loopback(placement_server: PlacementServer, tmp_path: Path) -> None:
    port = free_port()
    kind = tmp_path / "small"
    kind.write_text("resources=VCPU:1,MEMORY_MB:512", encoding="utf-8")
    with (
        Proxy(placement_server.url) as proxy,
        serving(
            tmp_path,
            made_up(tmp_path, noauth(proxy.url), metrics_port=port) | {"metrics": {"slots": f"small:{kind}"}},
        ) as service,
        requests.Session() as http,
    ):
        http.trust_env = False
        service.wait(lambda: service.passes() >= 2)
        base = f"http://127.0.0.1:{port}"
        paths = ("healthz", "readyz", "nosuch")
        assert [http.get(f"{base}/{path}").status_code for path in paths] == [200, 200, 404]
        text = http.get(f"{base}/metrics").text
        assert 'compute_node_agent_passes_total{outcome="changed"} 1.0' in text
        assert 'compute_node_agent_placement_requests_total{code="200",method="GET"}' in text
        assert re.search(r'openstack_placement_resource_total{hostname="\S+",resourcetype="VCPU"} [1-9]', text)
        assert re.search(r'openstack_placement_resource_usage{hostname="\S+",resourcetype="VCPU"} 0.0', text)
        assert re.search(r'compute_node_agent_slots{name="small"} [1-9]', text)
        proxy.hook = lambda request, forward: Answer(503, (), b"")
        with socket.create_connection(("127.0.0.1", port)):  # who asks nothing keeps nobody waiting
            service.wait(lambda: http.get(f"{base}/readyz", timeout=20).status_code == 503)
        assert http.get(f"{base}/healthz").status_code == 200


def test_metrics_are_served_at_another_address_and_a_refused_pass_closes_no_gate(
    placement_server: PlacementServer, tmp_path: Path
) -> None:
    """It would take away most of the CPUs, though all sources serve."""
    port = free_port()
    groups = made_up(tmp_path, noauth(placement_server.url), metrics_port=port, bind_address="::1", interval=60)
    assert run_agent("sync", "--config-file", write_config(groups, tmp_path / "before.conf")).code == 0
    groups["compute"] = {"cpu_shared_set": "0"}
    with serving(tmp_path, groups) as service, requests.Session() as http:
        http.trust_env = False
        service.wait(lambda: service.passes() >= 1)
        base = f"http://[::1]:{port}"
        assert http.get(f"{base}/readyz").status_code == 200
        assert f"{base}/metrics" in service.lines()


def test_check_finds_what_the_service_would_not_start_with(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("heal: [everything]", encoding="utf-8")
    config = write_config(made_up(tmp_path, {}, heal_policy=policy), tmp_path / "agent.conf")

    done = run_agent("check", "--embedded", "--embedded-dir", tmp_path, "--config-file", config, "--format", "json")

    (service,) = (one for one in done.json["checks"] if one["check"] == "service")
    assert (done.code, service["ok"]) == (3, False), service
    assert str(policy) in service["detail"]


def test_what_root_leaves_in_the_services_folder_is_its_users(conf: Groups, tmp_path: Path) -> None:
    """A command by hand, before the service or beside it."""
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, 65534, 65534)
    for part in state.parents:  # as /var/lib: other users may pass
        part.chmod(part.stat().st_mode | 0o011)
    config = write_config(conf, tmp_path / "agent.conf")

    assert run_agent("sync", "--config-file", config).code == 0

    assert {path.stat().st_uid for path in state.rglob("*")} == {65534}


@pytest.mark.parametrize("kind", ["password", "application credential", "password from systemd", "password in a URL"])
def test_no_secret_is_told_at_any_level(kind: str, cloud: Cloud, tmp_path: Path) -> None:
    """No password, no application credential, no token: not in log, metrics, health, status or what systemd is told."""
    secret, conf, more = AGENT.password, login(cloud), dict[str, str]()
    if kind == "application credential":
        credential = create_application_credential(cloud.keystone)
        secret = credential.secret
        conf = {
            "auth_type": "v3applicationcredential",
            "auth_url": cloud.keystone.url,
            "application_credential_id": credential.id,
            "application_credential_secret": secret,
            "cafile": str(cloud.keystone.cafile),
            "endpoint_override": cloud.placement.url,
        }
    elif kind == "password from systemd":
        (tmp_path / "credentials").mkdir()
        (tmp_path / "credentials/placement-password").write_text(secret, encoding="utf-8")
        del conf["password"]
        more = {"CREDENTIALS_DIRECTORY": str(tmp_path / "credentials")}
    elif kind == "password in a URL":
        secret = "url-password"
        conf = {"auth_type": "none", "endpoint": f"http://user:{secret}@127.0.0.1:{free_port()}"}
    port = free_port()
    all_of_it = made_up(tmp_path, conf, metrics_port=port)
    all_of_it["DEFAULT"]["default_log_levels"] = "keystoneauth=DEBUG,urllib3=DEBUG,requests=DEBUG,stevedore=DEBUG"
    with (
        serving(tmp_path, all_of_it, "-v", "-v", environment=more) as service,
        requests.Session() as http,
    ):
        http.trust_env = False
        told = "degraded" if kind == "password in a URL" else "up to date"
        service.wait(lambda: service.status()["sentence"].startswith(told))
        answers = [http.get(f"http://127.0.0.1:{port}/{path}").text for path in ("metrics", "healthz", "readyz")]
        status = json.dumps(service.status())
        shown = run_agent("status", "--config-file", service.config)
    assert "DEBUG keystoneauth" in service.lines()
    for text in (service.lines(), *answers, status, shown.out, shown.err, *service.told):
        assert secret not in text
        assert "gAAAA" not in text  # how Keystone's tokens begin


@pytest.mark.parametrize("kills", [int(os.environ.get("KILLS", "5"))])
def test_it_recovers_from_a_kill_at_any_moment(kills: int, conf: Groups, placement: ByHand, tmp_path: Path) -> None:
    """By hand ``KILLS=500`` (make soak): each first pass writes there and here, and nothing is lost on either side."""
    chance = random.Random(os.environ.get("SOAK_SEED", "20261121"))
    with serving(tmp_path, conf) as service:
        service.wait(lambda: service.passes() >= 1)
    (provider,) = placement.providers().values()
    path = f"/resource_providers/{provider['uuid']}/allocations"
    placement.allocate(provider["uuid"], "VCPU", 1)
    held = placement.send("GET", path)["allocations"]
    begun = 0
    for number in range(kills):
        conf["DEFAULT"]["cpu_allocation_ratio"] = number % 7 + 1
        with serving(tmp_path, conf) as service:
            service.wait(lambda: "READY=1" in service.told)
            time.sleep(chance.uniform(0, 0.25))
            begun += service.status()["pid"] == service.process.pid
            service.process.kill()
            service.process.wait()
    with serving(tmp_path, conf) as service:
        service.wait(lambda: service.status()["pid"] == service.process.pid and service.is_ready())
    print(f"\n{kills} kills, {begun} of them after the first pass")
    assert "is not valid" not in service.lines()
    assert "Traceback" not in service.lines()
    (after,) = placement.providers().values()
    assert after["uuid"] == provider["uuid"]
    inventories = placement.stock(provider["uuid"])
    assert inventories.keys() == {"VCPU", "MEMORY_MB", "DISK_GB"}
    assert inventories["VCPU"]["allocation_ratio"] == (kills - 1) % 7 + 1
    assert placement.send("GET", path)["allocations"] == held
