"""The options ``--save`` and ``--replay``: keep what a verb reads in a case, or carry out the verb of a saved case."""

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from agent.command.exits import Exit
from agent.command.result import Act, Report, settings_of
from agent.command.verb_options import Option
from agent.command.verbs import VERBS, Verb
from agent.errors import StateError
from agent.settings.read import Settings
from agent.sync.case import check_folder, open_case
from agent.sync.recorder import Recorder, keep_state, save_case
from drivers.errors import DiscoveryError

T = TypeVar("T")
_DEEP = Option("--deep", "whether the service read everything")  # in cases of the service, beside the verb's options


def save(verb: Verb, options: argparse.Namespace, act: Act) -> Report | None:
    """
    Carry out a verb and keep what it read in the file ``options.save``, also when it fails.

    If the case cannot be written after all, the report has that as its remark; an error of the verb, as a note.

    Raises:
        StateError: no file can be made in the folder of ``options.save``: nothing was read. Else as ``act``.
    """
    settings = settings_of(options)
    check_folder(options.save)
    options.recorder = Recorder()
    keep_state(options.recorder, settings)
    try:
        report = act(options)
    except BaseException as error:  # a case of an unexpected error is worth most
        if unsaved := _save(verb, options, settings):
            error.add_note(unsaved)
        raise
    unsaved = _save(verb, options, settings)
    if not unsaved or report is None:
        return report
    return replace(report, exit=Exit.ERROR, remarks=[*report.remarks, unsaved])


def _save(verb: Verb, options: argparse.Namespace, settings: Settings) -> str:
    """Write the case; return why that failed, empty if it did not."""
    said = {name: getattr(options, name) for name in verb.decides}
    try:
        save_case(options.save, options.recorder, settings, verb.name, said)
    except StateError as error:
        return str(error)
    return ""


def replay(options: argparse.Namespace, act: Callable[[Verb, argparse.Namespace], T]) -> T:
    """
    Carry out the verb of a saved case on what was read then, and on nothing else; ``options`` become that verb's.

    Raises:
        DiscoveryError: ``options.replay`` is not a case that this version can replay. Else as the verb.
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
        return act(verb, options)


def _decides(verb: Verb) -> dict[str, Option]:
    """Return the options that a case of this verb may have, by attribute."""
    return {one.attribute: one for one in (*verb.flat(), _DEEP) if one.attribute in (*verb.decides, "deep")}
