"""Fixtures that every kind of test shares; the services themselves are in ``beds``."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from agent.settings import read
from agent.sync.decide.owner import NOVA_COMPUTE
from drivers.host import services

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])  # how busy are we?
settings.register_profile("soak", max_examples=20_000, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("default")

read.DEFAULT_FILE = Path("/dev/null/none")  # what this machine's own agent is told does not count in a test

pytest_plugins = ["beds.fixtures", "beds.agents", "beds.synthetic.fixtures"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write expected trees, and record the synthetic hosts anew, instead of comparing; review the diff",
    )


@pytest.fixture(autouse=True)
def _no_nova_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs in this process sees no nova-compute of this machine; ``tools/test.py`` hides it from the commands."""
    look = services._processes
    monkeypatch.setattr(services, "_processes", lambda name: ((), False) if name == NOVA_COMPUTE else look(name))
