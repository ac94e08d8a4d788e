"""Whether a guest that runs on this host uses what a consumer has here: without it, that is on offer a second time."""

from collections.abc import Mapping

from agent.allocations.decide.sets import MIGRATION
from reportclient.allocations import Consumer


def in_use(consumer: Consumer, names: Mapping[str, str], running: Mapping[str, Consumer | None]) -> str:
    """
    Return which guest uses what of the consumer's allocations on this host, as a sentence; empty: none does.

    ``names`` are those of this host's providers, by uuid. ``running`` are the guests that run here, by uuid, with their
    own consumers. A guest without allocations here may have left them to its migration, which has its owner.
    """
    mine = {uuid: resources for uuid, resources in consumer.slots.items() if uuid in names}
    user = _user(consumer, names, running) if mine else ""
    if not user:
        return ""
    parts = [f"{amount} {name} on {names[uuid]}" for uuid, several in mine.items() for name, amount in several.items()]
    return f"{user} runs on this host: without these allocations, placement offers {', '.join(parts)} a second time"


def _user(consumer: Consumer, names: Mapping[str, str], running: Mapping[str, Consumer | None]) -> str:
    if consumer.uuid in running:
        return f"guest {consumer.uuid}"
    if consumer.kind not in (None, MIGRATION):
        return ""
    for guest, own in running.items():
        is_kin = own and (own.project, own.user) == (consumer.project, consumer.user)
        if own and is_kin and names.keys().isdisjoint(own.slots):
            return f"guest {guest}, whose allocations here {consumer.uuid} may keep,"
    return ""
