"""``--fit``: what a guest has already counts as what the operation makes of it, and what others have always does."""

import json
from pathlib import Path
from typing import Any

import pytest

from beds.agents import Result
from beds.placement import PlacementServer
from beds.trees import add_consumer, identity
from beds.upgrades import Upgrade, recorded_host

pytestmark = pytest.mark.live

ROOT = "four-cells"  # 262144 MiB, of which 512 are reserved
LARGE, LARGER, TOO_LARGE = 200_000, 220_000, 262_144


@pytest.fixture
def lab(placement_server: PlacementServer, tmp_path: Path) -> Upgrade:
    """A host with one guest that has most of the memory, really and in placement."""
    return recorded_host(
        placement_server.url,
        tmp_path,
        guests={"guest": {"memory_mib": LARGE}},
        consumers={"guest": {ROOT: {"VCPU": 1, "MEMORY_MB": LARGE}}},
        compute={"layout": "flat"},
    )


def ask(lab: Upgrade, folder: Path, verb: str, *more: object, memory_mb: int, **others: int) -> Result:
    resources = {"MEMORY_MB": memory_mb, **others}
    path = folder / "request.json"
    path.write_text(json.dumps({"allocations": {identity(ROOT): {"resources": resources}}}), encoding="utf-8")
    return lab.run(verb, identity("guest"), "--request", path, "--fit", *more)


def memory(done: Result) -> Any:
    return done.json["allocations"][identity(ROOT)]["resources"]["MEMORY_MB"]


def test_a_resize_in_place_gives_back_what_the_guest_has(lab: Upgrade, tmp_path: Path) -> None:
    done = ask(lab, tmp_path, "claim", "--replace", memory_mb=LARGER, VCPU=1)

    assert (done.code, done.json["outcome"]) == (0, "done"), done.out + done.err
    assert memory(done) == LARGER


def test_a_resize_in_place_does_not_give_back_what_others_have(lab: Upgrade, tmp_path: Path) -> None:
    add_consumer(lab.placement, "other", {"allocations": {ROOT: {"VCPU": 1, "MEMORY_MB": 50_000}}})

    done = ask(lab, tmp_path, "claim", "--replace", memory_mb=LARGER, VCPU=1)

    assert (done.code, done.json["outcome"]) == (1, "no-room")
    assert "50000 are allocated to others: 220000 are asked for" in done.json["note"]


def test_a_merge_keeps_what_the_guest_has_and_fits_the_sum(lab: Upgrade, tmp_path: Path) -> None:
    more = ask(lab, tmp_path, "claim", "--merge", memory_mb=LARGER - LARGE)
    too_much = ask(lab, tmp_path, "claim", "--merge", memory_mb=TOO_LARGE - LARGER)

    assert (more.code, memory(more)) == (0, LARGER), more.out + more.err
    assert (too_much.code, too_much.json["outcome"]) == (1, "no-room")
    assert (
        f"{TOO_LARGE - LARGER} are asked for in addition to the {LARGER} that the consumer keeps"
        in too_much.json["note"]
    )


def test_a_merge_instead_of_an_earlier_request_gives_that_one_back(lab: Upgrade, tmp_path: Path) -> None:
    earlier = tmp_path / "earlier.json"
    slots = {identity(ROOT): {"resources": {"MEMORY_MB": LARGE}}}
    earlier.write_text(json.dumps({"allocations": slots}), encoding="utf-8")

    done = ask(lab, tmp_path, "claim", "--merge", "--instead-of", earlier, memory_mb=LARGER)

    assert (done.code, memory(done)) == (0, LARGER), done.out + done.err


def test_a_move_on_the_same_host_keeps_what_the_guest_has_for_the_migration(lab: Upgrade, tmp_path: Path) -> None:
    done = ask(lab, tmp_path, "move", "--migration", identity("migration"), memory_mb=LARGER, VCPU=1)

    assert (done.code, done.json["outcome"]) == (1, "no-room")
    assert f"{LARGE} are allocated: {LARGER} are asked for" in done.json["note"]


def test_a_running_guest_without_allocations_is_given_what_it_really_has(lab: Upgrade, tmp_path: Path) -> None:
    lab.placement.send("DELETE", f"/allocations/{identity('guest')}")

    done = ask(lab, tmp_path, "claim", "--project", "p", "--user", "u", memory_mb=LARGE, VCPU=1)

    assert (done.code, memory(done)) == (0, LARGE), done.out + done.err
