"""What the agent remembers of one node between passes, as a value and as text, and of which placement. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from agent.state.files import seal, unseal
from reportclient.json_text import decode_as, encode
from reportclient.ownership import Names
from reportclient.payload import decode_observed, encode_observed
from reportclient.tree import ObservedTree

_FORMAT = 2
_URL = re.compile(  # with scheme and host, and with the path, each without what may be left out
    r"(?:(http://[^/\s]*?)(?::80)?|(https://[^/\s]*?)(?::443)?)(?=/|\s|$)(\S*?)/*(?=\s|$)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """Memory of one node; the default is that of a node never seen. Moments are seconds since the epoch."""

    where: str = ""  # name of the placement that this memory is about
    observed: ObservedTree | None = None  # the tree as the last pass left it; None: not known
    configured: Mapping[str, Names] = field(default_factory=dict)  # by provider: names from the operator's files
    lacked_traits: frozenset[str] = frozenset()  # standard traits that this placement is too old to know
    reported: Mapping[str, Names] = field(default_factory=dict)  # by provider: names that devices and rules gave
    smaller: str = ""  # what the plan would take away that was refused because that is much; empty: none was
    smaller_seen: int = 0  # passes in a row that wanted this loss
    kinds: Mapping[str, frozenset[str]] = field(default_factory=dict)  # classes of each device that a total counts
    dedicated: frozenset[int] | None = None  # CPUs that PCPU consisted of at the last pass; None: not known
    whole_s: float = 0.0  # when the tree was last read whole
    wrote: bool = False  # whether this agent put its mark on this root, or a person said that it reports it
    beside: bool = False  # whether the last pass was in the role beside, in which nothing of the root is ours
    stood: bool = False  # whether the root stood in this placement at the end of a pass
    elsewhere: "NodeState | None" = None  # of another placement, where the root stood; never written as part of this
    bodies: Mapping[str, Any] = field(default_factory=dict)  # what each feature of a pass remembers, as JSON, by key

    def with_bodies(self, bodies: Mapping[str, Any]) -> "NodeState":
        """Return the memory with these bodies in place of those that have the same keys."""
        return replace(self, bodies={**self.bodies, **bodies})


_GENERAL = {one.name for one in fields(NodeState)}  # keys of a file that are no feature's


def encode_state(state: NodeState) -> str:
    """Return a node's memory as the text of its file."""
    known = encode(replace(state, observed=None, elsewhere=None, bodies={}))
    del known["bodies"]
    seen = state.observed
    known["observed"] = seen and {"last_modified": seen.last_modified, "providers": [*map(encode_observed, seen)]}
    return seal({**known, **state.bodies}, form=_FORMAT, indent=1)


@lru_cache(4)  # the text seldom changes, and is decoded several times in each pass
def decode_state(text: str) -> NodeState:
    """
    Return the memory that the text of a file holds.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, RecursionError: the text is damaged, or of another format.
    """
    body = unseal(text, form=_FORMAT)
    seen = body.pop("observed")
    return replace(
        decode_as(NodeState, body),
        observed=ObservedTree(tuple(map(decode_observed, seen["providers"])), seen["last_modified"]) if seen else None,
        bodies={key: value for key, value in body.items() if key not in _GENERAL},
    )


def same_place(one: str, other: str) -> bool:
    """
    Return whether two names of placements, or of Ironics, differ at most in the spelling of URLs.

    That is the case of the host, the default port, and slashes at the end.
    """
    return _plain(one) == _plain(other)


def _plain(name: str) -> str:
    return _URL.sub(lambda found: (found[1] or found[2]).lower() + found[3], name)
