"""Events become looks: gathered while they come close to each other, and never waited for too long."""

import threading

import pytest

from agent.service import pace as batches
from beds.one_host import default_settings
from drivers.base import Event
from drivers.libvirt.library import device_event

ADD, REMOVE = Event("udev", "add pci 0000:81:10.0"), device_event("pci_0000_81_10_0", 1)


def test_events_that_come_close_to_each_other_are_one_batch_which_an_interruption_ends() -> None:
    wake_ups = batches.WakeUps()
    for event in (ADD, REMOVE):
        wake_ups.wake(event)
    wake_ups.interrupt()
    wake_ups.wake(REMOVE)

    assert [wake_ups.wait(seconds) for seconds in (1, 0, 0)] == [(ADD, REMOVE), (REMOVE,), ()]


def test_a_flood_does_not_keep_us_from_looking() -> None:
    wake_ups = batches.WakeUps()
    over = threading.Event()

    def flood() -> None:
        while not over.wait(batches.QUIET_S / 4):
            wake_ups.wake(ADD)

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        batch = wake_ups.wait(1)
    finally:
        over.set()
        thread.join()

    assert len(batch) > 1


@pytest.mark.parametrize(
    ("event", "announces"),
    [
        pytest.param(device_event("pci_0000_81_10_0", 1), True, id="a VF that is reported"),
        pytest.param(Event("udev", "remove pci 0000:81:10.0", "0000:81:10.0"), True, id="the same, by the kernel"),
        pytest.param(Event("udev", "remove cpu cpu3", "cpu3"), True, id="a CPU"),
        pytest.param(device_event("pci_0000_81_10_0", 0), False, id="a VF that comes"),
        pytest.param(device_event("pci_0000_99_00_0", 1), False, id="a card that nobody reports"),
        pytest.param(device_event("net_vnet0_fe_54_00_11_22_33", 1), False, id="a guest's tap interface"),
        pytest.param(Event("udev", "remove net vnet0"), False, id="the same, by the kernel's word"),
        pytest.param(Event("udev", "remove pci 0000:81:10.0"), False, id="words are for people"),
    ],
)
def test_a_loss_is_announced_by_hardware_that_is_reported(event: Event, announces: bool) -> None:
    pace = batches.Pace(default_settings())
    pace.done(frozenset({"0000:81:10.0", "0000:81:00.0"}), refused=False)
    pace.notice([event])
    assert pace.looks_again is announces
