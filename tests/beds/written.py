"""What placement saw written, against what the run said that it writes: a plan has all that is written."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

FORMAT = '%(h)s %(t)s "%(r)s" %(s)s %({x-openstack-request-id}i)s'
"""A server's log of each request: who and when, its first line, the status, and the id of the run that sent it."""
LINE = re.compile(r'"(?P<method>[A-Z]+) (?P<path>\S+) HTTP/1\.1" (?P<status>\d+) (?P<run>req-[\w-]+)')
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
OF_PROVIDER = {  # after /resource_providers/UUID
    "rename": "",
    "reparent": "",
    "set-traits": "/traits",
    "set-aggregates": "/aggregates",
    "set-inventories": "/inventories",
}
ENSURED = {"ensure-traits": "/traits", "ensure-resource-classes": "/resource_classes"}

_said: dict[str, Mapping[str, Any]] = {}
"""JSON of each run of the command in this process, by its request id."""


def hear(out: str) -> None:
    """Keep what a run of the command printed, if that is the JSON of a host's plan, or of the plans of nodes."""
    with suppress(ValueError, KeyError, TypeError):
        form = json.loads(out)
        if "operations" in form or all("operations" in one for one in form["nodes"]):
            _said[form["about"]["request_id"]] = form


def check_writes(log: Path) -> None:
    """
    Assert that each run which said its plan wrote to this server what is in that plan, and nothing else.

    A host of which a run made several plans shows the last, and one that failed shows none: both are left out. So are
    such nodes of a run over bare metal, and with them what does not name a node: new providers, classes and traits.
    """
    seen: dict[str, list[tuple[str, str, int]]] = {}
    for found in LINE.finditer(log.read_text(encoding="utf-8", errors="replace")):
        if found["run"] in _said:
            seen.setdefault(found["run"], []).append((found["method"], found["path"], int(found["status"])))
    for run, requests in seen.items():
        form = _said[run]
        sent = Counter(f"{method} {path}" for method, path, status in requests if method != "GET" and status < 300)
        if not sent or form.get("outcome") == "failed" or ("nodes" not in form and _looked_again(requests)):
            continue
        by_hand = {status for method, path, status in requests if path == "/reshaper"} == {403}
        besides = sent - Counter(_planned(form, one_by_one=by_hand))
        if left_out := _unsettled(form, requests):
            besides = Counter({write: count for write, count in besides.items() if _is_of_others(write, left_out)})
        assert not besides, (form["about"], besides)


def _unsettled(form: Mapping[str, Any], requests: Sequence[tuple[str, str, int]]) -> set[str]:
    """Return the nodes of a run over bare metal that failed, or at which it met a conflict, by uuid."""
    nodes = form.get("nodes", ())
    failed = {one["node"] for one in nodes if one["outcome"] in ("failed", "unfinished")}
    conflicts = {path for _, path, status in requests if status == 409}
    return failed | {one["node"] for one in nodes if any(one["node"] in path for path in conflicts)}


def _is_of_others(write: str, nodes: Iterable[str]) -> bool:
    """Return whether a write names a provider, and none of these nodes."""
    return UUID.search(write) is not None and not any(node in write for node in nodes)


def _looked_again(requests: Sequence[tuple[str, str, int]]) -> bool:
    """Return whether a run of one root looked at it again: after a conflict, or after an answer that was lost."""
    writes = [number for number, (method, *_) in enumerate(requests) if method != "GET"]
    looks = [number for number, (_, path, _) in enumerate(requests) if "in_tree=" in path]
    if any(status == 409 for *_, status in requests):
        return True
    return bool(writes and looks) and looks[-1] > writes[0]


def _planned(form: Mapping[str, Any], *, one_by_one: bool) -> Iterator[str]:
    """Yield ``METHOD PATH`` of each write that a plan has, from its JSON."""
    if form["about"]["verb"] == "plan" or "capacity" in form or form.get("dry_run"):
        return
    parts = (form, *form.get("nodes", ()))
    for part in (*parts, *(one.get("reserving") or {} for one in parts)):
        for step in part.get("operations", ()):
            yield from _requests(step, one_by_one=one_by_one)


def _requests(step: Mapping[str, Any], *, one_by_one: bool) -> Iterator[str]:
    kind = step["operation"]
    if kind in ENSURED:
        yield from (f"PUT {ENSURED[kind]}/{name}" for name in step["names"])
    elif kind == "create":
        yield "POST /resource_providers"
    elif kind in OF_PROVIDER:
        yield f"PUT /resource_providers/{step['uuid']}{OF_PROVIDER[kind]}"
    elif kind == "delete":
        yield f"DELETE /resource_providers/{step['uuid']}"
    elif kind == "reshape" and one_by_one:  # losses first, then gains
        yield from 2 * [f"PUT /resource_providers/{one['uuid']}/inventories" for one in step["inventories"]]
    elif kind == "reshape":
        yield "POST /reshaper"
    elif kind == "claim":
        yield f"PUT /allocations/{step['consumer']}"
    elif kind == "replace-allocations" and len(step["allocations"]) > 1:
        yield "POST /allocations"
    elif kind == "replace-allocations":
        yield from (f"PUT /allocations/{consumer}" for consumer in step["allocations"])
    else:
        yield f"DELETE /allocations/{step['consumer']}"
