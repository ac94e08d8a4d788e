"""The options ``--save`` and ``--replay``: keep what a verb reads in a case, or carry out the verb of a saved case."""

import argparse
from collections.abc import Callable
from typing import TypeVar

from agent.command.result import choice_of
from agent.command.verbs import VERBS, Verb
from agent.connect.choice import settings_for
from agent.sync.case import begin_anew, new_recorder, open_case, save_case
from drivers.errors import DiscoveryError

T = TypeVar("T")


def save(verb: Verb, options: argparse.Namespace, act: Callable[[argparse.Namespace], T]) -> T:
    """Carry out a verb and keep what it read in the file ``options.save``, also when it fails; errors as ``act``."""
    settings = settings_for(choice_of(options))
    options.recorder = new_recorder()
    begin_anew(options.recorder, settings)
    try:
        return act(options)
    finally:
        said = {name: getattr(options, name) for name in verb.decides}
        save_case(options.save, options.recorder, settings, verb.name, said)


def replay(options: argparse.Namespace, act: Callable[[Verb, argparse.Namespace], T]) -> T:
    """
    Carry out the verb of a saved case on what was read then, and on nothing else.

    Raises:
        DiscoveryError: ``options.replay`` is not a case that this version can replay. Else as the verb.
    """
    with open_case(options.replay) as case:
        verb, told = VERBS.get(case.about["verb"]), case.about["options"]
        if verb is None or not verb.decides or not told.keys() <= {*verb.decides, "deep"}:
            raise DiscoveryError(
                f"{options.replay} cannot be replayed: it is a case of the verb {case.about['verb']} with the options "
                f"{sorted(told)}, which this version does not replay"
            )
        defaults = verb.defaults()
        decided = {name: defaults.get(name) for one in VERBS.values() for name in one.decides}
        said = {"save": None, "replay": None, "case": case, **decided, **told}
        return act(verb, argparse.Namespace(**{**defaults, **vars(options), **said}))
