"""
Laws over a host on which anything changes at once: what guests have, what operators set, and what others put there.

Cards come, go, break and are configured anew while guests hold them; layouts, classes and names change in the same
pass; a pass may end at any of its requests. By hand: ``WORLDS=20000`` (make soak).
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, get_args
from uuid import UUID

import pytest
from hypothesis import HealthCheck, event, given, seed, settings
from hypothesis import strategies as st

from agent.sync.decide.features.hold import DISABLED, HoldWish, Note
from beds.worlds import CARDS, NAMES, ROOT, STYLES, World, worlds
from drivers.policy import OF_CELLS, Layout
from drivers.pools import POOLS

pytestmark = pytest.mark.contract

WORLDS = int(os.environ.get("WORLDS", "40"))
SEED = int(os.environ.get("SOAK_SEED", "3"))
LONG = settings(max_examples=WORLDS, deadline=None, suppress_health_check=list(HealthCheck))
BOOTS = ("", "first", "second")
OFFERS = ("off", "first", "second", "whole", "both")

numbers = st.integers(0, len(CARDS) - 1)
nics = st.integers(0, 1)
layouts = st.sampled_from(get_args(Layout))
spawns = st.tuples(st.just("spawn"), st.sampled_from(STYLES), nics, st.one_of(st.none(), numbers), st.integers(1, 2))
changes = st.one_of(
    st.tuples(st.just("layout"), layouts),
    st.tuples(st.just("offers"), numbers, st.sampled_from(OFFERS)),
    st.tuples(st.just("seen"), numbers, st.booleans()),
    st.tuples(st.just("shown"), numbers, st.booleans()),
    st.tuples(st.just("up"), nics, st.booleans()),
    st.tuples(st.just("mbps"), nics, st.sampled_from((1_000, 10_000))),
    st.tuples(st.just("bandwidth"), st.booleans()),
    st.tuples(st.just("dedicated"), st.booleans()),
    st.tuples(st.just("name"), st.sampled_from(NAMES)),
    st.tuples(st.just("boot"), st.sampled_from(BOOTS)),
    st.tuples(st.just("disk"), st.sampled_from(("own", "sharing", "file"))),
)
crashes = st.one_of(st.none(), st.none(), st.tuples(st.integers(0, 40), st.booleans()))
passes = st.tuples(crashes, st.sampled_from((True, True, False)))  # where it ends, and whether it may convert
turns = st.lists(
    st.tuples(
        st.lists(changes, min_size=1, max_size=3),
        passes,
        st.lists(st.one_of(spawns, st.tuples(st.just("end"), st.integers(0, 5))), max_size=2),
    ),
    min_size=1,
    max_size=4,
)
beginnings = st.fixed_dictionaries(
    {
        "layout": layouts,
        "shared": st.booleans(),
        "bandwidth": st.booleans(),
        "boot": st.sampled_from(BOOTS),
        "disk": st.sampled_from(("file", "own")),
        "offers": st.one_of(
            st.just(("first",) * len(CARDS)), st.tuples(*[st.sampled_from(("off", "first"))] * len(CARDS))
        ),
    }
)


@pytest.fixture(scope="module")
def make() -> Iterator[Any]:
    with worlds() as maker:
        yield maker


def begin(make: Any, beginning: dict[str, Any], guests: list[Any], **more: float) -> World:
    """A world whose tree stands, with guests in it."""
    world: World = make(**beginning)
    vars(world).update(more)
    world.take()
    assert world.is_well, world.told
    for _, *how in guests:
        world.spawn(*how)
    return world


def change(world: World, what: str, *how: Any) -> None:
    if what in ("offers", "seen", "shown", "up", "mbps"):
        world.change_card(what, *how)
    elif what != "disk" or world.setup.disk != "file":  # whose disks are in no pool shares none
        world.change(**{what: how[0]})


def play(
    world: World, turns: list[Any], *, but: frozenset[int] = frozenset(), unmarked: tuple[int, int] | None = None
) -> Iterator[None]:
    """
    Turn by turn: several changes, a pass, then guests come and go; no new rules for the cards ``but``.

    ``unmarked`` has a turn and a provider, by number: after that turn's passes a hand takes all traits off it.
    """
    for number, (several, (crash, reshape), lives) in enumerate(turns):
        for one in several:
            if one[0] != "offers" or one[1] not in but:
                change(world, *one)
        world.take(crash=crash, reshape=reshape)
        event(world.outcome.status.value if world.outcome else world.why[:7])
        if unmarked and unmarked[0] == number:
            for _ in range(4):  # the third carries out a loss, and the next one remembers what the hand takes away
                world.take(reshape=reshape)
            world.set_aspect(unmarked[1], "traits", {"traits": []})
            world.take(reshape=reshape)
        for name, *how in lives:
            getattr(world, name)(*how)
        yield


@LONG
@given(beginnings, st.lists(spawns, max_size=4), turns)
def test_no_row_of_a_running_guest_is_taken_or_moved_against_the_hypervisors_word(
    make: Any, beginning: dict[str, Any], guests: list[Any], turns: list[Any]
) -> None:
    world = begin(make, beginning, guests)
    for _ in play(world, turns):
        world.audit()
        assert not world.misplaced, world.misplaced


@LONG
@given(beginnings, st.lists(spawns, max_size=4), turns)
def test_no_unit_of_hardware_is_ever_on_offer_in_two_forms(
    make: Any, beginning: dict[str, Any], guests: list[Any], turns: list[Any]
) -> None:
    world = begin(make, beginning, guests)
    for _ in play(world, turns):
        assert not world.twice, world.twice


def of_the_host(found: dict[str, Any]) -> dict[str, Any]:
    """What is told by provider, without the pool's."""
    return {name: each for name, each in found.items() if not name.startswith(POOLS)}


