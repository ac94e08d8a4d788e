"""Work that is done several at a time ends as if it had been done one after the other."""

import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beds.memory import MemoryPlacement
from reportclient.client import PlacementClient
from reportclient.errors import Rejected
from reportclient.plan import Create, Delete, EnsureTraits, Plan, SetInventories, SetTraits
from reportclient.transport import Transport
from reportclient.tree import Inventory, ObservedTree

WORKERS = 4
ROOT = "00000000-0000-4000-8000-000000000000"
CELLS = [f"00000000-0000-4000-8000-0000000001{number:02}" for number in range(2)]
CARDS = [f"00000000-0000-4000-8000-0000000002{number:02}" for number in range(6)]
GUESTS = [f"00000000-0000-4000-8000-0000000003{number:02}" for number in range(6)]


def each(work: Callable[[Any], Any], items: Iterable[Any], workers: int) -> list[Any]:
    """What a client with these workers makes of the items."""
    return PlacementClient(Transport(MemoryPlacement(lambda: 0), where="placement"), workers).each(work, items)


@dataclass
class Shuffled:
    """A placement that answers requests under way at the same time in an order of its own, one by one."""

    placement: MemoryPlacement
    order: random.Random
    seen: list[tuple[str, str]] = field(default_factory=list)
    most: int = 0  # requests that were under way at the same time
    _waiting: list[threading.Event] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        turn = threading.Event()
        with self._lock:
            self._waiting.append(turn)
            self.most = max(self.most, len(self._waiting))
            if len(self._waiting) >= WORKERS:
                self._let_one_go()
            else:  # fewer than that may be all there are
                threading.Timer(0.005, self._let_any_go).start()
        assert turn.wait(30)
        with self._lock:
            self.seen.append((method, url))
            return self.placement.request(url, method, **kwargs)

    def _let_any_go(self) -> None:
        with self._lock:
            self._let_one_go()

    def _let_one_go(self) -> None:
        if self._waiting:
            self._waiting.pop(self.order.randrange(len(self._waiting))).set()


def lay_down(client: PlacementClient) -> None:
    """A root with two cells, and three cards in each."""
    stock = {"VGPU": Inventory(total=4)}
    steps = [Create(ROOT, "host", None)]
    steps += [Create(uuid, f"host_cell{number}", ROOT) for number, uuid in enumerate(CELLS)]
    steps += [Create(uuid, f"host_card{number}", CELLS[number % 2]) for number, uuid in enumerate(CARDS)]
    names = EnsureTraits(tuple(f"CUSTOM_CARD_{number}" for number in range(len(CARDS))))
    traits = [
        SetTraits(uuid, f"host_card{number}", frozenset({name}), frozenset({name}), frozenset())
        for number, (uuid, name) in enumerate(zip(CARDS, names.names, strict=True))
    ]
    put = [SetInventories(uuid, f"host_card{number}", stock) for number, uuid in enumerate(CARDS)]
    client.execute(Plan((*steps, names, *traits, *put)), ObservedTree())


def put_guests(placement: MemoryPlacement) -> None:
    """A guest on each card."""
    for guest, card in zip(GUESTS, CARDS, strict=True):
        body = {
            "allocations": {card: {"resources": {"VGPU": 1}}},
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": None,
        }
        answer = placement.request(f"/allocations/{guest}", "PUT", microversion="1.36", headers={}, json=body)
        assert answer.status_code == 204


def life(seed: int | None) -> tuple[list[Any], Shuffled]:
    """What a client finds and leaves: laid down, read, with its guests, and taken away; seed None: one by one."""
    sender = Shuffled(MemoryPlacement(lambda: 2_000_000_000), random.Random(seed))
    client = PlacementClient(Transport(sender, where="placement"), 1 if seed is None else WORKERS)
    lay_down(client)
    put_guests(sender.placement)
    client.begin()
    tree = client.observe(ROOT)
    held = client.allocations(tree)
    consumers = client.consumers(GUESTS, held)
    found: list[Any] = [tree, held, [(one.uuid, one.generation, one.slots) for one in consumers]]
    for guest in GUESTS:
        sender.placement.request(f"/allocations/{guest}", "DELETE", microversion="1.36", headers={})
    doomed = [Delete(seen.uuid, seen.name) for seen in reversed(tree.providers)]
    emptied = client.execute(Plan(tuple(doomed)), tree)
    return [*found, emptied, client.observe(ROOT)], sender


@cache
def one_by_one() -> tuple[list[Any], Shuffled]:
    return life(None)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_for_any_interleaving_the_answers_are_those_of_one_after_the_other(seed: int) -> None:
    alone, before = one_by_one()
    together, sender = life(seed)

    assert together == alone
    assert sorted(sender.seen) == sorted(before.seen)
    assert (before.most, sender.most) == (1, WORKERS)


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_the_error_is_that_of_the_first_item_which_failed(workers: int) -> None:
    begun: list[int] = []
    barrier = threading.Barrier(2)

    def work(item: int) -> int:
        begun.append(item)
        if workers > 1 and item < 2:
            barrier.wait(10)
        if item in (0, 1):
            raise ValueError(item)
        time.sleep(0.1)  # on a busy machine, what notices the error may wait for its turn
        return item

    with pytest.raises(ValueError, match="0"):
        each(work, range(100), workers)

    assert len(begun) < 100


def test_results_are_in_the_order_of_the_items() -> None:
    done = threading.Event()

    def work(item: str) -> str:
        if item == "first":
            assert done.wait(10)
        else:
            done.set()
        return item.upper()

    assert each(work, ["first", "second"], 2) == ["FIRST", "SECOND"]
    assert each(work, [], 2) == []


def test_what_was_begun_beside_a_failure_comes_to_its_end() -> None:
    """A write that was sent has taken effect: the pass must not go on before its answer is there."""
    ended: list[str] = []
    failed = threading.Event()

    def work(item: str) -> None:
        if item == "fails":
            failed.set()
            raise Rejected("no")
        assert failed.wait(10)
        ended.append(item)

    with pytest.raises(Rejected):
        each(work, ["lasts", "fails"], 2)

    assert ended == ["lasts"]
