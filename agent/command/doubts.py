"""
What an operator may not have meant: probable mistakes, and layouts that make nova search long.

Told by ``check``, and by verbs whose numbers it may make wrong.
"""

from collections.abc import Iterable
from math import prod

from agent.errors import ConfigError
from agent.settings.read import Settings
from agent.settings.slips import slips_of_the_pen, types_left_out
from agent.settings.values import Values
from agent.sync.decide.feature import Draft
from agent.sync.provider_yaml import unread_keys
from drivers.base import Survey
from drivers.libvirt.shape import idle
from reportclient.tree import Provider

PLAIN = ("VCPU", "MEMORY_MB", "DISK_GB")  # what every flavor asks for
ASKED = 1000  # candidates that nova asks for: its option [scheduler] max_placement_results, by default


def doubtful_names(settings: Settings) -> tuple[str, ...]:
    """Return a sentence for each name in the files that is probably misspelt, and for each vGPU type without a card."""
    values = Values(settings.apis.source)
    left_out = types_left_out(values, settings.policy.devices.mdevs)
    return (*slips_of_the_pen(values), *left_out, *_unread(settings))


def _unread(settings: Settings) -> tuple[str, ...]:
    """Return a sentence for each key of the operator's files that is not read; a wrong file is told elsewhere."""
    try:
        return unread_keys(settings.operator_files.folder)
    except ConfigError:
        return ()


def doubts(settings: Settings, survey: Survey | None) -> list[str]:
    """Return a sentence for each name and each rule that has no effect here; without a survey only for names."""
    unmatched = idle(survey.facts, settings.policy) if survey else ()
    return [f"configuration: {text}" for text in (*doubtful_names(settings), *unmatched)]


def plain_candidates(tree: Iterable[Provider]) -> int:
    """
    Return how many candidates a request without groups has on this tree while it is empty.

    Placement combines the providers of each class with those of each other class, whichever cell they are in. A class
    that this tree does not offer is left out: a shared storage may offer it.
    """
    providers = tuple(tree)
    return prod(len(_offering(providers, name)) or 1 for name in PLAIN)


def tell_searched(draft: Draft) -> tuple[str, ...]:
    """Return a sentence where a flavor without groups has several candidates in the wanted tree; empty: it has one."""
    if draft.view.beside or (count := plain_candidates(draft.desired)) == 1:
        return ()
    of = ", ".join(
        f"{len(found)} providers of {name}" for name in PLAIN if len(found := _offering(draft.desired, name)) > 1
    )
    return (
        f"a flavor without groups has {count} candidates on {draft.desired.root.name} in the layout {draft.layout} "
        f"({of}). Nova asks for {ASKED} ([scheduler] max_placement_results), so it may not see all of more than "
        f"{ASKED // count} such hosts, unless placement has [placement] allocation_candidates_generation_strategy = "
        f"breadth-first and max_allocation_candidates = {ASKED}",
    )


def tell_more_searched(draft: Draft) -> tuple[str, ...]:
    """Return the same sentence only where the plan gives such a flavor more candidates than it has now."""
    now = plain_candidates(seen.provider for seen in draft.observed)
    return tell_searched(draft) if plain_candidates(draft.desired) > now else ()


def _offering(providers: Iterable[Provider], name: str) -> tuple[Provider, ...]:
    """Return the providers with stock of a class that is not all reserved."""
    return tuple(
        one for one in providers if (stock := one.inventories.get(name)) is not None and stock.total > stock.reserved
    )
