"""libvirt's events in words, and what of them tells that hardware is gone."""

import pytest

from drivers.base import Event
from drivers.libvirt.library import device_event


@pytest.mark.parametrize(
    ("name", "kind", "event"),
    [
        pytest.param("pci_0000_81_10_0", 0, Event("libvirt", "node device pci_0000_81_10_0 created"), id="came"),
        pytest.param(
            "pci_0000_81_10_0",
            1,
            Event("libvirt", "node device pci_0000_81_10_0 deleted", "0000:81:10.0"),
            id="a PCI function is gone",
        ),
        pytest.param("net_eth0", 1, Event("libvirt", "node device net_eth0 deleted"), id="gone, and no PCI function"),
        pytest.param("net_eth0", 9, Event("libvirt", "node device net_eth0 event 9"), id="an event of tomorrow"),
    ],
)
def test_an_event_of_a_device_tells_the_address_of_a_function_that_is_gone(name: str, kind: int, event: Event) -> None:
    assert device_event(name, kind) == event
