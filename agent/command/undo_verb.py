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
from agent.sync.journal import kept_conversions, read_journal


def undo(options: argparse.Namespace) -> Report:
    """Report the plan that takes the last conversion back; with --apply carry it out, with --list list conversions."""
    settings = settings_of(options)
    _, where = open_client(settings, choice_of(options))
    entries = kept_conversions(read_journal(settings.folders.state, where))
    if options.list:
        return Report(data=Journal(entries[::-1]), table=print_journal)
    if not entries:
        return Report(
            data=Journal(()),
            table=print_journal,
            exit=Exit.REFUSED,
            remarks=[f"nothing to take back: {settings.folders.state}/journal has no conversion in {where}"],
        )
    undone = entries[-1]
    if settings.changes.allow_reshape and settings.policy.layout != undone.layout:
        raise ConfigError(
            f"[agent] allow_reshape is true, so the next pass would convert this host to {settings.policy.layout} "
            f"again: set [compute] layout = {undone.layout} first"
        )
    said = {"to": undone.layout, "undone": undone, "configured": settings.policy.layout, "settings": None}
    vars(options).update({**VERBS["reshape"].defaults(), **vars(options), **said})
    shown = reshape(options)
    name = f"takes back the conversion of {undone.began} from {undone.layout} to {undone.target}"
    return replace(shown, remarks=[name, *shown.remarks])
