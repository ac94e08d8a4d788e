"""Last step of a draft: the memory to keep while its plan is carried out, and after."""

from collections.abc import Container, Mapping
from dataclasses import replace

from agent.sync.decide.additions import still_named
from agent.sync.decide.feature import Memories, Way
from agent.sync.decide.shaped import Shaped
from agent.sync.decide.standing import Standing
from agent.sync.decide.view import View
from agent.sync.decide.wanted import Wanted
from reportclient.ownership import Names, joined
from reportclient.plan import Delete, Plan
from reportclient.tree import ObservedTree, ProviderTree


def memories(
    view: View, standing: Standing, shaped: Shaped, wanted: Wanted, way: Way, lacked: frozenset[str]
) -> Memories:
    """
    Return what to remember, by how the pass ends; ``lacked`` are standard traits that placement does not have.

    While the plan is carried out that is by both names, as a renaming may be taken back.
    """
    kept, memory = view.memory, shaped.memory
    stay = _left_standing(standing.observed, wanted.tree, way.plan)
    return Memories(
        refused=replace(kept, observed=view.observed),
        meanwhile=replace(
            memory,
            configured=joined(joined(kept.configured, memory.configured), wanted.added),
            reported=joined(joined(kept.reported, memory.reported), wanted.reported),
        ),
        lasting=replace(
            memory,
            configured=joined(still_named(memory.configured, standing.observed, view.additions), wanted.added),
            reported=joined(_traits_on(stay, shaped.ours.configured), wanted.reported),
            lacked_traits=lacked,
            reserved={},
            kinds={**memory.kinds, **shaped.holdings.backing.kinds} if view.policy.layout == "flat" else {},
            dedicated=view.policy.cpus.dedicated or frozenset(),
        ),
    )


def _left_standing(observed: ObservedTree, desired: ProviderTree, plan: Plan) -> frozenset[str]:
    """Return the names of standing providers that are not wanted and stay: held, or another service's now."""
    gone = {step.uuid for step in plan.operations if isinstance(step, Delete)}
    wanted = {provider.name for provider in desired}
    return frozenset(seen.name for seen in observed if seen.uuid not in gone and seen.name not in wanted)


def _traits_on(providers: Container[str], names: Mapping[str, Names]) -> dict[str, Names]:
    """Return the traits that rules and files gave these providers: the agent may still take them back."""
    return {name: Names(traits=each.traits) for name, each in names.items() if name in providers and each.traits}
