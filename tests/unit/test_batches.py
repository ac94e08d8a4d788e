"""Stock of many new trees in one request: trees whose root has none, and an answer that is lost."""

from typing import Any
from uuid import UUID

import pytest

from agent.sync.batches import Lot, Refused, Stocked, as_written, write_stock
from beds.memory import MemoryAnswer
from beds.watched import Watched, refuse
from reportclient.client import PlacementClient
from reportclient.plan import Create, Plan, SetInventories
from reportclient.transport import Transport
from reportclient.tree import Inventory, ObservedTree

TREES = 6
STOCK = {"VCPU": Inventory(total=8)}


def uuid_of(number: int) -> str:
    return str(UUID(int=number))


def lots(client: PlacementClient) -> list[Lot]:
    """Trees of a root without stock, and a child that is to have some."""
    found = []
    for number in range(TREES):
        root, child = uuid_of(number), uuid_of(100 + number)
        steps = Create(root, f"root{number}", None), Create(child, f"child{number}", root)
        stands = client.execute(Plan(steps), ObservedTree())
        found.append(Lot(stands.providers, (SetInventories(child, f"child{number}", STOCK),)))
    return found


def generations(client: PlacementClient) -> dict[str, int]:
    roots = (client.observe(uuid_of(number)) for number in range(TREES))
    return {seen.uuid: seen.generation for root in roots for seen in root}


@pytest.mark.parametrize("is_lost", [False, True])
def test_all_providers_are_known_afterwards(*, is_lost: bool) -> None:
    watched = Watched()
    client = PlacementClient(Transport(watched, where="placement"))
    made = lots(client)

    def lose(method: str, url: str, body: Any) -> MemoryAnswer | None:
        if url != "/reshaper" or not is_lost:
            return None
        assert watched.write(method, url, body).status_code == 204
        return refuse(500)

    watched.hook = lose
    endings = write_stock(client, made, 1)
    stocked = [one for one in endings if isinstance(one, Stocked)]
    known = as_written(client, stocked, lambda: generations(client))

    assert len(stocked) == TREES
    assert watched.seen["POST reshaper"] == 1
    assert {uuid: seen.generation for uuid, seen in known.items()} == generations(client)
    assert all(known[uuid_of(100 + number)].provider.inventories == STOCK for number in range(TREES))


def test_a_tree_that_is_gone_is_refused_alone() -> None:
    watched = Watched()
    client = PlacementClient(Transport(watched, where="placement"))
    made = lots(client)
    assert watched.write("DELETE", f"/resource_providers/{uuid_of(102)}").status_code == 204

    endings = write_stock(client, made, 1)

    assert [isinstance(one, Refused) for one in endings] == [number == 2 for number in range(TREES)]


def test_nothing_is_known_where_placement_does_not_list() -> None:
    watched = Watched()
    client = PlacementClient(Transport(watched, where="placement"))
    stocked = [one for one in write_stock(client, lots(client), 1) if isinstance(one, Stocked)]
    watched.hook = lambda *_: refuse(503)

    known = as_written(client, stocked, lambda: generations(client))

    assert known.keys() == {uuid_of(number) for number in range(TREES)}  # the roots, whose writes told it
