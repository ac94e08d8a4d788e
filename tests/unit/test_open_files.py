"""``check`` names a file with a password that others can read, and no other file."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from agent.command.doubts import open_files
from agent.settings.read import load_settings

OWN = "[placement]\nauth_type = password\npassword = s3cret\n"
NOVAS = "[DEFAULT]\ntransport_url = rabbit://nova:s3cret@10.0.0.7:5672/\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that others can pass, unlike those of pytest."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def written(folder: Path, name: str, text: str, mode: int) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def told(path: Path) -> list[str]:
    state = f"[agent]\nstate_directory = {path.parent}\n"
    return open_files(load_settings([path, written(path.parent, "state.conf", state, 0o644)]))


@pytest.mark.parametrize(
    ("text", "mode", "is_open"),
    [
        pytest.param(OWN, 0o640, False, id="for its group"),
        pytest.param(OWN, 0o644, True, id="for all"),
        pytest.param(OWN, 0o604, True, id="for others"),
        pytest.param(NOVAS, 0o644, True, id="a URL with a login"),
        pytest.param("[DEFAULT]\n# password = a\ninject_password = false\nhost = a\n", 0o644, False, id="no password"),
        pytest.param("[placement]\npassword =\n", 0o644, False, id="an empty one"),
    ],
)
def test_a_configuration_with_a_password_is_not_for_others(text: str, mode: int, is_open: bool, folder: Path) -> None:
    path = written(folder, "agent.conf", text, mode)

    assert bool(found := told(path)) is is_open
    assert all(f"{path} has a password, and every user of this host can read it: " in one for one in found)


def test_a_closed_folder_closes_its_files(folder: Path) -> None:
    path = written(folder, "agent.conf", OWN, 0o644)
    folder.chmod(0o750)

    assert told(path) == []
