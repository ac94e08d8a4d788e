"""
Take a device, or all of a host, off offer because a person says so, until a person or a time ends that. Pure.

What is held stands in placement: traits that begin with ``HOLD`` name it. So a hold outlasts every memory, and the
memory only says of it who wanted it, since when and why.
"""

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from agent.errors import ConfigError
from agent.state.memory import NodeState
from agent.sync.decide.feature import Draft, Feature, PassEnd, Reservation
from agent.sync.decide.shaped import Shaped
from agent.sync.decide.view import Shaper, View
from agent.sync.outcome import Condition
from drivers.errors import PolicyError
from reportclient.errors import few
from reportclient.reserve import HOLD
from reportclient.tree import ObservedTree, ProviderTree

HOST = "HOST"  # what is held is all of the host
BODY = "holds"  # by what is held: who wanted it, since when, and why
DISABLED = "COMPUTE_STATUS_DISABLED"
_UNTIL = "_UNTIL_"  # followed by seconds since the epoch
_LOST = "_lost"  # in the body: placement lost this hold with a part of its past


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldWish:
    """What a person asks for: to hold something, or to give it back."""

    what: str  # address, libvirt's name, or suffix of the provider of a device; or ``HOST``
    gives_back: bool = False
    until_s: int = 0  # seconds since the epoch; 0: until it is given back
    note: Mapping[str, str] = field(default_factory=dict)  # ``by``, ``since`` (ISO 8601) and ``why``


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold(Feature):
    """What is free of what a person holds is reserved, and a host that is held gets no new guests at all."""

    holds: Mapping[str, int] = field(default_factory=dict)  # by what is held: until when, as ``HoldWish``
    notes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    totals: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by held device: its free part of the root's
    beside: bool = False

    @classmethod
    def after_restored(cls, memory: NodeState) -> Mapping[str, Any]:
        """Placement may have forgotten holds, which the memory knows."""
        held = held_in(memory.observed) if memory.observed else {}
        notes = memory.bodies.get(BODY, {})
        return {BODY: notes | {what: {**notes.get(what, {}), _LOST: until} for what, until in held.items()}}

    @classmethod
    def in_another_role(cls, memory: NodeState) -> Mapping[str, Any]:
        return {BODY: memory.bodies.get(BODY, {})}

    def shape(self, view: View, shaper: Shaper, shaped: Shaped) -> tuple["Hold", Shaped]:
        notes = dict(shaped.memory.bodies.get(BODY, {}))
        holds = {what: int(note[_LOST]) for what, note in notes.items() if _LOST in note} | held_in(shaped.stands)
        if wish := view.wishes.asked.get(BODY):
            what = HOST if wish.what == HOST else _find(wish, shaped, holds)
            if why := _novas(what, view, shaped):
                raise ConfigError(why)
            if wish.gives_back:
                if holds.pop(what, None) is None:
                    raise ConfigError(f"{wish.what} is not held: see compute-node-agent hold --list")
            else:
                holds[what], notes[what] = wish.until_s, wish.note
        holds = {what: until for what, until in holds.items() if not until or view.terms.now_s < until}
        totals = _totals(view, shaper, shaped, holds.keys() - {HOST}) if view.policy.layout == "flat" else {}
        return Hold(holds=holds, notes=notes, totals=totals, beside=view.beside), shaped

    def reserve(self, tree: ProviderTree) -> Iterator[Reservation]:
        for one in tree:
            for what in self.holds.keys() & {HOST, key_of(one.name, tree.root.name)}:
                for name, stock in one.inventories.items():
                    yield self._of(what, one.name, name, stock.total)
        for name in tree.root.inventories:
            among = [what for what, amounts in self.totals.items() if name in amounts]
            if among:
                yield self._of(among[0], tree.root.name, name, sum(self.totals[what][name] for what in among))

    def _of(self, what: str, provider: str, resource_class: str, least: int) -> Reservation:
        return Reservation(
            provider=provider,
            resource_class=resource_class,
            least=least,
            spares_use=True,
            kind="hold",
            why=self.sentence(what),
        )

    def sentence(self, what: str) -> str:
        """Say what is held by whom, and how it is given back."""
        note, until = self.notes.get(what, {}), self.holds[what]
        since = f" since {note['since']} by {note['by']}: {note['why']}" if note.get("why") else ""
        lost = "" if since else ", and the saved state that knew why is lost"
        end = f", until {datetime.fromtimestamp(until, UTC).isoformat(timespec='minutes')}" if until else ""
        flat = ", by its number: in the layout flat a guest may still get it for another" if what in self.totals else ""
        name = spoken(what)
        back = "host" if what == HOST else name
        return f"{name} is held{since}{lost}{end}{flat}. To give it back: compute-node-agent release-hold {back}"

    def marks(self, tree: ProviderTree) -> Mapping[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for what, until in self.holds.items():
            mark = frozenset({f"{HOLD}{what}{f'{_UNTIL}{until}' if until else ''}"})
            places = [one.name for one in tree if key_of(one.name, tree.root.name) == what]
            for name in places or ([] if self.beside else [tree.root.name]):
                found[name] = found.get(name, frozenset()) | mark
        return found

    def root_traits(self) -> frozenset[str]:
        return frozenset({DISABLED}) if HOST in self.holds else frozenset()

    def conditions(self, draft: Draft) -> Iterator[Condition]:
        told = {one.why for one in self.reserve(draft.desired)}
        for what in self.holds:
            if (text := self.sentence(what)) not in told:
                yield Condition(kind="hold", text=text)

    def remember(self, end: PassEnd) -> Mapping[str, Any]:
        notes = {what: self.notes.get(what, {}) for what in self.holds}
        return {BODY: {what: {k: v for k, v in note.items() if k != _LOST} for what, note in notes.items()}}


def _novas(what: str, view: View, shaped: Shaped) -> str:
    """Return how nova holds what it reports itself; empty: this agent reports it."""
    novas = {key_of(name, view.node) for name in shaped.holdings.backing.novas}
    if not (view.terms.audits_only or (view.beside and what in {HOST, *novas})):
        return ""
    if what == HOST:
        return (
            f"nova-compute reports this host, and holds it: openstack compute service set --disable --disable-reason "
            f"REASON {view.node} nova-compute"
        )
    return f"nova-compute reports {spoken(what)}: take it out of nova's [pci] device_spec, and restart nova-compute"


def key_of(text: str, root: str = "") -> str:
    """Return the name of a device as a trait has it: of its address, libvirt's name, or the name of its provider."""
    suffix = text.removeprefix(f"{root}_").upper().removeprefix("PCI_")
    return re.sub("[^A-Z0-9]", "_", suffix)


def spoken(what: str) -> str:
    """Return what is held as a person writes it."""
    if what == HOST:
        return "this host"
    parts = re.fullmatch("([0-9A-F]{4,8})_([0-9A-F]{2})_([0-9A-F]{2})_([0-7])", what)
    return "{}:{}:{}.{}".format(*parts.groups()).lower() if parts else what


def held_in(observed: ObservedTree) -> dict[str, int]:
    """Return what is held by the traits of a tree, and until when."""
    found: dict[str, int] = {}
    for seen in observed:
        for trait in seen.provider.traits:
            if trait.startswith(HOLD):
                what, _, until = trait.removeprefix(HOLD).partition(_UNTIL)
                found[what] = max(found.get(what, 0), int(until)) if until.isdecimal() else 0
    return found


def _find(wish: HoldWish, shaped: Shaped, holds: Mapping[str, int]) -> str:
    """
    Return the device that a person means, as a trait has it.

    Raises:
        ConfigError: this host offers no such device, or it is a part of one.
    """
    root, offered = shaped.tree.root.name, shaped.holdings.backing.offered
    devices = {key_of(name, root): name for name in offered}
    what = key_of(wish.what, root)
    if what in devices or what in holds:
        return what
    whole = [name for name, addresses in offered.items() if wish.what in addresses]
    if whole:
        raise ConfigError(
            f"{wish.what} is a part of {whole[0].removeprefix(f'{root}_')}, and placement counts its parts without "
            f"telling them apart: hold that, or take this part out of [pci] device_spec"
        )
    known = few([name.removeprefix(f"{root}_") for name in devices.values()])
    raise ConfigError(f"this host offers no device {wish.what}: it offers {known or 'none'}")


def _totals(view: View, shaper: Shaper, shaped: Shaped, devices: Set[str]) -> dict[str, dict[str, int]]:
    """Return what is free of each held device whose stock is part of the root's."""
    if not devices:
        return {}
    apart = replace(view.policy, layout="devices")
    try:
        tree, holdings = shaper.shape(view.survey, apart, shaped.stands)
    except PolicyError:
        return {}
    root, found = tree.root.name, dict[str, dict[str, int]]()
    for one in tree:
        if one.parent and (what := key_of(one.name, root)) in devices:
            used = dict.fromkeys(one.inventories, 0)
            for unit in holdings.units:
                if unit.provider == one.name and unit.resource_class in used:
                    used[unit.resource_class] += unit.amount
            found[what] = {name: stock.total - used[name] for name, stock in one.inventories.items()}
    return found