indices = st.integers(0, 7)
unmarkings = st.one_of(st.none(), st.tuples(st.integers(0, 3), indices))
settings_by_hand = st.lists(
    st.one_of(
        st.tuples(st.just("reserved"), numbers, st.integers(1, 3)),
        st.tuples(st.just("ratio"), st.sampled_from(("VCPU", "MEMORY_MB")), nics, st.sampled_from((2.0, 16.0))),
    ),
    min_size=1,
    max_size=3,
)


def set_by_hand(world: World, what: str, *how: Any) -> None:
    """An operator's number of a card's units (``reserved`` or ``max_unit``), or a ratio, wherever the layout has it."""
    layout = world.setup.layout
    if what != "ratio":
        one = CARDS[how[0]]
        suffix = "" if layout == "flat" else one.suffixes[one.kind == "gpu"]
        world.set_stock(suffix, one.class_of("first", shared=world.setup.shared), **{what: how[1]})
    else:
        name, cell, ratio = how
        pool = f"NUMA{cell}_PAGES_4" if name == "MEMORY_MB" and layout == "numa" else f"NUMA{cell}"
        world.set_stock(pool if layout in OF_CELLS else "", name, allocation_ratio=ratio)


def reserved_by_hand(world: World, by_hand: Sequence[Any]) -> frozenset[int]:
    """The cards of which an operator reserved some: in flat those of a class, as their numbers are one."""
    numbers = frozenset(how[0] for what, *how in by_hand if what == "reserved")
    shared = world.setup.shared
    classes = {CARDS[one].class_of("first", shared=shared) for one in numbers}
    alike = frozenset(one.number for one in CARDS if one.class_of("first", shared=shared) in classes)
    return alike if world.setup.layout == "flat" else numbers


@LONG
@given(beginnings, st.lists(spawns, max_size=3), settings_by_hand, turns, unmarkings)
def test_there_and_back_is_identity_for_what_operators_set(
    make: Any,
    beginning: dict[str, Any],
    guests: list[Any],
    by_hand: list[Any],
    turns: list[Any],
    unmarked: tuple[int, int] | None,
) -> None:
    """
    But for a card of which an operator reserved some, and then takes the rule away: that is a person's word too.

    A pool's provider that was made by a pass which was cut off may stay, in whose aggregate no host is.
    """
    world = begin(make, beginning, guests)
    for what in by_hand:
        set_by_hand(world, *what)
    world.take()
    assert world.is_well, world.told
    origin, before, traits = world.setup, world.providers(), world.traits()
    residents = set(world.guests)
    reserved = reserved_by_hand(world, by_hand)
    for _ in play(world, turns, but=reserved, unmarked=unmarked):
        pass
    for uuid in set(world.guests) - residents:
        world.end(sorted(world.guests).index(uuid))
    world.setup = origin
    world.take()  # which may see a boot once more
    world.clock.now += 10_000  # what is awaited since a boot is awaited no more
    for _ in range(10):
        world.take()
    if not world.is_well:
        # what would lose it is refused, and so are CPUs of a guest that are dedicated no more, as nova refuses them
        # and after a hand the pass that was cut off is taken for another writer's, if the configuration changed again
        ways = ("by hand", "cpu_dedicated_set: put them back", *(["run sync --take-over"] if unmarked else ()))
        assert any(way in world.told for way in ways), world.told
    elif residents <= set(world.guests):
        assert of_the_host(world.providers()) == before
        assert of_the_host(world.traits()) == traits


