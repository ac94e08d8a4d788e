"""
The reaction of each operation on allocations to another writer: one table, as decided in the thread of 2018.

A conflict of a consumer means that the caller's knowledge of it is outdated: the operation fails, and the caller
decides anew. A conflict of a provider means that another writer wrote to it at the same moment for another consumer:
the same request is sent again. ``docs/operations.md`` is made from this table.
"""

from dataclasses import dataclass
from enum import Enum

TRIES = 5  # of one request while others write to the same providers, and of reading and merging again


class ChangeKind(Enum):
    """Operations on the allocations of a guest."""

    SPAWN = "spawn"
    UNSHELVE = "unshelve"
    REPLACE = "resize in place"
    MERGE = "merge"
    EVACUATE = "evacuate"
    MOVE = "resize, cold and live migration"
    CONFIRM = "confirm"
    REVERT = "revert"
    DELETE = "delete"
    SHELVE = "shelve"
    FORCED_DELETE = "forced delete"
    REPAIR = "repair"


class Reaction(Enum):
    """How an operation reacts to a conflict; the value is the text for the documentation."""

    FAIL = "fails, and nothing changes"
    EXISTS = "fails hard as `exists`: two guests with one uuid, or a claim made twice"
    AGAIN = f"sends the same request again, {TRIES} times at most, then fails as `conflict`"
    ANEW = (
        f"reads and merges again, {TRIES} times at most, then fails as `conflict`; at once where the consumer has just "
        f"what the request makes of it, which may then have been carried out"
    )
    ALTERNATE = "tries the next alternate; if none is left, fails as `no-room`"
    NONE = "cannot happen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One operation: its verb, what it sends, and its reaction to each conflict."""

    verb: str
    sends: str
    consumer_changed: Reaction
    provider_raced: Reaction  # only for the page: ``Operations`` sends the same request again in any case
    no_room: Reaction


RULES: dict[ChangeKind, Rule] = {
    ChangeKind.SPAWN: Rule(
        verb="claim CONSUMER",
        sends="PUT /allocations/CONSUMER: the request exactly as offered, with generation null",
        consumer_changed=Reaction.EXISTS,
        provider_raced=Reaction.AGAIN,
        no_room=Reaction.ALTERNATE,
    ),
    ChangeKind.UNSHELVE: Rule(
        verb="claim CONSUMER",
        sends="the same as spawn, because a shelved guest has no allocations",
        consumer_changed=Reaction.EXISTS,
        provider_raced=Reaction.AGAIN,
        no_room=Reaction.ALTERNATE,
    ),
    ChangeKind.REPLACE: Rule(
        verb="claim CONSUMER --replace",
        sends="GET, then PUT with the consumer's generation: the request replaces all its allocations; an allocation "
        "on shared storage stays if the request does not name its class",
        consumer_changed=Reaction.FAIL,
        provider_raced=Reaction.AGAIN,
        no_room=Reaction.ALTERNATE,
    ),
    ChangeKind.MERGE: Rule(
        verb="claim CONSUMER --merge [--instead-of FILE]",
        sends="GET, then PUT with the consumer's generation: its allocations, minus the caller's earlier request "
        "(--instead-of), plus the new request",
        consumer_changed=Reaction.ANEW,
        provider_raced=Reaction.AGAIN,
        no_room=Reaction.ALTERNATE,
    ),
    ChangeKind.EVACUATE: Rule(
        verb="claim CONSUMER --evacuate",
        sends="GET, then PUT with the consumer's generation: its allocations on the host that is down, plus "
        "the request; `exists` where it has allocations on the requested host, or on two hosts",
        consumer_changed=Reaction.FAIL,
        provider_raced=Reaction.AGAIN,
        no_room=Reaction.ALTERNATE,
    ),
    ChangeKind.MOVE: Rule(
        verb="move CONSUMER --migration UUID",
        sends="GET, then one POST /allocations for both: the migration gets the guest's old allocations "
        "(generation null), the guest gets the request (its generation)",
        consumer_changed=Reaction.FAIL,
        provider_raced=Reaction.AGAIN,
        no_room=Reaction.ALTERNATE,
    ),
    ChangeKind.CONFIRM: Rule(
        verb="confirm MIGRATION",
        sends="GET, then PUT {} with the migration's generation",
        consumer_changed=Reaction.FAIL,
        provider_raced=Reaction.AGAIN,
        no_room=Reaction.NONE,
    ),
    ChangeKind.REVERT: Rule(
        verb="revert CONSUMER --migration UUID",
        sends="GET of both, then one POST /allocations for both: what the migration kept goes back to the guest",
        consumer_changed=Reaction.FAIL,
        provider_raced=Reaction.AGAIN,
        no_room=Reaction.FAIL,
    ),
    ChangeKind.DELETE: Rule(
        verb="release CONSUMER",
        sends="GET, then PUT {} with its generation",
        consumer_changed=Reaction.FAIL,
        provider_raced=Reaction.AGAIN,
        no_room=Reaction.NONE,
    ),
    ChangeKind.SHELVE: Rule(
        verb="release CONSUMER",
        sends="as delete: a guest that is shelved and offloaded has no allocations",
        consumer_changed=Reaction.FAIL,
        provider_raced=Reaction.AGAIN,
        no_room=Reaction.NONE,
    ),
    ChangeKind.FORCED_DELETE: Rule(
        verb="release CONSUMER --force",
        sends="DELETE /allocations/CONSUMER, whatever its generation",
        consumer_changed=Reaction.NONE,
        provider_raced=Reaction.AGAIN,
        no_room=Reaction.NONE,
    ),
    ChangeKind.REPAIR: Rule(
        verb="audit --heal",
        sends="PUT or POST of the repaired sets, with the generations that the audit read",
        consumer_changed=Reaction.FAIL,
        provider_raced=Reaction.AGAIN,
        no_room=Reaction.FAIL,
    ),
}
