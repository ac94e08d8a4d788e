"""
Judge nodes that are missing from Ironic's listing: deleted, moved to another share, or never in this agent's share.

A provider is deleted only after Ironic said twice that it does not have the node, and not if too many nodes are missing
at once. Nodes that left this agent's share are remembered for as long as their providers stand, and are never written:
another agent may report them.
"""

import random
from collections.abc import Collection, Mapping
from dataclasses import replace

from agent.bare_metal.context import BareMetalNodes, Look, Task, node_outcome
from agent.state.node_records import KnownNode
from agent.sync.outcome import Status
from drivers.errors import DiscoveryError
from drivers.ironic.client import IronicClient
from drivers.ironic.shape import BARE_METAL, Share, on_offer
from reportclient.tree import Provider

_NAMED = 20  # providers without a node that have an outcome each
_QUESTIONS = 200  # single nodes about which one pass asks Ironic, once for absent nodes and once for left ones


def judge_absent(
    bare_metal: BareMetalNodes,
    look: Look,
    absent: Mapping[str, KnownNode],
    marked: Mapping[str, int],
    *,
    force: bool,
) -> None:
    """
    Judge remembered nodes that are missing from the listing; adds outcomes, tasks and deletions to ``look``.

    ``marked`` are the generations of the providers with our mark. ``force`` lets any number of nodes go at once.
    """
    now = bare_metal.now_s()
    asked, elsewhere = _ask_ironic(bare_metal.ironic, look, absent)
    going = [uuid for uuid in asked if uuid not in elsewhere and uuid in marked]
    look.outcomes += [
        node_outcome(uuid, Status.LEFT, "Ironic has it, outside this agent's share") for uuid in sorted(elsewhere)
    ]
    look.nodes |= {uuid: known for uuid, known in absent.items() if uuid not in asked}
    leftovers = {uuid for uuid, known in absent.items() if known.may_go} - elsewhere
    missing, whole = len(absent) - len(elsewhere | leftovers), len(look.memory.nodes) - len(leftovers)
    limit = whole if force else _limit(bare_metal, missing, whole)
    refused = 0
    for uuid in sorted(going):
        known = replace(absent[uuid], gone_s=min(absent[uuid].gone_s or now, now))  # the clock may have been ahead
        look.nodes[uuid] = known
        gone_s = now - (known.gone_s or now)
        too_many = missing > limit and not known.may_go
        stands_as_left = known.seen.generation == marked[uuid] or too_many
        if absent[uuid].gone_s is None or gone_s < bare_metal.settings.ironic.node_grace_s or not stands_as_left:
            why = _patience(gone_s, bare_metal.settings.ironic.node_grace_s)
            if too_many or not _reserve_absent(look, known, marked[uuid], why):
                look.outcomes.append(node_outcome(uuid, Status.GOING, why))
        elif too_many:
            refused += 1
        else:
            look.nodes[uuid] = replace(known, may_go=True)
            look.deletions.append(known)
    if refused:
        why = _too_many(missing, whole, bare_metal.settings.changes.shrink_fraction)
        look.outcomes.append(node_outcome(f"{refused} nodes", Status.REFUSED, why))
    if len(absent) > len(asked):
        rest = "missing from the listing too: the next passes ask Ironic about them"
        look.outcomes.append(node_outcome(f"{len(absent) - len(asked)} nodes", Status.GOING, rest))


def refuse_lost(bare_metal: BareMetalNodes, look: Look, *, force: bool) -> None:
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


def judge_left(
    bare_metal: BareMetalNodes, look: Look, marked: Mapping[str, int], share: Share, unknown: Collection[str]
) -> None:
    """
    Find nodes outside this agent's share that Ironic no longer has; adds to ``look`` memory and strays.

    They left the share, or are ``unknown``: providers with our mark that are in no memory and no listing.
    """
    now_s, before = bare_metal.now_s(), look.memory.left
    ours = share.providers.keys() | share.misfits.keys()
    new = {one.node for one in look.outcomes if one.status is Status.LEFT}
    known = {**dict.fromkeys({*new, *unknown}), **before}
    standing = {uuid: known[uuid] for uuid in sorted(known.keys() & marked.keys() - ours)}
    look.left = _look_at_left(bare_metal.ironic, standing, new, now_s, again=look.whole)
    gone = _gone_for_good(look.left, before, now_s, bare_metal.settings.ironic.node_grace_s)
    add_strays(look, gone)


