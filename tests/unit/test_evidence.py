"""What shows that a guest has something of the host, in words that a person can check."""

from drivers.libvirt.holdings import of_devices


def test_a_mediated_device_is_named_with_its_card() -> None:
    mdev = "4b20d080-1b54-4048-85b3-a6a62d165c01"

    assert of_devices([mdev], {mdev: "0000:86:00.0"}) == "has mdev 4b20d080… on 0000:86:00.0"


def test_of_many_devices_three_are_named() -> None:
    addresses = [f"0000:81:10.{number}" for number in range(5)]

    assert of_devices(addresses, {}) == "has 0000:81:10.0, 0000:81:10.1, 0000:81:10.2 and 2 more"
