"""How passes end."""

from dataclasses import dataclass, field
from enum import Enum

from drivers.base import Survey
from reportclient.plan import Plan
from reportclient.tree import ObservedTree


class Status(Enum):
    """How a pass ended."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    RESHAPE_NEEDED = "reshape-needed"
    UNSAFE = "unsafe"
    OTHER_PLAN = "other-plan"  # than the one that was agreed to
    CONTESTED = "contested"
    FAILED = "failed"  # of one node among several


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a pass over one node ended, and why when it did not write."""

    node: str
    status: Status
    plan: Plan = field(default_factory=Plan)
    observed: ObservedTree = field(default_factory=ObservedTree)  # before the pass
    notes: tuple[str, ...] = ()
    hardware: frozenset[str] = frozenset()  # the PCI addresses of all that counts in what is offered
    survey: Survey | None = None  # what it saw of the host; None where it did not come to that