def of_cards_away(world: World) -> Iterator[dict[str, Any]]:
    """The stock of cards of which the host shows nothing."""
    for one in CARDS:
        if not (world.setup.seen[one.number] and world.setup.shown[one.number]):
            name = f"{world.setup.name}_{one.suffixes[one.kind == 'gpu']}"
            yield from world.providers().get(name, {}).values()  # one that is not offered has none


absences = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(("seen", "shown")), numbers, st.booleans()), max_size=3),
        st.booleans(),  # whether the host is booted once more
        crashes,
        st.lists(spawns, max_size=1),
    ),
    max_size=4,
)


@LONG
@given(beginnings, st.lists(spawns, max_size=3), st.lists(settings_by_hand, max_size=1), absences)
def test_what_a_boot_takes_away_is_never_on_offer_meanwhile_and_comes_back_as_it_was(
    make: Any, beginning: dict[str, Any], guests: list[Any], by_hand: list[Any], turns: list[Any]
) -> None:
    """But for the bandwidth of a card of which an operator reserved all: nothing of its devices is missing then."""
    alone = {"boot": "first", "bandwidth": beginning["bandwidth"] and not by_hand}
    world = begin(make, beginning | alone, guests)
    for what in by_hand[0] if by_hand else ():
        set_by_hand(world, *what)
    world.take()
    assert world.is_well, world.told
    origin, before, traits = world.setup, world.providers(), world.traits()
    residents = set(world.guests)
    number = 0
    for missing, again, crash, lives in [([("shown", 0, False)], True, None, []), *turns]:
        number += again
        world.change(boot=f"boot-{number}")
        for one in missing:
            if again or one[-1]:  # what goes without a boot is another loss
                change(world, *one)
        world.take(crash=crash, reshape=False)
        assert not world.twice, world.twice
        after = world.providers()
        for name, stock in before.items():
            for each, record in stock.items():
                assert after[name][each]["total"] == record["total"], (name, each, after[name], world.told)
        if world.is_well and world.setup.layout != "flat":
            assert all(stock["reserved"] == stock["total"] for stock in of_cards_away(world)), world.told
        for _, *how in lives:
            world.spawn(*how)
    for uuid in set(world.guests) - residents:
        world.end(sorted(world.guests).index(uuid))
    world.change(seen=origin.seen, shown=origin.shown)
    for _ in range(3):
        world.take()
    assert world.is_well, world.told
    assert (world.providers(), world.traits()) == (before, traits)


@LONG
@given(
    beginnings,
    st.lists(spawns, max_size=3),
    st.lists(settings_by_hand, max_size=1),
    st.one_of(st.just("HOST"), st.sampled_from([one.address for one in CARDS])),
    turns,
    st.booleans(),
)
def test_what_a_person_holds_is_not_on_offer_meanwhile_and_comes_back_as_it_was(
    make: Any,
    beginning: dict[str, Any],
    guests: list[Any],
    by_hand: list[Any],
    what: str,
    turns: list[Any],
    forgets: bool,
) -> None:
    """The state may be lost after each turn. Then a class that was taken off meanwhile is not ours any more."""
    world = begin(make, beginning, guests)
    for one in by_hand[0] if by_hand else ():
        set_by_hand(world, *one)
    world.take()
    assert world.is_well, world.told
    origin, before, traits = world.setup, world.providers(), world.traits()
    residents = set(world.guests)
    reserved = reserved_by_hand(world, by_hand[0] if by_hand else ())
    world.take(holds=HoldWish(what=what, note=Note()))
    if not world.is_well:
        assert "this host offers no device" in world.told
        return
    for _ in play(world, turns, but=reserved):
        if forgets:
            world.remembered = ""
        world.take()
        assert f"{'this host' if what == 'HOST' else what} is held" in world.told or not world.outcome, world.told
        if world.outcome and world.setup.name == world.standing_name:
            found = {slot: free for slot, free in world.free_of(what).items() if free >= 1}
            unknown = {slot for slot in found if forgets and slot[0] == world.standing_name}  # perhaps another's
            assert not found.keys() - unknown, (found, world.told)
            assert what != "HOST" or DISABLED in world.traits()[world.standing_name], world.told
    for uuid in set(world.guests) - residents:
        world.end(sorted(world.guests).index(uuid))
    world.setup = origin
    for _ in range(10):
        world.take()
        world.clock.now += 1_000  # what is awaited since the boot on this way back is given up in the end
    world.take(holds=HoldWish(what=what))
    for _ in range(3):
        world.take()
    if not world.is_well:
        assert any(way in world.told for way in ("by hand", "cpu_dedicated_set: put them back")) or forgets, world.told
    elif residents <= set(world.guests) and not forgets:
        assert of_the_host(world.providers()) == before
        assert of_the_host(world.traits()) == traits


