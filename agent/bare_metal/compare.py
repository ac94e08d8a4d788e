"""
Compare Ironic's nodes with their providers, before anything is written: as they should be, different, or absent.

Absent nodes were deleted, moved to another share, or never were in this agent's. A provider is deleted only after
Ironic said twice that it does not have the node, and not if too many nodes are missing at once. Nodes that left this
agent's share are remembered for as long as their providers stand, and are never written: another agent may report them.
"""

import logging
import random
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice

from agent.bare_metal.context import BareMetalNodes, Look, Task, node_outcome
from agent.state.node_records import KnownNode
from agent.sync.outcome import Status
from drivers.errors import DiscoveryError
from drivers.ironic.client import IronicClient
from drivers.ironic.shape import (
    BARE_METAL,
    CRITICAL,
    GAVE,
    HEALTHY,
    SET_CLASS,
    WAS_CRITICAL,
    Misfit,
    Node,
    Share,
    node_classes,
    shape_share,
    why_reserved,
)
from reportclient.client import PlacementClient
from reportclient.errors import few
from reportclient.names import unknown_standard
from reportclient.ownership import OWNER_NOVA
from reportclient.tree import Provider

LOG = logging.getLogger(__name__)
_NAMED = 20  # providers without a node that have an outcome each
_QUESTIONS = 200  # single nodes about which one pass asks Ironic, once for absent nodes and once for left ones
FEW = 50  # new nodes that are looked up in placement one by one; for more, all its providers are listed
_COLLIDES = (
    "this node's resource class and another resource class in Ironic get the same name in placement, so the node must "
    f"not be offered: rename one of these two resource classes in Ironic with {SET_CLASS}"
)


def look_at_nodes(bare_metal: BareMetalNodes, *, force: bool = False) -> Look:
    """
    Compare one listing of Ironic and one of placement with the memory; read more only about what is new.

    ``force`` lets more nodes go at once than ``[agent] shrink_limit_percent``.

    Raises:
        DiscoveryError: Ironic cannot be read whole. PlacementError: placement cannot.
        StateError: our own file cannot be read.
    """
    memory, client = bare_metal.memory(), bare_metal.client
    nodes = bare_metal.ironic.survey()
    marked = client.generations(BARE_METAL)
    reported = {uuid: known.spelling for uuid, known in memory.nodes.items() if known.spelling and uuid in marked}
    standing = marked.keys() - (set() if bare_metal.ironic.lists_all else _renamed(nodes, reported))
    critical = client.generations(WAS_CRITICAL) if bare_metal.ironic.asks_health else {}
    shape = partial(shape_share, nodes, reported=reported, standing=standing, critical=critical)
    share = shape()
    lacked = unknown_standard(memory.lacked, client.known_traits(memory.lacked))  # it may have been upgraded
    here = frozenset(share.providers.keys() | share.misfits.keys())
    listed = {uuid: replace(known, gone_s=None, may_go=False) for uuid, known in memory.nodes.items() if uuid in here}
    look = Look(memory, marked, here, nodes=dict(listed), lacked=lacked)
    _choose_depth(bare_metal, look)
    _compare_share(client, look, share)
    others = bare_metal.ironic.elsewhere() if look.whole or _comes_on_offer(look, share) else {}
    if (beside_others := shape(elsewhere=others)) != share:
        share, look = beside_others, replace(look, nodes=listed, tasks=[], believed=[], unchanged=0)
        _compare_share(client, look, share)
    look.outcomes += [node_outcome(uuid, Status.MISFIT, one.why) for uuid, one in sorted(share.misfits.items())]
    _refuse_lost(bare_metal, look, force=force)
    _reserve_misfits(look, share, critical)
    unknown = marked.keys() - here - memory.nodes.keys() - others.keys()
    _judge_absent(bare_metal, look, unknown, force=force)
    return look


