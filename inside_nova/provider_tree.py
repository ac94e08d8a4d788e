"""
The interface of drivers as functions of values: a node's tree and the moves to it, as a pass would plan them.

``update_provider_tree`` answers for a ``Driver``, ``plan_provider_tree`` for a survey that the caller has already. Both
write nothing. docs/inside-nova.md describes them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from agent.settings.read import ChangeSettings
from agent.state.memory import NodeState
from agent.sync.decide.feature import Draft
from agent.sync.decide.plan import draft
from agent.sync.decide.view import Readings, SeenTree, Shaper, Terms, Unread, View
from drivers.base import Driver, Survey
from drivers.policy import Policy
from reportclient.allocations import Allocation, Consumer, Instruction, Observed, instructions
from reportclient.errors import Unplaceable
from reportclient.ownership import Names
from reportclient.tree import ObservedTree, ProviderTree

_AT_ONCE = ChangeSettings(shrink_fraction=1.0, allow_reshape=True, reshape_timeout_s=0, expect_timeout_s=0)
_NO_TERMS = Terms(recorded=True, now_s=0, interval_s=0, microversion=(1, 39))  # nothing is written by this plan
UNKNOWN_ROOT = "00000000-0000-0000-0000-000000000000"  # root uuid of a node that placement does not have yet


def update_provider_tree(
    driver: Driver, policy: Policy, observed: Observed, node: str, reported: Names = Names()
) -> tuple[ProviderTree, tuple[Instruction, ...]]:
    """
    Return the tree that a node should have, and the moves that lead there; no moves as long as its shape stays.

    ``observed`` has the allocations of the whole tree; ``reported`` are names that earlier passes put on its root
    beyond what the driver always emits.

    Raises:
        DiscoveryError, PolicyError: as ``Driver.survey`` and ``Driver.shape``.
        Unplaceable: there is no place for something that a consumer has, or several and it is not known which.
    """
    found = plan_provider_tree(driver, policy, driver.survey(node), observed, node, reported)
    return found.desired, instructions(found.plan.moves)


def plan_provider_tree(
    shaper: Shaper,
    policy: Policy,
    survey: Survey,
    observed: Observed,
    node: str,
    reported: Names = Names(),
    consumers: Mapping[str, Consumer] | None = None,
) -> Draft:
    """
    Return the wanted tree of a surveyed node, and the plan that leads there.

    ``observed`` and ``reported`` are as in ``update_provider_tree``. ``consumers`` has the consumers of
    ``observed.allocations`` by uuid, with what they have outside the tree, which the plan's rewrites repeat. None: they
    have nothing outside, and their projects, users and generations are of no interest.

    Raises:
        PolicyError: as ``Driver.shape``.
        TreeMismatch: the tree is another host's.
        Unplaceable: as ``update_provider_tree``.
    """
    root = observed.tree.root
    view = View(
        node=node,
        root_uuid=root.uuid if root else UNKNOWN_ROOT,
        policy=policy,
        additions=(),
        survey=survey,
        seen=SeenTree(tree=observed.tree),
        changes=_AT_ONCE,
        terms=_NO_TERMS,
        memory=NodeState(reported={root.name: reported} if root else {}),
    )
    while True:
        try:
            found = draft(view, shaper)
            break
        except Unread as unread:
            view = replace(view, readings=_read(unread, view.readings, observed, consumers))
    if found.way.unplaceable:
        raise Unplaceable(found.way.unplaceable)
    return found


def _read(needs: Unread, read: Readings, observed: Observed, known: Mapping[str, Consumer] | None) -> Readings:
    """Return what was read, with these needs met from the given allocations; every trait is taken for known."""
    rows = {uuid: _rows(observed.allocations, observed.tree, uuid) for uuid in needs.allocations}
    consumers = {uuid: known.get(uuid) if known is not None else _consumer(uuid, observed) for uuid in needs.consumers}
    return Readings(
        allocations={**read.allocations, **rows},
        consumers={**read.consumers, **consumers},
        traits={**read.traits, **dict.fromkeys(needs.traits, True)},
    )


def _rows(allocations: Iterable[Allocation], tree: ObservedTree, uuid: str) -> tuple[Allocation, ...]:
    name = tree.by_uuid[uuid].name
    return tuple(one for one in allocations if one.provider == name)


def _consumer(uuid: str, observed: Observed) -> Consumer:
    """Return a consumer with what it has in this tree, which is all that moves need."""
    slots: dict[str, dict[str, int]] = {}
    for one in observed.allocations:
        if one.consumer == uuid:
            slots.setdefault(observed.tree.by_name[one.provider].uuid, {})[one.resource_class] = one.amount
    return Consumer(uuid=uuid, generation=1, project="", user="", kind=None, slots=slots)
