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
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

SECOND_WRITER = "second-writer"  # kind of its conditions
FORGIVEN = 10  # quiet passes, and intervals, after which strikes of a second writer no longer count
_STOP = "find out which service or script does that (placement's log of requests), and stop it"


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
        """Ratios that a second writer raised do not count; lower ones, limits and reserved devices may be a hand's."""
        standing = shaped.standing
        left, observed = standing.memory.observed, standing.observed
        found = contest(left, observed, shaped.tree, shaped.ours, view.policy.ratios.free, tried=view.seen.tried)
        if found is None:
            return self, shaped
        before = {seen.uuid: seen.provider for seen in left or () if seen.uuid in found.uuids}
        as_left = (_as_left(seen, before[seen.uuid]) if seen.uuid in before else seen for seen in shaped.stands)
        again = {one.name: one for one in shape_host(view, shaper, standing, ObservedTree(tuple(as_left))).tree}
        tree = list[Provider]()
        for one in shaped.tree:  # an older memory adds no class, and takes none away
            was = again.get(one.name, one)
            both = ((name, was.inventories.get(name, each), each) for name, each in one.inventories.items())
            tree.append(replace(was, inventories={name: _lower(name, *several) for name, *several in both}))
        return SecondWriter(contest=found), replace(shaped, tree=ProviderTree(tuple(tree)))

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
        text = f"another writer changed {self.contest.provider} since the last pass: {'; '.join(self.contest.changes)}"
        return (Condition(kind=SECOND_WRITER, text=text, provider=self.contest.provider),)

    def remember(self, end: PassEnd) -> Mapping[str, Any]:
        return dict(encode(self._count(end)))

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
        if before.quiet + 1 >= FORGIVEN and now_s - before.struck_s >= FORGIVEN * end.draft.view.terms.interval_s:
            return Strikes(struck_s=before.struck_s)
        return Strikes(strikes=before.strikes, struck_s=before.struck_s, quiet=before.quiet + 1)


def _as_left(seen: ObservedProvider, left: Provider) -> ObservedProvider:
    """Return a contested provider as it was ``left``, with the larger of what operators reserved of devices."""
    devices = {name: one for name, one in seen.provider.inventories.items() if name not in NO_DEVICES}
    theirs, stock = reserved_by_operator(left), {**devices, **left.inventories}
    for name in left.inventories.keys() - NO_DEVICES:
        most = max(theirs.get(name, 0), devices[name].reserved if name in devices else 0)
        stock[name] = replace(stock[name], reserved=min(stock[name].total, most))
    return replace(seen, provider=with_operators(replace(seen.provider, inventories=stock), theirs))


def _lower(name: str, one: Inventory, other: Inventory) -> Inventory:
    """Return stock that offers the least of both: an older memory does not know what was lowered since."""
    total, ratio = min(one.total, other.total), min(one.allocation_ratio, other.allocation_ratio)
    largest = min(one.max_unit, other.max_unit) if other.max_unit < other.total or total < one.total else one.max_unit
    kept = min(total, max(one.reserved, other.reserved) if name in NO_DEVICES else one.reserved)  # marks are of ``one``
    return replace(one, total=total, reserved=kept, max_unit=largest, allocation_ratio=ratio)


def strikes_of(memory: NodeState) -> Strikes:
    """Return what is remembered of second writers."""
    return decode_as(Strikes, memory.bodies)
