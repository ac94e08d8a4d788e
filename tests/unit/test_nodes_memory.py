"""
The law of the memory of bare-metal nodes: it only adds doubt.

Nodes wander between two agents whose memory is right, empty, of an earlier moment or of the other agent. A second world
has the same history and one agent that sees everything and never forgets. What stands in the first world is the same,
or an outcome names the node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.state.node_records import MEMORY_NAME
from agent.sync.outcome import Status
from beds.nodes_world import World, uuid_of, world
from configured import changed
from reportclient.tree import Provider

NODES = range(1, 4)
STEADY = (98, 99)  # one node of each agent that nothing happens to: nobody loses all nodes at once
CLASSES = ("gold", "silver", "bronze", None, "gone")
TOLD = (Status.STRAY, Status.CONTESTED)

Deed = Literal["class", "form", "trait", "claim", "release"]
Memory = Literal["right", "empty", "other's"] | int  # a number: of an earlier moment, counted from now


@dataclass(frozen=True)
class Step:
    """What happens before two passes of each agent, and what a person does after them."""

    classes: dict[int, str | None] = field(default_factory=dict)
    ill: frozenset[int] = frozenset()  # nodes that change between maintenance and none
    traits: dict[int, list[str]] = field(default_factory=dict)
    wander: frozenset[int] = frozenset()  # nodes that go to the other agent
    memories: tuple[Memory, Memory] = ("right", "right")
    waits: bool = False  # so long that all providers are read again
    by_hand: Mapping[int, Deed] = field(default_factory=dict)


MEMORIES = st.sampled_from(("right", "right", "right", "empty", "other's")) | st.integers(1, 4)
SOME = st.frozensets(st.sampled_from(NODES), max_size=2)
STEPS = st.builds(
    Step,
    classes=st.dictionaries(st.sampled_from(NODES), st.sampled_from(CLASSES), max_size=2),
    ill=SOME,
    traits=st.dictionaries(
        st.sampled_from(NODES), st.lists(st.sampled_from(("CUSTOM_RED", "CUSTOM_BLUE", "HW_CPU_X86_VMX"))), max_size=2
    ),
    wander=SOME,
    memories=st.tuples(MEMORIES, MEMORIES),
    waits=st.booleans(),
    by_hand=st.dictionaries(
        st.sampled_from(NODES), st.sampled_from(("class", "form", "trait", "claim", "release")), max_size=1
    ),
)


class Agent:
    """An agent whose memories are kept after each pass."""

    def __init__(self, one: World, *, lists_all: bool) -> None:
        self.world, self.memories, self.told = one, [""], set[str]()
        self.named = set[str]()
        one.nodes.lists_all = lists_all
        one.bare_metal = replace(
            one.bare_metal, settings=changed(one.bare_metal.settings, changes={"shrink_fraction": 1.0})
        )

    def remember(self, memory: Memory, others: "Agent") -> None:
        """Put a memory in the place of the own one."""
        match memory:
            case "right":
                return
            case "empty":
                text = ""
            case "other's":
                text = others.memories[-1]
            case _:
                text = self.memories[-1 - min(memory, len(self.memories) - 1)]
        (self.world.folder / MEMORY_NAME).unlink(missing_ok=True)
        if text:
            (self.world.folder / MEMORY_NAME).write_text(text)

    def pass_twice(self, *, waits: bool) -> None:
        if waits:
            self.world.wait(self.world.bare_metal.settings.service.full_audit_interval_s)
        for _ in range(2):
            done = self.world.sync()
            self.memories.append((self.world.folder / MEMORY_NAME).read_text())
        self.told = {one.node for one in done.outcomes if one.status in TOLD}
        self.named = {one.node for one in done.outcomes}

    def provider(self, number: int) -> Provider | None:
        root = self.world.client.observe(uuid_of(number)).root
        return root.provider if root else None


def carry_out(steps: list[Step], *, shards: bool) -> None:
    """Carry out one history in both worlds, and compare them after each step."""
    with world() as first, world() as second, world() as whole:
        nodes = first.nodes
        nodes.classes |= dict.fromkeys(STEADY, "gold")
        second.restore(first.placement)
        for one in (second, whole):
            one.nodes.classes, one.nodes.ill, one.nodes.given = nodes.classes, nodes.ill, nodes.given
        agents = [Agent(one, lists_all=not shards) for one in (first, second)]
        reference = Agent(whole, lists_all=True)
        share = set(NODES) | {STEADY[0]}
        active = agents if shards else agents[:1]
        lingered = set[int]()
        for step in steps:
            nodes.classes |= step.classes
            for number in [number for number, text in nodes.classes.items() if text == "gone"]:
                del nodes.classes[number]
            nodes.given |= step.traits
            nodes.ill ^= step.ill
            share ^= step.wander
            if shards:
                first.nodes.unlisted, second.nodes.unlisted = {*NODES, *STEADY} - share, share
            elif step.wander:
                active = [one for one in agents if one not in active]
            for agent, other, memory in zip(agents, reversed(agents), step.memories, strict=True):
                agent.remember(memory, other)
            for agent in (*active, reference):
                agent.pass_twice(waits=step.waits)
            misfits = {number for number, text in nodes.classes.items() if not text}
            told = set().union(*(agent.told for agent in active))
            told |= {uuid_of(number) for number in misfits} & set().union(*(agent.named for agent in active))
            for number in NODES:
                found, expected = agents[0].provider(number), reference.provider(number)
                # An agent of a shard looks for unknown providers only when it reads all.
                lingers = number not in nodes.classes and shards and not step.waits
                if found and not expected:
                    lingered.add(number)
                if number in lingered:  # what was made by hand is on it still when the node is enrolled again
                    found, expected = without_deeds(found), without_deeds(expected)
                assert found == expected or uuid_of(number) in told or (lingers and not expected)
            for number, deed in step.by_hand.items():
                if number in nodes.classes:
                    for one in (first, whole):
                        do_by_hand(one, number, deed)


def without_deeds(one: Provider | None) -> Provider | None:
    """Return a provider without what ``do_by_hand`` adds to it."""
    if one is None:
        return None
    stock = {name: stands for name, stands in one.inventories.items() if name != "CUSTOM_LICENCE"}
    return replace(one, inventories=stock, traits=one.traits - {"CUSTOM_BY_HAND"})


def do_by_hand(one: World, number: int, deed: Deed) -> None:
    """Do what a person or a scheduler does, where it is possible."""
    stock = one.stock(number)
    free = [name for name, reserved in stock.items() if not reserved]
    match deed:
        case "class" if stock:
            one.offer(number, "CUSTOM_LICENCE")
        case "form" if stock:
            one.offer(number, sorted(stock)[0])
        case "trait" if stock:
            one.mark(number, "CUSTOM_BY_HAND")
        case "claim" if free and not one.client.consumer(uuid_of(1000 + number)):
            one.claim(number, free[0])
        case "release" if one.client.consumer(uuid_of(1000 + number)):
            one.release(number)


@settings(max_examples=60)
@given(st.lists(STEPS, min_size=2, max_size=8), st.booleans())
def test_what_stands_of_a_node_does_not_hang_on_the_memory(steps: list[Step], shards: bool) -> None:
    carry_out(steps, shards=shards)
