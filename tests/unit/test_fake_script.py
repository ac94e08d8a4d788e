"""Scripts for made-up hosts: what each step does, which are refused, and what the driver reads at a moment."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.connect.choice import Choice, open_driver, settings_for
from agent.errors import ConfigError
from beds.made_up import check_as_made
from beds.upgrades import write_config
from drivers.errors import DiscoveryError
from drivers.fake.archives import files_of
from drivers.fake.fleet import make_hosts
from drivers.fake.hosts import FakeHost, GuestKind
from drivers.fake.script import ACTIONS, SCHEMA, History, histories, history, parse_script, state_at
from drivers.fake.scripted import ScriptedFleet
from drivers.fake.steps import SLOTS, AddCard, changed

Line = dict[str, Any]  # one step of a script


def mixed(number: int = 0) -> FakeHost:
    return make_hosts(number + 1, seed=3, shape="mixed")[number]


def bare(shape: str = "mixed") -> FakeHost:
    """A host without guests."""
    return replace(make_hosts(1, seed=3, shape=shape)[0], guests=(), started=0)


def history_of(host: FakeHost, *lines: Line) -> History:
    """The history of a host by a script with a step in each second, from 1 on, unless it says its own moment."""
    steps = [{"after_s": second, **line} for second, line in enumerate(lines, 1)]
    return history(host, parse_script({"steps": steps}))


def last(host: FakeHost, *lines: Line) -> FakeHost:
    return history_of(host, *lines)[-1].host


def slots(host: FakeHost) -> dict[int, tuple[str, int]]:
    return {card.slot: (card.kind, card.parts) for card in host.cards}


# -- what a step does -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["plain", "pinned", "pages", "vf", "vgpu", "port"])
def test_a_guest_starts_with_what_its_kind_has(kind: str, tmp_path: Path) -> None:
    host = last(bare(), {"do": "start_guest", "kind": kind})

    (guest,) = host.guests
    assert (guest.kind, guest.number) == (kind, 1)
    check_as_made(host, tmp_path)


def test_the_oldest_guest_ends_unless_another_is_named() -> None:
    host = mixed()
    numbers = [guest.number for guest in host.guests]

    assert [guest.number for guest in last(host, {"do": "end_guest"}).guests] == numbers[1:]
    named = last(host, {"do": "end_guest", "number": numbers[-1]})
    assert [guest.number for guest in named.guests] == numbers[:-1]


def test_no_guest_has_the_number_or_the_uuid_of_one_that_ended() -> None:
    start: Line = {"do": "start_guest", "kind": "plain"}
    first, again = (moment.host.guests for moment in history_of(bare(), start, {"do": "end_guest"}, start)[1::2])

    assert [guest.number for guest in (*first, *again)] == [1, 2]
    assert first[0].uuid != again[0].uuid


def test_a_card_is_plugged_into_the_lowest_free_slot() -> None:
    host = last(
        bare(),
        {"do": "add_card", "card": "gpu"},
        {"do": "remove_card", "slot": 1},
        {"do": "add_card", "card": "nic", "count": 3},
    )

    assert slots(host) == slots(bare()) | {4: ("gpu", 8), 1: ("nic", 3)}
    assert [card.slot for card in host.cards] == [0, 1, 2, 3, 4]
    assert {card.slot: card.cell for card in host.cards} == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}


def test_a_host_whose_cards_are_gone_has_no_guests_of_them() -> None:
    pulled = last(bare("network"), {"do": "remove_card", "slot": 0}, {"do": "remove_card", "slot": 1})
    with pytest.raises(ValueError, match=r"^steps\[0\]: .* has no room for a guest of kind vf"):
        history_of(pulled, {"do": "start_guest", "kind": "vf"})

    plugged = last(pulled, {"do": "add_card", "card": "nic", "count": 1}, {"do": "start_guest", "kind": "vf"})
    assert plugged.guests[0].device == plugged.cards[0].vfs[0]


@pytest.mark.parametrize("count", [0, 3, 63])
def test_a_nic_gets_another_number_of_vfs(count: int, tmp_path: Path) -> None:
    host = last(bare(), {"do": "set_vfs", "slot": 0, "count": count})

    assert slots(host) == slots(bare()) | {0: ("nic", count)}
    check_as_made(host, tmp_path)


def test_a_host_gets_another_size_of_memory(tmp_path: Path) -> None:
    host = last(mixed(), {"do": "set_memory", "memory_gib": 96})

    assert host == replace(mixed(), memory_gib=96)
    check_as_made(host, tmp_path)


def test_a_host_that_fails_goes_on_changing_and_shows_it_when_it_heals() -> None:
    moments = history_of(bare(), {"do": "fail"}, {"do": "add_card", "card": "nic"}, {"do": "heal"})

    assert [moment.fails for moment in moments] == [False, True, True, False]
    assert [len(moment.host.cards) for moment in moments] == [4, 4, 5, 5]


@pytest.mark.parametrize(
    ("seconds", "cards"),
    [
        pytest.param(-1, 4, id="before the start"),
        pytest.param(0, 4, id="at the start"),
        pytest.param(9.9, 4, id="just before a step"),
        pytest.param(10, 6, id="two steps of one moment"),
        pytest.param(1e9, 7, id="after the last step"),
    ],
)
def test_a_host_stays_as_it_is_until_the_next_step(seconds: float, cards: int) -> None:
    add: Line = {"do": "add_card", "card": "nic"}
    moments = history_of(bare(), *(add | {"after_s": after_s} for after_s in (10, 10, 20.5)))

    assert len(state_at(moments, seconds).host.cards) == cards


def test_a_step_concerns_the_hosts_that_it_names() -> None:
    fleet = make_hosts(3, seed=3, shape="mixed")
    steps = parse_script(
        {
            "steps": [
                {"after_s": 1, "do": "fail", "hosts": [0, 2]},
                {"after_s": 2, "do": "add_card", "card": "nic"},
                {"after_s": 3, "do": "end_guest", "hosts": []},
            ]
        }
    )

    found = histories(fleet, steps)

    assert [*found] == [host.name for host in fleet]
    assert [len(moments) for moments in found.values()] == [3, 2, 3]
    assert [moments[-1].fails for moments in found.values()] == [True, False, True]


# -- what is refused --------------------------------------------------------------------------------------------------


def opening(script: str, folder: Path, *, at_s: int = 0) -> Choice:
    """The command line of an agent with two hosts and a script."""
    path = folder / "script.yaml"
    path.write_text(script, encoding="utf-8")
    fake = {"hosts": 2, "seed": 3, "shape": "mixed", "script": path, "script_at_s": at_s}
    conf: dict[str, dict[str, object]] = {"DEFAULT": {"compute_driver": "fake.FakeDriver"}, "fake": fake}
    return Choice(config_files=(write_config(conf, folder / "agent.conf"),))


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        pytest.param("", "the file must be a group of keys, and is empty", id="empty"),
        pytest.param("steps: [{do: fail}]", "steps[0] lacks after_s", id="no moment"),
        pytest.param("steps: [{after_s: 1, do: jump}]", "steps[0].do has 'jump', which is none of", id="action"),
        pytest.param("steps: [{after_s: 1, do: fial}]", "is fail meant?", id="misspelt action"),
        pytest.param("steps: [{after_s: 1, do: fail, hots: [1]}]", "is hosts meant?", id="misspelt key"),
        pytest.param("steps: [{after_s: -1, do: fail}]", "steps[0].after_s must be at least 0", id="before the start"),
        pytest.param(
            "steps: [{after_s: .nan, do: fail}]", "steps[0].after_s is nan, and must be at least 0", id="no number"
        ),
        pytest.param(
            "steps: [{after_s: 5, do: fail}, {after_s: 2, do: heal}]",
            "steps[1].after_s is 2, and must be at least 5: put the steps into the order of their times",
            id="order",
        ),
        pytest.param(
            "steps: [{after_s: 1, do: remove_card}]", "steps[0] lacks slot, which remove_card needs", id="key"
        ),
        pytest.param(
            "steps: [{after_s: 1, do: fail, slot: 2}]", "steps[0] has slot, which fail does not read", id="other key"
        ),
        pytest.param(
            "steps: [{after_s: 1, do: fail, hosts: [2]}]",
            "steps[0].hosts has 2, and the last host of the fleet is 1: name a host of the fleet, or raise [fake]",
            id="host",
        ),
        pytest.param(
            "steps: [{after_s: 1, do: heal}]", "fake-3-mixed-0000 does not fail: put a step that does fail", id="heal"
        ),
        pytest.param(
            "steps: [{after_s: 1, do: fail}, {after_s: 2, do: fail}]",
            "steps[1]: fake-3-mixed-0000 fails already: put a step that does heal before this one",
            id="fail twice",
        ),
        pytest.param(
            "steps: [{after_s: 1, do: end_guest, number: 0}]",
            "fake-3-mixed-0000 has no guest 0: it has 1,",
            id="guest",
        ),
        pytest.param(
            "steps: [{after_s: 1, do: remove_card, slot: 9}]", "has no card in slot 9: it has 0, 1, 2, 3", id="slot"
        ),
        pytest.param(
            "steps: [{after_s: 1, do: remove_card, slot: 2}]",
            "guests 1, 7 of fake-3-mixed-0000 have devices of the card in slot 2: end them first",
            id="card with guests",
        ),
        pytest.param(
            "steps: [{after_s: 1, do: set_vfs, slot: 0, count: 4, hosts: [1]}]",
            "guests 3, 9 of fake-3-mixed-0001 have devices of the card in slot 0: end them first",
            id="VFs of guests",
        ),
        pytest.param(
            "steps: [{after_s: 1, do: add_card, card: gpu}, {after_s: 2, do: set_vfs, slot: 4, count: 4}]",
            "steps[1]: the card in slot 4 of fake-3-mixed-0000 is a GPU, which has no VFs",
            id="VFs of a GPU",
        ),
        pytest.param(
            "steps: [{after_s: 1, do: set_vfs, slot: 0, count: 64}]", "steps[0].count must be at most 63", id="VFs"
        ),
        pytest.param(
            "steps: [{after_s: 1, do: set_memory, memory_gib: 17}]",
            "17 GiB in each cell are too few for the guests and the huge pages of fake-3-mixed-0000",
            id="memory",
        ),
        pytest.param("steps: [{after_s: 1, after_s: 2}]", "after_s stands twice in one group", id="key twice"),
        pytest.param("steps: [", "is not YAML", id="no YAML"),
        pytest.param("steps: [!!int '']", "is not YAML", id="wrong tag"),
    ],
)
def test_a_wrong_script_is_refused_before_anything_is_read(script: str, sentence: str, tmp_path: Path) -> None:
    choice = opening(script, tmp_path)

    with pytest.raises(ConfigError) as told, open_driver(settings_for(choice), choice):
        pass
    assert sentence in str(told.value)
    assert str(tmp_path / "script.yaml") in str(told.value)
    assert "\n" not in str(told.value)


def test_a_script_that_is_missing_is_refused(tmp_path: Path) -> None:
    choice = opening("", tmp_path)
    (tmp_path / "script.yaml").unlink()

    with pytest.raises(ConfigError, match=r"cannot read .*script\.yaml"), open_driver(settings_for(choice), choice):
        pass


def test_a_host_without_guests_has_none_to_end() -> None:
    with pytest.raises(ValueError, match=r"has no guest to end: it has none at this moment"):
        history_of(bare(), {"do": "end_guest"})


def test_a_host_with_a_card_in_each_slot_gets_no_other() -> None:
    host = bare()
    for _ in range(SLOTS - len(host.cards)):
        host = changed(host, AddCard("nic", 1))

    assert host.cards[-1].address == "0000:ff:00.0"
    with pytest.raises(ValueError, match="remove one first"):
        changed(host, AddCard("nic"))


def test_a_guest_of_a_kind_that_the_shape_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="no room for a guest of kind pinned"):
        history_of(bare("small"), {"do": "start_guest", "kind": "pinned"})


# -- any script -------------------------------------------------------------------------------------------------------

PROPERTIES: Any = SCHEMA["properties"]
OF_A_STEP = PROPERTIES["steps"]["items"]["properties"]
KINDS = st.sampled_from(OF_A_STEP["kind"]["enum"])
SLOT = st.integers(0, 5)
LINES = st.one_of(
    st.fixed_dictionaries({"do": st.just("start_guest"), "kind": KINDS}),
    st.fixed_dictionaries({"do": st.just("end_guest")}, optional={"number": st.integers(1, 20)}),
    st.fixed_dictionaries(
        {"do": st.just("add_card"), "card": st.sampled_from(["nic", "gpu"])}, optional={"count": st.integers(0, 63)}
    ),
    st.fixed_dictionaries({"do": st.just("remove_card"), "slot": SLOT}),
    st.fixed_dictionaries({"do": st.just("set_vfs"), "slot": SLOT, "count": st.integers(0, 63)}),
    st.fixed_dictionaries({"do": st.just("set_memory"), "memory_gib": st.integers(17, 200)}),
    st.fixed_dictionaries({"do": st.sampled_from(["fail", "heal"])}),
)


def valid(host: FakeHost, lines: Iterable[Line]) -> list[Line]:
    """The lines that can happen to a host, one after the other."""
    found: list[Line] = []
    for line in lines:
        try:
            history_of(host, *found, line)
        except ValueError:
            continue
        found.append(line)
    return found


@given(seed=st.integers(0, 50), with_guests=st.booleans(), lines=st.lists(LINES, min_size=1, max_size=12))
@settings(max_examples=25, deadline=None)
def test_any_script_makes_hosts_that_are_read_as_they_were_made(
    tmp_path_factory: pytest.TempPathFactory, seed: int, with_guests: bool, lines: list[Line]
) -> None:
    (host,) = make_hosts(1, seed=seed, shape="mixed")
    host = host if with_guests else replace(host, guests=())
    told = valid(host, lines)

    moments = history_of(host, *told)

    assert moments == history_of(host, *yaml.safe_load(yaml.safe_dump(told)))
    for made in dict.fromkeys(moment.host for moment in moments):
        check_as_made(made, tmp_path_factory.mktemp("host"))


# -- what the driver reads --------------------------------------------------------------------------------------------


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_an_archive_is_written_again_only_when_its_host_has_changed(tmp_path: Path) -> None:
    now = [0.0]
    host = mixed()
    moments = history_of(host, {"do": "end_guest", "number": 1}, {"do": "fail"}, {"do": "heal"})
    fleet = ScriptedFleet(tmp_path, {host.name: moments}, lambda: now[0])
    (archive,) = fleet.archives()
    written = {}

    for second in (0.0, 1.0, 1.5, 3.0):
        now[0] = second
        fleet.refresh(host.name)
        written[second] = (archive.root / "host.json").stat().st_ino
        assert files(archive.root) == files_of(state_at(moments, second).host)
        assert [path.name for path in tmp_path.iterdir()] == [host.name]

    assert written[0.0] != written[1.0] == written[1.5] == written[3.0]


def test_an_archive_that_cannot_be_written_is_an_error_until_it_can(tmp_path: Path) -> None:
    now = [0.0]
    host = mixed()
    moments = history_of(host, {"do": "end_guest"})
    fleet = ScriptedFleet(tmp_path, {host.name: moments}, lambda: now[0])
    now[0] = 1.0
    (tmp_path / "fresh").write_text("in the way")

    with pytest.raises(DiscoveryError, match=f"cannot write the made-up host {host.name} .*: free disk space"):
        fleet.refresh(host.name)
    assert files(tmp_path / host.name) == files_of(host)

    (tmp_path / "fresh").unlink()
    fleet.refresh(host.name)
    assert files(tmp_path / host.name) == files_of(moments[-1].host)


SCRIPT = """
steps:
  - {after_s: 10, do: end_guest}
  - {after_s: 20, do: fail, hosts: [1]}
