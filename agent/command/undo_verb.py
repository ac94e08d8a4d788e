"""The verb ``undo``: take the last conversion back, or list the conversions of this host."""

import argparse
from collections.abc import Sequence
from dataclasses import replace

from agent.command.exits import Exit
from agent.command.host_verbs import reshape
from agent.command.result import Report, choice_of, settings_of
from agent.command.verbs import VERBS
from agent.command.wording import columns
from agent.connect.choice import open_client
from agent.errors import ConfigError
from agent.sync.decide.undoing import Conversion
from agent.sync.journal import kept_conversions, read_journal


def undo(options: argparse.Namespace) -> Report:
    """Report the plan that takes the last conversion back; with --apply carry it out, with --list list conversions."""
    settings = settings_of(options)
    _, where = open_client(settings, choice_of(options))
    entries = kept_conversions(read_journal(settings.folders.state, where))
    if options.list:
        return _listed(entries[::-1])
    if not entries:
        nothing = f"nothing to take back: {settings.folders.state}/journal has no conversion in {where}"
        return replace(_listed(()), exit=Exit.REFUSED, remarks=[nothing])
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


def _listed(conversions: Sequence[Conversion]) -> Report:
    """Report conversions; ``takes_back`` is the digest of the one that a conversion took back, None: it took none."""
    digests: dict[str | None, str] = {one.name: one.digest for one in conversions}
    keys = ("node", "began", "outcome", "layout", "target", "digest", "consumers", "path")
    told = [{**{key: getattr(one, key) for key in keys}, "takes_back": digests.get(one.undoes)} for one in conversions]
    rows = [
        (one.began[:19], one.node, one.layout, one.target, str(one.consumers), one.digest, one.outcome)
        for one in conversions
    ]
    heads = ("began", "node", "from", "to", "consumers", "digest", "outcome")
    return Report(data={"conversions": told}, lines=columns(rows, heads=heads) or ["no conversion"])
