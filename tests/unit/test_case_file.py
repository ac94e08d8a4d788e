"""The file of a case: written whole or not at all, for its owner alone; read with suspicion."""

import argparse
import json
import os
import re
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent.command.saved_cases import replaying, saving
from agent.command.verb_options import parse_new_file
from agent.command.verbs import VERBS
from agent.connect.choice import Choice, open_client, settings_for
from agent.errors import ConfigError, StateError
from agent.settings.read import Settings, load_settings
from agent.sync.case import Case, open_case, pack_case, write_packed
from agent.sync.recorder import Recorder, begin_anew, keep_state, packed_case
from configured import changed
from drivers.base import Survey
from drivers.errors import DiscoveryError
from fakes import FACTS
from reportclient.recording import Exchange, Unrecorded

ROOT = "4a5f7e9c-0d27-4e43-8f6f-2a3b1c9d8e70"
ONE: dict[str, Any] = {
    "method": "GET",
    "path": "/traits",
    "microversion": "1.39",
    "status": 200,
    "headers": {"Date": "d"},
    "text": "{}",
}


def configured(tmp_path: Path) -> Settings:
    return changed(
        load_settings([]),
        folders={"state": tmp_path / "state", "identity": ()},
        operator_files={"folder": tmp_path / "files"},
    )


def whole(tmp_path: Path) -> dict[str, bytes]:
    """The files of a case with one look and one request, by name."""
    kept = Recorder()
    kept.node, kept.called = "host", {"placement": "P", "where": "P"}
    kept.looks.append(Survey(FACTS, None, {}))
    kept.exchanges["placement"].append(Exchange(**ONE))
    write_packed(tmp_path / "whole.tar.gz", packed_case(kept, configured(tmp_path), "plan", {"rename_from": None}))
    with tarfile.open(tmp_path / "whole.tar.gz") as tar:
        members = {member.name.removeprefix("case/"): tar.extractfile(member) for member in tar}
        return {name: file.read() for name, file in members.items() if file}


def about_with(files: dict[str, bytes], **more: object) -> dict[str, bytes]:
    return files | {"case.json": json.dumps(json.loads(files["case.json"]) | more).encode()}


def opened(tmp_path: Path, files: dict[str, bytes], act: Callable[[Case], Any] = lambda _case: None) -> Any:
    (tmp_path / "case.tar.gz").write_bytes(pack_case(files))
    with open_case(tmp_path / "case.tar.gz") as case:
        return act(case)


def replayed(tmp_path: Path, files: dict[str, bytes]) -> argparse.Namespace:
    """The options with which the verb of a case would be carried out."""
    (tmp_path / "case.tar.gz").write_bytes(pack_case(files))
    options = argparse.Namespace(replay=tmp_path / "case.tar.gz")
    with replaying(options):
        return options


def test_only_the_owner_can_read_a_case_and_the_file_before_it_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "case.tar.gz"
    path.write_text("old")
    path.chmod(0o644)

    write_packed(path, b"new")

    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o600)
    assert [one.name for one in tmp_path.iterdir()] == ["case.tar.gz"]


def test_two_that_write_one_case_leave_it_whole_and_other_files_alone(tmp_path: Path) -> None:
    path, other = tmp_path / "case.tar.gz", tmp_path / "case.tar.gz.new"
    other.write_text("a person's")
    contents = [bytes([number]) * 4_000_000 for number in range(2)]

    for _ in range(5):
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda data: write_packed(path, data), contents))
        assert path.read_bytes() in contents

    assert sorted(one.name for one in tmp_path.iterdir()) == [path.name, other.name]
    assert other.read_text() == "a person's"


