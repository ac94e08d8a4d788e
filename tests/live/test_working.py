"""On a terminal a command shows that it works; in a pipe nothing is shown."""

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from beds.agents import COMMAND
from beds.golden import HOSTS
from beds.placement import PlacementServer
from beds.proxy import Proxy, slowly

pytestmark = pytest.mark.live


def on_a_terminal(*command: object) -> str:
    """What a command writes to a terminal that is its standard error."""
    near, far = pty.openpty()
    running = subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL, stderr=far)
    os.close(far)
    seen = b""
    while True:
        try:
            found = os.read(near, 65536)
        except OSError:  # the other side is closed
            break
        seen += found
    running.wait()
    os.close(near)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())


def test_what_was_done_last_is_shown(placement_server: PlacementServer, tmp_path: Path) -> None:
    host = HOSTS / "four-cells"
    config = tmp_path / "agent.conf"
    with Proxy(placement_server.url, hook=slowly(0.3)) as proxy:
        config.write_text(
            f"[placement]\nauth_type = none\nendpoint = {proxy.url}\n[agent]\nstate_directory = {tmp_path}/state\n"
        )
        files = ("--config-file", host / "agent.conf", "--config-file", config)

        seen = on_a_terminal(COMMAND, "sync", "--host", host / "archive", *files)

    shown = [one.strip() for one in seen.split("\r")]
    assert shown[0] == "sync is under way"
    assert any(one.startswith("created provider name=") for one in shown), seen[-2000:]
    assert not shown[-1]