def _choose_depth(bare_metal: BareMetalNodes, look: Look) -> None:
    """
    Set ``look.whole``: every provider is read once in ``full_audit_interval``, and when placement has older data.

    A lower generation belongs to another history. So may an equal one, where claims have raised it since.
    """
    memory, marked = look.memory, look.marked
    look.behind = frozenset(
        uuid for uuid, known in memory.nodes.items() if marked.get(uuid, known.seen.generation) < known.seen.generation
    )
    went_back = bool(look.behind - memory.behind)
    if went_back:
        LOG.warning(
            "placement has older data than at the last pass (a restored backup, or a cache on the way?): all nodes are "
            "read again where=%s",
            bare_metal.where,
        )
    age_s = bare_metal.clock.now_s() - memory.whole_s
    look.whole = went_back or not 0 <= age_s < bare_metal.settings.service.full_audit_interval_s


def _compare_share(client: PlacementClient, look: Look, share: Share) -> None:
    """Compare each node that can be reported with its provider: count it as unchanged, or add a task."""
    unmarked = _generations_of(client, [uuid for uuid in share.providers if uuid not in look.marked])
    standing = {**look.marked, **unmarked}
    for uuid, provider in sorted(share.providers.items()):
        known, generation = look.nodes.get(uuid), standing.get(uuid)
        current = look.current(uuid, known)
        because, spelling = share.reserved.get(uuid, ""), share.spellings[uuid]
        if known and current:
            look.believed.append(known)
        if known and current and _is_as_wanted(current.provider, provider, look.lacked):
            look.unchanged += 1
            look.nodes[uuid] = replace(known, spelling=spelling)
        else:
            look.tasks.append(Task(provider, known, current, generation, because, spelling))


def _renamed(nodes: Iterable[Node | Misfit], reported: Mapping[str, str]) -> set[str]:
    """
    Return the nodes that stand by another resource class than they have now, by uuid.

    Agents of other shards cannot tell, and look less often, so such a node does not count for its new one.
    """
    return {
        one.uuid
        for one in nodes
        if isinstance(one, Node) and reported.get(one.uuid, one.resource_class) != one.resource_class
    }


def _comes_on_offer(look: Look, share: Share) -> bool:
    """
    Return whether a resource class comes on offer that this agent does not offer by another node already.

    Another agent's resource class of the same name in placement then stays a misfit: no more of it stands there.
    """
    before = {uuid: known.spelling for uuid, known in look.memory.nodes.items()}
    doing = {task.provider.name for task in look.tasks}
    coming: set[str] = set()
    offered: set[str] = set()
    for uuid in share.providers.keys() - share.reserved.keys():
        text = share.spellings[uuid]
        (coming if uuid in doing or before.get(uuid) != text else offered).add(text)
    return bool(coming - offered)


def _reserve_misfits(look: Look, share: Share, critical: Container[str]) -> None:
    """
    Add a task for each node that cannot be reported, and must not be on offer, where its provider stands.

    ``critical`` are as for ``shape_share``.
    """
    for uuid, misfit in share.misfits.items():
        stays = misfit.node is not None and misfit.node.health not in HEALTHY and uuid in critical
        because, only = why_reserved(misfit.node, was_critical=stays) if misfit.node else "", ""
        if misfit.collides and not because:
            because, only = _COLLIDES, misfit.collides
        if because and uuid in look.marked:
            ill = misfit.node is not None and misfit.node.health == CRITICAL
            look.reserve(uuid, look.nodes.get(uuid), because, only=only, ill=ill)


def _is_as_wanted(stands: Provider, wanted: Provider, lacked: frozenset[str]) -> bool:
    """Return whether a provider has what its node gives but for ``lacked`` traits, and nothing that it gave before."""
    marks = {name for name in stands.traits if name.startswith(GAVE)}
    former = set() if OWNER_NOVA in stands.traits else node_classes(stands) - wanted.inventories.keys()
    return (
        not former
        and marks <= wanted.traits - lacked <= stands.traits
        and all(
            name in stands.inventories and stock.equals(stands.inventories[name])
            for name, stock in wanted.inventories.items()
        )
    )