def test_nothing_is_left_of_a_case_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder/in").mkdir(parents=True)

    with pytest.raises(StateError, match=r"cannot write the case .*/folder: .*: name another file"):
        write_packed(tmp_path / "folder", b"new")  # a rename cannot replace a folder that has files

    assert [one.name for one in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("name", ["placement.jsonl", "state/nodes.json"])
def test_answers_and_state_may_be_larger_than_the_files_of_a_host(tmp_path: Path, name: str) -> None:
    files = whole(tmp_path)
    large = json.dumps(ONE | {"text": "x" * (17 << 20)}).encode()

    assert opened(tmp_path, files | {name: large}, lambda case: (case.folder / name).stat().st_size) == len(large)


def test_of_the_state_only_the_agents_own_memory_is_kept_and_to_the_byte(tmp_path: Path) -> None:
    names = (f"{ROOT}.json", "nodes.json", f"audits/{ROOT}.json", "keyring.json", "status.json", "audits/other.json")
    for name in names:
        (tmp_path / "state" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "state" / name).write_bytes(b"\xff")
    kept = Recorder()

    keep_state(kept, configured(tmp_path))

    assert kept.state == dict.fromkeys(names[:3], b"\xff")
    begin_anew(kept)
    assert not kept.state


def test_files_of_operators_are_kept_to_the_byte(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files/latin.yaml").write_bytes(b"# f\xfcr\n")
    (tmp_path / "files/.hidden.yaml").write_text("not read")

    files = whole(tmp_path)

    assert files["provider_config/latin.yaml"] == b"# f\xfcr\n"
    assert "provider_config/.hidden.yaml" not in files


def test_a_case_from_before_the_host_was_named_says_so(tmp_path: Path) -> None:
    unused: Any = None

    with pytest.raises(Unrecorded, match="the case has no node: the command"):
        opened(tmp_path, about_with(whole(tmp_path), nodes=[], looks=[]), lambda case: case.driver(unused).name())


def test_the_name_is_read_at_each_pass(tmp_path: Path) -> None:
    class Renamed:
        called, watching = "one", None

        def name(self) -> str:
            return self.called

    host: Any = Renamed()
    kept = Recorder()
    driver = kept.driver(host)
    assert (driver.name(), kept.node) == ("one", "one")
    host.called = "other"
    assert (driver.name(), kept.node) == ("other", "other")


@pytest.mark.parametrize("service", ["placement", "ironic"])
def test_a_case_from_before_a_service_was_chosen_says_so(tmp_path: Path, service: str) -> None:
    def name(case: Case) -> None:
        case.name_of(service)

    with pytest.raises(Unrecorded, match="failed before it had chosen one"):
        opened(tmp_path, about_with(whole(tmp_path), called={}), name)


def test_a_replay_of_a_case_without_placement_is_refused_in_one_line(tmp_path: Path) -> None:
    def client(case: Case) -> None:
        open_client(load_settings([]), Choice(case=case))

    with pytest.raises(Unrecorded, match="the case has no placement"):
        opened(tmp_path, about_with(whole(tmp_path), called={}), client)


@pytest.mark.parametrize("name", ["agent.conf", "ironic.jsonl", "hosts/0/host.json"])
def test_a_case_that_lost_a_file_is_refused(tmp_path: Path, name: str) -> None:
    files = whole(tmp_path)
    del files[name]

    with pytest.raises(DiscoveryError, match=f"it lacks {re.escape(name)}: copy the whole file again"):
        opened(tmp_path, files)


WRONG: tuple[dict[str, object], ...] = (
    {"format": 2},
    {"options": []},
    {"looks": ["../../../etc"]},
    {"clock": {"boot": "b"}},
    {"processes": {"nova-compute": 7}},
    {"called": {"placement": 7}},
)


@pytest.mark.parametrize("more", WRONG, ids=repr)
def test_each_wrong_value_of_a_case_is_refused(tmp_path: Path, more: dict[str, object]) -> None:
    with pytest.raises(DiscoveryError, match="is not a case in the form that"):
        opened(tmp_path, about_with(whole(tmp_path), **more))


WRONG_HEADER = json.dumps(ONE | {"headers": {"Date": 1}}).encode()


@pytest.mark.parametrize("name", ["case.json", "placement.jsonl", "ironic.jsonl"])
@pytest.mark.parametrize("data", [b"\xff\xfe\0", b"[" * 100_000, b"[]", b"{", WRONG_HEADER], ids=range(5))
def test_a_file_of_another_form_is_refused(tmp_path: Path, name: str, data: bytes) -> None:
    with pytest.raises(DiscoveryError, match="is not a case in the form that"):
        opened(tmp_path, whole(tmp_path) | {name: json.dumps(ONE).encode() + b"\n" + data})


@pytest.mark.parametrize(
    ("verb", "told", "words"),
    [
        ("run", {}, "it is a case of the verb run with the options"),
        ("plan", {"config_file": "/etc/shadow"}, "it is a case of the verb plan with the options"),
        ("plan", {"rename_from": 7}, "--rename-from cannot be 7"),
        ("plan", {"deep": "x"}, "--deep cannot be 'x'"),
        ("reshape", {"to": "bogus"}, "--to cannot be 'bogus'"),
        ("reshape", {"to": ["numa"]}, "--to cannot be"),
        ("audit", {"light": "x"}, "--light cannot be 'x'"),
    ],
)
def test_options_that_no_look_has_are_not_done_again(
    tmp_path: Path, verb: str, told: dict[str, object], words: str
) -> None:
    with pytest.raises(DiscoveryError, match=f"case\\.tar\\.gz cannot be replayed: {words}"):
        replayed(tmp_path, about_with(whole(tmp_path), verb=verb, options=told))


@pytest.mark.parametrize(
    ("verb", "told"),
    [
        ("plan", {"rename_from": "old", "deep": True}),
        ("plan", {"rename_from": None, "deep": None}),
        ("reshape", {"to": "numa"}),
        ("audit", {"light": True, "consumers": False}),
    ],
)
def test_options_of_a_look_are_done_again(tmp_path: Path, verb: str, told: dict[str, object]) -> None:
    options = vars(replayed(tmp_path, about_with(whole(tmp_path), verb=verb, options=told)))

    assert {name: options[name] for name in told} == told


@pytest.mark.parametrize(
    "line",
    [
        "[DEFAULT]\nconfig_source = remote",
        "[DEFAULT]\nconfig-source: remote",
        "[default]\nConfig_Dir = /etc",
        "[agent]\nheal_policy = /etc/other",
        "[libvirt]\nconnection_uri = qemu+tcp://there/system",
    ],
)
def test_a_case_whose_options_lead_elsewhere_is_refused(tmp_path: Path, line: str) -> None:
    files = whole(tmp_path)

    with pytest.raises(DiscoveryError, match=r"agent\.conf: \[.*\] .* is not allowed in a case"):
        opened(tmp_path, files | {"agent.conf": f"{line}\n".encode() + files["agent.conf"]})


def test_variables_of_the_environment_do_not_change_a_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OS_COMPUTE__LAYOUT", "numa")
    files = whole(tmp_path)

    def layout(case: Case) -> str:
        return settings_for(Choice(case=case)).policy.layout

    assert load_settings([]).policy.layout == "numa"
    assert b"layout = numa" in files["agent.conf"]
    assert opened(tmp_path, files | {"agent.conf": b""}, layout) == "devices"


def test_options_that_are_no_configuration_are_refused_with_their_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"agent\.conf:2 cannot be read"):
        opened(
            tmp_path, whole(tmp_path) | {"agent.conf": b"[compute]\nx\n"}, lambda case: settings_for(Choice(case=case))
        )


@pytest.mark.parametrize("kind", ["folder", "fifo", "link", "dangling link"])
def test_only_a_regular_file_is_replaced(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "case.tar.gz"
    (tmp_path / "there").write_text("")
    make: dict[str, Callable[[], None]] = {
        "folder": path.mkdir,
        "fifo": lambda: os.mkfifo(path),
        "link": lambda: path.symlink_to("there"),
        "dangling link": lambda: path.symlink_to("nowhere"),
    }
    make[kind]()

    with pytest.raises(argparse.ArgumentTypeError, match="is not the name of a regular file"):
        parse_new_file(str(path))
    assert parse_new_file(str(tmp_path / "there")) == tmp_path / "there"
    assert parse_new_file(str(tmp_path / "new")) == tmp_path / "new"
    with pytest.raises(argparse.ArgumentTypeError, match="in a folder that exists"):
        parse_new_file(str(tmp_path / "none/new"))


def plan(tmp_path: Path, path: Path) -> argparse.Namespace:
    (tmp_path / "agent.conf").write_text(f"[agent]\nstate_directory = {tmp_path}/state\n")
    return argparse.Namespace(config_file=[tmp_path / "agent.conf"], config_dir=[], save=path, rename_from=None)


def test_what_a_verb_found_is_kept_though_its_case_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()

    with saving(VERBS["plan"], plan(tmp_path, tmp_path / "folder/case.tar.gz")) as unsaved:
        (tmp_path / "folder/case.tar.gz").mkdir()

    assert re.match("cannot write the case .*: Is a directory", "\n".join(unsaved))


@pytest.mark.parametrize("written", [True, False])
def test_the_error_of_a_verb_is_its_error_whether_its_case_can_be_written(tmp_path: Path, written: bool) -> None:
    (tmp_path / "folder").mkdir()
    options = plan(tmp_path, tmp_path / "folder/case.tar.gz")

    def fail() -> None:
        if not written:
            (tmp_path / "folder/case.tar.gz").mkdir()
        raise DiscoveryError("libvirt is gone")

    with pytest.raises(DiscoveryError, match="libvirt is gone") as failed, saving(VERBS["plan"], options):
        fail()

    assert bool(getattr(failed.value, "__notes__", ())) is not written
    assert (tmp_path / "folder/case.tar.gz").is_file() is written


def test_a_verb_that_ends_leaves_its_case(tmp_path: Path) -> None:
    with saving(VERBS["plan"], plan(tmp_path, tmp_path / "case.tar.gz")) as unsaved:
        pass

    assert unsaved == []
    assert opened_again(tmp_path / "case.tar.gz") == "plan"


def opened_again(path: Path) -> str:
    with open_case(path) as case:
        return case.saved.verb
