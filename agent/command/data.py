"""What a verb prints for programs: its result, or why it failed, with what the run was about."""

import argparse
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import yaml

from agent import VERSION
from agent.command.exits import Exit
from agent.command.result import choice_of, settings_of
from agent.command.results import About
from agent.connect.choice import lists_nodes, settings_for
from agent.connect.senders import Trace
from agent.errors import ConfigError
from agent.sync.json_form import encode


def print_data(form: str, data: Mapping[str, object]) -> None:
    """Print values by their keys as ``json`` or ``yaml``."""
    told = encode(data)
    if form == "yaml":
        print(yaml.safe_dump(told, sort_keys=True), end="")
    else:
        print(json.dumps(told, indent=1, sort_keys=True))


def print_failure(options: argparse.Namespace, error: BaseException, ending: Exit) -> None:
    """Print for programs why a verb failed, if they asked for data."""
    if options.format == "table":
        return
    notes = getattr(error, "__notes__", ())
    data = {
        "about": about(options),
        "error": {
            "kind": type(error).__name__,
            "message": "\n".join(map(str, (error, *notes))) or "interrupted",
            "exit": int(ending),
        },
    }
    print_data(options.format, data)
    with suppress(OSError):
        sys.stdout.flush()


def about(options: argparse.Namespace) -> About:
    """Return what a run is about, as far as it came."""
    trace: Trace = getattr(options, "trace", None) or Trace()
    layout, target = _layouts(options)
    return About(
        verb=options.verb,
        version=VERSION,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        nodes=tuple(trace.nodes),
        placement=trace.placement or None,
        layout=layout,
        target=target,
        request_id=trace.request_id,
    )


def _layouts(options: argparse.Namespace) -> tuple[str | None, str | None]:
    """Return the configured layout and that of the run; None for bare metal, and for a configuration that is wrong."""
    try:
        settings = settings_of(options)
        if lists_nodes(settings):
            return None, None
        target = settings.policy.layout
        choice = choice_of(options)
        return (settings_for(replace(choice, layout=None)).policy.layout if choice.layout else target), target
    except ConfigError:
        return None, None
