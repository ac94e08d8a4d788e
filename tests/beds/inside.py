"""A recorded host inside nova-compute: nova's tree and allocations in memory, and our driver that changes them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from agent.settings.read import load_settings
from drivers.base import Survey
from drivers.host.archive import HostArchive
from drivers.libvirt.driver import LibvirtDriver
from drivers.libvirt.recorded import RecordedConnection
from drivers.policy import InstancesFolder, Layout, Policy
from inside_nova.decide import Answer, Call, decide
from inside_nova.trees import Allocations, apply_plan, decode_consumers, decode_tree

HOSTS = Path(__file__).parents[1] / "hosts"
ROOT = "11111111-1111-1111-1111-111111111111"
ABROAD = "99999999-9999-9999-9999-999999999999"  # a sharing provider


class Data(NamedTuple):
    """nova's ``ProviderData``."""

    uuid: str
    name: str
    generation: int | None
    parent_uuid: str | None
    inventory: dict[str, Any]
    traits: set[str]
    aggregates: set[str]


class MemoryTree:
    """The methods of nova's ``ProviderTree`` that our driver uses."""

    def __init__(self, name: str, uuid: str) -> None:
        self.rows = {uuid: Data(uuid, name, None, None, {}, set(), set())}

    def get_provider_uuids_in_tree(self, name_or_uuid: str) -> list[str]:
        found = [self._uuid(name_or_uuid)]
        for uuid in found:
            found += [row.uuid for row in self.rows.values() if row.parent_uuid == uuid]
        return found

    def data(self, name_or_uuid: str) -> Data:
        return self.rows[self._uuid(name_or_uuid)]

    def exists(self, name_or_uuid: str) -> bool:
        return any(name_or_uuid in (row.uuid, row.name) for row in self.rows.values())

    def new_child(self, name: str, parent: str, uuid: str | None = None) -> str:
        assert uuid
        assert not self.exists(name)
        self.rows[uuid] = Data(uuid, name, None, self._uuid(parent), {}, set(), set())
        return uuid

    def remove(self, name_or_uuid: str) -> None:
        uuid = self._uuid(name_or_uuid)
        assert not any(row.parent_uuid == uuid for row in self.rows.values())
        del self.rows[uuid]

    def update_inventory(self, name_or_uuid: str, inventory: Mapping[str, Any]) -> bool:
        return self._update(name_or_uuid, inventory=dict(inventory))

    def update_traits(self, name_or_uuid: str, traits: Any) -> bool:
        return self._update(name_or_uuid, traits=set(traits))

    def update_aggregates(self, name_or_uuid: str, aggregates: Any) -> bool:
        return self._update(name_or_uuid, aggregates=set(aggregates))

    def _update(self, name_or_uuid: str, **fields: Any) -> bool:
        row = self.data(name_or_uuid)
        self.rows[row.uuid] = row._replace(**fields)
        return True

    def _uuid(self, name_or_uuid: str) -> str:
        return next(row.uuid for row in self.rows.values() if name_or_uuid in (row.uuid, row.name))


@dataclass
class Inside:
    """One recorded host, whose configured layout changes from start to start."""

    name: str
    tree: Any  # MemoryTree, or nova's own ProviderTree
    allocations: Allocations = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return HOSTS / self.name

    def policy(self, layout: Layout) -> Policy:
        return replace(
            load_settings([self.folder / "agent.conf"], driver="libvirt.LibvirtDriver").policy, layout=layout
        )

    def driver(self, layout: Layout) -> LibvirtDriver:
        archive, policy = HostArchive(self.folder / "archive"), self.policy(layout)
        return LibvirtDriver(RecordedConnection(archive), policy, InstancesFolder(instances=self.folder))

    def survey(self, layout: Layout) -> Survey:
        return self.driver(layout).survey(self.name)

    def call(
        self,
        layout: Layout,
        *,
        given: bool = False,
        starting: bool = True,
        seen: Callable[[Survey], Survey] = lambda survey: survey,
    ) -> Answer:
        """What nova does at a claim, or with allocations ``given`` at its start; changes tree and allocations."""
        driver = self.driver(layout)
        call = Call(
            node=self.name,
            tree=decode_tree(self.tree, self.name),
            consumers=decode_consumers(self.allocations) if given else None,
            starting=starting,
        )
        answer = decide(call, seen(driver.survey(self.name)), self.policy(layout), driver)
        apply_plan(answer.plan, self.tree, self.allocations if given else None)
        return answer

    def allocate(self, consumer: str, slots: Mapping[str, Mapping[str, int]]) -> None:
        """Give a consumer amounts, by names of providers and classes, and some disk of a sharing provider."""
        self.allocations[consumer] = {
            "allocations": {
                ABROAD: {"generation": 4, "resources": {"DISK_GB": 5}},
                **{
                    self.tree.data(name).uuid: {"generation": 3, "resources": dict(resources)}
                    for name, resources in slots.items()
                },
            },
            "project_id": "project",
            "user_id": "user",
            "consumer_generation": 2,
        }

    def held(self, consumer: str) -> dict[str, dict[str, int]]:
        """What a consumer has in this tree, by names of providers."""
        rows = self.allocations[consumer]["allocations"]
        return {self.tree.data(uuid).name: one["resources"] for uuid, one in rows.items() if uuid != ABROAD}

    def totals(self) -> dict[str, int]:
        """The sum of each class over the tree."""
        found: dict[str, int] = {}
        for uuid in self.tree.get_provider_uuids_in_tree(self.name):
            for name, stock in self.tree.data(uuid).inventory.items():
                found[name] = found.get(name, 0) + stock["total"]
        return found

    def names(self) -> set[str]:
        return {self.tree.data(uuid).name for uuid in self.tree.get_provider_uuids_in_tree(self.name)}
