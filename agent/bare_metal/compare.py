"""Compare Ironic's nodes with their providers, before anything is written: as they should be, different, or absent."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from agent.bare_metal.absent import judge_absent, refuse_lost
from agent.bare_metal.context import BareMetalNodes, Look, Task, node_outcome
from agent.sync.outcome import Status
from drivers.ironic.nodes import Misfit, Node
from drivers.ironic.shape import (
    BARE_METAL,
    GAVE,
    SET_CLASS,
    Share,
    node_classes,
    shape_share,
    why_reserved,
)
from reportclient.client import PlacementClient
from reportclient.names import unknown_standard
from reportclient.ownership import OWNER_NOVA
from reportclient.tree import Provider

LOG = logging.getLogger(__name__)
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
    shape = partial(shape_share, nodes, reported=reported, standing=standing)
    share = shape()
    lacked = unknown_standard(memory.lacked, client.known_traits(memory.lacked))  # it may have been upgraded
    look = Look(memory, nodes={}, lacked=lacked)
    _choose_depth(bare_metal, look, marked)
    _compare_share(client, look, share, marked)
    others = bare_metal.ironic.elsewhere() if look.whole or _comes_on_offer(look, share) else {}
    if (beside_others := shape(elsewhere=others)) != share:
        share, look = beside_others, replace(look, nodes={}, tasks=[], believed=[], unchanged=0)
        _compare_share(client, look, share, marked)
    look.outcomes += [node_outcome(uuid, Status.MISFIT, one.why) for uuid, one in sorted(share.misfits.items())]
    refuse_lost(bare_metal, look, force=force)
    _reserve_misfits(look, share, marked)
    here = share.providers.keys() | share.misfits.keys()
    unknown = marked.keys() - here - memory.nodes.keys() - others.keys()
    judge_absent(bare_metal, look, here, marked, unknown, force=force)
    return look


def _choose_depth(bare_metal: BareMetalNodes, look: Look, marked: Mapping[str, int]) -> None:
    """
    Set ``look.whole``: every provider is read once in ``full_audit_interval``, and when placement has older data.

    A lower generation belongs to another history. So may an equal one, where claims have raised it since.
    """
    memory = look.memory
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
    age_s = bare_metal.now_s() - memory.whole_s
    look.whole = went_back or not 0 <= age_s < bare_metal.settings.service.full_audit_interval_s


def _compare_share(client: PlacementClient, look: Look, share: Share, marked: Mapping[str, int]) -> None:
    """Compare each node that can be reported with its provider: count it as unchanged, or add a task."""
    unmarked = _generations_of(client, [uuid for uuid in share.providers if uuid not in marked])
    standing = {**marked, **unmarked}
    for uuid, provider in sorted(share.providers.items()):
        known = look.memory.nodes.get(uuid)
        if known:
            known = look.nodes[uuid] = replace(known, gone_s=None, may_go=False)
        generation = standing.get(uuid)
        current = look.current(known, generation) if uuid in marked else None
        wanted = replace(provider, traits=provider.traits - look.lacked)
        task = Task(wanted, known, current, generation, share.reserved.get(uuid, ""), share.spellings[uuid])
        if known and current:
            look.believed.append(known)
        if known and current and _is_as_wanted(current.provider, wanted):
            look.unchanged += 1
            look.nodes[uuid] = replace(known, spelling=task.spelling)
        else:
            look.tasks.append(replace(task, provider=provider))


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


def _reserve_misfits(look: Look, share: Share, marked: Mapping[str, int]) -> None:
    """Add a task for each node that cannot be reported, and must not be on offer, where its provider stands."""
    for uuid, misfit in share.misfits.items():
        known = look.memory.nodes.get(uuid)
        if known:
            known = look.nodes[uuid] = replace(known, gone_s=None, may_go=False)
        because, only = why_reserved(misfit.node) if misfit.node else "", ""
        if misfit.collides and not because:
            because, only = _COLLIDES, misfit.collides
        if not because or uuid not in marked:
            continue
        look.reserve(uuid, known, marked[uuid], because, only=only)


def _is_as_wanted(stands: Provider, wanted: Provider) -> bool:
    """Return whether a provider has what its node gives, and nothing that the node gave before."""
    marks = {name for name in stands.traits if name.startswith(GAVE)}
    former = set() if OWNER_NOVA in stands.traits else node_classes(stands) - wanted.inventories.keys()
    return (
        not former
        and marks <= wanted.traits <= stands.traits
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
