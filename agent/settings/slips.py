"""Finds names in the configuration files that are probably misspelt, and vGPU types that the files leave unused."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from agent.likeness import most_alike
from agent.settings.mentions import is_registered, mentions, place
from agent.settings.options import MDEV_OPTIONS, OPTIONS
from agent.settings.read import Settings
from drivers.rules import TAGS

NEAR = 0.85  # likeness of a misspelt name to the one that is meant; 1: the same
_NEAR_GROUP = 0.75  # the same for groups
_OWN = {"compute-node-agent": "agent", "compute_node_agent": "agent"}  # who looks for our group by our name
_HOMES = {"layout": "compute", **{option.name: "agent" for option in OPTIONS["agent"]}}  # groups of our own options
_MDEV = ("mdev_", "vgpu_")  # begin the groups of types; the second is nova's older form


def slips_of_the_pen(settings: Settings) -> tuple[str, ...]:
    """Return a sentence for each name in the files that is probably a misspelt group, option, key or type."""
    return (*_groups(settings), *_options(settings), *_login(settings), *_types(settings), *_tags(settings))


def types_left_out(settings: Settings) -> tuple[str, ...]:
    """Return a sentence for each enabled type that gets no card, because an earlier type has all unlisted cards."""
    enabled = dict.fromkeys(settings.source.devices.enabled_mdev_types or ())
    rules = {rule.type: rule for rule in settings.policy.devices.mdevs}
    first = next((rule.type for rule in rules.values() if not rule.addresses), "")
    where = place(settings.source, "devices", "enabled_mdev_types")
    return tuple(
        f"{where}[devices] enabled_mdev_types has {type_}, which is not offered: {first} lacks device_addresses too, "
        f"and gets all cards that no type lists: set [mdev_{type_}] device_addresses, or do not enable {type_}"
        for type_ in enabled
        if type_ not in rules
    )


def _options(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each option that is not read, and resembles one of its group or is one of another."""
    for path, line, group, name, _ in mentions(settings.source):
        options = MDEV_OPTIONS if group.startswith(_MDEV) else OPTIONS.get(group, ())
        known = [option.name for option in options]
        if name in known or is_registered(settings.source, group, name):
            continue
        if near := _near(name.lower(), known):
            yield f"{path}:{line}: [{group}] {name} is not read: is {near} meant?"
        elif group in OPTIONS and name in _HOMES:
            yield f"{path}:{line}: [{group}] {name} is not read: is [{_HOMES[name]}] {name} meant?"


def _login(settings: Settings) -> Iterator[str]:
    """Yield a sentence if the files have options of nova's login without the one that makes them a login."""
    first = next((mention for mention in mentions(settings.source) if mention[2] == "nova"), None)
    if first and not settings.nova_chosen:
        path, line, group, name, _ = first
        yield f"{path}:{line}: [{group}] {name} is not read without [nova] auth_type: set it, to password for instance"


def _types(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each group of a type that is not enabled."""
    types = {type_.lower(): type_ for type_ in settings.source.devices.enabled_mdev_types or ()}
    found: dict[tuple[Path, str], str] = {}
    for path, line, group, _, _ in mentions(settings.source):
        type_ = group.partition("_")[2]
        if group.startswith(_MDEV) and type_ not in types:
            near = _near(type_, types)
            meant = f"is [mdev_{types[near]}] meant?" if near else "enable the type, or remove the group"
            text = (
                f"{path}:{line}: the group [{group}] is not read: [devices] enabled_mdev_types lacks {type_}: {meant}"
            )
            found.setdefault((path, group), text)
    yield from found.values()


def _tags(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each key of a rule that resembles a known one; nova ignores other keys, and so do we."""
    number = 0
    for text in settings.source.pci.device_spec or ():
        rules = json.loads(text)
        for rule in rules if isinstance(rules, list) else [rules]:
            number += 1
            for key in rule:
                if key not in TAGS and (near := _near(key, TAGS)):
                    yield f"[pci] device_spec rule {number} has {key}, which is not read: is {near} meant?"


def _groups(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each group that is probably misspelt; the names of nova's other groups differ more."""
    known = {group.lower(): group for group in (*OPTIONS, "placement", "nova")}
    found: dict[tuple[Path, str], str] = {}
    for path, line, group, _, _ in mentions(settings.source):
        if group == "DEFAULT" or group in settings.source:
            continue
        if near := _OWN.get(group) or known.get(_near(group, known, _NEAR_GROUP)):
            text = f"{path}:{line}: the group [{group}] is not read: is [{near}] meant?"
            found.setdefault((path, group), text)
    yield from found.values()


def _near(name: str, known: Iterable[str], likeness: float = NEAR) -> str:
    """Return the known name that ``name`` resembles most, or that has its letters in another order; empty: none."""
    names = list(known)
    swapped = [one for one in names if sorted(one) == sorted(name)]
    return most_alike(name, names, likeness) or next(iter(swapped), "")
