"""
Random lives of a world, the same for a number at each run, and what the agent does and says in each of their turns.

``python -m beds.lives NUMBER`` in ``tests`` prints one of them whole: run it before and after a change, and compare.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, get_args
from uuid import UUID

from agent.audit.audit import witness
from agent.errors import USER_ERRORS
from beds.worlds import CARDS, NAMES, ROOT, STYLES, World, worlds
from drivers.policy import OF_CELLS, Layout

OFFERS = ("off", "first", "second", "whole", "both")
OWNERS = ("OWNER_CYBORG", "CUSTOM_OWNER_NEUTRON")
SUFFIXES = (":agent:br0", "_0000:20:00.0", "_pci_0000_21_00_0", "_NUMA0", "_license")
TRAITS = ("CUSTOM_OPERATOR", "CUSTOM_PHYSNET_BLUE", "HW_NIC_SRIOV")
_DAY_S = 86_400.0


class Life:
    """One random life: ``number`` decides it."""

    def __init__(self, number: int, make: Callable[..., Any]) -> None:
        self.random = random = Random(number)
        self.world: World = make(
            layout=random.choice(get_args(Layout)),
            shared=random.random() < 0.5,
            bandwidth=random.random() < 0.4,
            dedicated=random.random() < 0.3,
            boot=random.choice(("", "first", "second")),
            disk=random.choice(("file", "own", "sharing")),
        )
        self.world.uptime_s = random.choice((120.0, _DAY_S))
        self.memories = [""]
        if random.random() < 0.2:
            self.world.lay_down_as_nova()
        for _ in range(random.randrange(3) if random.random() < 0.3 else 0):
            self._of_others()

    def turns(self) -> Iterator[str]:
        """Yield what each turn did and said, as text."""
        random, world = self.random, self.world
        yield self._pass()
        for _ in range(random.randrange(4)):
            world.spawn(random.choice(STYLES), random.randrange(2), self._card_or_none(), random.randint(1, 2))
        for _ in range(random.randint(2, 6)):
            for _ in range(random.choice((0, 1, 1, 2, 3))):
                random.choice(4 * [self._change] + [self._by_hand, self._of_others, self._hand_of_any])()
            if random.random() < 0.15:
                world.remembered = random.choice(self.memories)
            yield self._pass()
            self.memories.append(world.remembered)
            if random.random() < 0.5:
                yield self._audit()
            for _ in range(random.choice((0, 0, 1, 2))):
                if random.random() < 0.4:
                    world.end(random.randrange(5))
                else:
                    world.spawn(random.choice(STYLES), random.randrange(2), self._card_or_none(), random.randint(1, 2))
        if random.random() < 0.3:
            world.leave()
            yield f"left\n{self._stands()}"

    def _pass(self) -> str:
        random, world = self.random, self.world
        crash = (random.randrange(40), random.random() < 0.5) if random.random() < 0.25 else None
        world.take(crash=crash, reshape=random.random() < 0.7, force=random.random() < 0.1)
        done = world.outcome
        said = [done.status.value, *done.notes] if done else ["failed", world.why]
        return "\n".join([*said, self._stands()])

    def _audit(self) -> str:
        world, said = self.world, ["audit"]
        world.clock.now += 10
        try:
            found = witness(world.node())
            said += [
                f"{one.key} {one.expected} {one.actual} {one.safe} {one.seen} {one.repair and one.repair.text}"
                for one in found.findings
            ]
        except USER_ERRORS as error:
            said.append(str(error))
        world.audit()
        return "\n".join([*said, world.why, self._stands()])

    def _stands(self) -> str:
        """All providers, traits, aggregates, stock and allocations, each in a line."""
        world = self.world
        found = [json.dumps(world.providers(), sort_keys=True)]
        for uuid, (name, parent) in sorted(world.tree().items()):
            aspects = (world.aspect(uuid, one) for one in ("traits", "aggregates"))
            found.append(f"{name} {parent} {' '.join(','.join(sorted(one)) for one in aspects)}")
        return "\n".join([*found, json.dumps(world.memory.snapshot()[1], sort_keys=True)])

    def _card_or_none(self) -> int | None:
        number = self.random.randrange(-1, len(CARDS))
        return None if number < 0 else number

    def _change(self) -> None:
        random, world = self.random, self.world
        what = random.choice(("layout", "offers", "offers", "seen", "shown", "up", "mbps", "one"))
        card, nic, yes = random.randrange(len(CARDS)), random.randrange(2), random.random() < 0.5
        if what == "layout":
            world.change(layout=random.choice(get_args(Layout)))
        elif what in ("offers", "seen", "shown"):
            world.change_card(what, card, random.choice(OFFERS) if what == "offers" else yes)
        elif what in ("up", "mbps"):
            world.change_card(what, nic, yes if what == "up" else random.choice((1_000, 10_000)))
        else:
            disks = ("file",) if world.setup.disk == "file" else ("own", "sharing")
            choices: dict[str, Any] = {
                "bandwidth": yes,
                "dedicated": yes,
                "name": random.choice(NAMES),
                "boot": random.choice(("", "first", "second")),
                "disk": random.choice(disks),
            }
            name = random.choice(sorted(choices))
            world.change(**{name: choices[name]})

    def _by_hand(self) -> None:
        """An operator reserves units of a card, or sets a ratio."""
        random, world = self.random, self.world
        layout = world.setup.layout
        if random.random() < 0.6:
            one = random.choice(CARDS)
            suffix = "" if layout == "flat" else one.suffixes[one.kind == "gpu"]
            name = one.class_of(random.choice(("first", "second")), shared=world.setup.shared)
            world.set_stock(suffix, name, reserved=random.randint(1, 3))
        else:
            name, cell = random.choice(("VCPU", "MEMORY_MB", "DISK_GB")), random.randrange(2)
            pool = f"NUMA{cell}_PAGES_4" if name == "MEMORY_MB" and layout == "numa" else f"NUMA{cell}"
            suffix = pool if layout in OF_CELLS and name != "DISK_GB" else ""
            world.set_stock(suffix, name, allocation_ratio=random.choice((2.0, 16.0)))

    def _of_others(self) -> None:
        random, world = self.random, self.world
        what = random.randrange(4)
        if what == 0:
            world.put_trait(random.choice(TRAITS))
        elif what == 1:
            world.put_class(random.choice(("CUSTOM_LICENSE", "CUSTOM_OTHER")))
        elif what == 2:
            world.put_aggregate()
        else:
            name = random.choice(("VGPU", "CUSTOM_LICENSE", "MEM_ENCRYPTION_CONTEXT"))
            world.put_child(random.choice(SUFFIXES), random.choice(OWNERS), name)

    def _hand_of_any(self) -> None:
        """A hand writes a whole aspect of one provider."""
        random = self.random
        aspect, body = random.choice(
            (
                ("traits", {"traits": []}),
                ("traits", {"traits": ["CUSTOM_HAND"]}),
                ("inventories", {"inventories": {}}),
                ("aggregates", {"aggregates": []}),
                ("aggregates", {"aggregates": [str(UUID(int=7))]}),
                ("", {"parent_provider_uuid": ROOT}),
                ("", {"name": "by hand"}),
            )
        )
        self.world.set_aspect(random.randrange(8), aspect, body)


def turns_of(number: int, make: Callable[..., Any]) -> list[str]:
    """What each turn of a life did and said."""
    return [*Life(number, make).turns()]


def digest(turn: str) -> str:
    """A turn in one word: how it ended, and eight digits that differ where anything of it does."""
    return f"{turn.split()[0] if turn else ''}={hashlib.sha256(turn.encode()).hexdigest()[:8]}"


if __name__ == "__main__":
    with worlds() as maker:
        sys.stdout.write("\n\n".join(turns_of(int(sys.argv[1]), maker)))
