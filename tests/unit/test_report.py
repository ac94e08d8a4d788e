"""The report that the service prints for support: all that helps, and no secret."""

import threading
from pathlib import Path

from agent.connect.choice import Choice, settings_for
from agent.service.report import service_report
from agent.service.status import ServiceProcess, ServiceStatus

SECRETS = ("s3cret-password", "s3cret-in-url", "s3cret-of-nova", "s3cret-of-redis")


def report(tmp_path: Path) -> str:
    path = tmp_path / "agent.conf"
    path.write_text(
        "[compute]\nlayout = numa\n[libvirt]\nconnection_uri = qemu+tcp://admin:s3cret-in-url@host/system\n"
        "[placement]\nauth_type = password\nauth_url = http://k/v3\nusername = agent\npassword = s3cret-password\n"
        "[nova]\nauth_type = password\nauth_url = http://k/v3\nusername = agent\npassword = s3cret-of-nova\n"
        "[ironic]\nauth_type = password\nauth_url = http://k/v3\nusername = agent\npassword = s3cret-of-redis\n",
        encoding="utf-8",
    )
    status = ServiceStatus(process=ServiceProcess("9.8", 7, 0.0), passes=3, outcomes={"host": "unchanged"})
    return service_report(status, ("12:00 unchanged in 0.1 s",), settings_for(Choice(config_files=(path,))))


def test_it_has_the_status_the_passes_each_thread_by_name_and_the_options(tmp_path: Path) -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, name="a-worker")
    thread.start()
    try:
        text = report(tmp_path)
    finally:
        ended.set()
        thread.join()

    assert text.startswith("=")
    assert "Report of compute-node-agent 9.8" in text
    for part in ("passes = 3", "12:00 unchanged in 0.1 s", "a-worker", "MainThread", "layout = numa"):
        assert part in text, part


def test_it_has_no_secret_wherever_the_configuration_keeps_one(tmp_path: Path) -> None:
    text = report(tmp_path)

    assert not [secret for secret in SECRETS if secret in text]
    assert "password = ***" in text
    assert "username = agent" in text
