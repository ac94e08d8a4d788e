"""The verbs ``hold`` and ``release-hold``: a person takes a device, or this host, off offer, and gives it back."""

import argparse
import os
import pwd
from datetime import UTC, datetime

from agent.command.exits import Exit
from agent.command.result import Report, open_host, placement_of, settings_of
from agent.command.shown import encode_outcome, outcome_lines
from agent.command.wording import columns
from agent.errors import ConfigError
from agent.state.identity import read_identity
from agent.state.node_file import StateFile
from agent.sync.decide.features.hold import BODY, HOST, HoldWish, held_in, key_of, spoken
from agent.sync.decide.view import Wishes
from agent.sync.hold_unseen import hold_unseen
from agent.sync.json_form import Form
from agent.sync.outcome import Outcome
from agent.sync.run import run_pass
from drivers.errors import DiscoveryError
from drivers.libvirt.shape import EMITTED


def hold(options: argparse.Namespace) -> Report:
    """Hold what the options name, or list what is held."""
    if not options.what:
        return _listed(options)
    now = datetime.now(UTC)
    if options.until and options.until <= now.timestamp():
        raise ConfigError("--until is a time that is over: give a later one")
    note = {"by": _who(), "since": now.isoformat(timespec="seconds"), "why": " ".join(options.reason.split())}
    wish = HoldWish(what=_what(options), until_s=options.until or 0, note=note)
    return _report(options, _asked(options, wish), held=True)


def release_hold(options: argparse.Namespace) -> Report:
    """Give back what is held."""
    return _report(options, _asked(options, HoldWish(what=_what(options), gives_back=True)), held=False)


def _what(options: argparse.Namespace) -> str:
    return HOST if options.what.lower() == "host" else str(options.what)


def _who() -> str:
    """Return who runs this command, also behind sudo."""
    return os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name


def _asked(options: argparse.Namespace, wish: HoldWish) -> Outcome:
    """Run a pass that holds, or gives back; without a look at the host it only holds."""
    try:
        with open_host(options, writes=True) as one:
            return run_pass(one, Wishes(asked={BODY: wish}))
    except DiscoveryError as error:
        settings, (client, where) = settings_of(options), placement_of(options, writes=True)
        try:
            done = hold_unseen(client, settings, where, wish, EMITTED)
        except ConfigError as why:
            error.add_note(str(why))
            raise error from why
        return done


def _report(options: argparse.Namespace, outcome: Outcome, *, held: bool) -> Report:
    """Report a pass by what placement holds after it, whatever became of the rest of its plan."""
    client, _ = placement_of(options)
    standing = client.find(outcome.node)
    after = held_in(client.observe(standing)) if standing else {}
    what = HOST if _what(options) == HOST else key_of(options.what, outcome.node)
    done = (what in after) is held
    return Report(
        data={**encode_outcome(outcome), "held": sorted(map(spoken, after)), "done": done},
        lines=outcome_lines(outcome),
        exit=Exit.DONE if done else Exit.REFUSED,
        remarks=[] if done else [f"{options.what} is {'not held' if held else 'still held'}: see the reasons above"],
    )


def _listed(options: argparse.Namespace) -> Report:
    """List what is held by what placement has, with what this host remembers of it."""
    settings, (client, where) = settings_of(options), placement_of(options)
    root = read_identity(settings.folders.identity)
    if settings.recorded:
        with open_host(options) as one:
            root = one.known_uuid(one.survey())
    memory = StateFile(settings.folders.state, root).read(where) if root else None
    holds = held_in(client.observe(root)) if root else {}
    told: list[Form] = []
    for what, until in sorted(holds.items()):
        note = memory.bodies.get(BODY, {}).get(what, {}) if memory else {}
        end = datetime.fromtimestamp(until, UTC).isoformat() if until else None
        told.append({"what": spoken(what), "until": end, **{key: note.get(key) for key in ("since", "by", "why")}})
    rows = [tuple(str(one[key] or "-") for key in _KEYS) for one in told]
    return Report(data={"holds": told}, lines=columns(rows, heads=_KEYS) or ["nothing is held"])


_KEYS = ("what", "since", "by", "until", "why")
