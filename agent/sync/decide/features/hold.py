"""
Take a device, or all of a host, off offer because a person says so, until a person or a time ends that. Pure.

What is held stands in placement, as traits that begin with ``HOLD``, and in the memory, which also has who wanted it
and why. Either is enough to go on with it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar

from agent.errors import ConfigError
from agent.state.memory import NodeState
from agent.sync.decide.feature import Draft, Feature, PassEnd, Reservation
from agent.sync.decide.shaped import Shaped
from agent.sync.decide.view import Shaper, View
from agent.sync.outcome import Condition
from drivers.errors import DiscoveryError, PolicyError
from reportclient.errors import few
from reportclient.json_text import decode_as
from reportclient.names import device_address
from reportclient.reserve import HOLD
from reportclient.tree import MAX_INT, ObservedTree, ProviderTree

HOST = "HOST"  # what is held is all of the host
ON_HOLD = "on-hold"  # kind of its conditions
BODY = "holds"  # by what is held, its ``Note``
NOT_HELD = "not-held"  # kind of the condition that something of a held device stays on offer
DISABLED = "COMPUTE_STATUS_DISABLED"
ENDLESS = 9_999_999_999  # until a person gives it back
_BY_NUMBER = ". In the layout flat only its number is off offer: a guest may get this device in place of another"
_UNTIL = "_UNTIL_"  # followed by seconds since the epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Who wants something held, since when, until when and why; empty texts: nobody knows any more."""

    until_s: int = ENDLESS  # seconds since the epoch
    by: str = ""
    since: str = ""  # ISO 8601
    why: str = ""

    def and_also(self, more: "Note") -> "Note":
        """Return the note of two wishes for one thing: the later end counts."""
        texts = [self.by, more.by], [self.why, more.why]
        by, why = ("; ".join(dict.fromkeys(filter(None, each))) for each in texts)
        return Note(until_s=max(self.until_s, more.until_s), by=by, since=self.since or more.since, why=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldWish:
    """What a person asks for: to hold something, or to give it back."""

    what: str  # address, libvirt's name, or suffix of the provider of a device; or ``HOST``
    note: Note | None = None  # None: it is given back


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold(Feature):
    """What is free of what a person holds is reserved, and a host that is held gets no new guests at all."""

    prefix: ClassVar[str] = HOLD

    holds: Mapping[str, Note] = field(default_factory=dict)  # by what is held
    totals: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by device: what is free of it, by class
    beside: bool = False
    audits_only: bool = False

    @classmethod
    def after_restored(cls, memory: NodeState) -> Mapping[str, Any]:
        return {BODY: memory.bodies.get(BODY, {})}

    @classmethod
    def in_another_role(cls, memory: NodeState) -> Mapping[str, Any]:
        return {BODY: memory.bodies.get(BODY, {})}

    def shape(self, view: View, shaper: Shaper, shaped: Shaped) -> tuple["Hold", Shaped]:
        holds = held(shaped.stands, shaped.memory)
        wish: HoldWish | None = view.wishes.asked.get(BODY)
        if wish:
            what = HOST if wish.what == HOST else _find(wish.what, shaped, holds)
            if wish.note is None:
                holds.pop(what, None)
            elif why := _novas(what, view, shaped):
                raise ConfigError(why)
            else:
                holds[what] = holds[what].and_also(wish.note) if what in holds else wish.note
        holds = {what: note for what, note in holds.items() if view.terms.earliest_s < note.until_s}
        totals = _totals(view, shaper, shaped, holds.keys() - {HOST})
        found = Hold(holds=holds, totals=totals, beside=view.beside, audits_only=view.terms.audits_only)
        return found, shaped

    def reserve(self, tree: ProviderTree) -> Iterator[Reservation]:
        return (one for _, one in self._placed(tree))

    def _placed(self, tree: ProviderTree) -> Iterator[tuple[str, Reservation]]:
        """Yield what is held, and what is reserved for that."""

        def reservation(what: str, provider: str, name: str, least: int, more: str = "") -> tuple[str, Reservation]:
            why = f"{self.sentence(what)}{more}"
            one = Reservation(
                provider=provider, resource_class=name, least=least, spares_use=True, kind=ON_HOLD, why=why
            )
            return what, one

        root, devices = tree.root, {key_of(one.name, tree.root.name) for one in tree}
        for one in tree:
            for what in self.holds.keys() & {HOST, key_of(one.name, root.name)}:
                for name, stock in one.inventories.items():
                    yield reservation(what, one.name, name, stock.total)
        for name, stock in root.inventories.items():
            parts = {what: free[name] for what, free in self.totals.items() if name in free and what not in devices}
            least = min(stock.total, stock.reserved + sum(parts.values()))  # beside what other devices lack
            for what in parts:
                yield reservation(what, root.name, name, least, _BY_NUMBER)

    def sentence(self, what: str) -> str:
        """Say what is held by whom, and how it is given back."""
        note, name = self.holds[what], spoken(what)
        since = f" since {note.since} by {note.by}: {note.why}" if note.why else ", and what said why is lost"
        end = "" if note.until_s >= ENDLESS else f", until {moment(note.until_s)}"
        first = "leave the role audit, and run " if self.audits_only else ""
        back = f"To give it back: {first}compute-node-agent release-hold {name}"
        return f"{'this host' if what == HOST else name} is held{since}{end}. {back}"

    def marks(self, tree: ProviderTree) -> Mapping[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for what, note in self.holds.items():
            until = "" if note.until_s >= ENDLESS else f"{_UNTIL}{note.until_s}"
            places = [one.name for one in tree if key_of(one.name, tree.root.name) == what]
            for name in places or ([] if self.beside else [tree.root.name]):
                found[name] = found.get(name, frozenset()) | {f"{HOLD}{what}{until}"}
        return found

    def root_traits(self) -> frozenset[str]:
        return frozenset({DISABLED}) if HOST in self.holds else frozenset()

    def conditions(self, draft: Draft) -> Iterator[Condition]:
        placed = {what for what, _ in self._placed(draft.desired)}
        for what in self.holds:
            if what not in placed:
                yield Condition(kind=ON_HOLD, text=self.sentence(what))
        yield from self._not_ours(draft)

    def _not_ours(self, draft: Draft) -> Iterator[Condition]:
        """Yield the classes of held devices that the root has, and that a lost memory does not show to be ours."""
        root = draft.observed.root
        if root is None:
            return
        names, apart = root.provider.inventories.keys(), {key_of(seen.name, root.name) for seen in draft.observed}
        for what in self.totals.keys() - apart:
            if others := sorted(self.totals[what].keys() & names - draft.shaped.ours.classes(root)):
                yield Condition(
                    kind=NOT_HELD,
                    provider=f"{root.name}_{spoken(what)}",
                    text=f"{few(others)} of {spoken(what)} stays on offer on {root.name}: the memory of this host is "
                    f"lost, and nothing shows that this agent reported it. Reserve it by hand, or hold it again once a "
                    f"pass was carried out",
                )

    def remember(self, end: PassEnd) -> Mapping[str, Any]:
        if end.refused and end.refused.bars:
            return {}  # nothing of a wish was written
        return {BODY: encoded(self.holds)} if self.holds or BODY in end.draft.memory.bodies else {}


def stays_on_offer(what: str, root: str, conditions: Iterable[Condition]) -> bool:
    """Return whether a pass told that something of this held device stays on offer."""
    return any(one.kind == NOT_HELD and key_of(one.provider, root) == what for one in conditions)


def moment(seconds: int) -> str:
    """Return a moment as people read it, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="minutes")


def encoded(holds: Mapping[str, Note]) -> dict[str, dict[str, int | str]]:
    """Return holds as a memory keeps them."""
    return {
        what: {"until_s": note.until_s, "by": note.by, "since": note.since, "why": note.why}
        for what, note in holds.items()
    }


def key_of(text: str, root: str = "") -> str:
    """Return the name of a device as a trait has it: of its address, libvirt's name, or the name of its provider."""
    suffix = text.removeprefix(f"{root}_").upper().removeprefix("PCI_")
    return re.sub("[^A-Z0-9]", "_", suffix)


def spoken(what: str) -> str:
    """Return what is held as a person writes it."""
    return "host" if what == HOST else device_address(f"pci_{what.lower()}") or what


def held(observed: ObservedTree, memory: NodeState) -> dict[str, Note]:
    """Return what is held by the traits of a tree, or by the memory; the later end counts."""
    bodies = [one.bodies.get(BODY, {}) for one in (memory.elsewhere, memory) if one]
    found = {what: decode_as(Note, note) for body in bodies for what, note in body.items()}
    for what, until_s in held_in(observed).items():
        found[what] = found.get(what, Note(until_s=0)).and_also(Note(until_s=until_s))
    return found


def held_in(observed: ObservedTree) -> dict[str, int]:
    """Return what is held by the traits of a tree, and until when."""
    found: dict[str, int] = {}
    for seen in observed:
        for trait in seen.provider.traits:
            if trait.startswith(HOLD):
                what, _, until = trait.removeprefix(HOLD).partition(_UNTIL)
                ends = until.isdecimal() and len(until) <= len(str(ENDLESS))
                found[what] = max(found.get(what, 0), int(until) if ends else ENDLESS)
    return found


def _novas(what: str, view: View, shaped: Shaped) -> str:
    """Return how to hold what nova reports; empty: this agent reports it."""
    novas = {key_of(name, view.node) for name in shaped.holdings.backing.novas}
    if not (view.terms.audits_only or (view.beside and what in {HOST, *novas})):
        return ""
    said = "this host" if what == HOST else spoken(what)
    why = f"[agent] role = audit leaves {said} to nova" if view.terms.audits_only else f"nova-compute reports {said}"
    if what == HOST:
        command = f"openstack compute service set --disable --disable-reason REASON {view.node} nova-compute"
        return f"{why}, so hold it by nova: {command}"
    return f"{why}: take it out of nova's [pci] device_spec, and restart nova-compute"


def _find(text: str, shaped: Shaped, holds: Mapping[str, Note]) -> str:
    """
    Return the device that a person means, as a trait has it.

    Raises:
        ConfigError: this host has no such device, or it is a part of one.
    """
    root, offered = shaped.tree.root.name, shaped.holdings.backing.offered
    standing = [
        seen.name for seen in shaped.standing.observed if shaped.ours.writes(seen) and is_device(seen.name, root)
    ]
    away = [f"{root}_{suffix}" for suffix in shaped.standing.memory.kinds]  # of a total in which it is still
    devices = {key_of(name, root): name for name in (*away, *standing, *offered)}
    what = key_of(text, root)
    if what in devices or what in holds:
        return what
    for name, addresses in offered.items():
        if what in map(key_of, addresses):
            raise ConfigError(
                f"{text} is a part of {name.removeprefix(f'{root}_')}, and placement counts its parts without telling "
                f"them apart: hold all of it, or take this part out of [pci] device_spec"
            )
    known = few(sorted(name.removeprefix(f"{root}_") for name in devices.values()))
    raise ConfigError(f"this host offers no device {text}: it offers {known or 'none'}")


def is_device(name: str, root: str) -> bool:
    """Return whether a provider stands for a device, by its name."""
    return bool(device_address(f"pci_{key_of(name, root).lower()}"))


def _totals(view: View, shaper: Shaper, shaped: Shaped, devices: Set[str]) -> dict[str, dict[str, int]]:
    """
    Return what is free of each held device, and not reserved for another reason, by its classes and former ones.

    Of one whose parts cannot be told apart now all of its classes count.
    """
    if not devices:
        return {}
    former = {key_of(suffix): classes for suffix, classes in shaped.standing.memory.kinds.items()}
    try:
        tree, holdings = shaper.shape(view.survey, replace(view.policy, layout="devices"), shaped.stands)
    except (PolicyError, DiscoveryError):
        kinds = shaped.holdings.backing.kinds.items()
        return {key: dict.fromkeys(names, MAX_INT) for one, names in kinds if (key := key_of(one)) in devices}
    found = {}
    for one in tree:
        if one.parent and (what := key_of(one.name, tree.root.name)) in devices:
            free = {name: stock.total - stock.reserved for name, stock in one.inventories.items()}
            for unit in holdings.units:
                if unit.provider == one.name and unit.resource_class in free:
                    free[unit.resource_class] -= unit.amount
            units = {name: max(0, amount) for name, amount in free.items()}
            found[what] = dict.fromkeys(former.get(what, ()), sum(units.values())) | units
    return found
