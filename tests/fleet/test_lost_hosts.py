"""Hosts that cannot be reached, and what else must not be taken for done."""

import stat
from pathlib import Path

import pytest

from beds.agents import COMMAND
from beds.by_hand import ByHand
from beds.inventory import Fleet, FleetHost, make_hosts, trees
from beds.placement import PlacementServer

pytestmark = pytest.mark.live
LOST = "the host cannot be reached"


@pytest.fixture
def fleet(placement_server: PlacementServer, tmp_path: Path) -> Fleet:
    return Fleet(make_hosts(tmp_path / "hosts", placement_server.url, 3), tmp_path)


def approved(fleet: Fleet) -> None:
    assert fleet.play("plan").code == 0
    assert fleet.play("approve", fleet_approve="all").code == 0


def lose_after(fleet: Fleet, host: FleetHost, word: str) -> None:
    """The host is lost once a run of the command with this word is over."""
    command = host.folder / "command"
    command.write_text(
        f'#!/bin/sh\n{COMMAND} "$@"\ncode=$?\ncase " $* " in *" {word} "*) touch {fleet.lost / host.name};; esac\n'
        f"exit $code\n",
        encoding="utf-8",
    )
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    fleet.own[host.name] = {"fleet_command": [str(command)]}


def find(fleet: Fleet, host: FleetHost) -> None:
    (fleet.lost / host.name).unlink()
    fleet.own.clear()


def test_a_host_that_cannot_be_reached_is_called_so_everywhere(fleet: Fleet, placement_server: PlacementServer) -> None:
    placement, (first, second, third) = ByHand(placement_server.url), fleet.hosts
    fleet.lost.mkdir()
    (fleet.lost / second.name).touch()

    assert fleet.play("plan").code == 0
    summary = fleet.read("summary.json")
    assert summary["outcomes"] == {"convert": [first.name, third.name], "unreachable": [second.name]}
    assert summary["records"][1]["notes"] == [LOST]
    (fleet.lost / second.name).unlink()
    approved(fleet)
    before = dict(trees(placement))
    (fleet.lost / second.name).touch()

    converted = fleet.play("convert", fleet_batches=[2, 1])
    assert converted.code != 0
    assert fleet.states() == {first.name: "converted", second.name: "failed", third.name: "not begun"}
    assert fleet.read("convert.json")[second.name]["why"] == LOST
    audited = fleet.play("audit")
    assert audited.code != 0
    found = fleet.read("audit.json")[second.name]
    assert (found["state"], found["why"], found["findings"]) == ("failed", LOST, [])
    reverted = fleet.play("revert")
    assert reverted.code != 0
    assert fleet.states("revert.json")[second.name] == "failed"

    (fleet.lost / second.name).unlink()
    assert fleet.play("revert").code == 0
    assert dict(trees(placement)) == before


@pytest.mark.parametrize("word", ["--approve", "--list"])
def test_a_host_that_is_lost_in_the_middle_is_not_called_done(
    word: str, fleet: Fleet, placement_server: PlacementServer
) -> None:
    placement, host = ByHand(placement_server.url), fleet.hosts[1]
    approved(fleet)
    before = dict(trees(placement))
    if word == "--list":
        assert fleet.play("convert").code == 0
    lose_after(fleet, host, word)

    name = "convert" if word == "--approve" else "revert"
    lost = fleet.play(name, fleet_batches=["100%"])

    assert lost.code != 0
    noted = fleet.read(f"{name}.json")[host.name]
    assert (noted["state"], noted["why"]) == ("failed", LOST)
    find(fleet, host)
    assert fleet.play(name).code == 0
    if name == "convert":
        assert fleet.states()[host.name] == "converted"
        assert fleet.play("revert").code == 0
    assert dict(trees(placement)) == before


def test_failures_within_the_limit_go_on_and_end_with_a_failure(fleet: Fleet) -> None:
    approved(fleet)
    (fleet.lost / fleet.hosts[0].name).touch()

    done = fleet.play("convert", fleet_batches=[1, 2], fleet_max_failures=1)

    assert done.code != 0
    assert "All batches are done, and 1 failed" in done.out
    assert list(fleet.states().values()) == ["failed", "converted", "converted"]


def test_without_a_terminal_the_next_batch_waits_for_a_person(fleet: Fleet) -> None:
    approved(fleet)

    done = fleet.play("convert", fleet_batches=[1, 2], fleet_pause_for_a_person=True)

    assert done.code != 0
    assert "nobody said yes" in done.out
    assert list(fleet.states().values()) == ["converted", "not begun", "not begun"]


def test_the_summary_has_the_hosts_that_were_asked(fleet: Fleet) -> None:
    limited = ",".join(host.name for host in fleet.hosts[:2])

    assert fleet.play("plan", "--limit", limited).code == 0

    assert [one["host"] for one in fleet.read("summary.json")["records"]] == limited.split(",")


def test_a_folder_whose_place_depends_on_who_looks_is_refused(fleet: Fleet) -> None:
    done = fleet.play("plan", fleet_folder="plans/today")

    assert done.code != 0
    assert "must be an absolute path" in done.out


