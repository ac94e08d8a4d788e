"""A script for made-up hosts: its form, its steps, and how each host is at any moment."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, get_args

from drivers.fake.hosts import CardKind, FakeHost, GuestKind
from drivers.fake.steps import (
    MOST,
    AddCard,
    Change,
    EndGuest,
    RemoveCard,
    SetMemory,
    SetVfs,
    StartGuest,
    changed,
)


@dataclass(frozen=True, slots=True)
class Fail:
    """The host can no longer be read."""


@dataclass(frozen=True, slots=True)
class Heal:
    """The host can be read again."""


@dataclass(frozen=True, slots=True)
class Step:
    """A line of the script."""

    number: int  # from 0
    after_s: float  # since the script began
    hosts: frozenset[int] | None  # numbers of hosts in the fleet; None: all
    action: Change | Fail | Heal


@dataclass(frozen=True, slots=True)
class Moment:
    """How a host is from a moment on, until the next one of its history."""

    after_s: float  # since the script began
    host: FakeHost
    fails: bool = False  # whether it cannot be read


History = tuple[Moment, ...]  # of one host; the first moment is 0, and the latest is last

ACTIONS: Mapping[str, type[Change | Fail | Heal]] = {
    "start_guest": StartGuest,
    "end_guest": EndGuest,
    "add_card": AddCard,
    "remove_card": RemoveCard,
    "set_vfs": SetVfs,
    "set_memory": SetMemory,
    "fail": Fail,
    "heal": Heal,
}
_OF_EVERY_STEP = ("after_s", "do", "hosts")
_NUMBER = {"type": "integer", "minimum": 0, "maximum": 1_000_000}
SCHEMA: Mapping[str, object] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["steps"],
    "properties": {
        "steps": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["after_s", "do"],
                "properties": {
                    "after_s": {"type": "number", "minimum": 0, "maximum": 1_000_000_000},
                    "do": {"enum": [*ACTIONS]},
                    "hosts": {"type": "array", "items": _NUMBER},
                    "kind": {"enum": [*get_args(GuestKind)]},
                    "number": _NUMBER,
                    "card": {"enum": [*get_args(CardKind)]},
                    "slot": _NUMBER,
                    "count": {"type": "integer", "minimum": 0, "maximum": MOST},
                    "memory_gib": {"type": "integer", "minimum": 1, "maximum": 65_536},
                },
            },
        }
    },
}
"""The form of a script; which other keys a step has depends on what it does."""


def parse_script(record: Mapping[str, Any]) -> tuple[Step, ...]:
    """
    Return the steps of a script that has the form ``SCHEMA``.

    Raises:
        ValueError: a step lacks a key, has one that its action does not have, or comes before the step above it.
    """
    steps: list[Step] = []
    for number, line in enumerate(record["steps"]):
        step = _parse_step(number, line)
        if not step.after_s >= (before := steps[-1].after_s if steps else 0.0):  # also what is no number
            raise ValueError(
                f"steps[{number}].after_s is {step.after_s:g}, and must be at least {before:g}: put the steps into the "
                f"order of their times"
            )
        steps.append(step)
    return tuple(steps)


def histories(hosts: Iterable[FakeHost], steps: Iterable[Step]) -> dict[str, History]:
    """
    Return the history of each host of a fleet, by its name.

    Raises:
        ValueError: a step names a host that the fleet lacks, or cannot happen to a host.
    """
    fleet, steps = tuple(hosts), tuple(steps)
    for step in steps:
        if strange := sorted((step.hosts or frozenset()) - {*range(len(fleet))}):
            raise ValueError(
                f"steps[{step.number}].hosts has {strange[0]}, and the last host of the fleet is {len(fleet) - 1}: "
                f"name a host of the fleet, or raise [fake] hosts"
            )
    return {
        host.name: history(host, (step for step in steps if step.hosts is None or number in step.hosts))
        for number, host in enumerate(fleet)
    }


def history(host: FakeHost, steps: Iterable[Step]) -> History:
    """
    Return how a host is after each of its steps.

    Raises:
        ValueError: a step cannot happen to the host as it is then.
    """
    moments = [Moment(0.0, host)]
    for step in steps:
        try:
            moments.append(replace(_next(moments[-1], step.action), after_s=step.after_s))
        except ValueError as error:
            raise ValueError(f"steps[{step.number}]: {error}") from error
    return tuple(moments)


def state_at(moments: History, seconds: float) -> Moment:
    """Return how a host is so many seconds after its script began."""
    return moments[bisect_right(moments, max(0.0, seconds), key=lambda moment: moment.after_s) - 1]


def _next(now: Moment, action: Change | Fail | Heal) -> Moment:
    if not isinstance(action, Fail | Heal):
        return replace(now, host=changed(now.host, action))
    if isinstance(action, Fail) == now.fails:
        state, missing = ("fails already", "heal") if now.fails else ("does not fail", "fail")
        raise ValueError(f"{now.host.name} {state}: put a step that does {missing} before this one, or remove this one")
    return replace(now, fails=not now.fails)


def _parse_step(number: int, line: Mapping[str, Any]) -> Step:
    action = ACTIONS[line["do"]]
    given = {name: _whole(value) for name, value in line.items() if name not in _OF_EVERY_STEP}
    known = [field.name for field in fields(action)]
    missing = [field.name for field in fields(action) if field.default is MISSING and field.name not in given]
    if missing:
        raise ValueError(f"steps[{number}] lacks {', '.join(missing)}, which {line['do']} needs: add it")
    if strange := [name for name in given if name not in known]:
        raise ValueError(f"steps[{number}] has {strange[0]}, which {line['do']} does not read: remove it")
    hosts = frozenset(line["hosts"]) if "hosts" in line else None
    return Step(number, float(line["after_s"]), hosts, action(**given))


def _whole(value: Any) -> Any:
    """Return a whole number as Python counts with it: by JSON Schema 2.0 is one too."""
    return int(value) if isinstance(value, float) else value
