"""What the options ``--save`` and ``--replay`` do: a verb whose sources are kept, or are those of a saved case."""

import argparse
from collections.abc import Callable
from typing import TypeVar

from agent.command.result import choice_of
from agent.connect.choice import settings_for
from agent.sync.case import begin_anew, new_recorder, open_case, save_case
from drivers.errors import DiscoveryError

T = TypeVar("T")
DECIDING = {"plan": ("rename_from",), "reshape": ("to",), "audit": ("light", "consumers")}
"""By verb: the options that decide what it finds."""


def save(verb: str, options: argparse.Namespace, act: Callable[[argparse.Namespace], T]) -> T:
    """Carry a verb out and keep what it read in the file ``options.save``, also when it fails; errors as ``act``."""
    settings = settings_for(choice_of(options))
    options.recorder = new_recorder()
    begin_anew(options.recorder, settings)
    try:
        return act(options)
    finally:
        said = {name: getattr(options, name) for name in DECIDING[verb]}
        save_case(options.save, options.recorder, settings, verb, said)


def replay(options: argparse.Namespace, act: Callable[[str, argparse.Namespace], T]) -> T:
    """
    Carry the verb of a saved case out on what was read then, and on nothing else.

    Raises:
        DiscoveryError: ``options.replay`` is no case. As the verb does.
    """
    with open_case(options.replay) as case:
        verb, said = case.about["verb"], case.about["options"]
        if verb not in DECIDING or not said.keys() <= {*DECIDING[verb], "deep"}:
            raise DiscoveryError(f"{options.replay} is no case of a look: it says {verb} {sorted(said)}")
        fields = {"save": None, "replay": None, "case": case, **dict.fromkeys(sum(DECIDING.values(), ()))}
        fields |= {"apply": False, "approve": False, "heal": False, "policy": None, "digest": None, "database": None}
        fields |= {"light": False, "consumers": False, "to": None, "approved": False}
        again = argparse.Namespace(**{**vars(options), **fields, **said})
        return act(verb, again)
