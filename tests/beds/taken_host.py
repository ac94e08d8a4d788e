"""A host that was taken over: a command that prints what it likes, with script in each text, in place of ours."""

import hashlib
import json
import stat
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

STOLEN = """</style></script></title><script>stolen()</script><img src=x onerror="stolen()">'"{{ 1 + 1 }}\x1b\u202e&"""
GUEST = "4a5f7e9c-0d27-4e43-8f6f-2a3b1c9d8e70"
_COMMAND = """#!/bin/sh
verb=$1
for word; do [ "$before" = --picture ] && echo '<script>stolen()</script>' > "$word"; before=$word; done
cat "$(dirname "$0")/$verb.json"
[ "$verb" != reshape ] || exit 3
"""


def plan(before: str = "") -> dict[str, Any]:
    """What ``reshape`` prints of a root with one guest, whose VCPU goes to a new cell; ``before`` begins each text."""
    root, cell, guest, vcpu = f"{before}host", f"{before}host_NUMA0", f"{before}{GUEST}", f"{before}VCPU"
    stock = {"total": 8, "reserved": 1, "min_unit": 1, "max_unit": 8, "step_size": 1, "allocation_ratio": 4.0}
    usual = {"traits": [f"{before}CUSTOM_A"], "aggregates": [], "generation": 1}
    full = {**usual, "inventories": {vcpu: stock}, "usages": {vcpu: 2}}
    sums = {"total": 8, "capacity": 28, "used": 2}
    return {
        "about": {"version": f"{before}1", "time": f"{before}2026-11-26T12:00:00+00:00"},
        "node": root,
        "outcome": f"{before}changed",
        "layout": f"{before}flat",
        "target": f"{before}numa",
        "digest": f"{before}d1g357",
        "operations": [{"operation": f"{before}create", "provider": cell}],
        "moves": [
            {
                "consumer": guest,
                "from_resource_provider": root,
                "to_resource_provider": cell,
                "moved_resources": {vcpu: 2},
                "because": f"{before}pinned to CPUs 0-3 in cell 0",
            }
        ],
        "before": {
            "providers": {root: {**full, "parent": None, "uuid": f"{before}r"}},
            "allocations": {guest: {root: {vcpu: 2}}},
        },
        "after": {
            "providers": {
                root: {**usual, "parent": None, "uuid": f"{before}r", "inventories": {}, "usages": {}},
                cell: {**full, "parent": root, "uuid": f"{before}c"},
            },
            "allocations": {guest: {cell: {vcpu: 2}}},
        },
        "names": {guest: f"{before}db-primary"},
        "capacity": {vcpu: {"before": sums, "after": sums}},
        "notes": [f"{before}a note"],
    }


def checks(before: str = "") -> dict[str, Any]:
    """What ``check`` prints."""
    return {"checks": [{"check": f"{before}clock", "ok": False, "detail": f"{before}skewed"}]}


def audit(before: str = "") -> dict[str, Any]:
    """What ``audit`` prints of one finding."""
    words = ("kind", "consumer", "provider", "resource_class", "seen", "repair", "outcome", "why")
    return {"findings": [{word: f"{before}any {word}" for word in words}]}


def write_command(folder: Path, **verbs: Mapping[str, Any]) -> list[str]:
    """Write a command that prints these answers, by verb; return it as ``fleet_command``."""
    folder.mkdir(parents=True)
    for verb, answer in verbs.items():
        (folder / f"{verb}.json").write_text(json.dumps(answer), encoding="utf-8")
    command = folder / "command"
    command.write_text(_COMMAND, encoding="utf-8")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return [str(command)]


@dataclass
class Page(HTMLParser):
    """What a browser would make of a page."""

    text: str
    tags: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    inline: list[str] = field(default_factory=list)  # texts of style and script
    policy: str = ""
    shown: str = ""  # what a person reads

    def __post_init__(self) -> None:
        HTMLParser.__init__(self)
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.tags.add(tag)
        self.attributes |= told.keys()
        self.links += [told["href"] or ""] if "href" in told else []
        self.policy += (told.get("content") or "") if told.get("http-equiv") == "Content-Security-Policy" else ""

    def handle_data(self, data: str) -> None:
        if self.cdata_elem:
            self.inline.append(data)
        else:
            self.shown += data

    @property
    def hashes(self) -> list[str]:
        """What the policy must name: the hash of each style and script on the page."""
        return [f"'sha256-{b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in self.inline]
