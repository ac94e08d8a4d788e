"""Finds names in the configuration files that are probably misspelt, and vGPU types that the files leave unused."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from agent.form_errors import PLAIN, most_alike
from agent.settings.options import MDEV_OPTIONS, OPTIONS, OWN_GROUPS
from agent.settings.values import Values, is_registered, mentions, place
from drivers.policy import MdevRule
from drivers.rules import TAGS

NEAR = 0.85  # likeness of a misspelt name to the one that is meant; 1: the same
_NEAR_GROUP = 0.75  # the same for groups
_OWN = {"compute-node-agent": "agent", "compute_node_agent": "agent"}  # who looks for our group by our name
_HOMES = {"layout": "compute", **{option.name: "agent" for option in OPTIONS["agent"]}}  # groups of our own options
_MDEV = ("mdev_", "vgpu_")  # begin the groups of types; the second is nova's older form


def slips_of_the_pen(values: Values) -> tuple[str, ...]:
    """Return a sentence for each name in the files that is probably a misspelt group, option, key or type."""
    return tuple(slip for find in (_groups, _options, _login, _types, _tags) for slip in find(values))


def types_left_out(values: Values, mdevs: Iterable[MdevRule]) -> tuple[str, ...]:
    """Return a sentence for each enabled type that gets no card, because an earlier type has all unlisted cards."""
    enabled = dict.fromkeys(values.value("devices", "enabled_mdev_types") or ())
    rules = {rule.type: rule for rule in mdevs}
    first = next((rule.type for rule in rules.values() if not rule.addresses), "")
    where = place(values.conf, "devices", "enabled_mdev_types")
    return tuple(
        f"{where}[devices] enabled_mdev_types has {type_}, which is not offered: {first} lacks device_addresses too, "
        f"and gets all cards that no type lists: set [mdev_{type_}] device_addresses, or do not enable {type_}"
        for type_ in enabled
        if type_ not in rules
    )


def _options(values: Values) -> Iterator[str]:
    """Yield a sentence for each option that is not read, and is nearly one of its group, or one of another group."""
    for path, line, group, name, _ in mentions(values.conf):
        options = MDEV_OPTIONS if group.startswith(_MDEV) else OPTIONS.get(group, ())
        known = [option.name for option in options]
        if name in known or group in OWN_GROUPS or is_registered(values.conf, group, name):
            continue
        if near := _near(name.lower(), known):
            yield f"{path}:{line}: [{group}] {name} is not read: is {near} meant?"
        elif group in OPTIONS and name in _HOMES:
            yield f"{path}:{line}: [{group}] {name} is not read: is [{_HOMES[name]}] {name} meant?"


def _login(values: Values) -> Iterator[str]:
    """Yield a sentence if the files have options of nova's login without the one that makes them a login."""
    named = [mention for mention in mentions(values.conf) if mention[2] == "nova"]
    if named and not any(name in ("auth_type", "auth_section") for _, _, _, name, _ in named):
        path, line, group, name, _ = named[0]
        yield f"{path}:{line}: [{group}] {name} is not read without [nova] auth_type: set it, to password for instance"


def _types(values: Values) -> Iterator[str]:
    """Yield a sentence for each group of a type that is not enabled."""
    types = {type_.lower(): type_ for type_ in values.value("devices", "enabled_mdev_types") or ()}
    for where, group in _each_group(values):
        type_ = group.partition("_")[2]
        if group.startswith(_MDEV) and type_ not in types:
            near = _near(type_, types)
            meant = f"is [mdev_{types[near]}] meant?" if near else "enable the type, or remove the group"
            yield f"{where}: the group [{group}] is not read: [devices] enabled_mdev_types lacks {type_}: {meant}"


def _tags(values: Values) -> Iterator[str]:
    """Yield a sentence for each key of a rule that is not read, by nova neither: the rule may match more than meant."""
    for number, rule in enumerate(_rules(values.value("pci", "device_spec") or ()), 1):
        for key in rule if isinstance(rule, dict) else ():
            if key not in TAGS:
                near = _near(key, TAGS, PLAIN)
                meant = f"is {near} meant?" if near else "remove it"
                yield f"[pci] device_spec rule {number} has {key}, which is not read: {meant}"


def _rules(texts: Iterable[str]) -> Iterator[object]:
    """Yield the rules before the first text that is not JSON; another sentence names that text."""
    for text in texts:
        try:
            rules = json.loads(text)
        except (ValueError, RecursionError):
            return
        yield from rules if isinstance(rules, list) else [rules]


def _groups(values: Values) -> Iterator[str]:
    """Yield a sentence for each group that is probably misspelt; the names of nova's other groups differ more."""
    known = {group.lower(): group for group in (*OPTIONS, "placement", "nova")}
    for where, group in _each_group(values):
        if group == "DEFAULT" or group in values.conf:
            continue
        if near := _OWN.get(group) or known.get(_near(group, known, _NEAR_GROUP)):
            yield f"{where}: the group [{group}] is not read: is [{near}] meant?"


def _each_group(values: Values) -> Iterable[tuple[str, str]]:
    """Return each group of each file once, with FILE:LINE of its first option."""
    found: dict[tuple[Path, str], int] = {}
    for path, line, group, _, _ in mentions(values.conf):
        found.setdefault((path, group), line)
    return [(f"{path}:{line}", group) for (path, group), line in found.items()]


def _near(name: str, known: Iterable[str], likeness: float = NEAR) -> str:
    """Return the known name that ``name`` resembles most, or that has its letters in another order; empty: none."""
    names = list(known)
    swapped = [one for one in names if sorted(one) == sorted(name)]
    return most_alike(name, names, likeness) or next(iter(swapped), "")
