"""``explain --request`` as a command: hosts are candidates as placement says, and lack what it says."""

from pathlib import Path

import pytest

from beds.placement import PlacementServer
from beds.upgrades import Story, Upgrade, stories

pytestmark = pytest.mark.live

SSD = "STORAGE_DISK_SSD"  # which none of the hosts has
STORIES = [story for story in stories() if story.folder.name[:2] in ("01", "05", "07", "11")]  # each begins otherwise


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.folder.name)
def test_the_command_says_of_a_request_what_placement_says(
    story: Story, placement_server: PlacementServer, tmp_path: Path
) -> None:
    lab = Upgrade(story.data, placement_server.url, tmp_path)

    for lacking, more in ("", f"required=!{SSD}"), (f"required={SSD}",) * 2, ("resources_A=MEMORY_MB:1000000000",) * 2:
        query = f"resources=MEMORY_MB:64&{more}&group_policy=none"
        (tmp_path / "request").write_text(f"# as nova logs it\nGET /allocation_candidates?limit=1000&{query}\n")
        told = lab.run("explain", "--request", tmp_path / "request")

        offered = lab.placement.send("GET", f"/allocation_candidates?limit=20&{query}")["allocation_requests"]
        assert (told.code, told.json["candidate"], bool(offered)) == (0, not lacking, not lacking), told.err
        assert "".join(one["wish"] for one in told.json["missing"]) == lacking
        every = lab.run("explain", "--request", tmp_path / "request", "--all")
        assert every.code == 0, every.err
        assert (told.json["node"] in every.json["candidates"]) is not bool(lacking)
