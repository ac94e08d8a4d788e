"""What can be wrong between placement and a host, and what would put it right."""

from dataclasses import dataclass
from enum import Enum

from reportclient.plan import Delete, ReplaceAllocations, SetInventories


class Kind(Enum):
    """What can be wrong."""

    ORPHANED = "orphaned"
    MISSING = "missing"
    WRONG_AMOUNT = "wrong-amount"
    WRONG_PROVIDER = "wrong-provider"
    LEAKED = "leaked-migration"
    DOUBLED = "doubled"
    WITHOUT_OWNER = "without-owner"
    WITHOUT_TYPE = "without-type"
    TO_BE_RESERVED = "to-be-reserved"
    OWNERLESS = "ownerless"
    DUPLICATE = "duplicate-provider"
    GHOST = "ghost-provider"
    OVER = "over-capacity"
    OTHER_LAYOUT = "other-layout"


MEANINGS = {
    Kind.ORPHANED: "a consumer has allocations here, and its guest is nowhere on this host, defined or running",
    Kind.MISSING: "a guest runs here without allocations here",
    Kind.WRONG_AMOUNT: "a running guest has more or less of a class than is allocated for it",
    Kind.WRONG_PROVIDER: "a running guest has a unit of one provider, and it is allocated on another",
    Kind.LEAKED: "a migration has allocations here, and no guest here awaits it, as far as can be told",
    Kind.DOUBLED: "a consumer has allocations here and on another host, and its guest is not here",
    Kind.WITHOUT_OWNER: "a guest's allocations are of no project and user, as old clouds wrote them "
    "(looked for with `--consumers`)",
    Kind.WITHOUT_TYPE: "a guest's allocations have no consumer type, as nova writes them "
    "(looked for with `--consumers`)",
    Kind.TO_BE_RESERVED: "a one-time-use device was used, and is still on offer",
    Kind.OWNERLESS: "a provider is below this host's root, and nobody marked it as theirs",
    Kind.DUPLICATE: "two providers below this host's root stand for one device",
    Kind.GHOST: "a provider of ours, or one that nova made, stands for hardware that this host does not have",
    Kind.OVER: "more of a class is allocated than its provider can give",
    Kind.OTHER_LAYOUT: "the tree stands in another layout than `[compute] layout` says",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What would put a finding right."""

    text: str
    operation: ReplaceAllocations | SetInventories | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong: of a consumer, or of a provider."""

    kind: Kind
    consumer: str | None = None
    provider: str | None = None
    resource_class: str | None = None
    expected: int | None = None  # what it should be, by the hypervisor or by the inventory
    actual: int | None = None  # what placement has
    seen: str  # what was seen where
    repair: Repair | None = None  # None: a person must decide
    safe: bool = False  # nothing speaks against the repair
    arriving: bool = False  # it looks the same while a guest is on its way, which can take hours
    untyped: bool = False  # what goes has no consumer type: it may be another service's

    @property
    def consumers(self) -> frozenset[str]:
        """Whom it is about, and whom its repair rewrites."""
        named = {self.consumer} if self.consumer else set()
        if self.repair and isinstance(self.repair.operation, ReplaceAllocations):
            named |= {one.consumer for one in self.repair.operation.rewrites}
        return frozenset(named)

    @property
    def key(self) -> str:
        """The same for the same wrong at every look."""
        return "/".join(map(str, (self.kind.value, self.consumer, self.provider, self.resource_class)))
