"""How a pass over one root provider ended: that of a hypervisor, or of one bare-metal node."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from drivers.base import Survey
from reportclient.allocations import Allocation
from reportclient.json_text import decode_as, encode
from reportclient.plan import Plan
from reportclient.tree import ObservedTree


class Status(Enum):
    """
    How a pass over one root provider ended; the values are the words in JSON, status.json, metrics and logs.

    The order is that of the sums which the verbs print for bare metal.
    """

    UNCHANGED = "unchanged"
    CREATED = "created"  # bare metal: the node has a provider now
    CHANGED = "changed"
    DELETED = "deleted"  # bare metal: the provider went after its node
    RESHAPE_NEEDED = "reshape-needed"  # hypervisor: guests' allocations must move first
    UNSAFE = "unsafe"  # hypervisor: too much would go, an allocation has no place, or a host may not end
    OTHER_PLAN = "other-plan"  # hypervisor: the plan is not the one that a person agreed to
    MISFIT = "misfit"  # bare metal: the node cannot be reported, and its provider stays
    FAILED = "failed"  # an error that concerns this root alone; the others of the pass go on
    AUDIT_ONLY = "audit-only"  # hypervisor: [agent] role = audit, so the plan is not carried out
    CONTESTED = "contested"  # another agent writes on the provider
    UNFINISHED = "unfinished"  # bare metal: placement or Ironic does not answer; the next pass tries again
    HELD = "held"  # bare metal: consumers have allocations of what would go
    REFUSED = "refused"  # bare metal: too many nodes are missing from Ironic at once
    GOING = "going"  # bare metal: missing from Ironic, which is asked again before the provider is deleted
    LEFT = "left"  # bare metal: Ironic has the node, outside this agent's share
    STRAY = "stray"  # bare metal: a provider with our mark, without a node in Ironic, outside this agent's share


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Something that a person should know of a host, as long as it is so; verbs and metrics show it by themselves."""

    kind: str  # one word for all that have one origin: the label of the metric
    text: str  # a sentence
    provider: str = ""  # name of the provider that it is about; empty: the host


_BODY = "conditions"


def with_conditions(conditions: Iterable[Condition]) -> Mapping[str, Any]:
    """Return the body by which a node's memory has the conditions of its last pass."""
    return {_BODY: encode(tuple(conditions))}


def conditions_of(bodies: Mapping[str, Any]) -> tuple[Condition, ...]:
    """Return the conditions that the last pass left in its memory; empty: none, or no pass."""
    return tuple(decode_as(Condition, one) for one in bodies.get(_BODY, ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a pass over one root provider ended, and why when it did not write."""

    node: str  # name of a hypervisor, uuid of a bare-metal node, or how many nodes it stands for
    status: Status
    plan: Plan = field(default_factory=Plan)
    reserving: Plan = field(default_factory=Plan)  # of a refused pass: what it carried out all the same
    observed: ObservedTree = field(default_factory=ObservedTree)  # before the pass
    reasons: tuple[str, ...] = ()  # why it did not write, or what it found besides, a sentence each
    conditions: tuple[Condition, ...] = ()  # of the host after this pass
    hardware: frozenset[str] = frozenset()  # PCI addresses of the devices behind the stock; empty for bare metal
    allocations: tuple[Allocation, ...] | None = None  # on the tree before the pass; None: it knows of none
    survey: Survey | None = None  # of a hypervisor; None: the pass failed before its survey, or bare metal
    broken: tuple[str, ...] = ()  # laws that the plan breaks, which is why it was refused; a fault of this agent

    @property
    def notes(self) -> tuple[str, ...]:
        """All that a person should know of this pass, a sentence each."""
        return tuple(dict.fromkeys((*self.reasons, *(one.text for one in self.conditions))))
