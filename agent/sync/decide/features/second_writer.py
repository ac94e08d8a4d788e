"""Stop writing where another service writes on providers of ours too. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent.state.memory import NodeState
from agent.sync.decide.feature import Draft, Feature, PassEnd, Refusal
from agent.sync.decide.shaped import Shaped, shape_host
from agent.sync.decide.view import Shaper, View
from agent.sync.outcome import Condition, Status
from reportclient.json_text import decode_as, encode
from reportclient.names import NO_DEVICES
from reportclient.ownership import Contest, contest
from reportclient.reserve import reserved_by_operator, with_operators
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

SECOND_WRITER = "second-writer"  # kind of its conditions
FORGIVEN = 10  # quiet passes, and intervals, after which strikes of a second writer no longer count
_STOP = "stop that service on this host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Strikes:
    """What was seen of second writers; seconds are since the epoch."""

    strikes: int = 0  # passes that found inventory of ours changed by another writer
    struck_s: float = 0.0  # when the last of these passes was
    quiet: int = 0  # passes since the last strike without a sign of another writer
    contested: tuple[str, ...] = ()  # what the second writer did; if not empty, the agent does not write


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondWriter(Feature):
    """A first sign of another writer is a strike, and the next one stops the agent until a person takes over."""

    contest: Contest | None = None  # None: no sign

    def shape(self, view: View, shaper: Shaper, shaped: Shaped) -> tuple["SecondWriter", Shaped]:
        """Ratios of a second writer do not count; what is reserved of devices does, as a hand may have reserved it."""
        standing = shaped.standing
        left, observed = standing.memory.observed, standing.observed
        found = contest(left, observed, shaped.tree, shaped.ours, view.policy.ratios.free, tried=view.seen.tried)
        if found is None:
            return self, shaped
        before = {seen.uuid: seen.provider for seen in left or () if seen.uuid in found.uuids}
        as_left = (_as_left(seen, before[seen.uuid]) if seen.uuid in before else seen for seen in shaped.stands)
        again = shape_host(view, shaper, standing, ObservedTree(tuple(as_left)))
        return SecondWriter(contest=found), replace(again, ours=shaped.ours)

    def again(self, earlier: Feature) -> "SecondWriter":
        """Keep the first sign: a cut-off attempt may have undone the change."""
        return earlier if isinstance(earlier, SecondWriter) and earlier.contest else self

    def refuse(self, draft: Draft) -> Refusal | None:
        if draft.view.wishes.take_over:
            return None
        found, before = self.contest, strikes_of(draft.memory)
        if found is None or not (found.nova or before.contested or before.strikes):
            return Refusal(status=Status.CONTESTED, notes=before.contested) if before.contested else None
        who = "nova-compute (by its trait OWNER_NOVA)" if found.marked else "another service"
        end = "find out which service does that, and let it leave this provider alone" if draft.view.beside else _STOP
        notes = (
            f"{who} writes on {found.provider} too: " + "; ".join(found.changes),
            f"nothing is written any more: {end}, then run sync --take-over",
        )
        return Refusal(status=Status.CONTESTED, notes=notes)

    def conditions(self, draft: Draft) -> tuple[Condition, ...]:
        if not self.contest:
            return ()
        changes = "; ".join(self.contest.changes)
        text = f"another writer changed {self.contest.provider} since the last pass: {changes}"
        return (Condition(kind=SECOND_WRITER, text=text, provider=self.contest.provider),)

    def remember(self, end: PassEnd) -> Mapping[str, Any]:
        counted: dict[str, Any] = encode(self._count(end))
        return counted

    def _count(self, end: PassEnd) -> Strikes:
        """
        Count this pass: a strike for a sign of a second writer, or a quiet pass.

        Enough quiet passes forgive the strikes if enough time went by too: events bring on many passes within a minute,
        between two writes of a service that writes once a minute. A pass that must not write at all does not count.
        """
        before, refused, now_s = strikes_of(end.draft.memory), end.refused, end.draft.view.terms.now_s
        if refused and refused == self.refuse(end.draft):
            return replace(before, contested=refused.notes)
        if refused and refused.status in (Status.AUDIT_ONLY, Status.CONTESTED):
            return before
        if end.draft.view.wishes.take_over:
            return replace(before, strikes=0, quiet=0, contested=())
        if self.contest:
            return Strikes(strikes=before.strikes + 1, struck_s=now_s)
        if not before.strikes:
            return before
        forgiven = (
            before.quiet + 1 >= FORGIVEN and now_s - before.struck_s >= FORGIVEN * end.draft.view.terms.interval_s
        )
        counted = (0, 0) if forgiven else (before.strikes, before.quiet + 1)
        return Strikes(strikes=counted[0], struck_s=before.struck_s, quiet=counted[1])


def _as_left(seen: ObservedProvider, left: Provider) -> ObservedProvider:
    """
    Return a contested provider as it was ``left``, with the larger of what operators reserved of devices.

    The smaller ratio counts: a memory of an earlier moment does not know what a hand lowered since.
    """
    stands, theirs, stock = seen.provider.inventories, reserved_by_operator(left), dict[str, Inventory]()
    devices = {name: one for name, one in stands.items() if name not in NO_DEVICES}
    for name, one in left.inventories.items():
        now = stands.get(name, replace(one, reserved=0))
        if name in NO_DEVICES:
            stock[name] = replace(one, allocation_ratio=min(one.allocation_ratio, now.allocation_ratio))
        else:
            stock[name] = replace(one, reserved=min(one.total, max(theirs.get(name, 0), now.reserved)))
    merged = replace(seen.provider, inventories={**devices, **stock})
    return replace(seen, provider=with_operators(merged, theirs))


def strikes_of(memory: NodeState) -> Strikes:
    """Return what is remembered of second writers."""
    return decode_as(Strikes, memory.bodies)
