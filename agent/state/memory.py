"""What the agent remembers of one node between passes, as a value and as text. Pure."""

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
class Waiting:
    """Stock that a boot of the host took away, and that is expected back."""

    boot: str = ""  # the kernel's boot id at the last pass; empty: not known
    since_s: float = 0.0  # seconds from that boot to the first pass after it
    stock: Mapping[tuple[str, str], int] = field(default_factory=dict)  # by provider and class: the total that stood
    seen: bool = False  # whether this agent saw the boot, and so knows what stood before it


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """Memory of one node; the default is that of a node never seen. Moments are seconds since the epoch."""

    where: str = ""  # name of the placement that this memory is about
    observed: ObservedTree | None = None  # the tree as the last pass left it; None: not known
    configured: Mapping[str, Names] = field(default_factory=dict)  # by provider: names from the operator's files
    lacked_traits: frozenset[str] = frozenset()  # standard traits that this placement is too old to know
    reported: Mapping[str, Names] = field(default_factory=dict)  # by provider: names that devices and rules gave
    strikes: int = 0  # passes that found inventory of ours changed by another writer
    struck_s: float = 0.0  # when the last of these passes was
    quiet: int = 0  # passes since the last strike without a sign of another writer
    contested: tuple[str, ...] = ()  # what the second writer did; if not empty, the agent does not write
    smaller: str = ""  # what the plan would take away that was refused because that is much; empty: none was
    smaller_seen: int = 0  # passes in a row that wanted this loss
    used: frozenset[str] = frozenset()  # uuids of one-time devices that were used and are not reserved yet
    reserved: Reservations = field(default_factory=dict)  # by operators, and not written as traits yet
    kinds: Mapping[str, frozenset[str]] = field(default_factory=dict)  # classes of each device that a total counts
    dedicated: frozenset[int] | None = None  # CPUs that PCPU consisted of at the last pass; None: not known
    whole_s: float = 0.0  # when the tree was last read whole
    taken_over: frozenset[str] = frozenset()  # signs of nova-compute that a person overruled: "process", or a unit
    waiting: Waiting = Waiting()
    shares: str = ""  # uuid of the provider of the shared storage that guests' disks are counted on; empty: of none
    wrote: bool = False  # whether this agent put its mark on this root, or a person said that it reports it
    beside: bool = False  # whether the last pass was in the role beside, in which nothing of the root is ours
    stood: bool = False  # whether the root stood in this placement at the end of a pass
    elsewhere: "NodeState | None" = None  # of another placement, where the root stood; never written as part of this


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
        "strikes": state.strikes,
        "struck_s": state.struck_s,
        "quiet": state.quiet,
        "contested": state.contested,
        "smaller": state.smaller,
        "smaller_seen": state.smaller_seen,
        "used": sorted(state.used),
        "reserved": {uuid: dict(amounts) for uuid, amounts in state.reserved.items()},
        "kinds": {device: sorted(names) for device, names in sorted(state.kinds.items())},
        "dedicated": None if state.dedicated is None else sorted(state.dedicated),
        "whole_s": state.whole_s,
        "taken_over": sorted(state.taken_over),
        "beside": state.beside,
        "wrote": state.wrote,
        "stood": state.stood,
        "shares": state.shares,
        "waiting": {
            "boot": state.waiting.boot,
            "since_s": state.waiting.since_s,
            "seen": state.waiting.seen,
            "stock": [[*slot, total] for slot, total in sorted(state.waiting.stock.items())],
        },
    }
    return seal(body, form=_FORMAT, indent=1)


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
        strikes=body["strikes"],
        struck_s=float(body.get("struck_s", 0.0)),  # files of 0.1.0 have none
        quiet=body["quiet"],
        contested=tuple(body["contested"]),
        smaller=body["smaller"],
        smaller_seen=body["smaller_seen"],
        used=frozenset(body.get("used", ())),  # files of 0.1.0 have none of these
        reserved=body.get("reserved", {}),
        kinds={device: frozenset(names) for device, names in body.get("kinds", {}).items()},
        dedicated=frozenset(body["dedicated"]) if body.get("dedicated") is not None else None,
        whole_s=float(body.get("whole_s", 0.0)),
        taken_over=frozenset(body.get("taken_over", ())),
        beside=body.get("beside", False),
        shares=body.get("shares", ""),
        waiting=_decode_waiting(body.get("waiting")),
        wrote=body.get("wrote", seen is not None),  # older files do not say it
        stood=body.get("stood", bool(seen and seen["providers"])),  # nor this
    )


def _decode_waiting(body: dict[str, Any] | None) -> Waiting:
    if body is None:
        return Waiting()
    stock = {(name, resource_class): total for name, resource_class, total in body["stock"]}
    return Waiting(boot=body["boot"], since_s=body["since_s"], stock=stock, seen=body.get("seen", bool(stock)))


def _encode_names(by_provider: Mapping[str, Names]) -> dict[str, dict[str, list[str]]]:
    return {
        provider: {"classes": sorted(names.classes), "traits": sorted(names.traits)}
        for provider, names in sorted(by_provider.items())
    }


def _decode_names(body: dict[str, Any]) -> dict[str, Names]:
    return {
        provider: Names(frozenset(names["classes"]), frozenset(names["traits"])) for provider, names in body.items()
    }
