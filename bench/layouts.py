"""
What a layout costs the scheduler: candidate searches of a placement that is full of hosts in that layout.

The hosts are copies of a recorded one with two cells and two SR-IOV cards, half of it allocated. They are put into the
database itself, by placement's own tables: what is measured is the search.
"""

import os
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlencode

import requests
from placement.db.sqlalchemy import models
from sqlalchemy import Connection, Engine, create_engine, select, text

from beds import databases
from beds.golden import HOSTS, GoldenHost
from beds.placement import NOAUTH_HEADERS, PlacementServer, serving_on
from bench.goals import Goal, print_table
from bench.lab import BenchError

HOST = GoldenHost(HOSTS / "queens-second")
LAYOUTS = ("flat", "devices", "cells", "numa")
SIZES = tuple(map(int, os.environ.get("BENCH_HOSTS", "100,1000").split(",")))
SERVERS = {"PostgreSQL": databases.postgresql, "MariaDB": databases.mariadb}
LIMITS = (None, 1000, 10)
TIMES, PATIENCE_S = 3, 120.0
PLAIN = {"resources": "VCPU:1,MEMORY_MB:512,DISK_GB:1"}
ONE_CELL: Mapping[str, Mapping[str, str]] = {
    "cells": {"resources_CELL": "VCPU:1,MEMORY_MB:512", "required_CELL": "HW_NUMA_ROOT", "resources": "DISK_GB:1"},
}
SUBTREE: Mapping[str, Mapping[str, str]] = {
    "numa": {
        "resources_CPU": "VCPU:1",
        "resources_MEM": "MEMORY_MB:512",
        "required_CELL": "HW_NUMA_ROOT",
        "same_subtree": "_CELL,_CPU,_MEM",
        "resources": "DISK_GB:1",
    },
}
WITH_VF: Mapping[str, Mapping[str, str]] = {
    "flat": {"resources": f"{PLAIN['resources']},SRIOV_NET_VF:1"},
    "devices": {**PLAIN, "resources_VF": "SRIOV_NET_VF:1"},
    "cells": {
        "resources_CELL": "VCPU:1,MEMORY_MB:512",
        "required_CELL": "HW_NUMA_ROOT",
        "resources_VF": "SRIOV_NET_VF:1",
        "same_subtree": "_CELL,_VF",
        "resources": "DISK_GB:1",
    },
    "numa": {**SUBTREE["numa"], "resources_VF": "SRIOV_NET_VF:1", "same_subtree": "_CELL,_CPU,_MEM,_VF"},
}


@dataclass(frozen=True, slots=True)
class Search:
    """One search and what it took."""

    layout: str
    name: str
    limit: int | None
    wall_s: float | None  # the median; None: it took longer than anybody waits
    found: int
    hosts: int  # that these candidates are of
    size_kib: int


def measure_layouts(scratch: Path, _template: Path) -> tuple[Goal, ...]:
    """Each layout in each size on each database; one database with one placement at a time."""
    rows: list[tuple[object, ...]] = []
    for server_name, server in SERVERS.items():
        for layout in LAYOUTS:
            folder = scratch / f"layouts-{server_name}-{layout}"
            folder.mkdir()
            with server(folder / "database") as url:
                database = databases.with_driver(url)
                with serving_on(database, folder / "placement", workers=2, threads=1) as placement:
                    rows += _measure(server_name, layout, database, placement)
    head = (
        "database",
        "hosts",
        "layout",
        "providers",
        "request",
        "no limit, s",
        "1000, s",
        "10, s",
        "found",
        "KiB",
        "hosts",
    )
    print_table(head, rows)
    print(
        "Medians; found and KiB are those without a limit, hosts those of 1000 candidates. A dash: not in two minutes."
    )
    return ()


def _measure(server_name: str, layout: str, database: str, placement: PlacementServer) -> Iterator[tuple[object, ...]]:
    engine, numbers = create_engine(database), count(1)
    tree = HOST.read(layout)["providers"]
    _learn_names(placement, tree)
    hosts = 0
    for size in SIZES:
        with engine.begin() as connection:
            _fill(connection, tree, size - hosts, numbers)
        _count(engine)
        hosts = size
        for name, query in _queries(layout).items():
            times = [_search(placement, layout, name, query, limit) for limit in LIMITS]
            walls = ["-" if one.wall_s is None else f"{one.wall_s:.2f}" for one in times]
            row = (
                server_name,
                size,
                layout,
                len(tree) * size,
                name,
                *walls,
                times[0].found,
                times[0].size_kib,
                times[1].hosts,
            )
            print("measured", *row, file=sys.stderr, flush=True)
            yield row
    engine.dispose()


def _queries(layout: str) -> dict[str, Mapping[str, str]]:
    """The requests that make sense in a layout."""
    known = {"plain": {layout: PLAIN}, "one cell": ONE_CELL, "same_subtree": SUBTREE, "with a VF": WITH_VF}
    return {name: by_layout[layout] for name, by_layout in known.items() if layout in by_layout}


