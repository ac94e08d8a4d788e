"""Unit tests are the same on each machine, also on one with a nova-compute."""

import pytest

from agent.sync.decide.owner import NOVA_COMPUTE
from drivers.host import services


@pytest.fixture(autouse=True)
def _no_nova_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    look = services._processes
    monkeypatch.setattr(services, "_processes", lambda name: ((), False) if name == NOVA_COMPUTE else look(name))
