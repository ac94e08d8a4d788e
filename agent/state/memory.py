"""What the agent remembers of one node between passes, as a value and as a text. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from agent.state.files import seal, unseal
from reportclient.ownership import Names
from reportclient.payload import decode_observed, encode_observed
from reportclient.reserve import Reservations
from reportclient.tree import ObservedTree

_FORMAT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One node's memory; the default is that of a node never seen."""

    where: str = ""  # the placement that this memory is about
    microversion: tuple[int, int] | None = None
    observed: ObservedTree | None = None  # as the last pass left it
    configured: Mapping[str, Names] = field(default_factory=dict)  # by provider: what the operator's files named
    lacked_traits: frozenset[str] = frozenset()  # standard ones that this placement is too old to know
    reported: Mapping[str, Names] = field(default_factory=dict)  # by provider: what devices and rules put there
    strikes: int = 0  # passes that found our own stock changed by somebody else
    struck_s: float = 0.0  # when the last of them was, in seconds since the epoch
    quiet: int = 0  # passes since the last strike that found nothing of the kind
    contested: tuple[str, ...] = ()  # what the second writer did; not empty: we do not write
    smaller: str = ""  # the digest of a plan that was refused because it takes much away
    smaller_seen: int = 0  # and how many passes in a row wanted it
    used: frozenset[str] = frozenset()  # one-time devices that were used and are not yet reserved, by uuid
    reserved: Reservations = field(default_factory=dict)  # by operators, and not written as traits yet
    kinds: Mapping[str, frozenset[str]] = field(default_factory=dict)  # classes of each device that a total counts
    whole_s: float = 0.0  # when the tree was last read whole, in seconds since the epoch


def encode_state(state: NodeState) -> str:
    """A node's memory as the text of its file."""
    body: dict[str, Any] = {
        "where": state.where,
        "microversion": state.microversion,
        "observed": state.observed
        and {
            "last_modified": state.observed.last_modified,
            "providers": [encode_observed(observed) for observed in state.observed],
        },
        "configured": _encode_names(state.configured),
        "reported": _encode_names(state.reported),
        "lacked_traits": sorted(state.lacked_traits),
        "strikes": state.strikes,
        "struck_s": state.struck_s,
        "quiet": state.quiet,
        "contested": state.contested,
        "smaller": state.smaller,
        "smaller_seen": state.smaller_seen,
        "used": sorted(state.used),
        "reserved": {uuid: dict(amounts) for uuid, amounts in state.reserved.items()},
        "kinds": {device: sorted(names) for device, names in sorted(state.kinds.items())},
        "whole_s": state.whole_s,
    }
    return seal(body, form=_FORMAT, indent=1)


@lru_cache(4)  # it hardly ever changes, and is read several times at each pass
def decode_state(text: str) -> NodeState:
    """
    The memory that the text of a file holds.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, RecursionError: it is damaged, or of another form.
    """
    body = unseal(text, form=_FORMAT)
    seen = body["observed"]
    return NodeState(
        where=body["where"],
        microversion=tuple(body["microversion"]) if body["microversion"] else None,
        observed=ObservedTree(tuple(map(decode_observed, seen["providers"])), seen["last_modified"]) if seen else None,
        configured=_decode_names(body["configured"]),
        reported=_decode_names(body["reported"]),
        lacked_traits=frozenset(body["lacked_traits"]),
        strikes=body["strikes"],
        struck_s=float(body.get("struck_s", 0.0)),  # files of 0.1.0 have none
        quiet=body["quiet"],
        contested=tuple(body["contested"]),
        smaller=body["smaller"],
        smaller_seen=body["smaller_seen"],
        used=frozenset(body.get("used", ())),  # files of 0.1.0 have none of these
        reserved=body.get("reserved", {}),
        kinds={device: frozenset(names) for device, names in body.get("kinds", {}).items()},
        whole_s=float(body.get("whole_s", 0.0)),
    )


def _encode_names(by_provider: Mapping[str, Names]) -> dict[str, Any]:
    return {
        provider: {"classes": sorted(names.classes), "traits": sorted(names.traits)}
        for provider, names in sorted(by_provider.items())
    }


def _decode_names(body: dict[str, Any]) -> dict[str, Names]:
    return {
        provider: Names(frozenset(names["classes"]), frozenset(names["traits"])) for provider, names in body.items()
    }
