"""What the agent remembers of one node between passes, as a value and as text. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
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
    """Memory of one node; the default is that of a node never seen. Moments are seconds since the epoch."""

    where: str = ""  # name of the placement that this memory is about
    observed: ObservedTree | None = None  # the tree as the last pass left it; None: not known
    configured: Mapping[str, Names] = field(default_factory=dict)  # by provider: names from the operator's files
    lacked_traits: frozenset[str] = frozenset()  # standard traits that this placement is too old to know
    reported: Mapping[str, Names] = field(default_factory=dict)  # by provider: names that devices and rules gave
    smaller: str = ""  # what the plan would take away that was refused because that is much; empty: none was
    smaller_seen: int = 0  # passes in a row that wanted this loss
    reserved: Reservations = field(default_factory=dict)  # by operators, and not written as traits yet
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


_GENERAL = {one.name for one in fields(NodeState)} | {"microversion"}  # keys of a file that are no feature's


def encode_state(state: NodeState) -> str:
    """Return a node's memory as the text of its file."""
    body: dict[str, object] = {
        "where": state.where,
        "microversion": None,  # 0.1.0 reads it
        "observed": state.observed
        and {
            "last_modified": state.observed.last_modified,
            "providers": [encode_observed(observed) for observed in state.observed],
        },
        "configured": _encode_names(state.configured),
        "reported": _encode_names(state.reported),
        "lacked_traits": sorted(state.lacked_traits),
        "smaller": state.smaller,
        "smaller_seen": state.smaller_seen,
        "reserved": {uuid: dict(amounts) for uuid, amounts in state.reserved.items()},
        "kinds": {device: sorted(names) for device, names in sorted(state.kinds.items())},
        "dedicated": None if state.dedicated is None else sorted(state.dedicated),
        "whole_s": state.whole_s,
        "beside": state.beside,
        "wrote": state.wrote,
        "stood": state.stood,
    }
    return seal({**body, **state.bodies}, form=_FORMAT, indent=1)


@lru_cache(4)  # the text seldom changes, and is decoded several times in each pass
def decode_state(text: str) -> NodeState:
    """
    Return the memory that the text of a file holds.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, RecursionError: the text is damaged, or of another format.
    """
    body = unseal(text, form=_FORMAT)
    seen = body["observed"]
    return NodeState(
        where=body["where"],
        observed=ObservedTree(tuple(map(decode_observed, seen["providers"])), seen["last_modified"]) if seen else None,
        configured=_decode_names(body["configured"]),
        reported=_decode_names(body["reported"]),
        lacked_traits=frozenset(body["lacked_traits"]),
        smaller=body["smaller"],
        smaller_seen=body["smaller_seen"],
        reserved=body.get("reserved", {}),  # files of 0.1.0 have none of these
        kinds={device: frozenset(names) for device, names in body.get("kinds", {}).items()},
        dedicated=frozenset(body["dedicated"]) if body.get("dedicated") is not None else None,
        whole_s=float(body.get("whole_s", 0.0)),
        beside=body.get("beside", False),
        wrote=body.get("wrote", seen is not None),  # older files do not say it
        stood=body.get("stood", bool(seen and seen["providers"])),  # nor this
        bodies={key: value for key, value in body.items() if key not in _GENERAL},
    )


def _encode_names(by_provider: Mapping[str, Names]) -> dict[str, dict[str, list[str]]]:
    return {
        provider: {"classes": sorted(names.classes), "traits": sorted(names.traits)}
        for provider, names in sorted(by_provider.items())
    }


def _decode_names(body: dict[str, Any]) -> dict[str, Names]:
    return {
        provider: Names(frozenset(names["classes"]), frozenset(names["traits"])) for provider, names in body.items()
    }
