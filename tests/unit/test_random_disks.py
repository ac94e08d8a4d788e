"""What hosts decide of their disks and of storage that they share is as it was before: what differs is on purpose."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

import fakes
from agent.sync.decide.feature import PassEnd, Refusal
from agent.sync.decide.features.shared_disk import SharedDisk
from agent.sync.decide.shaped import stand
from agent.sync.decide.view import Readings, SeenTree, Unread, View
from agent.sync.outcome import Status
from beds.golden import differences
from drafts import draft
from drivers.facts import DiskSpace, DiskUnread, PoolSpace
from drivers.policy import FOUND, DiskPolicy, Policy, Ratio, Ratios
from drivers.pools import REPORTED_BY, SHARER, aggregate_of, pool_uuid
from reportclient.allocations import Allocation, Consumer
from reportclient.names import SHARES
from reportclient.ownership import MARKER
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

GOLDEN = Path(__file__).parents[1] / "random" / "disks"
CEPH = PoolSpace("vms", cluster_bytes=3000 << 30, pool_gib=900, fsid=str(UUID(int=99)))
UUIDS = {"ceph": pool_uuid(CEPH)} | {
    name: str(UUID(int=number))
    for number, name in enumerate(("root", "cell", "nfs", "san", "plain", "abroad", "gone"), 1)
}
AGGREGATES = {"rack": str(UUID(int=21)), "room": str(UUID(int=22))} | {
    f"of-{name}": aggregate_of(one) for name, one in UUIDS.items()
}
NAMES = {uuid: name for name, uuid in {**UUIDS, **AGGREGATES}.items()}
WANTED = ProviderTree(
    (
        Provider(name="host", traits=frozenset({"TRAIT"}), aggregates=frozenset({AGGREGATES["rack"]})),
        Provider(name="host_cell", parent="host"),
    )
)
NOT_DONE = {"refused": Refusal(status=Status.UNSAFE, notes=()), "meanwhile": None}


class Disks(Random):
    """A random host with the storages around it, whose disks are counted somewhere."""

    def maybe(self, chance: float) -> bool:
        return self.random() < chance

    def some(self, of: Any, chance: float = 0.5) -> list[Any]:
        return [one for one in of if self.maybe(chance)]

    def stock(self) -> Inventory:
        return Inventory(
            total=self.choice((60, 60, 60, 20)),
            reserved=self.choice((0, 0, 10)),
            allocation_ratio=self.choice((1.0, 1.0, 1.0, 1.000001, 2.0)),
            min_unit=self.choice((1, 1, 1, 1, 1, 5)),
            max_unit=self.choice((60, 60, 60, 60, 60, 10)),
            step_size=self.choice((1, 1, 1, 1, 1, 4)),
        )

    def provider(self, name: str, traits: Any, *, disk: float, parent: str | None = None) -> ObservedProvider:
        stock = {"DISK_GB": self.stock()} if self.maybe(disk) else {}
        provider = Provider(
            name="host" if name == "root" else f"{parent}_cell" if parent else name,
            parent=parent,
            inventories={**stock, **({"VCPU": Inventory(total=8)} if self.maybe(0.7) else {})},
            traits=frozenset(traits),
            aggregates=frozenset(self.some(AGGREGATES.values(), 0.4)),
        )
        return ObservedProvider(uuid=UUIDS[name], generation=1, provider=provider)

    def storage(self, name: str) -> ObservedProvider:
        theirs = self.some(("COMPUTE_NODE", "HW_NIC"), 0.1)
        if name == "ceph":
            theirs += [MARKER, *self.some([f"{REPORTED_BY}X"], 0.7)]
        return self.provider(name, [*theirs, *self.some([SHARES], 0.85)], disk=0.3 if name == "plain" else 0.95)

    def view(self) -> View:
        root = self.provider("root", [MARKER, *self.some([SHARER], 0.5)], disk=0.6)
        if self.maybe(0.1):
            root = replace(root, provider=replace(root.provider, name="renamed"))
        cell = self.provider("cell", [MARKER], disk=0.1, parent=root.name)
        tree = ObservedTree((root, *self.some([cell], 0.5)) if self.maybe(0.95) else ())
        storages = [self.storage(name) for name in ("ceph", "nfs", "san", "plain")]
        roots: dict[str, Any] = {key: one for one in storages for key in (one.uuid, one.name)} | {UUIDS["abroad"]: None}
        roots |= dict.fromkeys((UUIDS["gone"], *self.some(roots, 0.1)))
        consumers = {name: self.consumer(name) for name in "abc"}
        rows = {
            seen.uuid: tuple(
                Allocation(one.uuid, seen.uuid, name, amount)
                for one in consumers.values()
                for name, amount in one.slots.get(seen.uuid, {}).items()
            )
            for seen in tree
        }
        base, home = draft().view, self.choice(("ceph", "nfs", "san"))
        disk = self.choice((DiskSpace(500 << 30, 0), DiskUnread("no answer"), CEPH, CEPH, replace(CEPH, fsid="")))
        bodies = {
            "shares": self.choice(("", UUIDS[home], UUIDS[home], *(UUIDS[one] for one in ("ceph", "san", "gone")))),
            "shares_moving": self.maybe(0.3),
            "shared_once": self.maybe(0.4),
        }
        return replace(
            base,
            policy=Policy(
                disk=DiskPolicy(shared=self.choice(("", "", FOUND, FOUND, home, home, UUIDS[home], "plain", "other"))),
                ratios=Ratios(disk=self.choice((Ratio(1.0), Ratio(1.0), Ratio(2.0), Ratio(1.0, 2.0)))),
            ),
            survey=replace(base.survey, facts=replace(fakes.FACTS, disk=disk)),
            seen=SeenTree(tree=tree, whole=self.maybe(0.5)),
            memory=replace(base.memory, bodies=bodies if self.maybe(0.8) else {}),
            beside=self.maybe(0.05),
            readings=Readings(
                allocations=self.read(rows),
                consumers=self.read({**consumers, "b": self.choice((None, consumers["b"]))}),
                providers=self.read(roots),
                sharing=tuple(self.some(storages)) if self.maybe(0.9) else None,
                usages=self.read({(one.uuid, "DISK_GB"): self.choice((0, 10, 20, 30, 40)) for one in storages}),
            ),
        )

    def read(self, found: Mapping[Any, Any]) -> dict[Any, Any]:
        return {key: one for key, one in found.items() if self.maybe(0.95)}

    def consumer(self, name: str) -> Consumer:
        slots = {
            uuid: dict(
                self.choice(
                    ((("DISK_GB", self.choice((5, 10, 20, 24))),), (("DISK_GB", 10), ("VCPU", 2)), (("VCPU", 1),))
                )
            )
            for key, uuid in UUIDS.items()
            if self.maybe(0.7 if key == "root" else 0.15)
        }
        return Consumer(uuid=name, generation=1, project="p", user="u", kind=None, slots=slots)


def told(view: View) -> str:
    """What a host decides, what its root gets, what moves, and what is remembered."""
    standing, base = stand(view), draft()
    try:
        found, after = SharedDisk().look(view, standing)
    except Unread as unread:
        asked = {
            name: value
            for name in ("allocations", "consumers", "providers", "sharing", "usages")
            if (value := getattr(unread, name))
        }
        return " ".join(f"{name} {sorted(value) if value is not True else ''}" for name, value in sorted(asked.items()))
    _, shaped = found.shape(view, None, replace(base.shaped, tree=WANTED))  # type: ignore[arg-type]
    gone = shaped.holdings.backing.withdrawn
    outside, end = found.outside(), replace(base, shaped=replace(base.shaped, memory=view.memory))
    parts = (
        getattr(after.survey.facts.disk, "because", "") or f"shared by {after.policy.disk.shared or 'none'}",
        " ".join(one.name for one in shaped.tree),
        " ".join(sorted(shaped.tree.root.traits | shaped.tree.root.aggregates)),
        f"leaves {sorted(shaped.ours.aggregates)}",
        f"outside {sorted(outside.uuids.items())} {sorted(outside.known)} {sorted(outside.aggregates)}",
        " ".join(f"{one.consumer}:{one.amount} {one.resource_class} on {one.provider}" for one in outside.rows),
        f"of {' '.join(one.uuid for one in outside.consumers)}",
        *(
            f"{one.consumer} {one.from_provider}>{one.to_provider} {one.arriving} {one.because}"
            for one in outside.moves
        ),
        outside.unplaceable,
        *(one.text for one in found.conditions(end)),
        *(f"{name} {found.remember(PassEnd(draft=end, refused=why))}" for name, why in NOT_DONE.items()),
        f"{found.remember(PassEnd(draft=end, refused=None, done=True))}",
        f"withdrawn {dict.fromkeys(('host',) if gone else (), gone)}",
    )
    return "; ".join(filter(None, parts))


def line(number: int) -> str:
    text = f"{number} {told(Disks(number).view())}"
    for uuid, name in NAMES.items():
        text = text.replace(uuid, name)
    return text


def test_disks_are_counted_as_before(request: pytest.FixtureRequest) -> None:
    found = "".join(f"{line(number)}\n" for number in range(600))

    assert not differences(found, GOLDEN, update=request.config.getoption("--update-golden"))
