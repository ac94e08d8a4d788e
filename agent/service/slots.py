"""How many more guests of some kinds fit this host, by ``[metrics] slots``: counted from the last look."""

from collections.abc import Mapping, Sequence

from agent.audit.audit import AuditResult
from agent.settings.read import Settings
from agent.sync.decide.features.shared_disk import DISK
from agent.sync.request_file import read_request
from reportclient.allocations import usages
from reportclient.request import Wish
from reportclient.room import room_for

Kinds = Mapping[str, tuple[Wish, ...]]  # requests by the names of their kinds


def read_kinds(settings: Settings) -> Kinds:
    """Return the request of each kind; ConfigError: a file cannot be read, or has no request."""
    return {name: read_request(path, "[metrics] slots") for name, path in settings.service.slots.items()}


def count_slots(kinds: Kinds, audits: Sequence[AuditResult]) -> dict[str, int]:
    """
    Return how many more guests of each kind fit the trees that were audited, by the allocations that are known.

    A kind is left out where that is not known: it asks for a disk that another provider may share with this host, or
    for too many providers to search.
    """
    found: dict[str, int] = {}
    for name, wishes in kinds.items():
        fits = [_fit(wishes, one) for one in audits]
        known = [one for one in fits if one is not None]
        if len(known) == len(fits) > 0:
            found[name] = sum(known)
    return found


def _fit(wishes: tuple[Wish, ...], audited: AuditResult) -> int | None:
    tree = audited.tree.providers
    shared = () if any(DISK in one.provider.inventories for one in tree) else (DISK,)
    return room_for(tree, usages(audited.memory.allocations), wishes, shared)
