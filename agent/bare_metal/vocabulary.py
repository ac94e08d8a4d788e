"""
Resource classes and traits that placement has, as far as a pass over bare-metal nodes knows.

The plan of a node makes the names that it needs and that placement does not have yet. A node whose names others need
too is written before them.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from agent.bare_metal.context import Look, Task
from reportclient.client import PlacementClient
from reportclient.names import is_custom, unknown_standard


@dataclass(slots=True)
class Vocabulary:
    """The names that no node has to make; written nodes add theirs."""

    known: frozenset[str]  # classes and traits
    lacked: frozenset[str]  # standard traits that this placement is too old to know

    def add(self, task: Task) -> None:
        """Note that a node was written, so that placement has its names."""
        self.known |= _custom_names(task)

    def split(self, tasks: Iterable[Task]) -> tuple[list[Task], list[Task]]:
        """
        Return the tasks that make names for others, which are to be done one after the other, and all other tasks.

        Each new class is among the former: placement can lose one of two classes that are made at once.
        """
        everybody = [(task, _custom_names(task)) for task in tasks]
        times = Counter(name for _, names in everybody for name in names)
        known = set(self.known)
        first: list[Task] = []
        rest: list[Task] = []
        for task, names in everybody:
            new = {name for name in names - known if times[name] > 1 or name in task.provider.inventories}
            (first if new else rest).append(task)
            known |= new
        return first, rest


def learn_names(client: PlacementClient, look: Look) -> Vocabulary:
    """
    Return what placement has of the traits of all tasks. One request for 100 names.

    Names that stand on a provider as remembered need no request; other memory may be of a placement before this one.
    """
    seen = [known.seen.provider for known in look.believed]
    known = frozenset[str]().union(*(one.traits | one.inventories.keys() for one in seen))
    unread = frozenset[str]().union(*(task.provider.traits for task in look.tasks)) - known
    found = client.known_traits(unread)
    return Vocabulary(known | found, look.lacked | unknown_standard(unread, found))


def _custom_names(task: Task) -> frozenset[str]:
    return frozenset(filter(is_custom, (*task.provider.traits, *task.provider.inventories)))
