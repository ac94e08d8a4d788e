"""The options ``--save`` and ``--replay``: keep what a verb reads in a case, or carry out the verb of a saved case."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from agent.command.result import settings_of
from agent.command.verb_options import Option
from agent.command.verbs import VERBS, Verb
from agent.errors import StateError
from agent.sync.case import open_case, write_packed
from agent.sync.recorder import Recorder, keep_state, packed_case
from drivers.errors import DiscoveryError

_DEEP = Option("--deep", "whether the service read everything")  # in cases of the service, beside the verb's options


@contextmanager
def saving(verb: Verb, options: argparse.Namespace) -> Iterator[list[str]]:
    """
    Keep what a verb reads inside the block in the file ``options.save``, also when it fails (None: nowhere).

    After the block the list has why the case could not be written after all; an error of the block has it as a note.
    """
    unsaved: list[str] = []
    if not getattr(options, "save", None):
        yield unsaved
        return
    settings = settings_of(options)
    options.recorder = Recorder()
    keep_state(options.recorder, settings)

    def save() -> None:
        said = {name: getattr(options, name) for name in verb.decides}
        try:
            write_packed(options.save, packed_case(options.recorder, settings, verb.name, said))
        except StateError as error:
            unsaved.append(str(error))

    try:
        yield unsaved
    except BaseException as error:  # a case of an unexpected error is worth most
        save()
        for why in unsaved:
            error.add_note(why)
        raise
    save()


@contextmanager
def replaying(options: argparse.Namespace) -> Iterator[Verb]:
    """
    Open a saved case, and yield its verb, to be carried out on what was read then, and on nothing else.

    ``options`` become those of that verb.

    Raises:
        DiscoveryError: ``options.replay`` is not a case that this version can replay.
    """
    with open_case(options.replay) as case:
        verb, told = VERBS.get(case.saved.verb), case.saved.options
        given = {name for name, value in told.items() if value}
        if verb is None or not verb.decides or not _decides(verb).keys() >= given:
            raise DiscoveryError(
                f"{options.replay} cannot be replayed: it is a case of the verb {case.saved.verb} with the options "
                f"{sorted(given)}, which this version does not replay"
            )
        for name, option in _decides(verb).items():
            if not option.accepts(told.get(name)):
                raise DiscoveryError(f"{options.replay} cannot be replayed: {option.name} cannot be {told[name]!r}")
        said = {"verb": verb.name, "save": None, "replay": None, "case": case, **told}
        vars(options).update({**verb.defaults(), **vars(options), **said})
        yield verb


def _decides(verb: Verb) -> dict[str, Option]:
    """Return the options that a case of this verb may have, by attribute."""
    return {one.attribute: one for one in (*verb.options, _DEEP) if one.attribute in (*verb.decides, "deep")}
