"""The laws of moves on placement's own application: generated hosts, converted there and back again."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings

from beds.agents import CountingSender
from drivers.facts import HostFacts
from drivers.libvirt.shape import EMITTED, shape
from drivers.moves import plan_moves
from drivers.policy import DevicePolicy, Layout, MdevRule, Policy
from hardware import occupied_hosts
from reportclient.allocations import Allocation, Holding, Holdings, Observed, apply_moves
from reportclient.client import PlacementClient
from reportclient.diff import diff
from reportclient.errors import Rejected, UnsafePlan
from reportclient.forecast import check_use
from reportclient.ownership import MARKER, Names, Ownership
from reportclient.transport import Transport
from reportclient.tree import Inventory, ObservedTree, Provider, ProviderTree

pytestmark = pytest.mark.contract

DEVICES = DevicePolicy(report=True, discover_all=True, mdevs=(MdevRule(type="a"),))
ON_PLACEMENT = settings(
    max_examples=3,
    phases=(Phase.explicit, Phase.generate),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


WAYS: tuple[tuple[Layout, Layout], ...] = (
    ("flat", "devices"), ("flat", "numa"), ("devices", "numa"), ("flat", "cells"), ("devices", "cells"),
    ("cells", "numa"), ("numa", "cells"),
)  # fmt: skip


class Host:
    """One generated host in placement, whose guests have something on a foreign provider too."""

    def __init__(self, sender: CountingSender, facts: HostFacts) -> None:
        self.client = PlacementClient(Transport(sender, where="placement in this process"))
        self._send = Transport(sender, where="by hand").send
        self.root = str(uuid4())
        names = {guest.uuid: str(uuid4()) for guest in facts.guests}
        guests = tuple(replace(guest, uuid=names[guest.uuid]) for guest in facts.guests)
        self._facts = replace(facts, hostname=f"host-{self.root[:8]}", guests=guests)
        self.abroad = str(uuid4())

    def begin(self, layout: Layout) -> None:
        """The tree of a layout in which nothing floats, and what each guest has."""
        tree, holdings = self._wanted(layout, None)
        ours = self._ours(ObservedTree())
        self.client.execute(diff(ObservedTree(), tree, ours, root_uuid=self.root), ObservedTree())
        self._send("POST", "/resource_providers", {"name": f"storage-{self.root}", "uuid": self.abroad})
        stock = {"resource_provider_generation": 0, "inventories": {"DISK_GB": {"total": 10_000}}}
        self._send("PUT", f"/resource_providers/{self.abroad}/inventories", stock)
        uuids = {seen.name: seen.uuid for seen in self.client.observe(self.root)}
        slots: dict[str, dict[str, dict[str, int]]] = {}
        for one in holdings.units:
            mine = slots.setdefault(one.consumer, {self.abroad: {"DISK_GB": 3}})
            mine.setdefault(uuids[one.provider], {})[one.resource_class] = one.amount
        for consumer, mine in slots.items():
            body = {
                "allocations": {provider: {"resources": resources} for provider, resources in mine.items()},
                "project_id": f"project of {consumer}",
                "user_id": "user",
                "consumer_generation": None,
                "consumer_type": "INSTANCE",
            }
            self._send("PUT", f"/allocations/{consumer}", body)

    def convert(self, layout: Layout) -> Observed:
        """The tree in another layout; answers what must stand then, as the pure planner sees it."""
        before = self.client.observe(self.root)
        rows = self.client.allocations(before, as_observed=True)
        desired, holdings = self._wanted(layout, before)
        ours = self._ours(before)
        moves = plan_moves(Observed(before, rows), desired, holdings, ours)
        consumers = self.client.consumers({move.consumer for move in moves}, rows)
        plan = diff(before, desired, ours, root_uuid=self.root, moves=moves, consumers=consumers)
        check_use(plan, before, apply_moves(rows, moves), force=False)
        self.client.execute(plan, before)
        return Observed(self.client.observe(self.root), apply_moves(rows, moves))

    def stands(self) -> tuple[Any, Any]:
        """Providers by name, and every consumer whole but for its generation."""
        observed = self.client.observe(self.root)
        rows = self.client.allocations(observed)
        consumers = self.client.consumers({one.consumer for one in rows}, rows)
        return (
            {seen.name: (seen.uuid, seen.provider) for seen in observed},
            {one.uuid: (one.project, one.user, one.kind, one.slots) for one in consumers},
        )

    def rows(self) -> tuple[Allocation, ...]:
        return tuple(sorted(self.client.allocations(self.client.observe(self.root))))

    def _wanted(self, layout: Layout, observed: ObservedTree | None) -> tuple[ProviderTree, Holdings]:
        policy = Policy(layout=layout, devices=DEVICES, reserved_memory_mib=0)
        shaped = shape(self._facts, policy, observed)
        return shaped.tree, shaped.holdings

    def _ours(self, observed: ObservedTree) -> Ownership:
        classes = {name for seen in observed for name in seen.provider.inventories}
        return Ownership(emitted=EMITTED, configured={self._facts.hostname: Names(frozenset(classes))})


def sums(rows: Iterable[Allocation]) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for one in rows:
        found[one.consumer, one.resource_class] = found.get((one.consumer, one.resource_class), 0) + one.amount
    return found


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_a_generated_host_goes_there_and_back_again(way: tuple[Layout, Layout], sender: CountingSender) -> None:
    converted: list[bool] = []

    @ON_PLACEMENT
    @given(occupied_hosts())
    def there_and_back(facts: HostFacts) -> None:
        host = Host(sender, facts)
        try:
            host.begin(way[0])
        except Rejected:
            event("more vCPUs than the host has CPUs")
            return
        before, held = host.stands(), host.rows()
        try:
            there = host.convert(way[1])
            assert host.rows() == there.allocations
            assert sums(there.allocations) == sums(held)
            after = host.stands()
            assert {uuid: one[3].get(host.abroad) for uuid, one in after[1].items()} == {
                uuid: one[3].get(host.abroad) for uuid, one in before[1].items()
            }
            sender.count()
            host.convert(way[1])
            assert not any("reshaper" in request for request in sender.seen)
            host.convert(way[0])
        except UnsafePlan:
            event("refused")
            return
        assert host.stands() == before
        converted.append(True)

    there_and_back()
    assert converted, "every host was refused"


def test_a_conversion_in_which_no_stock_changes_is_taken(sender: CountingSender) -> None:
    root, guest = str(uuid4()), str(uuid4())
    name = f"host-{root[:8]}"
    client = PlacementClient(Transport(sender, where="placement in this process"))
    stock = {each: Inventory(total=4) for each in ("CUSTOM_A", "CUSTOM_B", "VCPU")}
    desired = ProviderTree((Provider(name=name, inventories=stock, traits=frozenset({MARKER})),))
    ours = Ownership(emitted=EMITTED, configured={name: Names(frozenset(stock))})
    client.execute(diff(ObservedTree(), desired, ours, root_uuid=root), ObservedTree())
    body = {
        "allocations": {root: {"resources": {"CUSTOM_A": 1, "VCPU": 2}}},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }
    Transport(sender, where="by hand").send("PUT", f"/allocations/{guest}", body)
    before = client.observe(root)
    rows = client.allocations(before, as_observed=True)
    has = Holdings(frozenset({guest}), (Holding(guest, name, "CUSTOM_B", 1), Holding(guest, name, "VCPU", 2)))

    moves = plan_moves(Observed(before, rows), desired, has, ours, recast_as={("CUSTOM_A", "CUSTOM_B")})
    consumers = client.consumers({guest}, rows)
    client.execute(diff(before, desired, ours, root_uuid=root, moves=moves, consumers=consumers), before)

    (consumer,) = client.consumers({guest}, client.allocations(client.observe(root)))
    assert consumer.slots == {root: {"CUSTOM_B": 1, "VCPU": 2}}
    assert client.observe(root).by_uuid[root].provider == before.by_uuid[root].provider
