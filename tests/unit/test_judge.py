"""Whether the plan of a pass may be carried out, and what a person should know of it, from what the pass has."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.state.memory import NodeState
from agent.sync.decide.additions import Addition
from agent.sync.decide.beside import against_root
from agent.sync.decide.checks import PATIENCE, conditions_on, judge
from agent.sync.decide.feature import Draft, Feature, Reservation
from agent.sync.decide.features.second_writer import FORGIVEN, Strikes, strikes_of
from agent.sync.decide.laws import Breach, sentences
from agent.sync.decide.undoing import DONE, Conversion
from agent.sync.decide.view import Wishes
from agent.sync.json_form import encode_observed_tree
from agent.sync.outcome import Condition, Status
from drafts import OPTIONS, OURS, ROOT, SEEN, TERMS, draft, stands
from reportclient.allocations import Allocation, Move
from reportclient.ownership import MARKER, OWNER_NOVA, Contest, Names
from reportclient.plan import Delete, Plan, Reparent, SetInventories, SetTraits
from reportclient.reserve import HELD, KEEP
from reportclient.tree import Inventory, Provider, ProviderTree

HALF = replace(ROOT, inventories={"VCPU": Inventory(total=4)})
GUEST_MOVES = Move(
    consumer="guest", from_provider="host", to_provider="host_card", moved_resources={"VGPU": 1}, because="its card"
)
CHANGED = Contest("host", ("VCPU total 8 became total 4",), nova=False, marked=False)


def texts(found: Draft) -> tuple[str, ...]:
    return tuple(one.text for one in conditions_on(found))


def wishing(found: Draft, wishes: Wishes) -> Draft:
    return replace(found, view=replace(found.view, wishes=wishes))


def smaller(**changes: Any) -> Draft:
    """A host that loses half of its CPUs."""
    plan = Plan((SetInventories("host", "host", HALF.inventories),))
    return draft(desired=ProviderTree((HALF,)), plan=plan, **changes)


@pytest.mark.parametrize(("fraction", "refused"), [(0.4, Status.UNSAFE), (0.6, None)])
def test_how_much_of_a_class_may_go_at_once_is_the_operators_choice(fraction: float, refused: Status | None) -> None:
    assert judge(smaller(changes=replace(OPTIONS, shrink_fraction=fraction))).refused is refused


def test_a_host_as_it_is_wanted_is_carried_out_without_a_word() -> None:
    assert judge(draft()).refused is None
    assert conditions_on(draft()) == ()


# -- a second writer ---------------------------------------------------------------------------------------------------


def test_one_change_by_somebody_is_a_strike_and_the_next_one_stops_the_writing() -> None:
    first = judge(draft(contest=CHANGED))
    second = judge(draft(contest=CHANGED, memory=first.memory))

    assert (first.refused, strikes_of(first.memory)) == (None, Strikes(strikes=1, struck_s=TERMS.now_s))
    assert second.refused is Status.CONTESTED
    assert second.notes[0] == "another service writes on host too: VCPU total 8 became total 4"
    assert strikes_of(second.memory).contested == second.notes


def test_a_contested_host_stays_so_until_a_person_takes_it_over() -> None:
    contested = SEEN.with_bodies({"contested": ["somebody writes"], "strikes": 1, "quiet": 3})

    assert judge(draft(memory=contested)).notes == ("somebody writes",)

    taken = judge(wishing(draft(memory=contested, contest=CHANGED), Wishes(take_over=True)))
    assert taken.refused is None
    assert strikes_of(taken.memory) == Strikes()


def test_a_contested_host_tells_what_is_changed_now() -> None:
    contested = SEEN.with_bodies({"contested": ["somebody wrote long ago"]})

    notes = judge(draft(memory=contested, contest=CHANGED)).notes

    assert notes[0] == "another service writes on host too: VCPU total 8 became total 4"


def test_novas_mark_stops_the_writing_at_once() -> None:
    verdict = judge(draft(contest=replace(CHANGED, nova=True, marked=True)))

    assert verdict.refused is Status.CONTESTED
    assert verdict.notes[0].startswith("nova-compute (by its trait OWNER_NOVA) writes on host too")


@pytest.mark.parametrize(
    ("quiet", "since_s", "strikes"),
    [
        pytest.param(FORGIVEN - 1, FORGIVEN * 60, 0, id="enough quiet passes and periods"),
        pytest.param(FORGIVEN - 2, FORGIVEN * 60, 1, id="too few passes"),
        pytest.param(FORGIVEN - 1, FORGIVEN * 60 - 1, 1, id="events made the passes within few periods"),
    ],
)
def test_a_strike_is_forgiven_after_quiet_passes_and_time(quiet: int, since_s: float, strikes: int) -> None:
    struck = SEEN.with_bodies({"strikes": 1, "struck_s": TERMS.now_s - since_s, "quiet": quiet})

    memory = strikes_of(judge(draft(memory=struck)).memory)

    assert (memory.strikes, memory.quiet) == (strikes, quiet + 1 if strikes else 0)


RUNS = {"process": "nova-compute (pid 77) runs on this host"}
ENABLED = {"nova-compute.service": "the unit nova-compute.service is enabled on this host"}


@pytest.mark.parametrize(
    ("signs", "taken_over", "wishes", "refused"),
    [
        pytest.param(RUNS, (), Wishes(), Status.CONTESTED, id="it runs"),
        pytest.param(ENABLED, (), Wishes(), Status.CONTESTED, id="it will be started"),
        pytest.param(RUNS, (), Wishes(take_over=True), None, id="a person knows better"),
        pytest.param(RUNS, ("process",), Wishes(), None, id="a person knew better before"),
        pytest.param(RUNS | ENABLED, ("process",), Wishes(), Status.CONTESTED, id="one sign is new"),
        pytest.param({}, (), Wishes(), None, id="nothing shows it"),
    ],
)
def test_nothing_is_written_on_a_root_that_nova_reports(
    signs: dict[str, str], taken_over: tuple[str, ...], wishes: Wishes, refused: Status | None
) -> None:
    plan = Plan((SetInventories("host", "host", ROOT.inventories),))
    memory = SEEN.with_bodies({"taken_over": list(taken_over)})

    verdict = judge(wishing(draft(plan=plan, nova=signs, memory=memory), wishes))

    assert verdict.refused is refused
    assert not refused or verdict.notes[0].startswith("nova-compute reports host: ")
    assert not refused or not strikes_of(verdict.memory).contested  # it ends with the sign


def test_where_nothing_is_to_be_written_it_does_not_matter_who_reports_the_root() -> None:
    assert judge(draft(nova=RUNS)).refused is None


def test_in_the_role_audit_no_plan_is_carried_out_whoever_asks() -> None:
    plan = Plan((SetInventories("host", "host", ROOT.inventories),))
    terms = replace(TERMS, audits_only=True)

    verdict = judge(wishing(draft(plan=plan, contest=CHANGED, terms=terms), Wishes(take_over=True, force=True)))

    assert (verdict.refused, strikes_of(verdict.memory)) == (Status.AUDIT_ONLY, Strikes())
    assert verdict.notes == ("[agent] role = audit: this agent writes nothing on host but repairs of its audits",)
    assert judge(draft(terms=terms)).refused is None


# -- plans that are not carried out ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "microversion", "words"),
    [
        pytest.param(("host_a",), (1, 36), "host_a would come under another parent", id="one"),
        pytest.param(("host_a", "host_b"), (1, 36), "host_a and others would come under", id="two"),
        pytest.param(("host_a",), (1, 37), None, id="placement can do it"),
        pytest.param((), (1, 36), None, id="all keep theirs"),
    ],
)
def test_a_provider_keeps_its_parent_where_placement_cannot_change_that(
    names: tuple[str, ...], microversion: tuple[int, int], words: str | None
) -> None:
    same = SetInventories("host", "host", ROOT.inventories)
    plan = Plan((same, *(Reparent(name, name, "host", "host", "host_cell") for name in names)))
    below = (Provider(name="host_cell", parent="host"), *(Provider(name=name, parent="host_cell") for name in names))
    observed = stands(ROOT, *below)

    verdict = judge(draft(plan=plan, observed=observed, terms=replace(TERMS, microversion=microversion)))

    assert verdict.refused is (Status.UNSAFE if words else None)
    assert not words or (words in verdict.notes[0] and "this placement has 1.36: upgrade placement" in verdict.notes[0])


def test_devices_are_not_offered_twice_by_a_root_that_nobody_can_explain() -> None:
    """Somebody put the class on the root by hand, and now a card of this host is to have it."""
    root = replace(ROOT, inventories={**ROOT.inventories, "CUSTOM_GPU": Inventory(total=2)})
    card = Provider(name="host_card", parent="host", inventories={"CUSTOM_GPU": Inventory(total=2)})
    cell = Provider(name="host_NUMA0", parent="host", inventories=ROOT.inventories)

    verdict = judge(draft(observed=stands(root), desired=ProviderTree((ROOT, card, cell))))

    assert verdict.refused is Status.UNSAFE
    assert verdict.notes[0].startswith(
        "host has CUSTOM_GPU, and this agent does not know whether it reported this itself"
    )


def test_a_class_that_may_have_a_new_name_is_not_offered_beside_the_old_one_once_the_state_was_lost() -> None:
    found = renamed_class(NodeState())

    assert judge(found).notes[0].startswith("host has CUSTOM_OLD, which this agent does not know: its saved state was")
    assert "The plan puts more CUSTOM_NEW on offer, and CUSTOM_OLD may be these devices" in judge(found).notes[0]
    assert judge(wishing(found, Wishes(agreed="the digest"))).refused is None
    assert judge(renamed_class(NodeState(bodies={"foreign": {"classes": ["CUSTOM_OLD"]}}))).refused is None


def test_guests_are_moved_only_where_a_person_said_so() -> None:
    moving = draft(plan=Plan(moves=(GUEST_MOVES,)), allocations=(Allocation("guest", "host", "VGPU", 1),))

    verdict = judge(moving)

    assert verdict.refused is Status.RESHAPE_NEEDED
    assert verdict.notes[0].startswith(
        "the tree of host changes its shape, so the allocations of 1 consumer must move: "
    )
    assert judge(wishing(moving, Wishes(reshape=True))).refused is None


def test_stock_that_guests_use_is_not_taken_away() -> None:
    used = smaller(allocations=(Allocation("guest", "host", "VCPU", 6),))

    assert "6 VCPU" in judge(used).notes[0]
    assert judge(wishing(used, Wishes(force=True))).refused is None


def test_a_much_smaller_host_is_believed_at_the_third_pass_in_a_row() -> None:
    memory, refused = SEEN, []
    for _ in range(PATIENCE):
        verdict = judge(smaller(memory=memory))
        memory = verdict.memory
        refused.append(verdict.refused)

    assert refused == [Status.UNSAFE, Status.UNSAFE, None]
    assert (memory.smaller, memory.smaller_seen) == ("", 0)


def test_a_look_that_is_no_pass_does_not_count() -> None:
    first = judge(smaller()).memory

    assert judge(wishing(smaller(memory=first), Wishes(counts=False))).memory.smaller_seen == 1


def test_what_else_changes_at_each_pass_does_not_begin_the_count_anew() -> None:
    memory, refused = SEEN, []
    for number in range(PATIENCE):
        changing = smaller(memory=memory)
        traits = SetTraits(
            "host", "host", frozenset({f"CUSTOM_{number}"}), frozenset({f"CUSTOM_{number}"}), frozenset()
        )
        plan = replace(changing.plan, operations=(*changing.plan.operations, traits))
        changing = replace(changing, way=replace(changing.way, plan=plan))
        verdict = judge(changing)
        memory = verdict.memory
        refused.append(verdict.refused)

    assert refused == [Status.UNSAFE, Status.UNSAFE, None]


def test_cards_that_are_lost_by_turns_are_not_one_loss() -> None:
    cards = [Provider(name=name, parent="host", inventories={"VGPU": Inventory(total=8)}) for name in ("a", "b")]
    memory, refused = SEEN, []
    for lost in ("a", "b", "a"):
        plan = Plan((SetInventories(lost, lost, {}),))
        flapping = draft(observed=stands(ROOT, *cards), plan=plan, memory=memory)
        verdict = judge(flapping)
        memory = verdict.memory
        refused.append(verdict.refused)

    assert refused == [Status.UNSAFE] * 3
    assert memory.smaller_seen == 1


def test_another_loss_begins_the_count_anew() -> None:
    before = replace(SEEN, smaller="another loss", smaller_seen=PATIENCE - 1)

    verdict = judge(smaller(memory=before))

    assert verdict.refused is Status.UNSAFE
    assert verdict.notes[1].startswith(f"seen 1 of {PATIENCE} times in a row")


@pytest.mark.parametrize("wishes", [Wishes(force=True), Wishes(agreed="the digest")], ids=["forced", "agreed to"])
def test_a_much_smaller_host_is_believed_at_once_on_a_persons_word(wishes: Wishes) -> None:
    assert judge(wishing(smaller(), wishes)).refused is None


# -- what a person should know -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param(
            {"contest": CHANGED}, "another writer changed host since the last pass: VCPU total 8", id="a change"
        ),
        pytest.param({"went_back": True}, "placement has older data than at the last pass", id="a restored backup"),
        pytest.param({"held": (Condition(kind="held", text="card keeps 2 VF"),)}, "card keeps 2 VF", id="held"),
        pytest.param(
            {"plan": Plan(left_out=frozenset({"HW_B", "HW_A"}))},
            "this placement is too old to know the traits HW_A, HW_B",
            id="traits of tomorrow",
        ),
    ],
)
def test_a_pass_says_what_is_unusual(changes: dict[str, Any], words: str) -> None:
    (note,) = texts(draft(**changes))

    assert note.startswith(words)


RACK = "the root keeps CUSTOM_CLASS, CUSTOM_RACK, which another service may have added"
OPEN = "the root keeps CUSTOM_CLASS, which another service may have added"


@pytest.mark.parametrize(
    ("memory", "changes", "known"),
    [
        pytest.param(NodeState(), {}, ("lost-state", f"the saved state of this agent was lost; {RACK}"), id="lost"),
        pytest.param(NodeState(), {"went_back": True}, ("strange-names", RACK), id="of an earlier moment"),
        pytest.param(NodeState(), {"marks": set()}, None, id="on a root that was never ours"),
        pytest.param(SEEN, {}, ("strange-names", OPEN), id="there: a class on offer alone"),
        pytest.param(SEEN, {"known": {"CUSTOM_CLASS"}}, None, id="there, with all classes"),
    ],
)
def test_names_of_another_service_are_kept_and_said_as_far_as_the_memory_lacks_them(
    memory: NodeState, changes: dict[str, Any], known: tuple[str, str] | None
) -> None:
    marks = changes.get("marks", {MARKER, f"{MARKER}_SET_HW_A"})
    classes = {"VCPU", "CUSTOM_CLASS", "CUSTOM_WANTED", "CUSTOM_OURS"}
    root = replace(
        ROOT,
        traits=frozenset({*marks, "CUSTOM_RACK", "CUSTOM_TRAIT", "HW_STRANGE", f"{KEEP}1_VCPU"}),
        inventories={name: Inventory(total=8) for name in classes},
    )
    wanted = replace(
        ROOT, traits=frozenset({MARKER, "CUSTOM_TRAIT"}), inventories={"CUSTOM_WANTED": Inventory(total=8)}
    )
    ours = replace(OURS, configured={"host": Names(frozenset({"CUSTOM_OURS", *changes.get("known", ())}))})

    found = conditions_on(
        draft(
            observed=stands(root),
            desired=ProviderTree((wanted,)),
            memory=memory,
            ours=ours,
            went_back=changes.get("went_back", False),
        )
    )

    assert [(one.kind, one.text) for one in found if one.kind != "older-placement"] == ([known] if known else [])


class Reserving(Feature):
    """A feature that reserves a CPU."""

    def reserve(self, tree: ProviderTree) -> tuple[Reservation, ...]:
        return (
            Reservation(provider="host", resource_class="VCPU", least=1, spares_use=False, kind="ill", why="a core"),
        )


def test_a_pass_says_all_that_a_person_should_know_with_the_provider() -> None:
    stock = {"CUSTOM_A": Inventory(total=2, allocation_ratio=4.0)}
    card = Provider(name="host_card", parent="host", inventories=stock, traits=frozenset({MARKER}))
    novas = [
        Provider(name=name, parent="host", inventories={"VGPU": Inventory(total=1, reserved=reserved)})
        for name, reserved in (("host_gone", 0), ("host_reserved", 1), ("host_here", 0))
    ]
    neutrons = Provider(name="host_agent", parent="host", inventories={"CUSTOM_LINK": Inventory(total=1)})
    wanted = replace(card, inventories={"CUSTOM_A": Inventory(total=2)})
    entry = Addition(provider="host_crad", source=Path("a.yaml"), inventories={}, traits=frozenset())
    found = draft(
        observed=stands(ROOT, card, *novas, neutrons),
        desired=ProviderTree((ROOT, wanted)),
        strays=(entry,),
        features=(Reserving(),),
        ours=replace(OURS, adopted=frozenset({"host_here"})),
    )

    told = [(one.kind, one.provider, one.text[:29]) for one in conditions_on(found)]

    assert told == [
        ("ill", "host", "a core"),
        ("set-back", "", "CUSTOM_A on host_card has all"),
        ("file", "", "a.yaml: no provider of this h"),
        ("novas", "host_gone", "nova made host_gone, but no d"),
    ]
    assert "novas" not in {one.kind for one in conditions_on(replace(found, view=replace(found.view, beside=True)))}


def test_what_a_person_withdrew_is_no_loss() -> None:
    names = {"CUSTOM_FILE", "CUSTOM_STILL_IN_A_FILE", "CUSTOM_OPTION"}
    root = replace(ROOT, inventories={"VCPU": Inventory(total=8), **{name: Inventory(total=2) for name in names}})
    memory = replace(SEEN, configured={"host": Names(frozenset({"CUSTOM_FILE", "CUSTOM_STILL_IN_A_FILE"}))})
    card = Provider(name="host_card", parent="host", inventories={"CUSTOM_CARD": Inventory(total=2)})
    found = draft(
        observed=stands(root, card),
        plan=Plan((SetInventories("host", "host", ROOT.inventories), Delete("host_card", "host_card"))),
        memory=memory,
        lasting=replace(SEEN, configured={"host": Names(frozenset({"CUSTOM_STILL_IN_A_FILE"}))}),
        present=frozenset({"host_card"}),
    )
    backing = replace(found.shaped.holdings.backing, withdrawn=frozenset({"CUSTOM_OPTION"}))
    holdings = replace(found.shaped.holdings, backing=backing)

    verdict = judge(replace(found, shaped=replace(found.shaped, holdings=holdings)))

    assert verdict.notes[:-1] == ("CUSTOM_STILL_IN_A_FILE would shrink from 2 to 0, more than 30%",)


def test_a_reservation_by_hand_is_lost_only_where_it_counts_devices_of_ours() -> None:
    names = ("CUSTOM_ALIEN", "CUSTOM_FILE", "CUSTOM_OURS")
    stock = {name: Inventory(total=2, reserved=1) for name in names}
    root = replace(ROOT, inventories={**ROOT.inventories, **stock})
    card = Provider(name="host_card", parent="host", inventories={"CUSTOM_NEW": Inventory(total=2)})
    of_files = replace(SEEN, configured={"host": Names(frozenset({"CUSTOM_FILE"}))})
    found = draft(
        observed=stands(root),
        memory=replace(SEEN, bodies={"foreign": {"classes": ["CUSTOM_ALIEN"]}}),
        desired=ProviderTree((ROOT, card)),
        meanwhile=of_files,
        ours=replace(OURS, configured={"host": Names(frozenset({"CUSTOM_FILE", "CUSTOM_OURS"}))}),
    )

    (note,) = judge(found).notes

    assert note.startswith("1 CUSTOM_OURS on host are reserved by hand, and this change would offer CUSTOM_NEW instead")


@pytest.mark.parametrize(
    ("changes", "lost"),
    [
        ({}, ["CUSTOM_RACK, CUSTOM_TRAIT, zone on host_NUMA0", "CUSTOM_CARD on host_held"]),
        ({"memory": NodeState()}, ["CUSTOM_RACK, zone on host_NUMA0", "CUSTOM_CARD on host_held"]),
        ({"stands_in": "devices"}, []),
        ({"beside": True}, []),
    ],
    ids=["a conversion", "the memory was lost", "no conversion", "beside nova"],
)
def test_a_conversion_says_which_names_of_a_hand_go_with_their_providers(
    changes: dict[str, Any], lost: list[str]
) -> None:
    owned = {
        "host_NUMA0": {
            MARKER,
            OWNER_NOVA,
            "OWNER_RULE",
            "HW_NUMA_ROOT",
            f"{KEEP}1_VCPU",
            "CUSTOM_TRAIT",
            "CUSTOM_RACK",
        },
        "host_NUMA1": {MARKER},
        "host_novas": {OWNER_NOVA, "CUSTOM_N"},
        "host_lost": {MARKER, HELD, "CUSTOM_LOST"},
        "host_held": {MARKER, HELD, "CUSTOM_CARD"},
        "host_stays": {MARKER, "CUSTOM_STAYS"},
    }
    seen = [Provider(name=name, parent="host", traits=frozenset(traits)) for name, traits in owned.items()]
    seen[0] = replace(seen[0], aggregates=frozenset({"zone"}))
    gone = [Delete(name, name) for name in owned if name != "host_stays"]
    told: dict[str, Any] = {"stands_in": "numa", **changes}
    found = draft(
        observed=stands(replace(ROOT, traits=frozenset({OWNER_NOVA})), *seen),
        desired=ProviderTree((replace(ROOT, traits=frozenset({"CUSTOM_TRAIT"})),)),
        plan=Plan((SetInventories("host_stays", "host_stays", {}), *gone)),
        ours=replace(OURS, configured={"host_NUMA0": Names(traits=frozenset({"OWNER_RULE"}))}),
        present=frozenset({"host_held"}),
        **told,
    )

    notes = [one.text for one in conditions_on(found) if one.kind == "lost-names"]

    assert [one.partition(":")[0] for one in notes] == lost
    assert judge(found).notes == tuple(notes)
    assert judge(wishing(found, Wishes(agreed="the digest"))).refused is None


# -- the way back of a conversion --------------------------------------------------------------------------------------


def undoing(configured: str = "devices", node: str = "host") -> Wishes:
    """The host was converted from devices to numa, with no guests, and devices is configured again."""
    tree = encode_observed_tree(stands(ROOT), ())
    told = Conversion(
        path="entry.json",
        node=node,
        began="",
        outcome=DONE,
        digest="",
        layout="devices",
        target="numa",
        before=tree,
        after=tree,
        moves=(),
    )
    return Wishes(undone=told, configured=configured, reshape=True)


SAME = Plan((SetInventories("host", "host", ROOT.inventories),))  # something to do, after which all is as before


@pytest.mark.parametrize(
    ("wishes", "plan", "stands_in", "words"),
    [
        pytest.param(undoing(), SAME, "numa", "", id="it is taken back"),
        pytest.param(undoing(), SAME, "devices", "", id="it was cut off"),
        pytest.param(undoing("numa"), Plan(), "cells", "", id="nothing is left to do"),
        pytest.param(undoing(node="other"), SAME, "numa", "entry is of other, not of host", id="of another host"),
        pytest.param(undoing(), SAME, "cells", "stands in the layout cells", id="converted since"),
        pytest.param(undoing("numa"), SAME, "numa", "set [compute] layout = devices first", id="goes there again"),
        pytest.param(undoing("numa"), replace(SAME, moves=(GUEST_MOVES,)), "numa", "", id="a guest keeps it there"),
    ],
)
def test_a_conversion_is_taken_back_where_it_stands_and_stays_back(
    wishes: Wishes, plan: Plan, stands_in: str, words: str
) -> None:
    allocations = (Allocation("guest", "host", "VGPU", 1),) if plan.moves else ()
    told = draft(plan=plan, stands_in=stands_in, allocations=allocations)

    verdict = judge(wishing(told, wishes))

    assert (verdict.refused is None) == (words == "")
    assert words in " ".join(verdict.notes)


def test_a_class_that_a_root_and_a_child_would_both_have_forgets_no_memory() -> None:
    left = replace(ROOT, inventories={**ROOT.inventories, "CUSTOM_GONE": Inventory(total=1)})
    root = replace(ROOT, inventories={**ROOT.inventories, "CUSTOM_A": Inventory(total=2)})
    stock = {"CUSTOM_A": Inventory(total=2), "CUSTOM_NEW": Inventory(total=1)}
    child = Provider(name="host_card", parent="host", inventories=stock)

    verdict = judge(
        draft(observed=stands(root), desired=ProviderTree((ROOT, child)), memory=NodeState(observed=stands(left))),
    )

    assert verdict.refused is Status.UNSAFE
    assert verdict.memory.observed is not None, verdict.notes


UNPLACEABLE = draft(unplaceable="guest holds 1 VGPU")
CONTESTED = draft(contest=replace(CHANGED, nova=True, marked=True))
BREACH = (Breach("twice", "a card is on offer in two forms"),)


def renamed_class(memory: NodeState) -> Draft:
    root = replace(ROOT, inventories={**ROOT.inventories, "CUSTOM_OLD": Inventory(total=2)})
    card = Provider(name="host_card", parent="host", inventories={"CUSTOM_NEW": Inventory(total=2)})
    return draft(observed=stands(root), desired=ProviderTree((ROOT, card)), memory=memory)


EARLIER = NodeState(
    observed=stands(replace(ROOT, inventories={**ROOT.inventories, "CUSTOM_GONE": Inventory(total=1)})),
    configured={"host": Names()},
    reported={"host": Names()},
)


@pytest.mark.parametrize(
    ("found", "status", "reserves", "counts", "remembers"),
    [
        pytest.param(UNPLACEABLE, Status.UNSAFE, True, False, True, id="it has no place for all"),
        pytest.param(wishing(UNPLACEABLE, Wishes(agreed="D")), Status.UNSAFE, False, False, True, id="agreed to"),
        pytest.param(wishing(UNPLACEABLE, undoing()), Status.UNSAFE, False, False, True, id="undone"),
        pytest.param(
            draft(plan=Plan(moves=(GUEST_MOVES,)), allocations=(Allocation("guest", "host", "VGPU", 1),)),
            Status.RESHAPE_NEEDED, True, False, True, id="guests must move",
        ),
        pytest.param(CONTESTED, Status.CONTESTED, False, True, True, id="another writes"),
        pytest.param(draft(beside=True), Status.CONTESTED, False, True, True, id="the root is not nova's"),
        pytest.param(draft(breaches=BREACH), Status.UNSAFE, False, False, True, id="it breaks a law"),
        pytest.param(renamed_class(EARLIER), Status.UNSAFE, False, False, False, id="the memory is of another moment"),
        pytest.param(renamed_class(NodeState()), Status.UNSAFE, True, False, False, id="there is no memory"),
    ],
)  # fmt: skip
def test_a_refused_plan_reserves_where_the_memory_is_right_and_this_agent_may_write(
    found: Draft, status: Status, reserves: bool, counts: bool, remembers: bool
) -> None:
    reserving = Plan((SetInventories("host", "host", {"VCPU": Inventory(total=8, reserved=8)}),))
    memory = replace(found.memory, smaller="a loss", smaller_seen=2)

    verdict = judge(replace(found, reserving=reserving, shaped=replace(found.shaped, memory=memory)))

    assert verdict.refused is status
    assert verdict.reserving == (reserving if reserves else Plan())
    assert (verdict.memory.smaller, verdict.memory.smaller_seen) == (("a loss", 2) if counts else ("", 0))
    kept = verdict.memory.observed, verdict.memory.configured, verdict.memory.reported
    assert kept == ((memory.observed, memory.configured, memory.reported) if remembers else (None, {}, {}))


def test_a_refusal_says_why() -> None:
    broken = judge(draft(breaches=BREACH))
    novas = draft(beside=True, observed=stands(replace(ROOT, traits=frozenset())))

    assert judge(UNPLACEABLE).notes == ("guest holds 1 VGPU",)
    assert (broken.notes, broken.broken) == (sentences(BREACH), ("twice",))
    assert judge(draft(beside=True)).notes == against_root("host", stands(ROOT))
    assert judge(novas).refused is None
    card = Provider(name="host_card", parent="host", inventories=ROOT.inventories)
    twice = judge(replace(novas, way=replace(novas.way, tree=ProviderTree((ROOT, card))))).notes[0]
    assert twice.startswith("host has VCPU, and nova reports that. The plan adds VCPU to child providers too")
