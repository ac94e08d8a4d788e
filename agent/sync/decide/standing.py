"""First step of a draft: standing tree and memory by the wanted names, and what the operator's files put there."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from agent.state.memory import NodeState
from agent.sync.decide.additions import Addition, now_named
from agent.sync.decide.view import View
from reportclient.names import spelled
from reportclient.ownership import OWNERS, Names, joined
from reportclient.renaming import as_called, called, former_name, new_names
from reportclient.tree import ObservedTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Standing tree and memory, by the wanted names."""

    formerly: str | None  # the root's name before a renaming; None: it is not renamed
    observed: ObservedTree
    memory: NodeState
    named: Mapping[str, Names]  # what the operator's files put on each provider
    new_name: Callable[[str], str]  # returns the wanted name of a provider that the memory names

    @property
    def files(self) -> dict[str, frozenset[str]]:
        """Classes of the operator's files, by provider."""
        return {name: each.classes for name, each in self.named.items()}


def stand(view: View) -> Standing:
    """Return standing tree and memory by the wanted names: they differ while the host, or a child, is renamed."""
    names = (name.removeprefix(view.node) for name in view.survey.present)
    own_parts = sorted(names, key=lambda part: (-len(part), part))
    formerly = view.wishes.rename_from or former_name(view.observed, own_parts)
    root, node = view.observed.root, view.node
    if root is None or (root.name != node and root.name != formerly):
        # another host's root, or one that is not to be renamed: ``diff`` raises
        named = _named(view.observed, view.memory, view.additions)
        return Standing(formerly=formerly, observed=view.observed, memory=view.memory, named=named, new_name=str)
    before = {root.name, node, formerly or node}
    standing = new_names(view.observed, node, formerly)

    def new_name(name: str) -> str:
        return standing.get(name) or spelled(called(name, node, before))

    left = view.memory.observed
    observed = as_called(view.observed, node, formerly)
    memory = replace(
        view.memory,
        observed=as_called(left, node, formerly) if left else None,
        configured=_by_new_name(view.memory.configured, new_name),
        reported=_by_new_name(view.memory.reported, new_name),
        kinds={spelled(device): classes for device, classes in view.memory.kinds.items()},
    )
    named = _named(observed, memory, view.additions)
    return Standing(formerly=formerly, observed=observed, memory=memory, named=named, new_name=new_name)


def _by_new_name(names: Mapping[str, Names], new_name: Callable[[str], str]) -> dict[str, Names]:
    found: dict[str, Names] = {}
    for name, each in names.items():
        found = joined(found, {new_name(name): each})
    return found


def _named(observed: ObservedTree, memory: NodeState, additions: Iterable[Addition]) -> dict[str, Names]:
    """Return what the operator's files put on the standing providers, and the owner's marks that rules gave them."""
    found = dict(memory.configured)
    for name, now in now_named(observed, additions).items():
        ours = memory.reported.get(name, Names())
        found = joined(found, {name: Names(now.classes - ours.classes, now.traits - ours.traits)})
    owners = {
        name: Names(traits=frozenset(trait for trait in names.traits if trait.startswith(OWNERS)))
        for name, names in memory.reported.items()
    }
    return joined(found, owners)
