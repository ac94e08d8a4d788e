"""The check of all live tests that a run writes to placement what its plan has, and nothing else."""

import json
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from beds.written import check_writes, hear

ROOT = str(uuid.UUID(int=1))


def run_of(verb: str, *operations: Mapping[str, object], outcome: str = "changed") -> str:
    """Say a plan as a run of the command does; return its request id."""
    name = f"req-{uuid.uuid4()}"
    about = {"request_id": name, "verb": verb}
    hear(json.dumps({"about": about, "outcome": outcome, "operations": operations}))
    return name


def run_of_nodes(*nodes: Mapping[str, object], dry_run: bool = False) -> str:
    """Say the plans of bare-metal nodes as a run of the command does; return its request id."""
    name = f"req-{uuid.uuid4()}"
    about = {"request_id": name, "verb": "plan" if dry_run else "sync"}
    hear(json.dumps({"about": about, "nodes": nodes, "summary": {}, "dry_run": dry_run}))
    return name


def node_of(number: int, *operations: Mapping[str, object], outcome: str = "created") -> Mapping[str, object]:
    return {"node": str(uuid.UUID(int=number)), "outcome": outcome, "operations": operations}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def write(log: Path, run: str, *requests: str) -> None:
    """Log requests, ``METHOD PATH STATUS``, as the server does."""
    split = (one.split() for one in requests)
    log.write_text("".join(f'::1 [now] "{method} {path} HTTP/1.1" {status} {run}\n' for method, path, status in split))


TRAITS = {"operation": "set-traits", "uuid": ROOT}
OF_TRAITS = f"PUT /resource_providers/{ROOT}/traits"
OF_STOCK = f"PUT /resource_providers/{ROOT}/inventories"


def test_what_the_plan_has_may_be_written(log: Path) -> None:
    write(log, run_of("sync", TRAITS), f"{OF_TRAITS} 200", f"{OF_STOCK} 400", f"GET /resource_providers/{ROOT} 200")
    check_writes(log)


@pytest.mark.parametrize("requests", [(f"{OF_STOCK} 200",), (f"{OF_TRAITS} 200", f"{OF_TRAITS} 200")])
def test_what_it_does_not_have_may_not(log: Path, requests: tuple[str, ...]) -> None:
    write(log, run_of("sync", TRAITS), *requests)
    with pytest.raises(AssertionError, match=r"/resource_providers/"):
        check_writes(log)


def test_a_dry_run_writes_nothing(log: Path) -> None:
    write(log, run_of("plan", TRAITS), f"{OF_TRAITS} 200")
    with pytest.raises(AssertionError, match=r"/traits"):
        check_writes(log)


def test_a_reshape_that_is_forbidden_is_written_in_parts(log: Path) -> None:
    reshape = {"operation": "reshape", "inventories": [{"uuid": ROOT}]}
    write(log, run_of("sync", reshape), "POST /reshaper 403", f"{OF_STOCK} 200", f"{OF_STOCK} 200")
    check_writes(log)


def test_a_run_that_made_several_plans_or_failed_is_left_out(log: Path) -> None:
    write(log, run_of("sync", TRAITS), f"{OF_STOCK} 200", f"{OF_TRAITS} 409")
    check_writes(log)
    write(log, run_of("sync", outcome="failed"), f"{OF_STOCK} 200")
    check_writes(log)


NAMES = {"operation": "ensure-traits", "names": ["CUSTOM_RED"]}
CREATE = {"operation": "create", "uuid": ROOT}
OF_NAMES, OF_CREATE = "PUT /traits/CUSTOM_RED", "POST /resource_providers"
OF_ANOTHER = f"PUT /resource_providers/{uuid.UUID(int=2)}/traits"


def test_what_the_plans_of_nodes_have_may_be_written(log: Path) -> None:
    run = run_of_nodes(node_of(1, CREATE, NAMES, TRAITS), node_of(2, TRAITS | {"uuid": str(uuid.UUID(int=2))}))
    write(log, run, f"{OF_CREATE} 201", f"{OF_NAMES} 201", f"{OF_TRAITS} 200", f"{OF_ANOTHER} 200")
    check_writes(log)


@pytest.mark.parametrize("request_", [OF_NAMES, OF_CREATE, OF_STOCK, OF_ANOTHER, "POST /reshaper"])
def test_what_the_plan_of_no_node_has_may_not(log: Path, request_: str) -> None:
    write(log, run_of_nodes(node_of(1, TRAITS), node_of(2)), f"{OF_TRAITS} 200", f"{request_} 200")
    with pytest.raises(AssertionError, match=request_.split("/")[-1]):
        check_writes(log)


def test_a_dry_run_over_nodes_writes_nothing(log: Path) -> None:
    write(log, run_of_nodes(node_of(1, TRAITS), dry_run=True), f"{OF_TRAITS} 200")
    with pytest.raises(AssertionError, match=r"/traits"):
        check_writes(log)


def test_a_node_that_failed_or_was_planned_again_is_left_out_and_no_other(log: Path) -> None:
    failed, again = run_of_nodes(node_of(1, outcome="failed"), node_of(2)), run_of_nodes(node_of(1), node_of(2))
    for run, *first in ((failed, f"{OF_TRAITS} 200"), (again, f"{OF_TRAITS} 200", f"{OF_STOCK} 409")):
        write(log, run, *first, f"{OF_NAMES} 201")
        check_writes(log)
        write(log, run, *first, f"{OF_ANOTHER} 200")
        with pytest.raises(AssertionError, match=r"/traits"):
            check_writes(log)
