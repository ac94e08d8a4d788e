"""The pictures of verbs on a real placement: each is written whole, names its guests, and is drawn for refusals too."""

from pathlib import Path

import pytest

from beds.agents import Result
from beds.placement import PlacementServer
from beds.upgrades import UPGRADES, Story, Upgrade

pytestmark = pytest.mark.live


@pytest.fixture
def lab(placement_server: PlacementServer, tmp_path: Path) -> Upgrade:
    return Upgrade(Story(UPGRADES / "05-devices-to-numa").data, placement_server.url, tmp_path)


def drawn(lab: Upgrade, picture: Path, verb: str, *more: object) -> tuple[Result, str]:
    done = lab.run(verb, *more, "--picture", picture)
    return done, picture.read_text(encoding="utf-8")


def test_a_conversion_is_drawn_before_and_when_it_is_carried_out(lab: Upgrade, tmp_path: Path) -> None:
    planned, before = drawn(lab, tmp_path / "plan.html", "reshape")
    applied, done = drawn(lab, tmp_path / "done.html", "reshape", "--apply")

    assert (planned.code, applied.code) == (3, 0), planned.err + applied.err
    digest = planned.json["digest"]
    assert all(digest in text for text in (before, done))
    assert drawn_in(before) == drawn_in(done)
    moved = {move["consumer"] for move in planned.json["moves"]}
    assert moved
    assert all(uuid in before for uuid in moved)
    assert "Refused" not in before + done


def test_a_plan_that_a_pass_refuses_says_so_first(lab: Upgrade, tmp_path: Path) -> None:
    planned, text = drawn(lab, tmp_path / "plan.html", "plan")

    assert planned.code == 3, planned.err
    assert text.index("Refused: nothing would be written") < text.index('<div class="box')


@pytest.mark.parametrize("verb", ["show", "audit"])
def test_the_tree_in_placement_is_one_drawing(lab: Upgrade, tmp_path: Path, verb: str) -> None:
    told, text = drawn(lab, tmp_path / "tree.html", verb)

    assert told.code in (0, 3), told.err
    assert text.count('<div class="tree">') == 1


def test_a_picture_that_cannot_be_written_is_told_before_anything_is_done(lab: Upgrade, tmp_path: Path) -> None:
    before = lab.stands()

    refused = lab.run("reshape", "--apply", "--picture", tmp_path / "none/x.html")

    assert refused.code == 2
    assert "none/x.html" in refused.err
    assert lab.stands() == before


def drawn_in(page: str) -> str:
    """Both trees of a page."""
    return page.partition('<div class="trees">')[2].partition("</section>")[0]
