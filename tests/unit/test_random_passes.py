"""Passes over random hosts, trees and memories decide what they decided before: what differs is on purpose."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, get_args

import pytest

from agent.errors import USER_ERRORS
from agent.nova.answers import NovaRecord
from agent.state.memory import NodeState
from agent.sync.decide.additions import Addition
from agent.sync.decide.checks import judge, remember
from agent.sync.decide.feature import Draft, PassEnd
from agent.sync.decide.plan import draft
from agent.sync.decide.view import SeenTree, Unread, View, Wishes
from beds.golden import differences
from beds.one_host import ROOT, default_settings
from beds.worlds import CARDS, Offer, Setup, World
from drafts import OPTIONS, TERMS
from drivers.base import Survey
from drivers.facts import OddDevice, ServiceSigns
from drivers.libvirt.driver import LibvirtDriver
from drivers.policy import Layout, Policy
from hardware import at
from reportclient.allocations import Allocation
from reportclient.diff import diff
from reportclient.forecast import forecast
from reportclient.names import ONE_TIME
from reportclient.ownership import MARKER, OWNER_NOVA, Names, Ownership
from reportclient.plan import Plan
from reportclient.reserve import HELD, KEEP, RESERVED, UNHEALTHY
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

GOLDEN = Path(__file__).parents[1] / "random" / "passes"
WHOLE = ("1528", "1eb8")  # products that are no VFs
OFFERS: tuple[Offer, ...] = ("off", "first", "first", "second", "whole")
TRAITS = (UNHEALTHY, HELD, RESERVED, f"{KEEP}1_VGPU", f"{KEEP}1_SRIOV_NET_VF", ONE_TIME, OWNER_NOVA, "CUSTOM_OPERATOR")
DRIVER = LibvirtDriver.__new__(LibvirtDriver)  # its pure half


class Look(Random):
    """A random host, what stands of it in placement, and what is remembered of it."""

    def maybe(self, chance: float) -> bool:
        return self.random() < chance

    def some(self, of: Iterable[Any], chance: float = 0.5) -> list[Any]:
        return [one for one in of if self.maybe(chance)]

    def setup(self) -> Setup:
        return Setup(
            layout=self.choice(get_args(Layout)),
            offers=tuple(self.choice(OFFERS) for _ in CARDS),
            shared=self.maybe(0.5),
            bandwidth=self.maybe(0.3),
            dedicated=self.maybe(0.3),
            seen=tuple(self.maybe(0.9) for _ in CARDS),
            boot="first",
        )

    def changed(self, setup: Setup) -> Setup:
        return replace(
            setup,
            layout=self.choice(get_args(Layout)[self.once :]) if self.maybe(0.2) else setup.layout,
            offers=tuple(self.choice(OFFERS) if self.maybe(0.15) else one for one in setup.offers),
            seen=tuple(one if self.maybe(0.8) else not one for one in setup.seen),
            shown=tuple(self.maybe(0.85) for _ in CARDS),
            boot=self.choice(("", "first", "first", "second")),
        )

    def policy(self, setup: Setup) -> Policy:
        policy = setup.policy()
        rules = tuple(
            replace(one, one_time_use=(self.once and one.product_id in WHOLE) or None) for one in policy.devices.rules
        )
        return replace(policy, devices=replace(policy.devices, rules=rules))

    def written(self, tree: ObservedTree, chance: float) -> ObservedTree:
        """The tree with what others, or an earlier pass, may have written."""
        kept = [one for one in tree if one == tree.root or self.maybe(1 - chance / 4)]
        names = {None, *(one.name for one in kept)}
        return ObservedTree(
            tuple(
                replace(one, provider=self._written(one, chance), generation=one.generation + self.maybe(chance))
                for one in kept
                if one.provider.parent in names
            )
        )

    def _written(self, seen: ObservedProvider, chance: float) -> Provider:
        provider = seen.provider
        stock = {
            name: replace(one, reserved=self.randint(0, one.total)) if self.maybe(chance) else one
            for name, one in provider.inventories.items()
            if self.maybe(1 - chance / 4)
        }
        if self.maybe(chance / 3):
            stock["CUSTOM_OTHER"] = Inventory(total=4)
        traits = provider.traits.symmetric_difference(self.some((*TRAITS, MARKER), chance / 8))
        return replace(provider, inventories=stock, traits=traits)

    def view(self) -> View:
        setup, self.once = self.setup(), self.maybe(0.4)
        if self.once:
            setup = replace(setup, layout="devices", offers=("whole", "first", "whole", self.choice(OFFERS)))
        world = World(default_settings(), setup)
        tree, _ = DRIVER.shape(Survey(world.facts(), ROOT), self.policy(setup), None)
        ours = Ownership(emitted=DRIVER.emitted)
        stands = forecast(diff(ObservedTree(), tree, ours, root_uuid=ROOT), ObservedTree())
        world.setup = self.changed(setup)
        facts, policy = world.facts(), self.policy(world.setup)
        odd = [OddDevice(one.address, "cannot be read", at(one.address)) for one in self.some(CARDS, 0.1)]
        facts = replace(facts, devices=replace(facts.devices, odd=tuple(odd)))
        devices = {
            one.name: Names(frozenset(one.inventories), frozenset()) for one in tree if one.parent or self.maybe(0.5)
        }
        bodies: dict[str, Any] = {
            "strikes": self.choice((0, 0, 1)),
            "quiet": self.choice((0, 5, 9)),
            "struck_s": self.choice((9_000.0, 9_990.0)),
            "contested": self.choice((*([[]] * 9), ["who"])),
            "used": self.some((one.uuid for one in stands), 0.1),
            "taken_over": self.some(("process", "record", "root"), 0.3),
            "waiting": {
                "boot": "first",
                "since_s": self.choice((0.0, 90.0)),
                "seen": self.maybe(0.5),
                "stock": self.awaited(stands),
            },
        }
        memory = NodeState(
            observed=self.written(stands, 0.1) if self.maybe(0.9) else None,
            configured={
                name: Names(frozenset({"CUSTOM_FILE"}), frozenset({"CUSTOM_T"})) for name in self.some(devices, 0.1)
            },
            reported=devices if self.maybe(0.8) else {},
            kinds={"_0000:10:00.0": frozenset({"CUSTOM_C0_FIRST", "SRIOV_NET_VF"})} if self.maybe(0.5) else {},
            wrote=self.maybe(0.8),
            stood=True,
            bodies=dict(self.some(bodies.items(), 0.7)),
        )
        names = ("$COMPUTE_NODE", *(one.name for one in stands if one.provider.parent), "host_strange")
        more, traits = {"CUSTOM_FILE": Inventory(total=3, reserved=1)}, frozenset({"CUSTOM_T"})
        files = (
            Addition(provider=name, source=Path("file"), inventories=more if self.maybe(0.5) else {}, traits=traits)
            for name in self.some(names, 0.1)
        )
        now, beside = self.written(stands, 0.2), self.maybe(0.15)
        if beside and self.maybe(0.9):
            now = ObservedTree(tuple(self.of_nova(one) for one in now))
        return View(
            node="host",
            root_uuid=ROOT,
            policy=policy,
            additions=tuple(files),
            survey=Survey(facts, ROOT),
            seen=SeenTree(tree=now if self.maybe(0.95) else ObservedTree(), whole=self.maybe(0.8)),
            memory=memory,
            beside=beside,
            wishes=Wishes(force=self.maybe(0.15), take_over=self.maybe(0.1), reshape=self.maybe(0.5)),
            changes=replace(OPTIONS, allow_reshape=self.maybe(0.5), expect_timeout_s=self.choice((0, 100, 100))),
            terms=replace(TERMS, uptime_s=self.choice((50.0, 120.0, 9e4)), recorded=self.maybe(0.1)),
        )

    def of_nova(self, seen: ObservedProvider) -> ObservedProvider:
        if seen.provider.parent and self.maybe(0.7):
            return seen
        return replace(seen, provider=replace(seen.provider, traits=seen.provider.traits - {MARKER}))

    def awaited(self, stands: ObservedTree) -> list[list[Any]]:
        slots = [(seen.name, name, one.total) for seen in stands for name, one in seen.provider.inventories.items()]
        return [list(slot) for slot in self.some(slots, 0.1)]

    def complete(self, view: View) -> Draft:
        """The draft, once all that it asks for is read."""
        rows = {
            seen.uuid: tuple(
                Allocation(guest, seen.name, name, 1)
                for name in self.some(seen.provider.inventories, 0.2)
                for guest in self.some("ab", 0.6)
            )
            for seen in view.observed
        }
        signs = ServiceSigns(processes=tuple(self.some((7,), 0.08)), units=tuple(self.some(("nova",), 0.08)))
        while True:
            try:
                return draft(view, DRIVER)
            except Unread as unread:
                read = view.readings
                record = self.choice((*([NovaRecord()] * 8), NovaRecord(host="host"), NovaRecord(unknown=True)))
                read = replace(
                    read,
                    allocations={**read.allocations, **{key: rows.get(key, ()) for key in unread.allocations}},
                    consumers={**read.consumers, **dict.fromkeys(unread.consumers)},
                    traits={**read.traits, **dict.fromkeys(unread.traits, True)},
                    providers={**read.providers, **dict.fromkeys(unread.providers)},
                    sharing=() if unread.sharing else read.sharing,
                    nova_compute=signs if unread.nova_compute else read.nova_compute,
                    nova_record=record if unread.nova_compute else read.nova_record,
                )
                view = replace(view, readings=read)


def told(plan: Plan, stands: ObservedTree) -> str:
    """The plan by its digest, and what it changes of each provider."""
    after = forecast(plan, stands)
    found = [plan.digest, *(f"no {one.name}" for one in stands if one.uuid not in after.by_uuid)]
    for one in after:
        was = stands.by_uuid[one.uuid].provider if one.uuid in stands.by_uuid else Provider(name=one.name)
        stock, now = one.provider.inventories, one.provider
        if stock != was.inventories or now.traits != was.traits:
            amounts = [f"{stock[name].total}-{stock[name].reserved} {name}" for name in sorted(stock)]
            found.append(f"{one.name}: {' '.join(amounts)}")
            found += [f"+{name}" for name in sorted(now.traits - was.traits) if not name.startswith("COMPUTE_")]
            found += [f"-{name}" for name in sorted(was.traits - now.traits)]
    return " ".join(found) if plan.operations else "nothing"


def outcome(look: Look) -> str:
    """What the pass would write, what it refuses, what it says, and what it remembers."""
    try:
        found = look.complete(look.view())
        verdict = judge(found)
    except USER_ERRORS as error:
        return f"{type(error).__name__} {error}"
    stands, done = found.view.observed, remember(found.lasting, PassEnd(draft=found, refused=None, done=True))
    said = [*found.held, *(one for feature in found.features for one in feature.conditions(found))]
    return "; ".join(
        (
            f"{verdict.refused} {verdict.notes} {verdict.broken}",
            f"from {found.stands_in}: {told(found.plan, stands)}",
            f"reserving {told(found.reserving, stands)}",
            *(f"{one.kind} {one.provider} {one.text}" for one in said),
            f"refused {verdict.memory.bodies} done {done.bodies} {sorted(done.lacked_traits)}",
        )
    )


def line(number: int) -> str:
    return f"{number} {outcome(Look(number))}"


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_passes_decide_as_before(first: int, request: pytest.FixtureRequest) -> None:
    found = "".join(f"{line(number)}\n" for number in range(first, first + 100))

    assert not differences(found, GOLDEN / f"{first:03}", update=request.config.getoption("--update-golden"))
