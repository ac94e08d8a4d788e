"""Random lives of bare-metal nodes between two agents, the same for a number at each run, as in ``beds.lives``."""

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from random import Random

from agent.errors import USER_ERRORS
from agent.state.clock import StoppedClock
from agent.state.node_records import MEMORY_NAME
from agent.sync.decide.view import Wishes
from beds.nodes_world import World, shards
from configured import changed

CLASSES = ("gold", "silver", "gold-x", "gold.x", "VGPU", "", None)
IN_PLACEMENT = ("CUSTOM_GOLD", "CUSTOM_SILVER", "CUSTOM_BRONZE")
TRAITS = ("CUSTOM_RED", "CUSTOM_BLUE", "HW_CPU_X86_VMX", "wrong")
STEADY = range(20, 30)  # nothing happens to them, so that nobody loses all nodes at once


class NodesLife:
    """One random life: ``number`` decides it."""

    def __init__(self, number: int, agents: tuple[World, World]) -> None:
        self.random, self.agents = Random(number), agents
        self.memories = {one.folder: [""] for one in agents}
        agents[0].nodes.classes.update(dict.fromkeys((*range(1, 5), *STEADY), "gold"))
        for one in agents:
            settings = changed(one.bare_metal.settings, ironic={"node_grace_s": self.random.choice((0, 600))})
            one.bare_metal = replace(one.bare_metal, settings=settings, clock=StoppedClock("", 0.0, 1_000_000.0))

    def turns(self) -> Iterator[str]:
        """Yield what each turn did and said, as text."""
        for _ in range(self.random.randint(3, 8)):
            yield self._passes()
            for _ in range(self.random.choice((0, 1, 1, 2, 3))):
                with suppress(AssertionError):  # placement refuses it
                    self._happen(self.random.randrange(1, 6))

    def _passes(self) -> str:
        random, said = self.random, ["passes"]
        for one in self.agents:
            one.wait(random.choice((60.0, 60.0, 4_000.0, 90_000.0)))
            if random.random() < 0.15:
                (one.folder / MEMORY_NAME).unlink(missing_ok=True)
                if text := random.choice(self.memories[one.folder]):
                    (one.folder / MEMORY_NAME).write_text(text)
            try:
                done = one.sync(Wishes(force=random.random() < 0.1))
                said += [f"{each.node} {each.status.value} {' '.join(each.notes)}" for each in done.outcomes]
                said.append(str(done.unchanged))
            except USER_ERRORS as error:
                said.append(str(error))
            file = one.folder / MEMORY_NAME
            self.memories[one.folder].append(file.read_text() if file.exists() else "")
        return "\n".join([*said, self._stands()])

    def _happen(self, node: int) -> None:
        """Something happens to a node, in Ironic or in placement."""
        random = self.random
        first, _ = self.agents
        one = random.choice(self.agents)
        what = random.choice(("class", "class", "traits", "ill", "wander", "gone", "claim", "release", "by hand"))
        if what == "class":
            first.nodes.classes[node] = random.choice(CLASSES)
        elif what == "traits":
            for each in self.agents:
                each.nodes.given[node] = sorted(random.sample(TRAITS, random.randrange(3)))
        elif what == "ill":
            for each in self.agents:
                each.nodes.ill ^= {node}
        elif what == "wander":
            for each in self.agents:
                each.nodes.unlisted ^= {node}
        elif what == "gone":
            first.nodes.classes.pop(node, None)
        elif what == "claim":
            one.claim(node, random.choice(IN_PLACEMENT))
        elif what == "release":
            one.release(node)
        elif first.stock(node):
            random.choice(
                (
                    lambda: one.mark(node, random.choice(TRAITS[:3])),
                    lambda: one.offer(node, random.choice(IN_PLACEMENT), reserved=random.randrange(2)),
                    lambda: one.free(node, random.choice(IN_PLACEMENT)),
                )
            )()

    def _stands(self) -> str:
        client = self.agents[0].client
        rows = self.agents[0].placement.request("/resource_providers", "GET", microversion="1.39").json()
        found = []
        for row in sorted(rows["resource_providers"], key=lambda row: str(row["uuid"])):
            root = client.observe(row["uuid"]).root
            assert root is not None
            stock = {name: [one.total, one.reserved] for name, one in sorted(root.provider.inventories.items())}
            found.append(f"{root.uuid} {root.name} {','.join(sorted(root.provider.traits))} {json.dumps(stock)}")
        return "\n".join(found)


def turns_of_nodes(number: int) -> list[str]:
    """What each turn of a life did and said."""
    with shards() as agents:
        return [*NodesLife(number, agents).turns()]


if __name__ == "__main__":
    sys.stdout.write("\n\n".join(turns_of_nodes(int(sys.argv[1]))))
