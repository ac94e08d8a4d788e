"""Root's commands in folders of another user: a link that this user puts there leads root nowhere."""

import os
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.errors import StateError
from agent.state.audit_memory import AuditMemory, write_memory
from agent.state.clock import probe_clock
from agent.state.files import read_whole, remove, replace_file, state_files
from agent.state.identity import keep_identity
from agent.state.locks import locked
from agent.state.memory import NodeState
from agent.state.node_file import StateFile
from agent.state.rights import owners_rights
from agent.sync.case import write_packed

pytestmark = [pytest.mark.live, pytest.mark.skipif(os.geteuid() != 0, reason="root acts here")]
USER = 54321  # has no name, as a user of a container
TIMES = 200

SWAPPER = """
    import os, random, shutil, sys, time
    os.setgroups([]); os.setgid({user}); os.setuid({user})
    folder, target = sys.argv[1:]
    print("ready", flush=True)
    sub, away = f"{{folder}}/sub", f"{{folder}}/away"
    while True:  # somebody else may make the missing folder at any moment
        try:
            os.rename(sub, away)
            os.symlink(target, sub)
            time.sleep(random.random() / 1000)
            os.unlink(sub)
        except OSError:
            pass
        while os.path.exists(away):
            shutil.rmtree(sub, ignore_errors=True)
            try:
                os.rename(away, sub)
            except OSError:
                pass
        time.sleep(random.random() / 1000)
"""


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder of another user, whom all folders above let pass."""
    for part in (tmp_path, *tmp_path.parents):
        if part.stat().st_mode & 0o001 == 0:
            part.chmod(part.stat().st_mode | 0o011)
    folder = tmp_path / "theirs"
    (folder / "sub").mkdir(parents=True)
    for one in (folder, folder / "sub"):
        os.chown(one, USER, USER)
    return folder


@pytest.fixture
def roots(tmp_path: Path) -> Path:
    """A folder of root's with a file, as it has to stay."""
    folder = tmp_path / "roots"
    folder.mkdir(mode=0o700)
    (folder / "file.json").write_text("root's")
    return folder


@contextmanager
def swapping(folder: Path, target: Path) -> Iterator[None]:
    """Inside the context the other user exchanges the folder ``sub`` for a link to ``target`` and back."""
    program = textwrap.dedent(SWAPPER.format(user=USER))
    with subprocess.Popen([sys.executable, "-c", program, folder, target], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
            assert process.poll() is None
        finally:
            process.kill()


def untouched(folder: Path) -> bool:
    found = list(folder.iterdir())
    return found == [folder / "file.json"] and (found[0].read_text(), found[0].stat().st_uid) == ("root's", 0)


ACTS: dict[str, Callable[[Path], object]] = {
    "replace": lambda folder: replace_file(folder / "file.json", "new"),
    "replace, not lasting": lambda folder: replace_file(folder / "file.json", "new", 0o644, lasting=False),
    "remove": lambda folder: remove(folder / "file.json"),
    "read": lambda folder: read_whole(folder / "file.json") and None,
    "list": lambda folder: state_files(folder, ".json") and None,
    "packed": lambda folder: write_packed(folder / "file.json", b"new"),
    "state": lambda folder: StateFile(folder, "file").begin(NodeState(where="placement")),
    "audit": lambda folder: write_memory(folder, "file", AuditMemory(where="placement", clock=probe_clock())),
    "identity": lambda folder: keep_identity(folder, "00000000-0000-0000-0000-000000000001"),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_folder_that_is_exchanged_for_a_link_gives_nothing_of_roots_away(theirs: Path, roots: Path, act: str) -> None:
    with swapping(theirs, roots):
        for _ in range(TIMES):
            try:
                ACTS[act](theirs / "sub")
            except (OSError, StateError):
                continue

    assert untouched(roots)


@pytest.mark.parametrize("name", ["file.json", "file.json.new"])
def test_a_link_in_place_of_a_file_or_its_temporary_is_replaced(theirs: Path, roots: Path, name: str) -> None:
    (theirs / "sub" / name).symlink_to(roots / "file.json")
    os.chown(theirs / "sub" / name, USER, USER, follow_symlinks=False)

    replace_file(theirs / "sub" / "file.json", "new")

    assert untouched(roots)
    assert (theirs / "sub" / "file.json").read_text() == "new"
    assert (theirs / "sub" / "file.json").stat().st_uid == USER


def test_a_users_link_in_a_folder_of_roots_is_the_users_way(roots: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(roots)
    os.chown(tmp_path / "link", USER, USER, follow_symlinks=False)

    with pytest.raises(PermissionError):
        replace_file(tmp_path / "link" / "file.json", "new")

    assert untouched(roots)


def test_a_link_in_place_of_a_lock_makes_no_file(theirs: Path, roots: Path) -> None:
    (theirs / "agent").symlink_to(roots / "made")

    with pytest.raises(StateError, match="cannot write below"), locked(theirs):
        pass

    assert untouched(roots)


def test_only_the_agent_can_open_a_lock(theirs: Path) -> None:
    before = os.umask(0)
    try:
        (theirs / "agent").touch(0o644)
        os.chown(theirs / "agent", USER, USER)
        with locked(theirs):
            assert stat.S_IMODE((theirs / "agent").stat().st_mode) == 0o600
        with locked(theirs / "sub"):
            found = (theirs / "sub" / "agent").stat()
    finally:
        os.umask(before)
    assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o600, USER)


def test_root_has_the_owners_rights_inside_and_its_own_again_after(theirs: Path, roots: Path) -> None:
    before = os.getresuid(), os.getresgid(), os.getgroups()
    with owners_rights(theirs / "sub" / "any"):
        inside = os.geteuid(), os.getegid(), os.getgroups()
        with pytest.raises(PermissionError):
            (roots / "file.json").read_text()
    assert inside == (USER, USER, [USER])

    assert (os.getresuid(), os.getresgid(), os.getgroups()) == before


def test_a_thread_waits_for_the_rights_that_another_one_has(theirs: Path) -> None:
    """Rights are those of the process: without the wait it would be root again in the middle."""
    seen: list[int] = []

    def act() -> None:
        with owners_rights(theirs / "any"):
            began.set()
            time.sleep(0.2)
            seen.append(os.geteuid())

    began = threading.Event()
    with owners_rights(theirs / "any"):
        other = threading.Thread(target=act)
        other.start()
        assert not began.wait(0.1)
    other.join()

    assert (seen, os.geteuid()) == ([USER], 0)
