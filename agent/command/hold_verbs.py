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
from agent.state.memory import NodeState
from agent.state.node_file import StateFile
from agent.sync.decide.features.hold import (
    BODY,
    ENDLESS,
    HOST,
    HoldWish,
    Note,
    held,
    held_in,
    key_of,
    moment,
    spoken,
    stays_on_offer,
)
from agent.sync.decide.view import Wishes
from agent.sync.hold_unseen import hold_unseen
from agent.sync.outcome import Outcome, Status
from agent.sync.run import run_pass
from drivers.errors import DiscoveryError
from drivers.libvirt.shape import EMITTED
from reportclient.errors import few
from reportclient.tree import ObservedTree

_KEYS = ("what", "since", "by", "until", "why")


def start_hold(options: argparse.Namespace) -> Report:
    """Hold what the options name, or list what is held."""
    if not options.what:
        return _listed(options)
    now, why = datetime.now(UTC), " ".join((options.reason or "").split())
    if not why:
        raise ConfigError("--reason is empty: say why, for those who look later")
    if options.until and options.until <= now.timestamp():
        raise ConfigError("--until is a time that is over: give a later one")
    until_s = min(options.until or ENDLESS, ENDLESS)
    note = Note(until_s=until_s, by=_who(), since=now.isoformat(timespec="seconds"), why=why)
    return _report(options, _asked(options, HoldWish(what=_what(options), note=note)), until_s)


def end_hold(options: argparse.Namespace) -> Report:
    """Give back what is held."""
    holds, node = _held(options)
    if _key(options, node) not in holds:
        raise ConfigError(f"{options.what} is not held: see compute-node-agent hold --list")
    return _report(options, _asked(options, HoldWish(what=_what(options))), 0)


def _what(options: argparse.Namespace) -> str:
    return HOST if options.what.lower() == "host" else str(options.what)


def _key(options: argparse.Namespace, node: str) -> str:
    return HOST if _what(options) == HOST else key_of(options.what, node)


def _who() -> str:
    """Return who runs this command, also behind sudo."""
    try:
        return os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # as in a container
        return f"user {os.getuid()}"


def _asked(options: argparse.Namespace, wish: HoldWish) -> Outcome:
    """Run a pass that holds, or gives back; without a look at the host it only holds."""
    try:
        with open_host(options, writes=True) as one:
            return run_pass(one, Wishes(asked={BODY: wish}, counts=False))
    except DiscoveryError as error:
        settings, (client, where) = settings_of(options), placement_of(options, writes=True)
        try:
            return hold_unseen(client, settings, where, wish, EMITTED)
        except ConfigError as why:
            error.add_note(str(why))
            raise error from why


def _report(options: argparse.Namespace, outcome: Outcome, until_s: int) -> Report:
    """Report a pass by what placement holds after it, whatever became of the rest; ``until_s`` 0: it was given back."""
    client, _ = placement_of(options)
    standing = client.find(outcome.node)
    after = held_in(client.observe(standing)) if standing else {}
    now_s = after.get(_key(options, outcome.node), 0)
    free = stays_on_offer(_key(options, outcome.node), outcome.node, outcome.conditions)
    done = now_s >= until_s and not free if until_s else not now_s
    remarks = [] if done else [f"{options.what} is {'not' if until_s else 'still'} held: see the reasons above"]
    if until_s and now_s > until_s:
        end = "it is given back" if now_s >= ENDLESS else moment(now_s)
        remarks = [f"{options.what} was held before, and stays so until {end}"]
    return Report(
        data={**encode_outcome(outcome), "held": sorted(map(spoken, after)), "done": done},
        lines=outcome_lines(outcome, with_plan=outcome.status is Status.CHANGED),
        exit=Exit.DONE if done else Exit.REFUSED,
        remarks=remarks,
    )


def _held(options: argparse.Namespace) -> tuple[dict[str, Note], str]:
    """Return what is held in placement or by the memory of this host, and the name of its root; empty without one."""
    settings, (client, where) = settings_of(options), placement_of(options)
    root_uuid = read_identity(settings.folders.identity)
    if settings.recorded:
        with open_host(options) as one:
            root_uuid = one.known_uuid(one.survey())
    if not root_uuid:
        return {}, ""
    observed = client.observe(root_uuid) if client.tree_of(root_uuid) else ObservedTree()
    memory: NodeState = StateFile(settings.folders.state, root_uuid).read(where)
    return held(observed, memory), observed.root.name if observed.root else ""


def _listed(options: argparse.Namespace) -> Report:
    """List what is held by what placement has, with what this host remembers of it."""
    holds, _ = _held(options)
    told = [
        {
            "what": spoken(what),
            "since": note.since or None,
            "by": note.by or None,
            "until": None if note.until_s >= ENDLESS else moment(note.until_s),
            "why": note.why or None,
        }
        for what, note in sorted(holds.items())
    ]
    rows = [tuple(one[key] or "-" for key in _KEYS) for one in told]
    over = [spoken(what) for what, note in sorted(holds.items()) if note.until_s <= datetime.now(UTC).timestamp()]
    then = "the next pass puts it back on offer: compute-node-agent status says whether the service makes passes"
    if settings_of(options).audits_only:
        then = "nothing puts it back on offer, as [agent] role = audit writes nothing: leave that role, and run sync"
    remarks = [f"the time of {few(over)} is over, and {then}"]
    lines = columns(rows, heads=_KEYS) or ["nothing is held"]
    return Report(data={"holds": told}, lines=lines, remarks=remarks if over else [])
