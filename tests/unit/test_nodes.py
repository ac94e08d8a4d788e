"""Passes over bare-metal nodes against a placement in memory: two resource classes that placement cannot tell apart."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keystoneauth1.exceptions import ConnectFailure

from agent.state.node_records import MEMORY_NAME, KnownNode, NodesMemory, read_nodes, write_nodes
from agent.sync.decide.view import Wishes
from agent.sync.outcome import Status
from beds.memory import MemoryAnswer, MemoryPlacement
from beds.nodes_world import CLASS, DASH, DOT, World, shards, uuid_of, world
from beds.watched import Watched
from configured import changed
from drivers.errors import DiscoveryError
from drivers.ironic.shape import WAS_CRITICAL
from reportclient.client import PlacementClient
from reportclient.plan import Delete, Plan
from reportclient.transport import Transport
from reportclient.tree import ObservedProvider, ObservedTree, Provider

KNOWN = KnownNode(ObservedProvider(uuid="n", generation=1, provider=Provider(name="n")), None, DASH)
MINE = frozenset({"CUSTOM_MINE", "HW_CPU_X86_VMX"})  # traits of a node


@pytest.fixture
def one() -> Iterator[World]:
    with world() as made:
        yield made


def test_a_node_that_is_renamed_into_a_collision_is_not_on_offer(one: World) -> None:
    one.report({1: DASH, 2: DASH, 3: DASH})
    one.nodes.classes |= {2: DOT, 3: DOT}
    one.sync()
    assert one.offered() == {CLASS: {DASH}}

    one.nodes.classes[1] = DOT
    one.sync()

    assert one.offered() == {CLASS: {DOT}}
    assert one.sync().unchanged == 3


def test_a_collision_is_judged_by_what_stands_when_the_memory_is_lost(one: World) -> None:
    one.report({1: DASH, 2: DASH, 3: DASH})
    one.forget()
    one.nodes.classes |= {3: DOT, 4: DOT, 5: DOT}

    one.sync()

    assert one.offered() == {CLASS: {DASH}}


def test_a_class_that_changed_while_the_memory_was_away_is_replaced(one: World) -> None:
    one.report({1: "gold"})
    one.forget()

    assert one.report({1: "silver"}).count(Status.CHANGED) == 1

    assert one.stock(1) == {"CUSTOM_SILVER": 0}
    assert one.sync().unchanged == 1


def test_a_former_class_beside_the_nodes_own_goes_without_a_memory_too(one: World) -> None:
    one.report({1: "silver"})
    one.offer(1, "CUSTOM_GOLD", max_unit=1)
    one.forget()

    one.sync()

    assert one.stock(1) == {"CUSTOM_SILVER": 0}


@pytest.mark.parametrize("remembers", [True, False])
def test_a_former_class_that_is_held_is_reserved_until_it_is_released(one: World, remembers: bool) -> None:
    one.report({1: "gold"})
    one.claim(1, "CUSTOM_GOLD")
    if not remembers:
        one.forget()
    one.nodes.classes = {1: "silver"}

    for _ in range(2):
        assert one.sync().count(Status.HELD) == 1
        assert one.stock(1) == {"CUSTOM_GOLD": 1}
    one.release(1)
    one.sync()

    assert one.stock(1) == {"CUSTOM_SILVER": 0}


@pytest.mark.parametrize("remembers", [True, False])
def test_a_class_in_another_form_than_ours_stays(one: World, remembers: bool) -> None:
    one.report({1: "gold"})
    one.offer(1, "CUSTOM_LICENCE")
    if not remembers:
        one.forget()

    assert one.report({1: "silver"}).count(Status.CHANGED) == 1

    assert set(one.stock(1)) == {"CUSTOM_SILVER", "CUSTOM_LICENCE"}


@pytest.mark.parametrize("remembers", [True, False])
def test_a_class_that_may_be_a_former_one_in_another_form_is_named(one: World, remembers: bool) -> None:
    one.report({1: "gold"})
    one.offer(1, "CUSTOM_GOLD")
    if not remembers:
        one.forget()

    assert one.report({1: "silver"}).count(Status.CONTESTED) == 1

    assert set(one.stock(1)) == {"CUSTOM_GOLD"}
    assert one.sync(Wishes(force=True)).count(Status.CHANGED) == 1
    assert set(one.stock(1)) == {"CUSTOM_SILVER"}


def test_a_trait_is_ours_only_if_its_node_gave_it(one: World) -> None:
    one.nodes.classes, one.nodes.traits = {1: "gold"}, ["CUSTOM_MINE", "CUSTOM_BOTH"]
    one.sync()
    one.mark(1, "CUSTOM_OPERATORS")
    one.nodes.traits = ["CUSTOM_BOTH"]

    assert one.sync().count(Status.CHANGED) == 1

    assert one.traits(1) == {"CUSTOM_BOTH", "CUSTOM_OPERATORS"}


def test_a_provider_that_nova_left_is_taken_over_and_keeps_what_others_added(one: World) -> None:
    one.nodes.classes = {1: "gold"}
    one.make(1, "OWNER_NOVA", "HW_GPU_API_VULKAN", CUSTOM_OLD={})

    assert [done.count(Status.CHANGED) for done in (one.plan(), one.sync())] == [1, 1]

    assert one.stock(1) == {"CUSTOM_GOLD": 0}
    assert one.traits(1) == {"OWNER_NOVA", "HW_GPU_API_VULKAN"}


def test_a_provider_with_another_owners_mark_is_not_taken_over(one: World) -> None:
    one.nodes.classes = {1: "gold"}
    one.make(1, "OWNER_NOVA", "CUSTOM_OWNER_SOMEBODY", CUSTOM_OLD={})
    before = one.client.observe(uuid_of(1))

    (told,) = one.sync().outcomes

    assert told.status is Status.CONTESTED
    assert "CUSTOM_OWNER_SOMEBODY" in told.notes[0]
    assert one.client.observe(uuid_of(1)) == before


def test_only_novas_own_class_goes_from_a_provider_that_nova_owns(one: World) -> None:
    one.nodes.classes = dict.fromkeys(range(1, 5), "gold")
    one.make(1, "OWNER_NOVA", CUSTOM_GOLD={}, CUSTOM_LICENCE={})
    one.make(2, "OWNER_NOVA", CUSTOM_OLD={})
    one.make(3, "OWNER_NOVA", CUSTOM_OLD={}, CUSTOM_LICENCE={})
    one.make(4, "OWNER_NOVA", CUSTOM_LICENCE={"allocation_ratio": 4})

    done = one.sync()

    assert (done.count(Status.CHANGED), done.count(Status.CONTESTED)) == (2, 2)
    (note,) = (told.notes[0] for told in done.outcomes if told.node == uuid_of(3))
    assert "CUSTOM_LICENCE, CUSTOM_OLD" in note
    assert "sync --force" in note
    assert [set(one.stock(number)) for number in one.nodes.classes] == [
        {"CUSTOM_GOLD", "CUSTOM_LICENCE"},
        {"CUSTOM_GOLD"},
        {"CUSTOM_OLD", "CUSTOM_LICENCE"},
        {"CUSTOM_LICENCE"},
    ]

    one.nodes.classes[1] = "silver"
    assert one.sync().count(Status.CONTESTED) == 3
    one.sync(Wishes(force=True))

    assert (one.stock(1), one.stock(3)) == ({"CUSTOM_SILVER": 0}, {"CUSTOM_GOLD": 0})


def test_a_provider_that_lost_our_mark_is_another_agents_until_a_person_takes_it_over(one: World) -> None:
    one.report({1: "gold"})
    one.set_traits(1, "OWNER_NOVA")

    assert one.sync().count(Status.CONTESTED) == 1

    assert one.traits(1) == {"OWNER_NOVA"}
    assert one.sync(Wishes(take_over=True)).count(Status.CHANGED) == 1


def test_a_pass_that_is_cut_off_leaves_no_class_that_the_next_pass_does_not_know(one: World) -> None:
    """The agent remembers what it gives a node before it writes, so the next pass knows both classes as its own."""
    one.report({1: "gold"})
    watched = Watched(one.placement)

    def lose(method: str, url: str, body: Any) -> MemoryAnswer | None:
        if method == "PUT" and url.endswith("/inventories"):
            watched.write(method, url, body)
            raise ConnectFailure("it was processed")
        return None

    watched.hook = lose
    one.nodes.classes[1] = "silver"
    one.bare_metal = replace(one.bare_metal, client=PlacementClient(Transport(watched, where="placement")))
    assert one.sync().count(Status.FAILED) == 1
    one.bare_metal = replace(one.bare_metal, client=one.client)
    one.nodes.classes[1] = "bronze"

    one.sync()

    assert one.stock(1) == {"CUSTOM_BRONZE": 0}


def test_a_node_that_is_gone_is_reserved_before_it_is_deleted(one: World) -> None:
    one.report({1: "gold", 2: "gold"})
    del one.nodes.classes[1]

    assert one.plan().count(Status.GOING) == 1
    assert one.stock(1) == {"CUSTOM_GOLD": 0}
    assert one.sync().count(Status.GOING) == 1
    assert one.plan().count(Status.DELETED) == 1
    assert one.stock(1) == {"CUSTOM_GOLD": 1}
    assert one.sync().count(Status.DELETED) == 1
    assert one.stock(1) == {}


def test_an_ironic_that_does_not_say_whether_it_has_a_node_is_asked_again_in_the_next_pass(
    one: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one.report(dict.fromkeys(range(1, 9), "gold"))
    one.nodes.classes = dict.fromkeys(range(3, 9), "gold")
    with monkeypatch.context() as patch:
        asked: list[str] = []

        def fail(uuid: str) -> bool:
            asked.append(uuid)
            raise DiscoveryError("it is busy")

        patch.setattr(one.nodes, "is_there", fail)
        (told,) = one.sync().outcomes

    assert (told.node, told.status, len(asked)) == ("2 nodes", Status.FAILED, 1)
    assert told.notes[0].endswith("it is busy")
    assert one.stock(1) == {"CUSTOM_GOLD": 0}
    assert one.sync().count(Status.GOING) == 2


def test_a_node_about_which_ironic_never_answers_keeps_no_other_from_going(
    one: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one.report(dict.fromkeys(range(1, 9), "gold"))
    del one.nodes.classes[1]
    assert one.sync().count(Status.GOING) == 1
    del one.nodes.classes[2]
    there = one.nodes.is_there

    def ask(uuid: str) -> bool:
        if uuid == uuid_of(2):
            raise DiscoveryError("it is broken")
        return there(uuid)

    monkeypatch.setattr(one.nodes, "is_there", ask)

    assert [told.status for told in one.sync().outcomes] == [Status.FAILED, Status.DELETED]


def test_nothing_is_written_when_more_nodes_are_gone_than_may_go_at_once(one: World) -> None:
    """The configuration may name the wrong Ironic."""
    one.report(dict.fromkeys(range(1, 5), "gold"))

    assert one.report({1: "gold"}).count(Status.GOING) == 3
    for done in (one.plan(), one.sync(), one.sync()):
        assert done.count(Status.REFUSED) == 1
    assert "Check that this is the right Ironic" in done.outcomes[0].notes[0]

    assert not any(one.stock(number)["CUSTOM_GOLD"] for number in range(1, 5))
    assert one.sync(Wishes(force=True)).count(Status.DELETED) == 3


def test_a_reservation_of_a_node_that_was_gone_goes_when_it_is_back(one: World) -> None:
    one.report({1: "gold", 2: "gold"})
    del one.nodes.classes[1]
    one.sync()
    assert one.stock(1) == {"CUSTOM_GOLD": 1}

    one.report({1: "gold", 2: "gold"})

    assert one.stock(1) == {"CUSTOM_GOLD": 0}


def test_a_node_that_is_gone_and_held_is_not_on_offer_when_it_is_released(one: World) -> None:
    one.report({1: "gold", 2: "gold"})
    one.claim(1, "CUSTOM_GOLD")
    del one.nodes.classes[1]

    one.sync()
    one.free(1, "CUSTOM_GOLD")
    assert one.sync().count(Status.GOING) == 1

    assert one.stock(1) == {"CUSTOM_GOLD": 1}
    assert one.sync().count(Status.HELD) == 1


def test_leftovers_that_are_held_count_against_the_limit_once(one: World) -> None:
    one.bare_metal = replace(
        one.bare_metal, settings=changed(one.bare_metal.settings, changes={"shrink_fraction": 0.0})
    )  # one goes
    one.report(dict.fromkeys(range(1, 9), "gold"))
    one.claim(1, "CUSTOM_GOLD")
    del one.nodes.classes[1]
    one.sync()
    assert one.sync().count(Status.HELD) == 1
    del one.nodes.classes[2]
    one.sync()

    done = one.sync()
    assert {told.node: told.status for told in done.outcomes} == {
        uuid_of(1): Status.HELD,
        uuid_of(2): Status.DELETED,
    }

    one.nodes.classes |= {1: "gold"}
    one.sync()
    for number in (1, 3):
        del one.nodes.classes[number]
    one.sync()
    assert [told.status for told in one.sync().outcomes] == [Status.REFUSED]  # it came back, so it is a new loss


def test_a_leftover_provider_goes_once_its_consumer_releases_it(one: World) -> None:
    one.report({1: "gold", 2: "gold"})
    one.claim(1, "CUSTOM_GOLD")
    del one.nodes.classes[1]
    for _ in range(2):
        one.sync()
    one.release(1)

    assert one.sync().count(Status.DELETED) == 1
    assert one.sync().unchanged == 1


def test_a_node_that_left_the_shard_and_is_deleted_then_is_a_stray_whose_provider_stays(one: World) -> None:
    one.nodes.lists_all = False
    one.report({1: "gold", 2: "gold"})
    one.nodes.unlisted = {1}
    assert one.sync().count(Status.LEFT) == 1
    assert one.sync().outcomes == ()
    del one.nodes.classes[1]
    one.sync()

    for done in (one.plan(), one.sync(), one.sync()):
        (told,) = done.outcomes
        assert (told.node, told.status) == (uuid_of(1), Status.STRAY)
        assert f"openstack resource provider delete {uuid_of(1)}" in told.notes[0]
    assert one.stock(1) == {"CUSTOM_GOLD": 0}

    one.client.execute(Plan((Delete(uuid_of(1), uuid_of(1)),)), ObservedTree())
    assert one.sync().outcomes == ()


def test_a_node_that_comes_back_to_the_shard_is_ours_again(one: World) -> None:
    one.nodes.lists_all = False
    one.report({1: "gold", 2: "gold"})
    one.nodes.unlisted = {1}
    one.sync()
    one.nodes.unlisted = set()

    assert one.sync().unchanged == 2
    del one.nodes.classes[1]
    assert [one.sync().outcomes[0].status for _ in range(2)] == [Status.GOING, Status.DELETED]


@pytest.mark.parametrize("first", ["configuration", "Ironic"])
def test_a_shard_that_is_renamed_keeps_what_was_reported(one: World, first: str) -> None:
    one.nodes.lists_all = False
    one.nodes.classes, one.nodes.traits = {1: "gold"}, ["CUSTOM_MINE"]
    one.sync()
    for half in range(2):
        one.nodes.unlisted = set() if half else {1}
        if (first == "configuration") is not bool(half):
            one.nodes.name = "Ironic, shard 'other'"
        one.sync()
    assert one.sync().unchanged == 1
    one.nodes.traits = []
    one.sync()

    assert one.traits(1) == frozenset()


def test_a_memory_counts_for_its_own_ironic_only(tmp_path: Path) -> None:
    memory = NodesMemory(where="w", ironic="http://one/", nodes={"n": KNOWN})
    write_nodes(tmp_path, memory)

    assert read_nodes(tmp_path, "w", "http://one/").nodes == memory.nodes
    assert not read_nodes(tmp_path, "w", "http://on").nodes


def test_a_restored_placement_that_claims_hide_is_found_at_the_next_whole_read(one: World) -> None:
    one.report({1: "gold"})
    backup = copy.deepcopy(one.placement)
    one.nodes.traits = ["CUSTOM_MINE"]
    one.sync()
    one.restore(backup)
    one.claim(1, "CUSTOM_GOLD")  # the generation is the one remembered
    assert one.sync().unchanged == 1
    assert one.traits(1) == frozenset()

    one.wait(one.bare_metal.settings.service.full_audit_interval_s)
    assert one.sync().count(Status.CHANGED) == 1

    assert one.traits(1) == {"CUSTOM_MINE"}
    assert one.sync().unchanged == 1


def test_all_providers_are_read_when_one_went_back_in_time(one: World) -> None:
    one.report({1: "gold", 2: "gold"})
    backup = copy.deepcopy(one.placement)
    one.nodes.traits = ["CUSTOM_MINE"]
    one.sync()
    one.restore(backup)
    one.claim(1, "CUSTOM_GOLD")

    assert one.sync().count(Status.CHANGED) == 2

    assert one.traits(1) == one.traits(2) == {"CUSTOM_MINE"}


def test_a_misfit_that_a_restored_placement_has_on_offer_is_reserved_again(one: World) -> None:
    one.report({1: "gold", 2: "silver"})
    backup = copy.deepcopy(one.placement)
    one.nodes.maintenance = True
    one.sync()
    one.nodes.classes[1] = None
    one.sync()
    one.restore(backup)

    one.sync()

    assert one.stock(1) == {"CUSTOM_GOLD": 1}


def test_a_misfit_that_was_critical_is_not_on_offer_once_it_fits_and_its_health_is_unknown(one: World) -> None:
    one.nodes.asks_health, one.nodes.health, one.nodes.traits = True, "OK", [*MINE]
    one.report({1: "gold"})
    one.nodes.health = "Critical"
    one.report({1: None})
    assert one.stock(1) == {"CUSTOM_GOLD": 1}
    one.nodes.health = None
    one.report({1: None})
    one.free(1, "CUSTOM_GOLD")
    one.report({1: None})
    assert one.stock(1) == {"CUSTOM_GOLD": 1}

    one.report({1: "gold"})

    assert (one.stock(1), one.traits(1)) == ({"CUSTOM_GOLD": 1}, MINE | {WAS_CRITICAL})
    assert one.sync().unchanged == 1
    one.nodes.health = "unheard-of"
    assert one.sync().unchanged == 1
    one.nodes.health = "Warning"
    one.sync()
    assert (one.stock(1), one.traits(1)) == ({"CUSTOM_GOLD": 0}, MINE)


def test_what_is_remembered_of_nodes_is_read_as_it_was_written(tmp_path: Path) -> None:
    memory = NodesMemory(where="w", ironic="i", nodes={"n": KNOWN}, left={"o": 7.0})
    write_nodes(tmp_path, memory)
    assert read_nodes(tmp_path, "w", "i") == memory


def test_a_resource_class_of_another_shard_keeps_its_name_in_placement() -> None:
    with shards() as (one, two):
        one.nodes.classes |= {1: DASH}
        one.sync()
        one.nodes.classes |= {2: DOT, 4: DOT}

        assert two.sync().count(Status.MISFIT) == 2

        assert two.offered() == {CLASS: {DASH}}
        assert two.sync().count(Status.MISFIT) == 2
        one.nodes.classes[1] = "silver"
        one.sync()
        two.sync()
        assert two.offered()[CLASS] == {DOT}


def test_two_resource_classes_that_two_shards_offer_as_one_become_one() -> None:
    """As versions before left them, which looked at their own shard alone."""
    with shards() as (one, two):
        one.nodes.classes |= {1: DASH, 2: DOT, 4: DOT}
        for agent in (one, two):
            agent.nodes.lists_all = True
            agent.sync()
            agent.nodes.lists_all = False
        assert one.offered() == {CLASS: {DASH, DOT}}

        for agent in (one, two):
            agent.wait(agent.bare_metal.settings.service.full_audit_interval_s)
            agent.sync()

        assert one.offered() == {CLASS: {DOT}}
        assert [agent.sync().count(Status.MISFIT) for agent in (one, two)] == [1, 0]
        assert one.offered() == {CLASS: {DOT}}


def test_a_quiet_shard_does_not_list_the_others() -> None:
    with shards() as (one, two):
        one.nodes.classes |= {1: "gold", 2: DOT}
        one.sync()
        two.sync()
        before = one.nodes.listings
        one.nodes.classes |= {3: "gold"}

        assert one.sync().count(Status.CREATED) == 1
        assert one.sync().unchanged == 2

        assert one.nodes.listings == before


def test_a_node_that_wanders_between_two_shards_is_what_ironic_says_it_is() -> None:
    with shards() as (one, two):
        for step, agent in enumerate((one, two, one, two)):
            one.nodes.unlisted, two.nodes.unlisted = (set(), {1}) if agent is one else ({1}, set())
            one.nodes.classes[1] = f"class-{step}"
            one.nodes.given[1] = two.nodes.given[1] = [f"CUSTOM_{step}", "CUSTOM_STEADY"]
            one.sync()
            two.sync()

            assert one.stock(1) == {f"CUSTOM_CLASS_{step}": 0}
            assert one.traits(1) == {f"CUSTOM_{step}", "CUSTOM_STEADY"}


def test_a_node_without_a_class_that_cannot_be_deployed_is_off_offer_without_a_memory_too(one: World) -> None:
    one.report({1: "gold"})
    one.forget()
    one.nodes.classes, one.nodes.maintenance = {1: None}, True

    one.sync()

    assert one.stock(1) == {"CUSTOM_GOLD": 1}


def test_a_shard_without_a_memory_names_a_provider_without_a_node() -> None:
    with shards() as (one, two):
        one.nodes.classes |= {1: "gold", 2: "gold", 3: "gold", 4: None}
        one.sync()
        two.sync()
        one.forget()
        del one.nodes.classes[1]

        one.sync()

        assert [(told.node, told.status) for told in one.sync().outcomes] == [(uuid_of(1), Status.STRAY)]
        assert one.stock(1) == {"CUSTOM_GOLD": 0}


CHANGES = st.lists(
    st.dictionaries(st.integers(1, 5), st.sampled_from((DASH, DOT, "gold_x", "silver", None, "gone")), max_size=3),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60)
@given(CHANGES)
def test_no_two_resource_classes_are_on_offer_under_one_class(history: list[dict[int, str | None]]) -> None:
    with world() as one:
        for change in history:
            one.nodes.classes |= change
            one.report({number: text for number, text in one.nodes.classes.items() if text != "gone"})

            assert all(len(texts) == 1 for texts in one.offered().values()), one.offered()


@pytest.mark.parametrize("where", ["placement", "https://other.example"])
def test_nodes_that_placement_lost_are_made_anew_only_on_a_persons_word(one: World, where: str) -> None:
    one.report(dict.fromkeys(range(1, 5), "gold"))
    memory = (one.folder / MEMORY_NAME).read_text()
    before = one.restore(MemoryPlacement(), where)

    for _ in range(3):
        done = one.sync()
        assert [told.status for told in done.outcomes] == [Status.REFUSED]
        assert "which " + ("this" if where == "placement" else "the") + " placement" in done.outcomes[0].notes[0]
        assert one.stock(1) == {}
    empty = one.restore(before)
    assert one.sync().unchanged == 4
    assert where == "placement" or (one.folder / MEMORY_NAME).read_text() == memory

    one.restore(empty, where)
    assert one.sync(Wishes(force=True)).count(Status.CREATED) == 4
    assert one.sync().unchanged == 4


@settings(max_examples=30)
@given(st.lists(st.dictionaries(st.integers(1, 5), st.sampled_from((DASH, DOT, "silver")), max_size=3), max_size=6))
def test_no_two_resource_classes_of_two_shards_are_on_offer_under_one_class(history: list[dict[int, str]]) -> None:
    with shards() as (one, two):
        for change in history:
            one.nodes.classes |= change
            for agent in (one, two) * 2:
                agent.sync()

            assert all(len(texts) == 1 for texts in one.offered().values()), one.offered()


def test_ironic_is_asked_about_providers_of_another_ironic_only_when_everything_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with world() as one, world() as other:
        one.nodes.lists_all = False
        one.report({1: "gold"})
        other.restore(one.placement)
        other.report(dict.fromkeys(range(100, 150), "silver"))
        asked: list[str] = []
        there = one.nodes.is_there

        def ask(uuid: str) -> bool:
            asked.append(uuid)
            return there(uuid)

        monkeypatch.setattr(one.nodes, "is_there", ask)

        one.wait(100_000)
        one.sync()
        assert len(asked) == 50
        one.wait(60)
        told = one.sync().outcomes
        assert len(asked) == 50
        assert [each.node for each in told if each.status is Status.STRAY] == ["50 providers"]
        one.sync(Wishes(force=True))
        assert all(other.stock(number) for number in range(100, 150))