def _generations_of(client: PlacementClient, uuids: list[str]) -> dict[str, int]:
    """Return the generations of the providers that stand without our mark, as nova left them, by uuid."""
    if len(uuids) > FEW:
        everybody = client.generations()
        return {uuid: everybody[uuid] for uuid in uuids if uuid in everybody}
    found: dict[str, int] = {}
    for uuid in uuids:
        found |= client.generations(uuid=uuid)
    return found


def _judge_absent(bare_metal: BareMetalNodes, look: Look, unknown: Collection[str], *, force: bool) -> None:
    """
    Judge nodes that are not listed; adds outcomes, tasks and memory to ``look``.

    Providers with our mark that are in no memory and no listing are ``unknown``. ``force`` lets any number of nodes go
    at once.
    """
    elsewhere = _judge_remembered(bare_metal, look, force=force)
    if bare_metal.ironic.lists_all:
        _add_strays(look, sorted(unknown))
        return
    now_s, before = bare_metal.clock.now_s(), look.memory.left
    known = {*before, *elsewhere, *(unknown if look.whole else ())} & look.marked.keys() - look.here
    left = {uuid: None if uuid in elsewhere else before.get(uuid) for uuid in sorted(known)}
    # Those that Ironic did not have are asked about when all is read: there may be many, of another Ironic.
    asked = [uuid for uuid in known - elsewhere if look.whole or left[uuid] is None]
    asked.sort(key=lambda uuid: (left[uuid] is None, random.random()))
    for uuid, there in _ask(bare_metal.ironic, asked)[0].items():
        left[uuid] = None if there else min(left[uuid] or now_s, now_s)
    look.left = left
    grace_s = bare_metal.settings.ironic.node_grace_s  # the agent of their share should have deleted them by then
    gone = {uuid: gone_s for uuid, gone_s in left.items() if gone_s is not None and before.get(uuid) is not None}
    _add_strays(look, [uuid for uuid, gone_s in gone.items() if now_s - gone_s >= grace_s])


def _judge_remembered(bare_metal: BareMetalNodes, look: Look, *, force: bool) -> frozenset[str]:
    """Judge nodes that the last pass knew; return those that Ironic has outside this agent's share."""
    absent = {uuid: known for uuid, known in look.memory.nodes.items() if uuid not in look.here}
    now, grace_s = bare_metal.clock.now_s(), bare_metal.settings.ironic.node_grace_s
    asked, error = _ask_of_absent(bare_metal.ironic, absent)
    elsewhere = frozenset(uuid for uuid, there in asked.items() if there)
    look.outcomes += [
        node_outcome(uuid, Status.LEFT, "Ironic has it, outside this agent's share") for uuid in sorted(elsewhere)
    ]
    look.nodes |= {uuid: known for uuid, known in absent.items() if uuid not in asked}
    leftovers = {uuid for uuid, known in absent.items() if known.may_go} - elsewhere
    missing, whole = len(absent) - len(elsewhere | leftovers), len(look.memory.nodes) - len(leftovers)
    limit = whole if force else _limit(bare_metal, missing, whole)
    refused = 0
    for uuid in sorted(asked.keys() - elsewhere & look.marked.keys()):
        known = replace(absent[uuid], gone_s=min(absent[uuid].gone_s or now, now))  # the clock may have been ahead
        look.nodes[uuid] = known
        gone_s = now - (known.gone_s or now)
        too_many = missing > limit and not known.may_go
        stands_as_left = known.seen.generation == look.marked[uuid] or too_many
        if absent[uuid].gone_s is None or gone_s < grace_s or not stands_as_left:
            why = (
                f"missing from Ironic for {gone_s:.0f} s: the agent asks Ironic again, and deletes the provider once "
                f"the node is missing for {grace_s} s"
            )
            if too_many or not look.reserve(uuid, known, why, status=Status.GOING):
                look.outcomes.append(node_outcome(uuid, Status.GOING, why))
        elif too_many:
            refused += 1
        else:
            known = replace(look.nodes.pop(uuid), may_go=True)
            look.tasks.append(Task(Provider(name=uuid), known, None, look.marked[uuid], does="delete"))
    if refused:
        why = (
            f"{missing} of {whole} nodes are missing from Ironic at once: all of them, or more than "
            f"{bare_metal.settings.changes.shrink_fraction:.0%} ([agent] shrink_limit_percent). Check that this is the "
            f"right Ironic, that the listing of Ironic is complete, and that this user may see all nodes. If the nodes "
            f"are really gone, run sync --force to delete their providers"
        )
        look.outcomes.append(node_outcome(f"{refused} nodes", Status.REFUSED, why))
    if unasked := len(absent) - len(asked):
        why = error or "missing from the listing too: the next passes ask Ironic about them"
        status = Status.FAILED if error else Status.GOING
        look.outcomes.append(node_outcome(f"{unasked} nodes", status, why))
    return elsewhere


