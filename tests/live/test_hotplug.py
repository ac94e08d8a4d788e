"""Hot-plug under the service: what the kernel announces is in placement before anybody could ask for it."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from beds.placement import PlacementServer
from beds.synthetic.bed import Host
from beds.synthetic.hosts import FOUR_CELLS
from beds.synthetic.model import Machine, Nic
from beds.synthetic.plugging import Plugging

pytestmark = pytest.mark.live

Start = Callable[[Machine], Host]
Write = Callable[..., Path]
NEW = Nic(address="0000:41:00.0", cell=1, name="ens9", vfs=8)


@pytest.fixture
def host(synthetic: Start) -> Host:
    return synthetic(FOUR_CELLS)


def test_a_card_its_vfs_and_a_vgpu_come_and_go_and_placement_follows(
    host: Host, placement_server: PlacementServer, tmp_path: Path
) -> None:
    with Plugging(host, placement_server.url, tmp_path) as plugging:
        rounds = [plugging.round() for _ in range(2)]

    assert all(len(seconds) == 7 for seconds in rounds)  # how long each took is for the bench to say


def test_a_look_in_the_middle_of_a_storm_is_whole_or_none(host: Host, write_config: Write) -> None:
    """VFs come and go while the host is read: what did not change is in every answer, whatever else is."""
    config = write_config(libvirt={"connection_uri": host.libvirtd.uri, "virt_type": "qemu"}, pci={"discover": "all"})
    options = ("--config-file", config, "--format", "json")
    quiet = host.run("discover", *options).json["providers"]
    over = threading.Event()

    def plug() -> None:
        while not over.is_set():
            host.announce("add", host.files.add_nic(NEW))
            host.announce("remove", host.files.remove_nic(NEW))

    storm = threading.Thread(target=plug)
    storm.start()
    try:
        looks = [host.run("discover", *options) for _ in range(6)]
    finally:
        over.set()
        storm.join()

    answers = [look.json["providers"] for look in looks if look.code == 0]
    assert answers
    for answer in answers:
        assert {name: answer[name] for name in quiet} == quiet
    for look in looks:
        assert look.code == 0 or "while the host was read" in look.err, look.err
