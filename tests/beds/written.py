"""What placement saw written, against what the run said that it writes: a plan has all that is written."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

FORMAT = '%(h)s %(t)s "%(r)s" %(s)s %({x-openstack-request-id}i)s'
"""A server's log of each request: who and when, its first line, the status, and the id of the run that sent it."""
LINE = re.compile(r'"(?P<method>[A-Z]+) (?P<path>\S+) HTTP/1\.1" (?P<status>\d+) (?P<run>req-[\w-]+)')
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
    """Keep what a run of the command printed, if that is the JSON of a host's plan: bare metal writes in batches."""
    with suppress(ValueError, KeyError, TypeError):
        form = json.loads(out)
        if "operations" in form:
            _said[form["about"]["request_id"]] = form


def check_writes(log: Path) -> None:
    """
    Assert that each run which said its plan wrote to this server what is in that plan, and nothing else.

    A run that made several plans shows the last, and one that failed shows none: both are left out.
    """
    seen: dict[str, list[tuple[str, str, int]]] = {}
    for found in LINE.finditer(log.read_text(encoding="utf-8", errors="replace")):
        if found["run"] in _said:
            seen.setdefault(found["run"], []).append((found["method"], found["path"], int(found["status"])))
    for run, requests in seen.items():
        sent = [f"{method} {path}" for method, path, status in requests if method != "GET" and status < 300]
        if not sent or _said[run].get("outcome") == "failed" or _looked_again(requests):
            continue
        by_hand = {status for method, path, status in requests if path == "/reshaper"} == {403}
        besides = Counter(sent) - Counter(_planned(_said[run], one_by_one=by_hand))
        assert not besides, (_said[run]["about"], besides)


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
    for part in (form, form.get("reserving") or {}):
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