def _ask_of_absent(ironic: IronicClient, absent: Mapping[str, KnownNode]) -> tuple[dict[str, bool], str]:
    """
    Ask about absent nodes in any order, those first that were here at the last pass; return and errors as ``_ask``.

    An answer that never comes for one node must not keep those from going about which Ironic has answered before.
    """
    in_any_order = sorted(absent, key=lambda _: random.random())
    asked, error = _ask(ironic, [uuid for uuid in in_any_order if absent[uuid].gone_s is None])
    again = [uuid for uuid in in_any_order if absent[uuid].gone_s is not None][: _QUESTIONS - len(asked)]
    answers, later_error = _ask(ironic, again)
    return asked | answers, error or later_error


def _ask(ironic: IronicClient, uuids: Iterable[str]) -> tuple[dict[str, bool], str]:
    """Return which of the first nodes Ironic has, up to one about which it does not answer, and that error."""
    found: dict[str, bool] = {}
    for uuid in islice(uuids, _QUESTIONS):
        try:
            found[uuid] = ironic.is_there(uuid)
        except DiscoveryError as error:  # it served the listing, so it is busy now: the next pass asks again
            return found, f"cannot tell whether Ironic has node {uuid}: {error}"
    return found, ""


def _refuse_lost(bare_metal: BareMetalNodes, look: Look, *, force: bool) -> None:
    """
    Take the tasks away that would make providers anew, where placement lost too many: its database, or its URL.

    A node whose allocations are lost is on offer although it is in use. In a placement that is another one than before
    nothing is written at all, as the memory of the other one has to stay.
    """
    written = (look.memory.elsewhere or look.memory).nodes.keys()
    lost = {one.provider.name for one in look.tasks if one.generation is None} & written
    if force or not lost or len(lost) <= _limit(bare_metal, len(lost), len(written)):
        return
    look.tasks = [one for one in look.tasks if not (look.memory.elsewhere or one.provider.name in lost)]
    where = f"the placement {look.memory.elsewhere.where}" if look.memory.elsewhere else "this placement"
    why = (
        f"placement does not have the providers of {len(lost)} of {len(written)} nodes, which {where} had at an "
        f"earlier pass. Providers that are made anew have no allocations, so nodes in use are on offer. Check that "
        f"this is the right placement, and that its database is whole; then run sync --force to make them"
    )
    look.outcomes.append(node_outcome(f"{len(lost)} nodes", Status.REFUSED, why))


def _add_strays(look: Look, uuids: list[str]) -> None:
    """Add an outcome for each provider without a node, or one for all if these are many."""
    for several in [uuids] if len(uuids) > _NAMED else [[uuid] for uuid in uuids]:
        why = (
            f"Ironic has no node for {few(several, 3)}: if no other agent reports or deletes such a provider, and no "
            f"other Ironic has the node, delete the provider with openstack resource provider delete {several[0]}"
        )
        name = several[0] if len(several) == 1 else f"{len(several)} providers"
        look.outcomes.append(node_outcome(name, Status.STRAY, why))


def _limit(bare_metal: BareMetalNodes, missing: int, whole: int) -> float:
    """Return how many nodes may be missing at once: a part, but at least one, and never all."""
    return max(1.0, whole * bare_metal.settings.changes.shrink_fraction) if missing < whole else 0
