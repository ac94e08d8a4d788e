"""The synthetic hosts as fixtures, each started once for all tests that use it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from beds.synthetic import bed
from beds.synthetic.bed import Host
from beds.synthetic.model import Machine

Start = Callable[[Machine], Host]


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """
    Starts a synthetic host, or answers the one that runs already: ``synthetic(FOUR_CELLS)``.

    Tests share it, so each leaves it as it was.
    """
    running: dict[str, Host] = {}
    with ExitStack() as stack:

        def start(machine: Machine) -> Host:
            if machine.name not in running:
                directory = tmp_path_factory.mktemp(machine.name)
                running[machine.name] = stack.enter_context(bed.serving(directory, machine))
            return running[machine.name]

        yield start
