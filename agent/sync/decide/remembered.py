"""Last step of a draft: the memory to keep while its plan is carried out, and after."""

from collections.abc import Container, Mapping
from dataclasses import replace

from agent.nova.answers import NovaRecord
from agent.state.memory import NodeState
from agent.sync.decide.additions import still_named
from agent.sync.decide.owner import signs_of_nova
from agent.sync.decide.shaped import Shaped
from agent.sync.decide.standing import Standing
from agent.sync.decide.view import View
from agent.sync.decide.wanted import Wanted
from drivers.facts import ServiceSigns
from reportclient.ownership import Names, joined
from reportclient.plan import Delete, Plan
from reportclient.tree import ObservedTree, ProviderTree


def meanwhile(view: View, memory: NodeState, wanted: Wanted) -> NodeState:
    """Return what to remember while the plan is carried out: by both names, as a renaming may be taken back."""
    kept = view.memory
    return replace(
        memory,
        configured=joined(joined(kept.configured, memory.configured), wanted.added),
        reported=joined(joined(kept.reported, memory.reported), wanted.reported),
    )


def lasting(view: View, standing: Standing, shaped: Shaped, wanted: Wanted, memory: NodeState, plan: Plan) -> NodeState:
    """Return what to remember once the plan is carried out."""
    stay = _left_standing(standing.observed, wanted.tree, plan)
    return replace(
        memory,
        configured=joined(still_named(memory.configured, standing.observed, view.additions), wanted.added),
        reported=joined(_traits_on(stay, shaped.ours.configured), wanted.reported),
        reserved={},
        kinds={**memory.kinds, **shaped.holdings.kinds} if view.policy.layout == "flat" else {},
        dedicated=view.policy.cpus.dedicated or frozenset(),
        used=frozenset(),
        taken_over=_taken_over(view),
    )


def _taken_over(view: View) -> frozenset[str]:
    """Return the signs of nova that a person overruled, as far as they still stand."""
    if view.readings.nova_compute is None:
        return view.memory.taken_over
    signs = frozenset(signs_on(view)) - {"root"}
    return signs if view.wishes.take_over else signs & view.memory.taken_over


def _left_standing(observed: ObservedTree, desired: ProviderTree, plan: Plan) -> frozenset[str]:
    """Return the names of standing providers that are not wanted and stay: held, or another service's now."""
    gone = {step.uuid for step in plan.operations if isinstance(step, Delete)}
    wanted = {provider.name for provider in desired}
    return frozenset(seen.name for seen in observed if seen.uuid not in gone and seen.name not in wanted)


def _traits_on(providers: Container[str], names: Mapping[str, Names]) -> dict[str, Names]:
    """Return the traits that rules and files gave these providers: the agent may still take them back."""
    return {name: Names(traits=each.traits) for name, each in names.items() if name in providers and each.traits}


def signs_on(view: View) -> dict[str, str]:
    """Return the signs that nova reports the root; none of a recorded host, which nobody runs a service on."""
    read = view.readings
    if view.recorded:
        return {}
    found, record = read.nova_compute or ServiceSigns(), read.nova_record or NovaRecord()
    return signs_of_nova(view.observed.root, found, record, remembered=view.memory.wrote)
