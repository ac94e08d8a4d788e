"""A person holds a card, or the host, for a reason: also with a guest on it, and while libvirt is silent."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beds.by_hand import ByHand
from beds.guests import GuestSpec
from beds.placement import PlacementServer
from beds.service import noauth
from beds.synthetic.bed import Host
from beds.synthetic.hosts import FOUR_CELLS
from beds.synthetic.model import Machine

pytestmark = pytest.mark.live

CARD, NAME = "0000:81:00.0", "four-cells_0000:81:00.0"
WHY = ("--reason", "RMA 4711")


class Held:
    """A synthetic host whose command writes to a placement."""

    def __init__(self, host: Host, write: Callable[..., Path], url: str, folder: Path, **groups: Any) -> None:
        self.host, self.url = host, url
        own = {"state_directory": folder / "state"}
        self.live, self.silent = (
            write(
                placement=noauth(url),
                agent=own,
                pci={"discover": "all"},
                libvirt={"connection_uri": uri, "virt_type": "qemu"},
                **groups,
            ).rename(folder / f"{name}.conf")
            for name, uri in (
                ("live", host.libvirtd.uri),
                ("silent", f"qemu+unix:///system?socket={folder}/none"),
            )
        )

    def run(self, verb: str, *more: object, silent: bool = False) -> Any:
        return self.host.run(verb, *more, "--config-file", self.silent if silent else self.live, "--format", "json")

    def stands(self) -> dict[str, Any]:
        """The providers as placement has them, but for generations and what is used."""
        shown: dict[str, Any] = self.run("show").json["providers"]
        return {name: (one["inventories"], one["traits"]) for name, one in shown.items()}

    def stock(self) -> tuple[int, int]:
        held = self.run("show").json["providers"][NAME]["inventories"]["SRIOV_NET_VF"]
        return held["total"], held["reserved"]


@pytest.fixture
def held(
    synthetic: Callable[[Machine], Host],
    placement_server: PlacementServer,
    write_config: Callable[..., Path],
    tmp_path: Path,
) -> Any:
    host = synthetic(FOUR_CELLS)
    with host.doorway(placement_server.url) as url:
        found = Held(host, write_config, url, tmp_path)
        assert found.run("sync").code == 0
        yield found


def test_a_card_with_a_guest_is_held_and_given_back(held: Held, placement_server: PlacementServer) -> None:
    with held.host.running(GuestSpec(vfs=("0000:81:10.0",))) as guest:
        card = held.run("show").json["providers"][NAME]["uuid"]
        ByHand(placement_server.url).claim(guest, {card: {"SRIOV_NET_VF": 1}})
        before = held.stands()

        done = held.run("hold", CARD, *WHY, "--until", "7d")
        assert (done.code, done.json["held"], held.stock()) == (0, [CARD], (8, 7)), done.out + done.err
        assert held.run("sync").code == 0
        (told,) = held.run("hold").json["holds"]
        assert (told["what"], told["why"], bool(told["until"])) == (CARD, "RMA 4711", True)
        (said,) = (one for one in held.run("show").json["conditions"] if one["kind"] == "on-hold")
        assert f"{CARD} is held since" in said["text"]
        assert "RMA 4711" in said["text"]

        back = held.run("release-hold", CARD)
        assert (back.code, back.json["held"], held.stands()) == (0, [], before), back.out + back.err


def test_a_hold_until_a_time_that_no_trait_has_room_for_is_one_without_end(held: Held) -> None:
    before = held.stands()

    done = held.run("hold", CARD, *WHY, "--until", "2300-01-01T00:00")

    assert (done.code, held.stock()) == (0, (8, 8)), done.out + done.err
    (told,) = held.run("hold").json["holds"]
    assert told["until"] is None
    assert held.run("release-hold", CARD).code == 0
    assert held.stands() == before


def test_an_empty_name_is_a_wrong_use(held: Held) -> None:
    done = held.run("hold", "", *WHY)

    assert done.code == 2
    assert "it is empty: name a device by its address, or host" in done.err


@pytest.mark.parametrize("what", ["host", CARD])
def test_what_is_held_while_libvirt_is_silent_is_held_by_the_next_pass_too(held: Held, what: str) -> None:
    before = held.stands()

    done = held.run("hold", what, *WHY, silent=True)

    assert (done.code, done.json["done"], held.stock()) == (0, True, (8, 8)), done.out + done.err
    during = held.stands()
    assert ("COMPUTE_STATUS_DISABLED" in during["four-cells"][1]) == (what == "host")
    assert (held.run("plan").code, held.run("sync").code, held.stands()) == (0, 0, during)
    assert "RMA 4711" in held.run("show").out
    again = held.run("release-hold", what, silent=True)
    assert again.code == 1
    assert "nothing is given back" in again.err

    assert held.run("release-hold", what).code == 0
    assert held.stands() == before


def test_a_device_that_placement_does_not_tell_apart_is_not_held_unseen(held: Held) -> None:
    done = held.run("hold", "0000:99:00.0", *WHY, silent=True)

    assert done.code == 1
    assert "placement has no provider of 0000:99:00.0" in done.err