def _search(placement: PlacementServer, layout: str, name: str, query: Mapping[str, str], limit: int | None) -> Search:
    grouped = {"group_policy": "none"} if sum(key.startswith("resources_") for key in query) > 1 else {}
    limited = {} if limit is None else {"limit": str(limit)}
    url = f"{placement.url}/allocation_candidates?{urlencode({**query, **grouped, **limited})}"
    walls, found, hosts, size = [], 0, 0, 0
    for _ in range(TIMES):
        began = time.perf_counter()
        try:
            answer = requests.get(url, headers=_headers(), timeout=PATIENCE_S)
        except requests.Timeout:
            return Search(layout, name, limit, None, 0, 0, 0)
        walls.append(time.perf_counter() - began)
        if not answer.ok:
            raise BenchError(f"placement answered a search with {answer.status_code}: {answer.text[:300]}")
        body = answer.json()
        found, hosts, size = len(body["allocation_requests"]), _hosts(body), len(answer.content) // 1024
        if walls[-1] > PATIENCE_S / 10:
            break
    return Search(layout, name, limit, median(walls), found, hosts, size)


def _hosts(body: Mapping[str, Any]) -> int:
    """How many hosts the candidates of an answer are of."""
    roots = {uuid: of["root_provider_uuid"] for uuid, of in body["provider_summaries"].items()}
    return len({roots[uuid] for one in body["allocation_requests"] for uuid in one["allocations"]})


def _headers() -> dict[str, str]:
    return {**NOAUTH_HEADERS, "OpenStack-API-Version": "placement 1.39"}


def _learn_names(placement: PlacementServer, tree: Mapping[str, Any]) -> None:
    """Make the custom classes and traits of the host."""
    for provider in tree.values():
        for kind, names in (("resource_classes", provider["inventories"]), ("traits", provider["traits"])):
            for name in names:
                if name.startswith("CUSTOM_"):
                    requests.put(f"{placement.url}/{kind}/{name}", headers=_headers(), timeout=30).raise_for_status()


def _fill(connection: Connection, tree: Mapping[str, Any], hosts: int, numbers: Iterator[int]) -> None:
    """Put so many copies of a host into the database, with a guest that has half of each stock."""
    classes = {
        row.name: row.id for row in connection.execute(select(models.ResourceClass.id, models.ResourceClass.name))
    }
    traits = {row.name: row.id for row in connection.execute(select(models.Trait.id, models.Trait.name))}
    rows: dict[Any, list[dict[str, Any]]] = {}
    if not connection.execute(select(models.Project.id)).first():
        rows[models.Project] = [{"id": 1, "external_id": "p"}]
        rows[models.User] = [{"id": 1, "external_id": "u"}]
    for _ in range(hosts):
        _copy(tree, numbers, classes, traits, rows)
    for model, values in rows.items():
        connection.execute(model.__table__.insert(), values)


def _copy(
    tree: Mapping[str, Any],
    numbers: Iterator[int],
    classes: Mapping[str, int],
    traits: Mapping[str, int],
    rows: dict[Any, list[dict[str, Any]]],
) -> None:
    """Add the rows of one copy; parents before children."""
    names = sorted(tree, key=lambda name: (_depth(tree, name), name))
    ids = {name: next(numbers) for name in names}
    root, guest = ids[names[0]], str(uuid.uuid4())
    rows.setdefault(models.Consumer, []).append({"uuid": guest, "project_id": 1, "user_id": 1, "generation": 1})
    for name in names:
        own = {"id": ids[name], "uuid": str(uuid.uuid4()), "name": f"{name}-{ids[name]}", "generation": 1}
        parent = ids.get(tree[name]["parent"])
        rows.setdefault(models.ResourceProvider, []).append(
            own | {"root_provider_id": root, "parent_provider_id": parent}
        )
        for resource_class, stock in tree[name]["inventories"].items():
            of = {"resource_provider_id": ids[name], "resource_class_id": classes[resource_class]}
            rows.setdefault(models.Inventory, []).append(of | stock)
            used = {"used": max(1, stock["total"] // 2), "consumer_id": guest}
            rows.setdefault(models.Allocation, []).append(of | used)
        rows.setdefault(models.ResourceProviderTrait, []).extend(
            {"resource_provider_id": ids[name], "trait_id": traits[trait]} for trait in tree[name]["traits"]
        )


def _count(engine: Engine) -> None:
    """Let the database count its rows, as it does by itself some minutes after they were written."""
    tables = ", ".join(table.name for table in models.BASE.metadata.sorted_tables)
    command = f"ANALYZE TABLE {tables}" if engine.dialect.name == "mysql" else "ANALYZE"
    with engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").execute(text(command)).close()


def _depth(tree: Mapping[str, Any], name: str) -> int:
    parent = tree[name]["parent"]
    return 0 if parent is None else 1 + _depth(tree, parent)