"""


@pytest.mark.parametrize(("at_s", "more"), [(0, 0), (10, -1)])
def test_a_command_sees_the_hosts_as_they_are_at_the_moment_that_is_configured(
    at_s: int, more: int, tmp_path: Path
) -> None:
    choice = opening(SCRIPT, tmp_path, at_s=at_s)

    with open_driver(settings_for(choice), choice) as driver:
        found = [len(driver.survey(node).facts.guests) for node in driver.nodes()]

    assert found == [len(mixed(number).guests) + more for number in range(2)]


def test_a_host_that_fails_cannot_be_read_and_the_others_can(tmp_path: Path) -> None:
    choice = opening(SCRIPT, tmp_path, at_s=20)

    with open_driver(settings_for(choice), choice) as driver:
        first, second = driver.nodes()
        assert driver.survey(first).facts.guests
        with pytest.raises(DiscoveryError) as told:
            driver.survey(second)

    assert type(told.value) is DiscoveryError
    assert str(told.value).startswith(f"{second} does not answer: its script made it fail after 20 s")


def test_time_passes_for_the_service_alone_and_goes_on_when_it_opens_the_host_again(tmp_path: Path) -> None:
    choice = opening(SCRIPT, tmp_path)
    service = replace(choice, service=True, began_s=choice.began_s - 20)

    for one, fails in ((choice, False), (service, True), (service, True)):
        with open_driver(settings_for(one), one) as driver:
            _, second = driver.nodes()
            try:
                driver.survey(second)
            except DiscoveryError:
                assert fails
            else:
                assert not fails


def test_the_page_has_each_action_and_each_kind_of_guest() -> None:
    page = (Path(__file__).parents[2] / "docs/made-up-hosts.md").read_text(encoding="utf-8")

    assert {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")} == {
        *("after_s", "do", "hosts"),
        *ACTIONS,
    }
    assert all(re.search(rf"`kind`: .*\b{kind}\b", page) for kind in get_args(GuestKind))