foreigners = st.lists(
    st.one_of(
        st.tuples(st.just("trait"), st.sampled_from(("CUSTOM_OPERATOR", "CUSTOM_PHYSNET_BLUE", "HW_NIC_SRIOV"))),
        st.tuples(st.just("class"), st.sampled_from(("CUSTOM_LICENSE", "CUSTOM_OTHER"))),
        st.tuples(st.just("aggregate")),
        st.tuples(
            st.just("child"),
            st.sampled_from((":agent:br0", "_0000:20:00.0", "_pci_0000_21_00_0", "_NUMA0", "_license")),
            st.sampled_from(("OWNER_CYBORG", "CUSTOM_OWNER_NEUTRON")),
            st.sampled_from(("VGPU", "CUSTOM_LICENSE", "MEM_ENCRYPTION_CONTEXT")),
        ),
    ),
    min_size=1,
    max_size=3,
)


@LONG
@given(beginnings, foreigners, st.booleans(), turns)
def test_what_others_put_into_the_tree_stays(
    make: Any, beginning: dict[str, Any], others: list[Any], early: bool, turns: list[Any]
) -> None:
    world: World = make(**beginning)
    if not early:
        world.take()
    for what, *how in others:
        getattr(world, f"put_{what}")(*how)
    before = world.foreign()
    for _ in play(world, turns):
        assert world.foreign() == before
    world.leave()
    stays = {what: stands for what, stands in before.items() if what.startswith(("child", "class"))}
    assert {what: world.foreign()[what] for what in stays} == stays  # a mark on a root goes with that root


hands: st.SearchStrategy[Any] = st.one_of(
    st.tuples(indices, st.just("traits"), st.sampled_from(({"traits": []}, {"traits": ["CUSTOM_HAND"]}))),
    st.tuples(indices, st.just("inventories"), st.sampled_from(({"inventories": {}},))),
    st.tuples(
        indices, st.just("aggregates"), st.sampled_from(({"aggregates": []}, {"aggregates": [str(UUID(int=7))]}))
    ),
    st.tuples(indices, st.just(""), st.sampled_from(({"parent_provider_uuid": ROOT}, {"name": "by hand"}))),
)
deeds = st.one_of(
    st.tuples(st.just("set_aspect"), hands),
    st.tuples(st.just("set_by_hand"), settings_by_hand.map(lambda several: several[0])),
    st.tuples(st.just("set_by_hand"), st.tuples(st.just("max_unit"), numbers, st.integers(1, 2))),
)


def memories(longest: int) -> st.SearchStrategy[Any]:
    """None, or one of an earlier moment: of at most so many passes before."""
    earlier = st.tuples(st.sampled_from(("history", "others")), st.integers(1, longest))
    return st.one_of(st.just(("history", 0)), earlier)


def doubts_after(several: st.SearchStrategy[Any], longest: int) -> st.SearchStrategy[Any]:
    """Steps, each after such changes, and with a memory of at most ``longest`` passes before."""
    return st.lists(
        st.tuples(
            several,
            st.lists(deeds, max_size=1),
            st.booleans(),  # whether a harmless thing changes at each pass
            memories(longest),
            st.booleans(),  # whether passes may convert
            st.lists(st.one_of(spawns, st.tuples(st.just("end"), st.integers(0, 5))), max_size=1),
        ),
        min_size=1,
        max_size=4,
    )


def renamings_of(number: int) -> st.SearchStrategy[Any]:
    """One card under one name after another, and in any layout."""
    renaming = st.tuples(st.just("offers"), st.just(number), st.sampled_from(OFFERS[:3]))
    turn = st.lists(st.tuples(st.just("layout"), layouts), max_size=1)
    return st.tuples(turn, renaming).map(lambda both: [*both[0], both[1]])


doubts = st.one_of(
    doubts_after(st.lists(changes, max_size=2), 6),
    numbers.flatmap(lambda number: doubts_after(renamings_of(number), 2)),
)
APART = re.compile("CUSTOM_HARMLESS_|CUSTOM_DEVICE_")  # our marks tell only whose a reservation is
OFFERED = ("free", "at once")  # aspects of which more is bolder
ENOUGH = 8  # passes after which nothing waits any more: two losses, one after the other, wait for three each


