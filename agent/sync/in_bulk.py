"""
First passes over many hosts that placement does not have: providers host by host, their stock in batches.

One listing tells what placement has, and one what became of the new providers. Only hosts whose first pass is plain are
reported here (``decide/new_tree.py``). All others are left to the pass of a single host, and so is a host that
placement refuses: that pass reports its error.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from agent.errors import USER_ERRORS, StateError
from agent.state.identity import parse_identity
from agent.state.locks import locked
from agent.state.memory import NodeState
from agent.sync.batches import FEW, Lot, Refused, Stocked, as_written, still_answers, write_stock
from agent.sync.decide.draft import Draft, draft
from agent.sync.decide.judge import judge, notes_on
from agent.sync.decide.new_tree import NewTree, names_of, new_tree
from agent.sync.decide.view import Needs, Readings, View, Wishes
from agent.sync.node import ComputeNode
from agent.sync.outcome import Outcome, Status
from agent.sync.run import after_writes, before_writes, outcome_of
from drivers.base import Survey
from drivers.looks import look
from reportclient.client import PlacementClient
from reportclient.errors import PlacementError, Unavailable
from reportclient.side_by_side import each
from reportclient.tree import ObservedProvider, ObservedTree

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Sight:
    """A host that has no memory here."""

    node: ComputeNode
    survey: Survey
    root_uuid: str


@dataclass(frozen=True, slots=True)
class _New:
    """A host whose tree is to be made."""

    node: ComputeNode
    draft: Draft
    tree: NewTree
    memory: NodeState  # as the verdict leaves it

    def left(self, why: object) -> None:
        """Log that this host is left to a pass of its own."""
        LOG.info("this host gets a pass of its own node=%s reason=%s", self.node.name, why)


def _silent() -> None:
    """Default callback: shows no progress."""


def report_new(
    nodes: Sequence[ComputeNode], wishes: Wishes = Wishes(), progress: Callable[[], None] = _silent
) -> dict[str, Outcome]:
    """
    Report the new hosts among these nodes of one agent, if they are many, and return their outcomes by name.

    Two requests for each provider, one for each batch of hosts, and a few. The caller takes a pass over each node that
    is not in the result: nothing was written of it, or what was written of it is not all.
    """
    if len(nodes) <= FEW or not _may_be_new(nodes[0], wishes):
        return {}
    with suppress(StateError), locked(nodes[0].settings.state_directory):
        sights = _unknown(nodes, progress)
        return _report(sights, wishes) if len(sights) > FEW else {}
    return {}


def _may_be_new(node: ComputeNode, wishes: Wishes) -> bool:
    """Return whether the first pass over a node can be a plain one, under this configuration and these wishes."""
    settings = node.settings
    plain = Wishes(deep=wishes.deep, counts=wishes.counts, reshape=wishes.reshape)
    return wishes == plain and settings.recorded and settings.reports_root and not settings.policy.disk_shared


def _unknown(nodes: Iterable[ComputeNode], progress: Callable[[], None]) -> list[_Sight]:
    """Return the hosts that have an identity of their own, and of which nothing is remembered."""
    found: list[_Sight] = []
    for node in nodes:
        with suppress(*USER_ERRORS):
            survey = look(partial(node.driver.survey, node.name))
            uuid = None if survey.compute_id is None else parse_identity(survey.compute_id, node.name)
            if uuid and not node.state_file(uuid).exists():
                found.append(_Sight(node, survey, uuid))
        progress()
    uuids = Counter(one.root_uuid for one in found)
    return [one for one in found if uuids[one.root_uuid] == 1]


def _report(sights: list[_Sight], wishes: Wishes) -> dict[str, Outcome]:
    client = sights[0].node.client
    client.begin()
    try:
        listed = client.listing()
        taken = listed.keys() | {name for name, _ in listed.values()}
        absent = [one for one in sights if taken.isdisjoint((one.root_uuid, one.node.name))]
        new = _plan(client, absent, wishes)
        client.execute(names_of(one.tree for one in new), ObservedTree())
    except PlacementError:
        return {}  # each pass reports it
    made = _make(client, new)
    written = _write_stock(client, made)
    return _remember(client, written)


def _plan(client: PlacementClient, sights: Iterable[_Sight], wishes: Wishes) -> list[_New]:
    """
    Plan the trees of hosts that placement has nothing of; without those whose plan is not plain.

    Raises:
        PlacementError: placement's traits cannot be read.
    """
    views: list[tuple[ComputeNode, View]] = []
    for one in sights:
        with suppress(*USER_ERRORS):
            views.append((one.node, one.node.view(wishes, survey=one.survey, absent=True)))
    needed = [found.traits for node, view in views if isinstance(found := _draft(node, view), Needs)]
    names = frozenset[str]().union(*needed)
    known = client.known_traits(names) if names else frozenset[str]()
    readings = Readings(traits={name: name in known for name in names})
    planned = [_judged(node, replace(view, readings=readings), wishes) for node, view in views]
    return [one for one in planned if one]


def _draft(node: ComputeNode, view: View) -> Draft | Needs | None:
    """Return the draft of a node, or what it needs; None: there is an error, which the pass of this node reports."""
    with suppress(*USER_ERRORS):
        return draft(view, node.driver)
    return None


def _judged(node: ComputeNode, view: View, wishes: Wishes) -> _New | None:
    """Return the plan of a new host, with the memory to keep; None: it is not plain, or may not be carried out."""
    found = _draft(node, view)
    tree = new_tree(found) if isinstance(found, Draft) else None
    if not isinstance(found, Draft) or tree is None:
        return None
    verdict = judge(found, wishes, node.terms())
    return None if verdict.refused else _New(node, found, tree, replace(verdict.memory, wrote=True))


def _make(client: PlacementClient, new: Iterable[_New]) -> list[tuple[_New, Lot]]:
    """Make the providers of all hosts, with their traits, several hosts at a time."""
    down = threading.Event()  # placement does not answer any more

    def make(one: _New) -> tuple[_New, Lot] | None:
        if down.is_set():
            return None
        try:
            one.node.state_file(one.draft.root_uuid).begin(before_writes(one.draft, one.memory))
            stands = client.execute(one.tree.providers, ObservedTree(), workers=1)
        except (StateError, PlacementError) as error:
            one.left(error)
            if isinstance(error, Unavailable) and not still_answers(client, one.draft.root_uuid):
                down.set()
            return None
        return one, Lot(stands.providers, one.tree.stock)

    return [one for one in each(make, new, client.workers) if one]


def _write_stock(client: PlacementClient, made: Sequence[tuple[_New, Lot]]) -> list[tuple[_New, Stocked]]:
    written: list[tuple[_New, Stocked]] = []
    for (one, _), ending in zip(made, write_stock(client, [lot for _, lot in made], client.workers), strict=True):
        if isinstance(ending, Stocked):
            written.append((one, ending))
        else:
            one.left("placement refused its stock" if isinstance(ending, Refused) else ending.why)
    return written


def _remember(client: PlacementClient, written: Sequence[tuple[_New, Stocked]]) -> dict[str, Outcome]:
    """Remember the trees that were made, and return their outcomes by node; without those that cannot be remembered."""

    def listing() -> dict[str, int]:
        return {uuid: generation for uuid, (_, generation) in client.listing().items()}

    known = as_written(client, (stocked for _, stocked in written), listing)
    outcomes: dict[str, Outcome] = {}
    for one, stocked in written:
        with suppress(StateError):
            outcomes[one.node.name] = _remembered(one, stocked, known)
    return outcomes


def _remembered(new: _New, stocked: Stocked, known: Mapping[str, ObservedProvider]) -> Outcome:
    """
    Remember a tree that was made, and return the outcome; providers that are not ``known`` are read by the next pass.

    Raises:
        StateError: the memory cannot be written.
    """
    node, draft = new.node, new.draft
    tree = ObservedTree(tuple(known[seen.uuid] for seen in stocked.lot.stands if seen.uuid in known))
    node.state_file(draft.root_uuid).write(after_writes(draft, new.memory, tree))
    outcome = outcome_of(node, draft, Status.CHANGED, notes_on(draft))
    return replace(outcome, made=tree) if len(tree.providers) == len(stocked.lot.stands) else outcome
