"""A service that is told to stop, and whose pass does not end."""

import signal
import subprocess
import sys
import time

HANGING = """
import time
from agent.service import loop
loop.STOPPING_S = 1
with loop.handled(lambda: None, lambda: None):
    print("ready", flush=True)
    time.sleep(60)
"""


def test_who_says_it_again_and_again_does_not_put_off_the_end() -> None:
    """A supervisor that repeats SIGTERM, or a person at a terminal with ^C."""
    with subprocess.Popen(
        [sys.executable, "-c", HANGING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as service:
        assert service.stdout
        assert service.stdout.readline() == "ready\n"
        began = time.monotonic()
        while service.poll() is None and time.monotonic() < began + 10:
            service.send_signal(signal.SIGTERM)
            time.sleep(0.3)
        service.kill()

    assert service.returncode == 1
    assert time.monotonic() - began < 8
