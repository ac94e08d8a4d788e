"""Saved cases: the same look once more, from what was read then and from nothing else."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from keystoneauth1 import exceptions

from agent.errors import USER_ERRORS
from agent.settings.read import load_settings
from agent.settings.saved import encode_options
from agent.state.clock import StoppedClock
from agent.sync.case import open_case
from agent.sync.decide.checks import judge
from agent.sync.decide.plan import draft
from agent.sync.decide.view import Unread, View, Wishes
from agent.sync.json_form import encode, encode_observed_tree, encode_plan
from agent.sync.node import ComputeNode
from agent.sync.recorder import Recorder, packed_case
from agent.sync.run import foresee
from beds.worlds import CARDS, STYLES, World, worlds
from configured import changed
from drivers.errors import DiscoveryError
from drivers.policy import Layout
from reportclient.client import PlacementClient
from reportclient.errors import PlacementError
from reportclient.forecast import forecast
from reportclient.recording import (
    Exchange,
    RecordedSender,
    RecordingSender,
    Unrecorded,
    decode_exchanges,
    encode_exchanges,
)
from reportclient.transport import Transport

RESHAPE = Wishes(reshape=True)
layouts = st.sampled_from(get_args(Layout))
cards = st.integers(0, len(CARDS) - 1)
changes = st.one_of(
    st.tuples(st.just("layout"), layouts),
    st.tuples(st.just("seen"), cards, st.booleans()),
    st.tuples(st.just("offers"), cards, st.sampled_from(("off", "second", "whole"))),
    st.tuples(st.just("name"), st.just("other")),
)


@pytest.fixture(scope="module")
def make() -> Iterator[Any]:
    with worlds() as maker:
        yield maker


def looked(node: ComputeNode) -> str:
    """What a look tells, as text: the plan with its trees and the verdict, or the refusal."""
    try:
        found = foresee(node, RESHAPE)
    except USER_ERRORS as error:
        return f"{type(error).__name__}: {error}"
    verdict = judge(found)
    plan = encode_plan(found.plan, found.observed), encode_observed_tree(forecast(found.plan, found.observed), ())
    told = [plan, encode([found.way.allocations, found.allocations_after])]
    return json.dumps([told, str(verdict.refused), verdict.notes, encode(found.held)], sort_keys=True)


def asking(node: ComputeNode, sender: Any, told: Any) -> ComputeNode:
    client = PlacementClient(Transport(sender, where="placement", now=told.clock.now_s))
    return replace(node, client=client, clock=lambda: told.clock, probe=told.probe)


def changed_world(make: Any, layout: str, guests: list[Any], several: list[Any]) -> World:
    """A host that stands in placement with its guests, and is another one now."""
    world: World = make(layout=layout, shared=False, bandwidth=False)
    world.take()
    for number, style in guests:
        world.spawn(style, 0, number)
    for what, *how in several:
        if what in ("seen", "offers"):
            world.change_card(what, *how)
        else:
            world.change(**{what: how[0]})
    return world


@given(layouts, st.lists(st.tuples(cards, st.sampled_from(STYLES)), max_size=3), st.lists(changes, max_size=3))
def test_a_look_at_what_was_recorded_is_the_same_look(
    make: Any, layout: str, guests: list[Any], several: list[Any]
) -> None:
    world = changed_world(make, layout, guests, several)
    node = world.node()
    kept = Recorder(StoppedClock("boot", 0.0, world.clock()), {})
    first = looked(
        asking(replace(node, driver=kept.driver(world.driver)), kept.sender("placement", world.crashing), kept)
    )
    event("a plan" if first.startswith("[") else "a refusal")

    answers = decode_exchanges(encode_exchanges(kept.exchanges["placement"]))
    again = looked(asking(node, RecordedSender(answers), kept))

    assert again == first


@given(layouts, st.lists(st.tuples(cards, st.sampled_from(STYLES)), max_size=3), st.lists(changes, max_size=3))
def test_the_same_view_gives_the_same_draft_or_the_same_needs(
    make: Any, layout: str, guests: list[Any], several: list[Any]
) -> None:
    node = changed_world(make, layout, guests, several).node()
    try:
        view = node.view(RESHAPE)
    except USER_ERRORS:
        return

    def decided(view: View) -> object:
        try:
            found = draft(view, node.driver)
        except USER_ERRORS as error:
            return str(error)
        except Unread as unread:
            return vars(unread)
        return found.plan.digest, found.held, found.way.unplaceable

    assert decided(view) == decided(view)


@dataclass(frozen=True)
class Failing:
    error: Exception

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ConnectFailure("nobody listens at http://admin:secret@there/"),
        exceptions.Unauthorized("the password is wrong"),
        FileNotFoundError(2, "No such file or directory", "/etc/ssl/gone.pem"),
        exceptions.EmptyCatalog("The service catalog is empty."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_request_that_failed_fails_again_with_the_same_words(error: Exception) -> None:
    kept: list[Exchange] = []
    with pytest.raises(PlacementError, match="placement: ") as first:
        Transport(RecordingSender(Failing(error), kept), where="placement").get("/traits")
    with pytest.raises(PlacementError, match="placement: ") as again:
        Transport(RecordedSender(decode_exchanges(encode_exchanges(kept))), where="placement").get("/traits")

    assert (type(again.value), str(again.value)) == (type(first.value), str(first.value))
    assert "secret" not in encode_exchanges(kept)


def test_what_was_not_asked_then_is_refused_by_name() -> None:
    with pytest.raises(Unrecorded, match="GET /traits is not in the case"):
        Transport(RecordedSender(()), where="placement").get("/traits")
    assert issubclass(Unrecorded, PlacementError)


CONFIGURED = """\
[DEFAULT]
cpu_allocation_ratio = 2.5
reserved_huge_pages = node:0,size:2048,count:64
reserved_huge_pages = node:1,size:2048,count:8
[compute]
layout = numa
cpu_dedicated_set = 2-5
[libvirt]
virt_type = qemu
cpu_mode = custom
cpu_models = Haswell,SandyBridge
hw_machine_type = x86_64=q35
[pci]
report_in_placement = true
device_spec = {"vendor_id": "8086", "product_id": "1515", "resource_class": "CUSTOM_VF"}
device_spec = {"address": "0000:41:00.0"}
[devices]
enabled_mdev_types = nvidia-222,nvidia-231
[mdev_nvidia-231]
device_addresses = 0000:86:00.0
max_instances = 6
[agent]
root_traits = CUSTOM_ROOT
[placement]
auth_type = password
password = hidden
"""


def test_the_options_of_a_case_give_the_same_policy_and_no_login(tmp_path: Path) -> None:
    (tmp_path / "agent.conf").write_text(CONFIGURED)
    before = load_settings([tmp_path / "agent.conf"])
    text = encode_options(before)
    (tmp_path / "saved.conf").write_text(text)

    after = load_settings([tmp_path / "saved.conf"])

    assert after.policy == before.policy
    assert (after.hypervisor, after.changes) == (before.hypervisor, before.changes)
    assert "hidden" not in text


@pytest.mark.parametrize("content", [b"", b"no archive"])
def test_what_is_no_case_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "case.tar.gz").write_bytes(content)

    with pytest.raises(DiscoveryError, match=r"case\.tar\.gz"), open_case(tmp_path / "case.tar.gz"):
        pass


@pytest.mark.parametrize("files", [None, (), ("one.yaml",)], ids=["no folder", "an empty one", "with a file"])
def test_a_case_knows_an_empty_folder_of_files_from_none(tmp_path: Path, files: tuple[str, ...] | None) -> None:
    folder = tmp_path / "provider_config"
    if files is not None:
        folder.mkdir()
    for name in files or ():
        (folder / name).write_text("meta: {schema_version: '1.0'}\n")
    configured = changed(load_settings([]), folders={"state": tmp_path / "state"}, operator_files={"folder": folder})
    (tmp_path / "case.tar.gz").write_bytes(packed_case(Recorder(), configured, "plan", {}))

    with open_case(tmp_path / "case.tar.gz") as case:
        there = case.settings(configured).operator_files.folder
        assert (sorted(one.name for one in there.iterdir()) if there.is_dir() else None) == (
            None if files is None else list(files)
        )
