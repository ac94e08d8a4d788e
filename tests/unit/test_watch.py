"""Events become looks: gathered while they come close to each other, and never waited for too long."""

import threading
import time

from agent.command.watch import Ticks
from agent.service import events as batches
from drivers.events import Event

ADD, REMOVE = Event("udev", "add pci 0000:81:10.0"), Event("libvirt", "node device pci_0000_81_10_0 deleted")


def test_the_first_look_comes_at_once_and_without_an_event() -> None:
    assert Ticks().next()[0] == ()


def test_events_that_come_close_to_each_other_are_one_batch_timed_from_the_first() -> None:
    wake_ups = Ticks()
    wake_ups.next()
    before = time.monotonic()
    wake_ups.wake(ADD)
    wake_ups.wake(REMOVE)
    time.sleep(0.05)

    batch, since = wake_ups.next()

    assert batch == (ADD, REMOVE)
    assert before <= since <= before + 0.04  # when it came, not when it was taken


def test_a_flood_does_not_keep_us_from_looking() -> None:
    wake_ups = Ticks()
    wake_ups.next()
    over = threading.Event()

    def flood() -> None:
        while not over.wait(batches.QUIET_S / 4):
            wake_ups.wake(ADD)

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        batch, _ = wake_ups.next()
    finally:
        over.set()
        thread.join()

    assert len(batch) > 1


def test_a_look_can_be_asked_for_again() -> None:
    wake_ups = Ticks()
    wake_ups.next()
    wake_ups.again(0.01)

    assert wake_ups.next()[0] == ()
