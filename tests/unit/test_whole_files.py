"""Files of the state directory are read whole, and nothing that never ends is."""

import os
from pathlib import Path

import pytest

from agent.state.files import MOST_BYTES, read_whole


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 200_000)

    assert read_whole(tmp_path / "file") == b"x" * 200_000


@pytest.mark.parametrize("kind", ["device", "pipe", "large"])
def test_a_device_a_pipe_and_a_file_that_is_too_large_are_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "status.json"
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        with path.open("wb") as file:
            file.truncate(MOST_BYTES + 1)

    with pytest.raises(OSError, match="no file of at most 64 MiB"):
        read_whole(path)
