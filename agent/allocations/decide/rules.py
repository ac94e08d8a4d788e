"""
What each operation on allocations does when somebody else was there first: one table, decided in the thread of 2018.

A conflict of a consumer means that what the caller knows of it is not true any more: its operation fails, and the
caller decides anew. One of a provider means that somebody wrote on it at the same moment about another consumer: the
same request is sent again. ``docs/operations.md`` is made from this table.
"""

from dataclasses import dataclass
from enum import Enum

TRIES = 5  # at one request that others' writes on the same providers keep out, and at reading and merging again


class ChangeKind(Enum):
    """What can be done to the allocations of a guest."""

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
    """What an operation does about it; the value is the sentence of the documentation."""

    FAIL = "fails, and nothing changes"
    EXISTS = "fails hard as `exists`: two guests with one uuid, or a claim made twice"
    AGAIN = f"the same request again, {TRIES} times at most, then fails as `conflict`"
    ANEW = f"reads and merges again, {TRIES} times at most, then fails as `conflict`"
    ALTERNATE = "the next alternate; without one fails as `no-room`"
    NONE = "cannot happen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One operation: the verb for it, what is sent, and what becomes of each conflict."""

    verb: str
    sends: str
    consumer_changed: Reaction
    provider_raced: Reaction
    no_room: Reaction


RULES: dict[ChangeKind, Rule] = {
    ChangeKind.SPAWN: Rule(
        verb="claim CONSUMER",
        sends="PUT /allocations/CONSUMER with generation null, the request as it was offered",
        consumer_changed=Reaction.EXISTS,
        provider_raced=Reaction.AGAIN,
        no_room=Reaction.ALTERNATE,
    ),
    ChangeKind.UNSHELVE: Rule(
        verb="claim CONSUMER",
        sends="as spawn: a shelved guest holds nothing",
        consumer_changed=Reaction.EXISTS,
        provider_raced=Reaction.AGAIN,
        no_room=Reaction.ALTERNATE,
    ),
    ChangeKind.REPLACE: Rule(
        verb="claim CONSUMER --replace",
        sends="GET, then PUT with its generation: the request is its whole new set, and what it has of shared "
        "storage that the request does not speak of",
        consumer_changed=Reaction.FAIL,
        provider_raced=Reaction.AGAIN,
        no_room=Reaction.ALTERNATE,
    ),
    ChangeKind.MERGE: Rule(
        verb="claim CONSUMER --merge [--instead-of FILE]",
        sends="GET, then PUT with its generation: what it has, less what the caller had before, and the request",
        consumer_changed=Reaction.ANEW,
        provider_raced=Reaction.AGAIN,
        no_room=Reaction.ALTERNATE,
    ),
    ChangeKind.EVACUATE: Rule(
        verb="claim CONSUMER --evacuate",
        sends="GET, then PUT with its generation: what it has on the host that is down, and the request",
        consumer_changed=Reaction.FAIL,
        provider_raced=Reaction.AGAIN,
        no_room=Reaction.ALTERNATE,
    ),
    ChangeKind.MOVE: Rule(
        verb="move CONSUMER --migration UUID",
        sends="GET, then one POST /allocations of both: what it had to the migration (generation null), the request "
        "to the guest (its generation)",
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
        sends="GET of both, then one POST /allocations of both: what the migration kept back to the guest",
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
        sends="as delete: a guest that is shelved and offloaded holds nothing",
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
        sends="PUT or POST of what the audit read, with those generations",
        consumer_changed=Reaction.FAIL,
        provider_raced=Reaction.AGAIN,
        no_room=Reaction.FAIL,
    ),
}


def write_documentation() -> str:
    """The table as the documentation has it, in Markdown."""
    head = "| operation | verb | what is sent | its consumer changed meanwhile | others wrote on a provider | no room |"
    lines = [head, "| --- | --- | --- | --- | --- | --- |"]
    for operation, rule in RULES.items():
        reactions = (rule.consumer_changed, rule.provider_raced, rule.no_room)
        cells = (operation.value, f"`{rule.verb}`", rule.sends, *(reaction.value for reaction in reactions))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
