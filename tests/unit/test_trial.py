"""A conversion on trial: taken back in time, or confirmed, and never half."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest

from agent.audit.audit import witness
from agent.command.trial import how_to_keep
from agent.errors import StateError
from agent.settings.read import Settings
from agent.state.files import checksum
from agent.state.locks import locked
from agent.sync.convert import convert as convert_now
from agent.sync.convert import convert_approved
from agent.sync.decide.features.hold import BODY, HOST, HoldWish, Note
from agent.sync.decide.undoing import DONE, Conversion
from agent.sync.decide.view import Wishes
from agent.sync.journal import _remove_old, end_begun, end_trial, find_trial, kept_conversions, read_journal
from agent.sync.node import ComputeNode
from agent.sync.outcome import Condition, Outcome, Status
from agent.sync.run import run_pass
from agent.sync.trial import _take_back, heed_trial
from beds.one_host import GUEST, RESHAPE, Cut, OneHost, Sender
from drivers.facts import Guest, GuestMemory, MemoryPages, NumaCell
from drivers.policy import DevicePolicy, Layout, Policy
from hardware import at, card, guest_with, host, plain

NIC, VF = "0000:81:00.0", "SRIOV_NET_VF"
FACTS = replace(host(*card(NIC, 4)), guests=(guest_with(GUEST, pci=frozenset({at("0000:81:10.0")})),))
FLOATS = Guest(uuid=GUEST, state="running", vcpus=(frozenset(),), memory=(GuestMemory(512),))
BY_S = 4_000_000_000.0


def with_huge_pages() -> tuple[NumaCell, ...]:
    """The cells of the host, each with 4 GiB of its 8 in huge pages."""
    pages = (MemoryPages(4, 0), MemoryPages(2048, 2048))
    return tuple(replace(each, memory_kib=8 << 20, pages=pages) for each in host().cells)


def stands(one: OneHost) -> tuple[dict[str, Any], Any]:
    """The providers and what the guest has on each, by name."""
    tree = one.tree()
    held = one.node.client.consumer(GUEST)
    names = {seen.uuid: seen.name for seen in tree}
    rows = {names[uuid]: dict(amounts) for uuid, amounts in held.slots.items()} if held else {}
    return {seen.name: seen.provider for seen in tree}, rows


def settings_with(one: OneHost, layout: Layout) -> Settings:
    return replace(one.settings, policy=replace(one.policy, layout=layout))


def convert(one: OneHost) -> Outcome:
    wishes = replace(RESHAPE, force=False, confirm_by_s=BY_S)
    return one.sync(wishes, policy=replace(one.policy, layout="devices"))


def trial_of(one: OneHost) -> Conversion | None:
    return find_trial(one.settings.folders.state, one.node.where)


def wait(one: OneHost) -> Outcome | None:
    with locked(one.settings.folders.state):
        last = trial_of(one)
        return _take_back(one.node, last) if last else None


@pytest.fixture
def one(tmp_path: Path) -> OneHost:
    return start(tmp_path, Sender())


def start(folder: Path, sender: Sender) -> OneHost:
    """A host in the layout flat with a guest that has a VF."""
    policy = Policy(layout="flat", devices=DevicePolicy(discover_all=True))
    found = OneHost(folder, FACTS, policy, sender=sender)
    assert found.sync().status is Status.CHANGED
    found.claim({"": {VF: 1}})
    return found


def test_a_conversion_is_taken_back_once_its_time_is_over(one: OneHost, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stands(one)
    assert convert(one).status is Status.CHANGED
    assert stands(one)[1] == {f"host_{NIC}": {VF: 1}}
    assert wait(one) is None

    monkeypatch.setattr("time.time", lambda: BY_S + 1)
    done = wait(one)

    assert done
    assert (done.status, stands(one), trial_of(one)) == (Status.CHANGED, before, None)
    assert wait(one) is None


def test_a_confirmed_conversion_stands(one: OneHost, monkeypatch: pytest.MonkeyPatch) -> None:
    convert(one)
    after = stands(one)
    waiting = trial_of(one)
    assert waiting
    end_trial(waiting, "confirmed")

    monkeypatch.setattr("time.time", lambda: BY_S + 1)

    assert (wait(one), stands(one)) == (None, after)


@pytest.mark.parametrize("writes", range(3))
def test_a_conversion_that_was_cut_off_at_any_write_is_taken_back_whole(
    one: OneHost, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stands(one)
    one.sender.left = writes
    with pytest.raises(Cut):
        convert(one)
    one.sender.left = None

    monkeypatch.setattr("time.time", lambda: BY_S + 1)
    wait(one)
    one.sync(policy=replace(one.policy, layout="flat"))

    assert (stands(one), trial_of(one)) == (before, None)


def test_taking_it_back_may_be_cut_off_too(one: OneHost, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stands(one)
    convert(one)
    monkeypatch.setattr("time.time", lambda: BY_S + 1)
    one.sender.left = cuts = 0
    while True:
        try:
            wait(one)
            break
        except Cut:
            cuts += 1
            one.sender.left = cuts

    assert cuts
    assert (stands(one), trial_of(one)) == (before, None)


@pytest.mark.parametrize("guests", [True, False], ids=["with a guest", "without any"])
@pytest.mark.parametrize("layout", ["flat", "numa"])
@pytest.mark.parametrize("wishes", [Wishes(), Wishes(reshape=True)], ids=["a pass", "one that may convert"])
def test_while_one_is_on_trial_no_pass_makes_another_layout_and_it_is_taken_back(
    one: OneHost, wishes: Wishes, layout: Layout, monkeypatch: pytest.MonkeyPatch, *, guests: bool
) -> None:
    before = stands(one)[0]
    convert(one)
    if not guests:
        one.claim({})
    after = stands(one)

    refused = one.sync(wishes, policy=replace(one.policy, layout=layout))

    assert (refused.status, stands(one)) == (Status.RESHAPE_NEEDED, after), refused.notes
    assert "is on trial until 2096-10-02T07:06:40+00:00: run reshape --confirm" in refused.notes[0]
    assert trial_of(one)
    monkeypatch.setattr("time.time", lambda: BY_S + 1)
    done = wait(one)
    assert done
    if layout == "numa" and not guests:  # the next pass would make that layout of a tree without guests
        assert done.status is Status.UNSAFE
    else:
        assert (stands(one)[0], trial_of(one)) == (before, None)


def test_what_cannot_be_taken_back_exactly_stays_until_it_can(one: OneHost, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stands(one)
    convert(one)
    one.set_by_hand(NIC, VF, max_unit=1)
    monkeypatch.setattr("time.time", lambda: BY_S + 1)

    refused = wait(one)
    assert refused
    assert refused.status is Status.UNSAFE
    assert trial_of(one)
    one.set_by_hand(NIC, VF, max_unit=4)

    assert wait(one)
    assert stands(one) == before


def test_a_damaged_journal_stops_no_pass_and_is_told(one: OneHost, monkeypatch: pytest.MonkeyPatch) -> None:
    convert(one)
    (entry,) = (one.settings.folders.state / "journal").iterdir()
    entry.write_text("{}")
    monkeypatch.setattr("time.time", lambda: BY_S + 1)

    with locked(one.settings.folders.state):
        (told,) = heed_trial(one.node)

    assert told.kind == "trial"
    assert "is not taken back" in told.text
    assert "is damaged" in told.text
    assert how_to_keep(one.node).startswith("it is not known whether a conversion is on trial: ")


def undo(one: OneHost) -> Outcome:
    last = kept_conversions(read_journal(one.settings.folders.state, one.node.where))[-1]
    wishes = replace(RESHAPE, force=False, undone=last, configured=last.layout)
    return one.sync(wishes, policy=replace(one.policy, layout="flat"))


def test_nothing_is_on_trial_after_an_undo_and_another_trial_is_one_of_its_own(
    one: OneHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stands(one)
    convert(one)
    assert (undo(one).status, trial_of(one)) == (Status.CHANGED, None)
    convert(one)
    monkeypatch.setattr("time.time", lambda: BY_S + 1)

    assert wait(one)
    assert (stands(one), trial_of(one)) == (before, None)


@pytest.mark.parametrize("first", [0.0, BY_S], ids=["only the second on trial", "only the first"])
def test_a_conversion_is_on_trial_if_one_of_its_attempts_was(
    one: OneHost, first: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stands(one)
    devices = replace(one.policy, layout="devices")
    one.sender.left = 1
    with pytest.raises(Cut):
        one.sync(replace(RESHAPE, force=False, confirm_by_s=first), policy=devices)
    one.sender.left = None
    assert one.sync(replace(RESHAPE, force=False, confirm_by_s=BY_S - first)).status is Status.CHANGED
    monkeypatch.setattr("time.time", lambda: BY_S + 1)

    assert wait(one)
    assert (stands(one), trial_of(one)) == (before, None)


def test_many_failures_to_take_it_back_do_not_push_it_out_of_the_journal(
    one: OneHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.sync.journal._KEPT", 2)
    before = stands(one)
    convert(one)
    monkeypatch.setattr("time.time", lambda: BY_S + 1)
    for writes in (0, 0, 0, 1, 0, 0):
        one.sender.left = writes
        with pytest.raises(Cut):
            wait(one)
    one.sender.left = None

    assert wait(one)
    assert (stands(one), trial_of(one)) == (before, None)


def test_nor_do_they_push_out_its_first_attempt(one: OneHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.sync.journal._KEPT", 2)
    before = stands(one)
    with suppress(Cut), one.ending_after(1):
        convert(one)
    convert(one)
    monkeypatch.setattr("time.time", lambda: BY_S + 1)
    for _ in range(5):
        with suppress(Cut), one.ending_after(0):
            wait(one)

    done = wait(one)
    assert done
    assert (done.status, stands(one), trial_of(one)) == (Status.CHANGED, before, None), done.notes


def test_conversions_in_another_placement_do_not_push_it_out(one: OneHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.sync.journal._KEPT", 2)
    convert(one)
    folder = one.settings.folders.state / "journal"
    (entry,) = folder.iterdir()
    body = json.loads(entry.read_text())
    body.pop("checksum")
    other = {**body, "where": "placement at http://elsewhere", "confirm_by_s": None}
    for number in range(4):
        (folder / f"9{number}{entry.name}").write_text(json.dumps({**other, "checksum": checksum(other)}))

    _remove_old(one.settings.folders.state, "placement at http://elsewhere")

    assert len(list(folder.iterdir())) == 3
    assert trial_of(one)


def test_a_take_back_that_did_nothing_lets_a_person_keep_the_conversion(
    one: OneHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert(one)
    after = stands(one)
    with monkeypatch.context() as later:
        later.setattr("time.time", lambda: BY_S + 1)
        for _ in range(2):
            with suppress(Cut), one.ending_after(0):
                wait(one)
    trial = trial_of(one)
    assert trial
    assert trial.outcome.startswith("it is being taken back")

    assert convert_now(replace(one.node, settings=settings_with(one, "devices")), RESHAPE).status is Status.UNCHANGED

    trial = trial_of(one)
    assert trial
    assert (trial.outcome, stands(one)) == (DONE, after)


def test_an_attempt_that_did_nothing_stays_one_whatever_layout_is_found_later(
    one: OneHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert(one)
    with monkeypatch.context() as later:
        later.setattr("time.time", lambda: BY_S + 1)
        with suppress(Cut), one.ending_after(0):
            wait(one)
    directory, where = one.settings.folders.state, one.node.where
    end_begun(directory, where, "devices")
    void = read_journal(directory, where)

    end_begun(directory, where, "devices")
    end_begun(directory, where, "flat")

    assert read_journal(directory, where) == void
    assert [each.outcome == DONE for each in void] == [True, False]


@pytest.mark.parametrize("writes", [0, 1])
def test_one_that_is_half_taken_back_is_taken_back_whole_or_kept_whole(
    one: OneHost, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stands(one)
    convert(one)
    after = stands(one)
    with pytest.raises(Cut), one.ending_after(writes):
        undo(one)

    one.sync(RESHAPE, policy=replace(one.policy, layout="devices"))
    monkeypatch.setattr("time.time", lambda: BY_S + 1)
    trial = trial_of(one)
    assert trial
    kept = trial.outcome == DONE
    assert not kept or stands(one) == after
    one.policy = replace(one.policy, layout="flat")
    wait(one)
    one.sync()

    assert (stands(one), trial_of(one)) == (before, None)


def test_a_clock_that_is_set_back_hides_no_trial(one: OneHost, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ahead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Ahead":
            return super().now(tz) + timedelta(hours=1)

    with monkeypatch.context() as ahead:
        ahead.setattr("agent.sync.journal.datetime", Ahead)
        assert one.reshape("devices").status is Status.CHANGED

    assert one.sync(replace(RESHAPE, confirm_by_s=BY_S), policy=replace(one.policy, layout="flat")).status is (
        Status.CHANGED
    )
    trial = trial_of(one)
    assert trial
    assert trial.target == "flat"


def test_what_a_guest_gets_between_two_attempts_is_its_own_when_they_are_taken_back(
    one: OneHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    with suppress(Cut), one.ending_after(0):
        convert(one)
    one.claim({"": {VF: 1, "VCPU": 1}})
    before = stands(one)
    assert convert(one).status is Status.CHANGED
    monkeypatch.setattr("time.time", lambda: BY_S + 1)

    done = wait(one)
    assert done
    assert (done.status, stands(one)) == (Status.CHANGED, before), done.notes


def test_one_that_is_being_taken_back_is_not_whole(one: OneHost, monkeypatch: pytest.MonkeyPatch) -> None:
    convert(one)
    monkeypatch.setattr("time.time", lambda: BY_S + 1)
    one.sender.left = 1
    with pytest.raises(Cut):
        wait(one)

    trial = trial_of(one)
    assert trial
    assert trial.outcome.startswith("it is being taken back")


def test_a_take_back_that_is_refused_leaves_the_passes_as_they_are(
    one: OneHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert(one)
    one.claim({})
    lost = host(plain())
    monkeypatch.setattr("time.time", lambda: BY_S + 1)
    ends = []
    for _ in range(4):
        one.sync(facts=lost)
        ends.append(wait(one))

    assert [end and end.status for end in ends] == [Status.UNSAFE] * 4
    assert f"host_{NIC}" not in one.tree().by_name


def test_nothing_is_taken_back_that_the_service_would_make_again(one: OneHost, monkeypatch: pytest.MonkeyPatch) -> None:
    convert(one)
    after = stands(one)
    monkeypatch.setattr("time.time", lambda: BY_S + 1)
    changes = replace(one.settings.changes, allow_reshape=True)
    node = replace(one.node, settings=replace(one.settings, changes=changes, policy=one.policy))

    with locked(one.settings.folders.state):
        (told,) = heed_trial(node)

    assert "allow_reshape is true" in told.text
    assert stands(one) == after


@pytest.mark.parametrize(
    ("wishes", "says"),
    [(Wishes(), True), (Wishes(deep=True, reshape=True), True), (Wishes(reshape=True), False)],
    ids=["sync", "the service, which may reshape", "the verb reshape"],
)
def test_a_conversion_is_a_warning_of_the_log_where_no_person_asked_for_it(
    one: OneHost, caplog: pytest.LogCaptureFixture, wishes: Wishes, *, says: bool
) -> None:
    one.claim({})
    devices = replace(one.policy, layout="devices")

    assert one.sync(wishes, policy=devices, facts=replace(FACTS, guests=())).status is Status.CHANGED

    assert ("converted as [compute] layout says node=host from=flat to=devices" in caplog.text) == says


class Lossy(Sender):
    """Loses the answer to one write, which takes effect."""

    lost = -1  # number of that write; below zero: none

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        answer = super().request(url, method, **kwargs)
        self.lost -= method != "GET"
        if method != "GET" and self.lost == -1:
            raise Cut
        return answer


@pytest.mark.parametrize("layout", ["devices", "numa"])
@pytest.mark.parametrize("lost", range(5))
def test_a_conversion_whose_answer_was_lost_is_whole_after_another_attempt(
    tmp_path: Path, lost: int, layout: Layout
) -> None:
    one = start(tmp_path, sender := Lossy())
    policy, wishes = replace(one.policy, layout=layout), replace(RESHAPE, force=False, confirm_by_s=BY_S)
    sender.lost = lost
    with suppress(Cut):
        one.sync(wishes, policy=policy)

    assert one.sync(replace(RESHAPE, force=False)).status in (Status.CHANGED, Status.UNCHANGED)

    trial = trial_of(one)
    assert trial
    assert trial.outcome == DONE


def test_a_take_back_whose_answer_was_lost_ends_the_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = start(tmp_path, sender := Lossy())
    before = stands(one)
    convert(one)
    monkeypatch.setattr("time.time", lambda: BY_S + 1)
    sender.lost = 0
    with pytest.raises(Cut):
        wait(one)

    assert wait(one)
    assert (stands(one), trial_of(one)) == (before, None)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_host_that_is_held_is_taken_back_with_what_it_has(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = OneHost(tmp_path, FACTS, Policy(layout="devices", devices=DevicePolicy(discover_all=True)))
    one.sync()
    one.claim({NIC: {VF: 1}, "": {"VCPU": 1, "MEMORY_MB": 512}})
    before = stands(one)
    drain, release = (Wishes(asked={BODY: HoldWish(what=HOST, note=note)}) for note in (Note(), None))
    if when == "before":
        one.sync(drain)
    wishes = replace(RESHAPE, force=False, confirm_by_s=BY_S)
    assert one.sync(wishes, policy=replace(one.policy, layout="flat")).status is Status.CHANGED
    one.policy = replace(one.policy, layout="devices")
    one.sync(release if when == "before" else drain)

    monkeypatch.setattr("time.time", lambda: BY_S + 1)
    done = wait(one)

    assert done
    assert done.status is Status.CHANGED, done.reasons
    one.sync(release)
    assert stands(one) == before


def test_a_conversion_on_trial_that_was_cut_off_goes_before_another_layout(one: OneHost) -> None:
    with suppress(Cut), one.ending_after(2):
        convert(one)
    assert trial_of(one)
    settings = replace(one.settings, policy=replace(one.policy, layout="numa"))
    before = stands(one)

    done = convert_now(replace(one.node, settings=settings), replace(RESHAPE, force=False))

    assert (stands(one), "and was cut off: run undo --apply" in done.reasons[0]) == (before, True), done.reasons


@pytest.mark.parametrize(
    ("guests", "memory"),
    [
        pytest.param((FLOATS,), "NUMA1", id="a guest that is not bound"),
        pytest.param((), "NUMA1", id="a consumer that is not known here"),
        pytest.param((), "NUMA0_PAGES_2048", id="huge pages of one that is not known here"),
    ],
)
def test_what_placement_gave_of_several_cells_or_of_huge_pages_goes_back_there(
    tmp_path: Path, guests: tuple[Guest, ...], memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = replace(host(*card(NIC, 4)), cells=with_huge_pages(), guests=guests)
    one = OneHost(tmp_path, facts, Policy(layout="cells", devices=DevicePolicy(discover_all=True)))
    assert one.sync().status is Status.CHANGED
    one.claim({"NUMA0": {"VCPU": 1}, memory: {"MEMORY_MB": 512}})
    before = stands(one)
    wishes = replace(RESHAPE, force=False, confirm_by_s=BY_S)
    assert one.sync(wishes, policy=replace(one.policy, layout="flat")).status is Status.CHANGED
    monkeypatch.setattr("time.time", lambda: BY_S + 1)

    done = wait(one)
    assert done
    assert done.status is Status.CHANGED, done.notes
    assert (stands(one), trial_of(one)) == (before, None)


def test_a_guest_that_has_huge_pages_since_is_counted_there_when_its_conversion_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = replace(host(*card(NIC, 4)), cells=with_huge_pages(), guests=(FLOATS,))
    one = OneHost(tmp_path, facts, Policy(layout="cells", devices=DevicePolicy(discover_all=True)))
    one.sync()
    one.claim({"NUMA0": {"VCPU": 1, "MEMORY_MB": 512}})
    one.sync(replace(RESHAPE, force=False, confirm_by_s=BY_S), policy=replace(one.policy, layout="flat"))
    larger = replace(FLOATS, vcpus=(frozenset(), frozenset()), memory=(GuestMemory(512, huge=True, page_kib=2048),))
    one.facts = replace(facts, guests=(larger,))
    one.claim({"": {"VCPU": 2, "MEMORY_MB": 512}})
    monkeypatch.setattr("time.time", lambda: BY_S + 1)

    assert wait(one)
    assert one.held()["host_NUMA0_PAGES_2048"] == {"MEMORY_MB": 512}


@pytest.mark.parametrize("guests", [True, False], ids=["with a guest", "without any"])
@pytest.mark.parametrize("act", [run_pass, convert_now, convert_approved], ids=lambda act: str(act.__name__))
@pytest.mark.parametrize("may", [True, False], ids=["it may reshape", "it may not"])
def test_beside_a_damaged_journal_nothing_is_converted_until_it_is_moved_away(
    one: OneHost, act: Callable[[ComputeNode, Wishes], Outcome], *, may: bool, guests: bool
) -> None:
    convert(one)
    if not guests:
        one.claim({})
    after = stands(one)
    (entry,) = (one.settings.folders.state / "journal").iterdir()
    entry.write_text("torn")
    changes = replace(one.settings.changes, allow_reshape=may)
    settings = replace(one.settings, changes=changes, policy=replace(one.policy, layout="flat"))
    node, wishes = replace(one.node, settings=settings), Wishes(reshape=may)

    refused = act(node, wishes)
    assert (refused.status, stands(one)) == (Status.RESHAPE_NEEDED, after)
    assert "it is not known whether a conversion is on trial, so none begins" in refused.notes[0]

    entry.unlink()
    assert convert_now(node, wishes).status is Status.CHANGED


def test_beside_a_damaged_journal_a_pass_without_a_conversion_goes_on(one: OneHost) -> None:
    convert(one)
    (entry,) = (one.settings.folders.state / "journal").iterdir()
    entry.write_text("torn")

    larger = replace(FACTS, cells=with_huge_pages())
    done = one.sync(Wishes(reshape=True), policy=replace(one.policy, layout="devices"), facts=larger)

    assert done.status is Status.CHANGED


def test_a_host_that_is_renamed_during_a_trial_is_not_converted(one: OneHost) -> None:
    convert(one)
    settings = replace(one.settings, policy=replace(one.policy, layout="numa"))
    renamed = replace(one.node, name="other", settings=settings)

    refused = run_pass(renamed, Wishes(reshape=True, rename_from="host"))

    assert (refused.status, "is on trial until" in refused.notes[0]) == (Status.RESHAPE_NEEDED, True), refused.notes


def test_retire_ends_a_trial(one: OneHost) -> None:
    convert(one)
    one.claim({})

    assert one.retire().status is Status.CHANGED

    assert trial_of(one) is None


def test_a_retire_that_cannot_note_the_end_of_a_trial_says_so_and_does_it_the_next_time(
    one: OneHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert(one)
    one.claim({})

    def full(*_: object, **__: object) -> None:
        raise StateError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("agent.sync.journal._change_entry", full)
        with pytest.raises(StateError, match=r"the trial of .* ended \(retired\), but .* cannot say so: no space"):
            one.retire()
    assert trial_of(one)

    assert one.retire().status is Status.UNCHANGED
    assert trial_of(one) is None


def test_a_host_that_is_handed_over_is_not_taken_back(one: OneHost, monkeypatch: pytest.MonkeyPatch) -> None:
    convert(one)
    one.policy = replace(one.policy, layout="devices")
    assert one.hand_over().status is Status.CHANGED
    after = stands(one)
    monkeypatch.setattr("time.time", lambda: BY_S + 1)

    assert (wait(one), stands(one)) == (None, after)


def test_a_host_that_is_held_and_handed_over_says_what_stays_reserved(one: OneHost) -> None:
    convert(one)
    one.policy = replace(one.policy, layout="devices")
    one.sync(Wishes(asked={BODY: HoldWish(what=HOST, note=Note())}))

    assert "stay reserved until nova-compute writes its own" in one.hand_over().notes[0]


def test_while_one_is_on_trial_its_layout_is_no_finding(one: OneHost) -> None:
    convert(one)
    one.policy = replace(one.policy, layout="flat")

    assert "other-layout" not in {each.kind.value for each in witness(one.node).findings}

    trial = trial_of(one)
    assert trial
    end_trial(trial, "confirmed")
    assert "other-layout" in {each.kind.value for each in witness(one.node).findings}


def test_only_a_change_of_the_layout_can_be_on_trial(one: OneHost) -> None:
    before = stands(one)

    refused = one.sync(
        replace(RESHAPE, confirm_by_s=BY_S), facts=replace(FACTS, cells=with_huge_pages()), policy=one.policy
    )

    assert (refused.status, stands(one)) == (Status.UNSAFE, before)
    assert "no layout changes" in refused.notes[0]


def test_a_conversion_that_moves_nothing_is_on_trial_and_taken_back(
    one: OneHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    one.claim({})
    one.facts = replace(FACTS, guests=())
    before = stands(one)
    wishes = replace(RESHAPE, confirm_by_s=BY_S)
    configured = one.policy
    assert convert_now(replace(one.node, settings=settings_with(one, "devices")), wishes).status is Status.CHANGED
    assert stands(one) != before
    assert one.sync(policy=configured).status is Status.RESHAPE_NEEDED
    monkeypatch.setattr("time.time", lambda: BY_S + 1)

    assert wait(one)
    assert (stands(one), trial_of(one)) == (before, None)


def test_one_that_was_cut_off_and_whose_time_is_over_is_not_gone_on_with(
    one: OneHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stands(one)
    with suppress(Cut), one.ending_after(1):
        convert(one)
    monkeypatch.setattr("time.time", lambda: BY_S + 1)
    node = replace(one.node, settings=settings_with(one, "devices"))

    refused = convert_now(node, Wishes(reshape=True))
    assert (refused.status, stands(one)[1]) == (Status.RESHAPE_NEEDED, before[1])
    assert "and was cut off: run undo --apply" in refused.notes[0]

    assert convert_now(node, Wishes(reshape=True, confirm_by_s=BY_S + 60)).status is Status.CHANGED


def test_an_entry_that_is_moved_away_meanwhile_does_not_count(one: OneHost) -> None:
    convert(one)
    trial = trial_of(one)
    assert trial
    (entry,) = (one.settings.folders.state / "journal").iterdir()
    entry.unlink()
    entry.symlink_to("/nowhere")  # as listed, and gone when it is read

    assert trial_of(one) is None
    end_trial(trial, "confirmed")


def test_an_undo_of_one_that_was_cut_off_ends_its_trial(one: OneHost) -> None:
    before = stands(one)
    with suppress(Cut), one.ending_after(1):
        convert(one)
    assert trial_of(one)

    assert undo(one).status in (Status.CHANGED, Status.UNCHANGED)

    assert (stands(one), trial_of(one)) == (before, None)


def test_a_trial_is_found_behind_the_entry_of_another_placement(one: OneHost) -> None:
    convert(one)
    folder = one.settings.folders.state / "journal"
    (entry,) = folder.iterdir()
    body = json.loads(entry.read_text())
    body.pop("checksum")
    other = {**body, "where": "placement at http://elsewhere", "confirm_by_s": None}
    (folder / f"9{entry.name}").write_text(json.dumps({**other, "checksum": checksum(other)}))

    assert trial_of(one)


def test_a_trial_that_is_taken_back_is_told_no_more_whatever_else_is_told(
    one: OneHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert(one)
    with locked(one.settings.folders.state):
        (told,) = heed_trial(one.node)
    assert told.text.endswith("unless reshape --confirm comes")
    monkeypatch.setattr("time.time", lambda: BY_S + 1)
    odd = Condition(kind="odd", text="something stands")
    monkeypatch.setattr("agent.sync.run.conditions_on", lambda _draft: (odd,))

    with locked(one.settings.folders.state):
        assert heed_trial(one.node) == ()
