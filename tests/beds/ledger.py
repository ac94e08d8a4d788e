"""What placement's PostgreSQL database holds at one moment, read beside its API: one statement sees one moment."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import psycopg2

ROWS = """
SELECT 'stock', p.name, r.name, CAST(i.total AS text), CAST((i.total - i.reserved) * i.allocation_ratio AS text)
  FROM inventories i JOIN resource_providers p ON p.id = i.resource_provider_id
  JOIN resource_classes r ON r.id = i.resource_class_id
UNION ALL
SELECT 'use', p.name, r.name, a.consumer_id, CAST(a.used AS text)
  FROM allocations a JOIN resource_providers p ON p.id = a.resource_provider_id
  JOIN resource_classes r ON r.id = a.resource_class_id
"""
KEPT = ("resource_providers", "inventories", "consumers", "allocations", "resource_provider_traits",
        "resource_provider_aggregates")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Moment:
    """Totals and capacity by (provider, class), and use by (consumer, provider, class)."""

    stock: dict[tuple[str, str], tuple[int, int]]
    use: dict[tuple[str, str, str], int]

    def totals(self) -> dict[str, int]:
        """The stock of each class over all providers."""
        return _sums((name, total) for (_, name), (total, _) in self.stock.items())

    def held(self) -> dict[str, dict[str, int]]:
        """What each consumer has of each class, wherever."""
        found: dict[str, dict[str, int]] = {}
        for (consumer, _, name), amount in self.use.items():
            sums = found.setdefault(consumer, {})
            sums[name] = sums.get(name, 0) + amount
        return found

    def overbooked(self) -> dict[tuple[str, str], int]:
        """The providers' classes of which more is used than there is, with how much."""
        used: dict[tuple[str, str], int] = {}
        for (_, provider, name), amount in self.use.items():
            used[provider, name] = used.get((provider, name), 0) + amount
        return {slot: amount for slot, amount in used.items() if amount > self.stock.get(slot, (0, 0))[1]}


class Ledger:
    """A connection of its own to the database of this URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection = psycopg2.connect(url)
        self._connection.autocommit = True

    def look(self) -> Moment:
        stock: dict[tuple[str, str], tuple[int, int]] = {}
        use: dict[tuple[str, str, str], int] = {}
        for kind, provider, name, first, second in self._ask(ROWS):
            if kind == "stock":
                stock[provider, name] = int(first), int(float(second))
            else:
                use[first, provider, name] = int(second)
        return Moment(stock, use)

    def generations(self) -> dict[str, int]:
        """How often each provider was written, by name."""
        return dict(self._ask("SELECT name, generation FROM resource_providers"))

    def keep(self) -> None:
        """Remember all that stands, for ``restore``."""
        for table in KEPT:
            self._do(f"DROP TABLE IF EXISTS kept_{table}", f"CREATE TABLE kept_{table} AS TABLE {table}")

    def restore(self) -> None:
        """Make all as it was at the last ``keep``; placement keeps nothing of it in memory."""
        self._do(
            "BEGIN",
            *(f"DELETE FROM {table}" for table in reversed(KEPT)),  # TRUNCATE would wait for who looks, and they for it
            *(f"INSERT INTO {table} SELECT * FROM kept_{table}" for table in KEPT),
            "COMMIT",
        )

    def clear(self) -> None:
        """Leave nothing."""
        self._do("BEGIN", *(f"DELETE FROM {table}" for table in reversed(KEPT)), "COMMIT")

    def close(self) -> None:
        self._connection.close()

    def _ask(self, statement: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def _do(self, *statements: str) -> None:
        with self._connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


def _sums(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, amount in pairs:
        found[name] = found.get(name, 0) + amount
    return found
