"""The verb ``undo``: take the last conversion back, or list the conversions of this host."""

import argparse
from dataclasses import replace

from agent.command.exits import Exit
from agent.command.host_tables import print_journal
from agent.command.host_verbs import reshape
from agent.command.result import Report, choice_of, settings_of
from agent.command.results import Journal
from agent.command.verbs import VERBS
from agent.connect.choice import open_client
from agent.errors import ConfigError
from agent.state.memory import same_place
from agent.sync.decide.undoing import Conversion
from agent.sync.journal import Entry, kept_conversions, read_journal
from drivers.policy import Layout


def undo(options: argparse.Namespace) -> Report:
    """Report the plan that takes the last conversion back; with --apply carry it out, with --list list conversions."""
    settings = settings_of(options)
    _, where = open_client(settings, choice_of(options))
    entries = kept_conversions(one for one in read_journal(settings.folders.state) if same_place(one.where, where))
    if options.list:
        told = (replace(one, body={"undoes": one.body.get("undoes")}) for one in reversed(entries))  # without the trees
        return Report(data=Journal(tuple(told)), table=print_journal)
    if not entries:
        return Report(
            data=Journal(()),
            table=print_journal,
            exit=Exit.REFUSED,
            remarks=[f"nothing to take back: {settings.folders.state}/journal has no conversion in {where}"],
        )
    undone = _conversion(entries[-1], settings.policy.layout)
    if settings.changes.allow_reshape and settings.policy.layout != undone.layout:
        raise ConfigError(
            f"[agent] allow_reshape is true, so the next pass would convert this host to {settings.policy.layout} "
            f"again: set [compute] layout = {undone.layout} first"
        )
    said = {"to": undone.layout, "undone": undone, "settings": None}
    vars(options).update({**VERBS["reshape"].defaults(), **vars(options), **said})
    shown = reshape(options)
    name = f"takes back the conversion of {entries[-1].began} from {undone.layout} to {entries[-1].target}"
    return replace(shown, remarks=[name, *shown.remarks])


def _conversion(entry: Entry, configured: Layout) -> Conversion:
    """Return the conversion of an entry; one that was cut off is taken back as far as it came."""
    body = entry.body
    return Conversion(
        name=entry.path.stem,
        node=entry.node,
        layout=body["layout"],
        target=body["target"],
        configured=configured,
        before=body["before"],
        after=body["after"],
        moves=tuple(body["moves"]),
    )
