"""Findings of an audit: what is wrong between placement and a host, and the repair of each."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from reportclient.plan import ReplaceAllocations, Rewrite, digest_of


class Kind(Enum):
    """Kinds of findings; ``docs/operations.md`` has a sentence for each."""

    ORPHANED = "orphaned"
    MISSING = "missing"
    WRONG_AMOUNT = "wrong-amount"
    WRONG_PROVIDER = "wrong-provider"
    LEAKED = "leaked-migration"
    DOUBLED = "doubled"
    GUEST_LOST = "guest-lost"
    OWNERLESS = "ownerless"
    DUPLICATE = "duplicate-provider"
    GHOST = "ghost-provider"
    ODD_DEVICE = "odd-device"
    OVER = "over-capacity"
    TWICE_ON_OFFER = "twice-on-offer"
    OTHER_LAYOUT = "other-layout"
    OTHER_OPTIONS = "other-options"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One write of consumers that would put a finding right, with a sentence that says what it does."""

    text: str
    rewrites: tuple[Rewrite, ...]  # written at once
    misplaced: bool = False  # True: it only moves rows of a guest that is here to where the guest is

    @property
    def digest(self) -> str:
        """Covers all that is written, owners included, and what was there before; no generations."""
        return digest_of((ReplaceAllocations(self.rewrites),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong with a consumer or a provider."""

    kind: Kind
    consumer: str | None = None
    provider: str | None = None
    resource_class: str | None = None
    expected: int | None = None  # the amount that it should be, by the hypervisor or by the inventory
    actual: int | None = None  # the amount that placement has
    seen: str  # what was seen, and where
    repair: Repair | None = None  # None: a person must decide
    safe: bool = False  # True: nothing speaks against the repair
    arriving: bool = False  # True: a guest that is on its way looks the same, which can take hours
    untyped: bool = False  # True: the repair takes from a consumer without a type, which may be another service's
    by_nova: bool = False  # True: it rests on nova's answer; without that answer it would be another finding

    @property
    def consumers(self) -> frozenset[str]:
        """The consumers that the finding is about and that its repair rewrites, by uuid."""
        named = {self.consumer} if self.consumer else set()
        return frozenset(named | {one.consumer for one in self.repair.rewrites} if self.repair else named)

    @property
    def key(self) -> str:
        """Key that is stable across audits."""
        about = (self.kind.value, self.consumer, self.provider, self.resource_class)
        return "/".join(map(str, (*about, "nova") if self.by_nova else about))


def counts(findings: Iterable[Finding]) -> Counter[str]:
    """Return how many findings each kind has, by its name: about one consumer or provider there is one of a kind."""
    return Counter(kind for kind, _ in {(one.kind.value, one.consumer or one.provider) for one in findings})


def of_each_row(finding: Finding, rows: Mapping[tuple[str, str], tuple[int | None, int | None]]) -> list[Finding]:
    """Return the finding for each (provider, class), with the amounts (that it should be, that placement has)."""
    return [
        replace(finding, provider=place, resource_class=name, expected=expected, actual=actual)
        for (place, name), (expected, actual) in sorted(rows.items())
    ]


def changed_rows(rewrite: Rewrite, names: Mapping[str, str]) -> dict[tuple[str, str], tuple[int, int]]:
    """
    Return (provider, class) -> (amount after the write, amount before it) of each amount that a rewrite changes.

    ``names`` are those of this host's providers, by uuid; another provider is called by its uuid.
    """
    rows: dict[tuple[str, str], tuple[int, int]] = {}
    for uuid in (*rewrite.before, *rewrite.after):
        before, after = rewrite.before.get(uuid, {}), rewrite.after.get(uuid, {})
        for name in (*before, *after):
            rows[names.get(uuid, uuid), name] = after.get(name, 0), before.get(name, 0)
    return {row: pair for row, pair in rows.items() if pair[0] != pair[1]}