def test_check_mode_leaves_the_record_of_the_last_run_alone(fleet: Fleet) -> None:
    approved(fleet)
    (fleet.lost / fleet.hosts[0].name).touch()
    assert fleet.play("convert", fleet_batches=["100%"]).code != 0
    before = fleet.read("convert.json")
    (fleet.lost / fleet.hosts[0].name).unlink()

    assert fleet.play("convert", check=True).code == 0

    assert fleet.read("convert.json") == before
    assert list(fleet.states("check-convert.json").values()) == ["would be converted", "done before", "done before"]


def test_a_file_with_other_options_is_not_replaced(fleet: Fleet) -> None:
    approved(fleet)
    host = fleet.hosts[1]
    text = "[compute]\nlayout = devices\n\n[DEFAULT]\nreserved_host_memory_mb = 1024\n"
    host.layout.write_text(text, encoding="utf-8")

    done = fleet.play("convert", fleet_batches=["100%"])

    assert done.code != 0
    assert "has other options than [compute] layout" in fleet.read("convert.json")[host.name]["why"]
    assert host.layout.read_text(encoding="utf-8") == text
    assert fleet.states()[host.name] == "failed"


def test_a_host_that_fails_outside_of_its_own_steps_stops_the_next_batch(fleet: Fleet) -> None:
    approved(fleet)
    first, second, third = fleet.hosts
    garbage = second.folder / "garbage"
    garbage.write_text("#!/bin/sh\necho '{garbage'\nexit 1\n", encoding="utf-8")
    garbage.chmod(stat.S_IRWXU)
    fleet.own = {first.name: {"fleet_status_tries": "many"}, second.name: {"fleet_command": [str(garbage)]}}

    done = fleet.play("convert", fleet_batches=[2, 1])

    assert done.code != 0
    assert list(fleet.states().values()) == ["failed", "failed", "not begun"]
    assert "fleet_status_tries" in fleet.read("convert.json")[first.name]["why"]
    assert third.layout.read_text(encoding="utf-8") == "[compute]\nlayout = devices\n"


def test_two_playbooks_in_one_run_do_not_take_each_others_results(
    fleet: Fleet, placement_server: PlacementServer
) -> None:
    approved(fleet)
    before = dict(trees(ByHand(placement_server.url)))

    done = fleet.play("convert", "compute_node_agent.fleet.revert")

    assert done.code == 0, done.out
    assert set(fleet.states().values()) == {"converted"}
    assert set(fleet.states("revert.json").values()) == {"reverted"}
    assert dict(trees(ByHand(placement_server.url))) == before


@pytest.mark.parametrize("batches", [[], "0", [1, "x"], None])
def test_batches_that_are_none_are_refused(batches: object, fleet: Fleet) -> None:
    approved(fleet)

    done = fleet.play("convert", fleet_batches=batches)

    assert done.code != 0
    assert "must be a list of numbers of hosts" in done.out
    assert not (fleet.change / "convert.json").exists()


def test_the_layout_is_that_of_the_approved_plans(fleet: Fleet) -> None:
    approved(fleet)

    assert fleet.play("convert", fleet_layout="").code == 0

    assert set(fleet.states().values()) == {"converted"}
    assert all("numa" in host.layout.read_text(encoding="utf-8") for host in fleet.hosts)


def test_a_run_over_some_hosts_keeps_what_was_noted_of_the_others(fleet: Fleet) -> None:
    approved(fleet)
    first, second, _ = (host.name for host in fleet.hosts)
    assert fleet.play("convert", "--limit", first).code == 0

    assert fleet.play("convert", "--limit", second).code == 0

    assert fleet.states() == {first: "converted", second: "converted"}


def test_a_look_ahead_sees_a_plan_that_changed(fleet: Fleet) -> None:
    approved(fleet)
    host = fleet.hosts[0]
    text = host.config.read_text(encoding="utf-8")
    host.config.write_text(f"[DEFAULT]\nreserved_host_disk_mb = 4096\n{text}", encoding="utf-8")

    done = fleet.play("convert", check=True)
    assert done.code == 0, done.out

    states = list(fleet.states("check-convert.json").values())
    assert states == ["would be refused", "would be converted", "would be converted"]


def test_what_is_known_of_a_host_stays_until_another_run_comes_to_it(fleet: Fleet) -> None:
    approved(fleet)
    assert fleet.play("convert").code == 0
    (fleet.lost / fleet.hosts[0].name).touch()

    assert fleet.play("convert", fleet_batches=[1, 2]).code != 0

    assert list(fleet.states().values()) == ["failed", "converted", "converted"]


def test_one_host_under_two_names_is_not_approved(fleet: Fleet) -> None:
    first, second, _ = fleet.hosts
    fleet.own[second.name] = {"fleet_arguments": first.arguments}
    assert fleet.play("plan").code == 0

    refused = fleet.play("approve", fleet_approve="all")

    assert refused.code != 0
    assert "the same host under two names" in refused.out


def test_a_host_whose_configuration_stays_at_the_new_layout_is_not_called_back(fleet: Fleet) -> None:
    approved(fleet)
    assert fleet.play("convert").code == 0
    host = fleet.hosts[1]
    fleet.own[host.name] = {"fleet_layout_file": ""}

    assert fleet.play("revert").code != 0

    why = fleet.read("revert.json")[host.name]["why"]
    assert why.startswith("taken back, but its configuration says [compute] layout = numa")
    fleet.own.clear()
    assert fleet.play("revert").code == 0
    assert fleet.states("revert.json")[host.name] == "done before"
    assert "devices" in host.layout.read_text(encoding="utf-8")
