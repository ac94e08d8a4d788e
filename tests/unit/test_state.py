"""This host's own files: identity, memory, lock."""

import json
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from agent.errors import StateError
from agent.state.files import unseal
from agent.state.identity import keep_identity, parse_identity, planned_identity, read_identity
from agent.state.locks import locked
from agent.state.memory import NodeState, encode_state
from agent.state.node_file import StateFile
from reportclient.ownership import Names
from reportclient.tree import ObservedTree
from strategies import observed_trees

FULL = NodeState(
    where="placement at x",
    configured={"host": Names(frozenset({"CUSTOM_A"}), frozenset({"CUSTOM_B"}))},
    lacked_traits=frozenset({"T"}),
    reported={"host_0000:81:00.0": Names(frozenset({"CUSTOM_PCI_8086_1533"}), frozenset({"U"}))},
    smaller="abc",
    smaller_seen=2,
    bodies={"strikes": 1, "struck_s": 1.5, "contested": ["somebody"], "used": ["d41f"]},
)


@settings(max_examples=25)
@given(observed_trees())
def test_what_is_written_is_what_is_read(tmp_path_factory: pytest.TempPathFactory, observed: ObservedTree) -> None:
    file, state = StateFile(tmp_path_factory.mktemp("state"), "node"), replace(FULL, observed=observed)

    file.write(replace(state, elsewhere=FULL))

    assert file.read("placement at x") == state


def test_a_file_has_the_bodies_of_features_beside_what_all_share() -> None:
    text = encode_state(NodeState(where="w").with_bodies({"strikes": 1, "used": 2}).with_bodies({"used": 3}))

    assert text.startswith('{\n "')
    false = dict.fromkeys(("wrote", "beside", "stood"), False)
    empty = {"observed": None, "smaller_seen": 0}
    assert unseal(text, form=2).items() >= {"where": "w", "strikes": 1, "used": 3, **false, **empty}.items()


def test_nothing_remembered_is_a_fresh_memory(tmp_path: Path) -> None:
    assert StateFile(tmp_path, "node").read("w") == NodeState(where="w")


def test_the_memory_of_another_placement_is_not_used(tmp_path: Path) -> None:
    StateFile(tmp_path, "node").write(FULL)

    assert StateFile(tmp_path, "node").read("elsewhere") == NodeState(where="elsewhere")


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_torn_file_is_as_good_as_none(tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture) -> None:
    file = StateFile(tmp_path, "node")
    file.write(FULL)
    path = tmp_path / "node.json"
    path.write_text(path.read_text().rstrip()[:cut])

    assert file.read(FULL.where) == NodeState(where=FULL.where)
    assert "is not valid" in caplog.text


@pytest.mark.parametrize("key", ["format", "checksum"])
def test_a_file_of_another_format_or_changed_by_hand_is_as_good_as_none(tmp_path: Path, key: str) -> None:
    file = StateFile(tmp_path, "node")
    file.write(FULL)
    path = tmp_path / "node.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: 99}))

    assert file.read(FULL.where) == NodeState(where=FULL.where)


def test_room_is_made_sure_of_and_used(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "new", "node")

    file.begin(FULL)
    assert file.read(FULL.where) == replace(FULL, observed=None)
    file.write(FULL)

    assert [path.name for path in (tmp_path / "new").iterdir()] == ["node.json"]


def test_a_folder_that_cannot_be_made_is_said_before_placement_is_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StateError, match="nothing was sent to placement"):
        StateFile(tmp_path / "file" / "sub", "node").begin(FULL)
    with pytest.raises(StateError, match="cannot write"), locked(tmp_path / "file" / "sub"):
        pass


def test_only_one_process_writes_at_a_time(tmp_path: Path) -> None:
    code = f"import pathlib, agent.state.locks\nwith agent.state.locks.locked(pathlib.Path({str(tmp_path)!r})): pass"
    with locked(tmp_path):
        other = subprocess.Popen([sys.executable, "-c", code])
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(1.0)

    assert other.wait(30) == 0


def test_an_identity_is_made_once_whole_and_read_again(tmp_path: Path) -> None:
    identity = keep_identity(tmp_path / "state")

    assert read_identity([tmp_path / "elsewhere", tmp_path / "state"]) == identity == str(uuid.UUID(identity))
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["compute_id"]
    with pytest.raises(StateError, match="File exists"):
        keep_identity(tmp_path / "state")


def test_no_identity_is_none_and_one_for_a_plan_is_always_the_same(tmp_path: Path) -> None:
    assert read_identity([tmp_path]) is None
    assert planned_identity("a") == planned_identity("a") != planned_identity("b")


def test_an_identity_may_stand_in_white_space_and_capitals() -> None:
    assert parse_identity("\n 5F0C6A5E-2F55-4D0A-9D0A-3B1C2A9A7E01 \n", "x").startswith("5f0c6a5e-")


@pytest.mark.parametrize("text", ["", "no-uuid", "5f0c6a5e"])
def test_a_broken_identity_is_refused_with_its_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "compute_id").write_text(text)

    with pytest.raises(StateError, match=f"{tmp_path}/compute_id holds no uuid"):
        read_identity([tmp_path])


def test_two_identities_that_disagree_are_refused_with_both_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        keep_identity(tmp_path / name)

    with pytest.raises(StateError, match=r"compute_id files disagree: .*/a/compute_id .*/b/compute_id"):
        read_identity([tmp_path / "a", tmp_path / "b"])


def test_an_identity_that_cannot_be_read_is_no_missing_one(tmp_path: Path) -> None:
    (tmp_path / "compute_id").mkdir()

    with pytest.raises(StateError, match="cannot read"):
        read_identity([tmp_path])