def add_strays(look: Look, uuids: Collection[str]) -> None:
    """Add an outcome for each provider without a node, or one for all if these are many."""
    if len(uuids) > _NAMED:
        several = f"{len(uuids)} providers"
        why = (
            f"Ironic has no node for {', '.join([*uuids][:3])} and others: they may be nodes of another Ironic. If "
            f"they are not, delete these providers (openstack resource provider list --required {BARE_METAL})"
        )
        look.outcomes.append(node_outcome(several, Status.STRAY, why))
        return
    look.outcomes += [
        node_outcome(
            uuid,
            Status.STRAY,
            f"Ironic has no node for this provider: if no other agent reports or deletes it, and no other Ironic has "
            f"the node, delete the provider with openstack resource provider delete {uuid}",
        )
        for uuid in uuids
    ]


def _ask_ironic(ironic: IronicClient, look: Look, absent: Mapping[str, KnownNode]) -> tuple[list[str], set[str]]:
    """
    Ask Ironic about absent nodes, those that are newly missing first.

    Returns the uuids that Ironic answered for, and those of them that it has. An error becomes an outcome.
    """
    new_first = sorted(absent, key=lambda uuid: (absent[uuid].gone_s is not None, random.random()))
    asked, there = new_first[:_QUESTIONS], set()
    for uuid in asked[:]:
        try:
            if ironic.is_there(uuid):
                there.add(uuid)
        except DiscoveryError as error:
            asked.remove(uuid)
            look.outcomes.append(node_outcome(uuid, Status.FAILED, f"cannot tell whether Ironic has it: {error}"))
    return asked, there


def _reserve_absent(look: Look, known: KnownNode, generation: int, why: str) -> bool:
    """Add a task that takes an absent node off offer; returns False, without a task, if it is not on offer."""
    current = look.current(known, generation)
    if current and not on_offer(current.provider):
        return False
    provider = Provider(name=known.seen.uuid)
    look.tasks.append(Task(provider, known, current, generation, why, reserves=True, status=Status.GOING))
    return True


def _limit(bare_metal: BareMetalNodes, missing: int, whole: int) -> float:
    """Return how many nodes may be missing at once: a part, but at least one, and never all."""
    return max(1.0, whole * bare_metal.settings.changes.shrink_fraction) if missing < whole else 0


def _patience(gone_s: float, grace_s: int) -> str:
    return (
        f"missing from Ironic for {gone_s:.0f} s: the agent asks Ironic again, and deletes the provider once the node "
        f"is missing for {grace_s} s"
    )


def _too_many(missing: int, whole: int, fraction: float) -> str:
    return (
        f"{missing} of {whole} nodes are missing from Ironic at once: all of them, or more than {fraction:.0%} "
        f"([agent] shrink_limit_percent). Check that this is the right Ironic, that the listing of Ironic is complete, "
        f"and that this user may see all nodes. If the nodes are really gone, run sync --force to delete their "
        f"providers"
    )


def _look_at_left(
    ironic: IronicClient, left: Mapping[str, float | None], listed: Collection[str], now_s: float, *, again: bool
) -> dict[str, float | None]:
    """
    Return since which moment Ironic does not have these nodes (None: it has them), by uuid.

    Nodes that are ``listed`` need no question, nor, unless ``again``, those that it did not have: there may be many,
    of another Ironic. The memory stays as it is where Ironic does not answer.
    """
    found = {uuid: None if uuid in listed else gone_s for uuid, gone_s in left.items()}
    unlisted = (uuid for uuid in found.keys() - set(listed) if again or found[uuid] is None)
    asked = sorted(unlisted, key=lambda uuid: (found[uuid] is None, random.random()))
    for uuid in asked[:_QUESTIONS]:
        try:
            found[uuid] = None if ironic.is_there(uuid) else min(found[uuid] or now_s, now_s)
        except DiscoveryError:
            break  # Ironic served the listing, so it is busy now: the next pass asks again
    return found


def _gone_for_good(
    left: Mapping[str, float | None], before: Mapping[str, float | None], now_s: float, grace_s: int
) -> list[str]:
    """Return the nodes that are missing for so long that the agent of their share should have deleted them."""
    return sorted(
        uuid
        for uuid, gone_s in left.items()
        if gone_s is not None and before.get(uuid) is not None and now_s - gone_s >= grace_s
    )
