"""Finds names in the configuration files that are probably misspelt, and vGPU types that the files leave unused."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from agent.misspelt import PLAIN, most_alike
from agent.settings.options import LOGINS, MDEV_OPTIONS, OPTIONS, OWN_GROUPS
from agent.settings.values import (
    Values,
    login_groups,
    mentions,
    other_names,
    place,
    registered,
    unknown_login,
    with_logins,
)
from drivers.rules import TAGS

NEAR = 0.85  # likeness of a misspelt name to the one that is meant; 1: the same
_NEAR_GROUP = 0.75  # the same for groups; the names of nova's other groups differ more
_OWN = {"compute-node-agent": "agent", "compute_node_agent": "agent"}  # who looks for our group by our name
_HOMES = {"layout": "compute", **{option.name: "agent" for option in OPTIONS["agent"]}}  # groups of our own options
_MDEV = ("mdev_", "vgpu_")  # begin the groups of types; the second is nova's older form


def slips_of_the_pen(values: Values) -> tuple[str, ...]:
    """
    Return a sentence for each name in the files that is probably a slip: a group, option, key or type.

    So are the values of a login that cannot be read.
    """
    options = (
        f"{one} is not read{meant}" for one, group, meant in unread_options(values) if meant and group not in OWN_GROUPS
    )
    logins = filter(None, (unknown_login(values.conf, group) for group in LOGINS))
    return (*_groups(values), *options, *logins, *_of_logins(values), *_types(values), *_tags(values))


def unread_options(values: Values) -> Iterator[tuple[str, str, str]]:
    """Yield each option that nothing reads (``FILE:LINE: [GROUP] NAME``), its group, and a question what is meant."""
    for path, line, group, name, _ in mentions(values.conf):
        own = [option.name for option in (MDEV_OPTIONS if group.startswith(_MDEV) else OPTIONS.get(group, ()))]
        known = [*own, *sorted(registered(values.conf, group) | with_logins(values.conf, group))]
        if name in known or name in other_names(values.conf, group):
            continue
        home = f"[{_HOMES[name]}] {name}" if group in OPTIONS and name in _HOMES else ""
        meant = home or most_alike(name.lower(), known, PLAIN if group in OWN_GROUPS else NEAR)
        yield f"{path}:{line}: [{group}] {name}", group, f": is {meant} meant?" if meant else ""


def _of_logins(values: Values) -> tuple[str, ...]:
    """Return a sentence for each wrong value of a login, which keystoneauth would tell without its line."""
    found = Values(values.conf)
    for _, _, group, name, _ in mentions(values.conf):
        if group in {*LOGINS, *login_groups(values.conf)} and name in registered(values.conf, group):
            found.value(group, name)
    return tuple(dict.fromkeys(found.problems))


def _types(values: Values) -> Iterator[str]:
    """Yield a sentence for each enabled type that gets no card, because an earlier type has all unlisted cards."""
    enabled = dict.fromkeys(values.value("devices", "enabled_mdev_types") or ())
    unlisted = [type_ for type_ in enabled if not values.value(f"mdev_{type_}", "device_addresses")]
    for type_ in unlisted[1:]:
        yield (
            f"{place(values.conf, 'devices', 'enabled_mdev_types')}[devices] enabled_mdev_types has {type_}, which is "
            f"not offered: {unlisted[0]} lacks device_addresses too, and gets all cards that no type lists: set "
            f"[mdev_{type_}] device_addresses, or do not enable {type_}"
        )


def _tags(values: Values) -> Iterator[str]:
    """Yield a sentence for each key or name of a rule that means, for nova too, something else than a person thinks."""
    found = enumerate(_rules(values.value("pci", "device_spec") or ()), 1)
    for number, rule in ((number, rule) for number, rule in found if isinstance(rule, dict)):
        names = ",".join(str(rule.get(key) or "") for key in ("resource_class", "traits")).split(",")
        for name in (name for name in names if name != name.strip()):
            yield f"[pci] device_spec rule {number} has a space in {name!r}, which becomes a _ in its name: remove it"
        for key in rule:
            if key not in TAGS:
                near = most_alike(key, TAGS, PLAIN)
                meant = f"is {near} meant?" if near else "remove it"
                yield f"[pci] device_spec rule {number} has {key}, which is not read: {meant}"
        if isinstance(rule, dict) and rule.get("live_migratable") and rule.get("physical_network"):
            yield (
                f"[pci] device_spec rule {number} has live_migratable, which nova reads for devices that a flavor asks "
                f"for by an alias, and physical_network, whose devices are for ports alone: remove one of them"
            )


def _rules(texts: Iterable[str]) -> Iterator[object]:
    """Yield the rules before the first text that is not JSON; another sentence names that text."""
    for text in texts:
        try:
            rules = json.loads(text)
        except (ValueError, RecursionError):
            return
        yield from rules if isinstance(rules, list) else [rules]


def _groups(values: Values) -> Iterator[str]:
    """Yield a sentence for each group that is probably misspelt, or of a type that is not enabled, once for a file."""
    enabled = [f"mdev_{type_}" for type_ in values.value("devices", "enabled_mdev_types") or ()]
    known = {group.lower(): group for group in (*OPTIONS, *enabled, "placement", "nova")}
    found: dict[tuple[Path, str], int] = {}
    for path, line, group, _, _ in mentions(values.conf):
        found.setdefault((path, group), line)
    for (path, group), line in found.items():
        mdev = group.replace("vgpu_", "mdev_", 1)
        if group == "DEFAULT" or group in values.conf or mdev in map(str.lower, enabled):
            continue
        where = f"{path}:{line}: the group [{group}] is not read"
        if near := _OWN.get(group) or known.get(most_alike(mdev, known, _NEAR_GROUP)):
            yield f"{where}: is [{near}] meant?"
        elif group.startswith(_MDEV):
            yield f"{where}: enable its type in [devices] enabled_mdev_types, or remove the group"