def standing(world: World) -> dict[tuple[str, str, str], float]:
    """What stands, but for our marks; hardware that was on offer twice is a thing offered too."""
    found = {what: much for what, much in world.stands().items() if not APART.match(what[2])}
    return found | {("hardware", "free", "twice"): float(bool(world.twice))}


def go_on(world: World, memory: str, *, harmless: bool, reshape: bool) -> tuple[Any, Any, list[str], str]:
    """What stands after a pass and after many with this memory, what they say, and the memory then."""
    with world.aside(memory):
        ways, told = [], []
        for number in range(ENOUGH):
            if harmless:
                world.put_trait(f"CUSTOM_HARMLESS_{number}")
            world.take(reshape=reshape)
            ways.append(standing(world))
            told += [world.told] if not world.is_well or (world.outcome and world.outcome.notes) else []
        return ways[0], ways[-1], told, world.remembered


def of_tree(found: dict[tuple[str, str, str], float]) -> dict[tuple[str, str, str], float]:
    """The same with what is offered as sums of all providers, as a conversion takes it from one to others."""
    sums: dict[tuple[str, str, str], float] = defaultdict(float)
    for (who, aspect, name), much in found.items():
        sums["tree" if aspect in OFFERED else who, aspect, name] += much
    return sums


def bolder(before: Any, found: Any, right: Any) -> dict[Any, Any]:
    """What is offered or gone in ``found``, and neither before nor with the right memory."""
    return {
        what: (before.get(what, 0), found.get(what, 0), right.get(what, 0))
        for what in {*before, *found, *right}
        if (found.get(what, 0) > max(before.get(what, 0), right.get(what, 0)) and what[1] in OFFERED)
        or (found.get(what, 0) < min(before.get(what, 0), right.get(what, 0)) and what[1] not in OFFERED)
    }


@LONG
@seed(SEED)
@given(beginnings, st.lists(spawns, max_size=3), doubts)
def test_memory_only_adds_doubt(make: Any, beginning: dict[str, Any], guests: list[Any], steps: list[Any]) -> None:
    """With any memory a pass offers, frees and deletes nothing that it would not with the right one; doubt is told."""
    world = begin(make, beginning, guests, uptime_s=120.0)
    texts = {"history": [world.remembered], "others": [""]}
    for several, by_hand, harmless, (whose, number), reshape, lives in steps:
        for one in several:
            change(world, *one)
        for what, how in by_hand:
            world.set_aspect(*how) if what == "set_aspect" else set_by_hand(world, *how)
            if what == "set_aspect":  # nothing but the memory has what a hand took away, so that a pass sees it first
                world.take(reshape=reshape)
                texts["history"].append(world.remembered)
        memory = texts[whose][-1 - min(number, len(texts[whose]) - 1)] if number else ""
        world.twice = list(world._twice())  # as a hand has put it: no pass looked at that yet
        before = standing(world)
        first, last, told, _ = go_on(world, world.remembered, harmless=harmless, reshape=reshape)
        other, later, said, left = go_on(world, memory, harmless=harmless, reshape=reshape)
        if any("contested" in one for one in told):  # the memory alone has who took over
            continue
        bold = bolder(before, other, first)
        if told and "times in a row" in told[0]:
            # a loss that waits for its third pass holds up its plan, and a memory without it has nothing to wait for
            late, moved = bolder(before, other, last), bolder(of_tree(before), of_tree(other), of_tree(last))
            bold = {one: late[one] for one in bold.keys() & late if one in last or ("tree", *one[1:]) in moved}
        assert not bold, (bold, told, said)
        assert not any("times in a row" in one for one in (*told[ENOUGH - 1 :], *said[ENOUGH - 1 :])), (told, said)
        assert later == last or said, (set(later.items()) ^ set(last.items()), told, said)
        texts["others"].append(left)
        world.take(reshape=reshape)
        texts["history"].append(world.remembered)
        for what, *how in lives:
            getattr(world, what)(*how)


def test_a_world_is_one_that_the_agent_can_report(make: Any) -> None:
    """Else the laws would hold of a host on which every pass is refused."""
    for layout in get_args(Layout):
        world = begin(make, {"layout": layout, "bandwidth": True}, [])
        for style in STYLES:
            world.spawn(style, 0, 2)
        assert len(world.guests) >= 4, (layout, world.guests)
        assert not world.misplaced
        assert not world.twice
        assert ROOT in world.memory.snapshot()[0]
