"""Contents of ``case.json``, and the check of its form."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, NotRequired, TypedDict

from agent.form_errors import form_error
from reportclient.json_text import decode_json

FORMAT = 1


class CaseFailureForm(TypedDict):
    """An error of the driver."""

    failed: str  # the message of the error
    kind: str  # the class of the error


class LookForm(TypedDict):
    """One look: the number of its host archive, or how it failed."""

    node: str
    host: NotRequired[int]
    failed: NotRequired[str]  # as in ``FailureForm``
    kind: NotRequired[str]


class ClockForm(TypedDict):
    """The clock when the case was saved."""

    boot: str
    offset_s: float
    now_s: float  # seconds since the epoch


class CaseForm(TypedDict):
    """Contents of ``case.json``."""

    format: int
    version: str  # of the agent that saved the case
    verb: str
    options: Mapping[str, object]
    nodes: Sequence[str]
    unlisted: NotRequired[CaseFailureForm]  # why the driver could not list its nodes; missing: it could
    looks: Sequence[LookForm]
    processes: Mapping[str, Sequence[int]]  # of other services, by program
    units: NotRequired[Mapping[str, Sequence[str]]]  # of other services, by program; older cases have none
    hidden: NotRequired[bool]  # whether some processes could not be seen; missing in older cases
    called: Mapping[str, str]
    recorded: bool
    provider_config: str
    provider_config_is_there: bool
    provider_config_named: bool
    clock: ClockForm
    members: NotRequired[Sequence[str]]  # all other files of the case; older cases have no list


_TEXT: Mapping[str, Any] = {"type": "string", "maxLength": 100_000}
_FLAG: Mapping[str, Any] = {"type": "boolean"}
_FAILURE: Mapping[str, Any] = {
    "type": "object",
    "required": ["failed", "kind"],
    "properties": {"failed": _TEXT, "kind": _TEXT},
}
_LOOK: Mapping[str, Any] = {
    "type": "object",
    "required": ["node"],
    "properties": {"node": _TEXT, "host": {"type": "integer", "minimum": 0, "maximum": 1_000_000}},
    "if": {"required": ["host"]},
    "else": _FAILURE,
}
_CLOCK: Mapping[str, Any] = {
    "type": "object",
    "required": ["boot", "offset_s", "now_s"],
    "properties": {
        "boot": _TEXT,
        "offset_s": {"type": "number", "minimum": -1e12, "maximum": 1e12},
        "now_s": {"type": "number", "minimum": 0, "maximum": 1e12},
    },
}
_PROPERTIES: Mapping[str, Any] = {
    "format": {"const": FORMAT},
    "version": _TEXT,
    "verb": _TEXT,
    "options": {"type": "object"},
    "nodes": {"type": "array", "items": _TEXT},
    "unlisted": _FAILURE,
    "looks": {"type": "array", "items": _LOOK},
    "processes": {
        "type": "object",
        "additionalProperties": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 1 << 31}},
    },
    "units": {"type": "object", "additionalProperties": {"type": "array", "items": _TEXT}},
    "hidden": {"type": "boolean"},
    "called": {"type": "object", "additionalProperties": _TEXT},
    "recorded": _FLAG,
    "provider_config": _TEXT,
    "provider_config_is_there": _FLAG,
    "provider_config_named": _FLAG,
    "clock": _CLOCK,
    "members": {"type": "array", "items": _TEXT},
}
_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "required": [name for name in _PROPERTIES if name not in ("unlisted", "units", "hidden", "members")],
    "properties": _PROPERTIES,
}


def decode_about(text: str) -> CaseForm:
    """
    Return the contents of ``case.json``; keys that this version does not know are allowed.

    Raises:
        ValueError, RecursionError: the text is not JSON, or not in this form.
    """
    record: CaseForm = decode_json(text, _refuse)
    if wrong := form_error(record, _SCHEMA):
        raise ValueError(f"case.json: {wrong}")
    return record


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"case.json: {name} is no number")
