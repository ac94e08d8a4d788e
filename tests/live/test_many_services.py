"""The bed of the soak tests: services in a few processes, which report to a real placement and leave nothing."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from beds.fleet import Fleet
from beds.placement import PlacementServer
from beds.process import BedError
from beds.services import NAME, TOGETHER
from beds.spent import spent

pytestmark = pytest.mark.live
COUNT = 2 * TOGETHER
PATIENCE_S = 300  # the services take what no other process wants, and other tests want much


@pytest.fixture
def fleet(tmp_path: Path, placement_server: PlacementServer) -> Iterator[Fleet]:
    with Fleet(tmp_path / "fleet", placement_server.url, COUNT, interval_s=5, start_spread_s=1) as fleet:
        yield fleet


def processes() -> list[psutil.Process]:
    return [one for one in psutil.Process().children(recursive=True) if one.name() == NAME]


def test_services_report_and_leave_no_process(fleet: Fleet) -> None:
    fleet.prepare()
    before = spent()
    fleet.start()

    assert fleet.wait_until_ready(PATIENCE_S) > 0
    assert fleet.passes() >= COUNT
    assert fleet.outcomes().total() == COUNT
    assert (spent() - before).services_s > 0
    assert len(processes()) == 1 + COUNT // TOGETHER
    fleet.stop()
    assert not processes()


def test_services_that_never_started_are_stopped(fleet: Fleet) -> None:
    fleet.prepare()
    fleet.stop()

    assert not processes()
    assert fleet.folder.joinpath("services.log").read_text(encoding="utf-8") == ""


def test_services_that_died_are_told(fleet: Fleet) -> None:
    fleet.start()
    for process in processes():
        process.kill()

    with pytest.raises(BedError, match="services"):
        fleet.stop()
