"""The verb ``adopt``: find the root provider of a host whose ``compute_id`` was lost, and write the file again."""

import argparse
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from agent.command.exits import Exit
from agent.command.result import Report, agreed, open_host, settings_of
from agent.command.wording import columns
from agent.errors import ConfigError
from agent.state.identity import FILE, keep_identity, read_identity
from agent.sync.json_form import Form
from reportclient.client import PlacementClient


@dataclass(slots=True)
class _Found:
    """The trees that may be this host's, and what speaks for each."""

    names: dict[str, str] = field(default_factory=dict)  # name of each root, by uuid
    members: dict[str, frozenset[str]] = field(default_factory=dict)  # uuids of a tree's providers, by its root's
    guests: Counter[str] = field(default_factory=Counter)  # guests of this host that hold something there, by root
    holding: int = 0  # guests of this host that hold anything in placement

    def roots(self, node: str) -> list[Form]:
        """Return all of them as JSON, those with the most guests first; ``named_alike``: it has this host's name."""
        return [
            {
                "uuid": uuid,
                "name": self.names[uuid],
                "named_alike": self.names[uuid] == node,
                "guests": self.guests[uuid],
                "providers": len(self.members[uuid]),
            }
            for uuid in sorted(self.names, key=lambda one: -self.guests[one])
        ]


def adopt(options: argparse.Namespace) -> Report:
    """Show the providers that may be this host's root, and write the uuid of the right one after a yes."""
    folders = settings_of(options).folders.identity
    known = read_identity(folders)
    with open_host(options) as here:
        survey = here.survey()
    if known and not here.unlike_before(known, survey):
        raise ConfigError(
            f"this host has the compute_id {known}: nothing is lost; to give it another one, retire first"
        )
    node = here.name
    found = _look(here.client, node, [one.uuid for one in survey.facts.guests])
    chosen, why = _choose(found, node, options.uuid, sure=options.yes, known=known)
    path = folders[0] / FILE
    roots = found.roots(node)
    data = {
        "node": node,
        "guests": found.holding,  # of this host, that hold anything in placement
        "found": roots,
        "chosen": chosen,  # None: a person must name one
        "why": why,
        "path": path,  # of compute_id
        "written": False,
    }
    lines = _lines(roots, found.holding, chosen, why)
    report = Report(data=data, lines=lines)
    if not chosen:
        return replace(report, exit=Exit.REFUSED, remarks=[why])
    if not (options.yes or agreed(lines, f"write {chosen} into {path}?")):
        unwritten = f"nothing was written: adopt {chosen} --yes writes it"
        return replace(report, exit=Exit.DIFFERENCES, remarks=[unwritten])
    if not known:
        keep_identity(path.parent, chosen)
    here.tie(chosen, survey, anew=True)
    name = found.names.get(chosen, node)
    rename = f"run sync --rename-from {name}: the provider has this host's old name"
    return Report(
        data={**data, "written": True},
        lines=[*lines, f"written to {path}: the next pass finds its tree"],
        remarks=[rename] if name != node else (),
    )


def _lines(roots: Iterable[Form], guests: int, chosen: str | None, why: str) -> list[str]:
    """Return the root providers that may be this host's, and the chosen one."""
    rows = [
        (
            "->" if one["uuid"] == chosen else "",
            one["uuid"],
            f"{one['name']} (this host's)" if one["named_alike"] else one["name"],
            str(one["providers"]),
            f"{one['guests']} of {guests}",
        )
        for one in roots
    ]
    table = columns(rows, heads=("", "root provider", "name", "providers", "guests"))
    return [*table, *([f"{chosen}: {why}"] if chosen else ())]


def _look(client: PlacementClient, node: str, guests: Iterable[str]) -> _Found:
    """Look for trees by the host's name, and by what its guests hold. A request for each guest, and for each tree."""
    found = _Found()
    if by_name := client.find(node):
        _add(client, found, by_name)
    for guest in guests:
        consumer = client.consumer(guest)
        if consumer is None:
            continue
        found.holding += 1
        for provider in consumer.slots:
            if not any(provider in uuids for uuids in found.members.values()):
                _add(client, found, provider)
        found.guests.update(root for root, uuids in found.members.items() if uuids & consumer.slots.keys())
    return found


def _add(client: PlacementClient, found: _Found, provider: str) -> None:
    """Note the tree of a provider; a storage that shares is a tree of its own, and no host's."""
    tree = client.tree_of(provider)
    root = next((uuid for uuid, (_, parent) in tree.items() if parent is None), None)
    if root is None or root in client.sharing():
        return
    found.names[root] = tree[root][0]
    found.members[root] = frozenset(tree)


def _choose(found: _Found, node: str, named: str | None, *, sure: bool, known: str | None) -> tuple[str | None, str]:
    """
    Return the root to adopt, and why this one; or None, and why none. Without a person, guests must tell.

    ``known`` is the compute_id that another machine had: only a person can say that this machine took its place.
    """
    if known:
        if named == known:
            return known, "you named it"
        return None, f"the compute_id {known} here is another machine's: remove the file, or name it, adopt {known}"
    by_name = next((uuid for uuid, name in found.names.items() if name == node), None)
    if named:
        if named in found.names:
            return named, "you named it"
        return (
            None,
            f"{named} is neither of this host's name nor held by its guests: see openstack resource provider list",
        )
    if not found.names:
        return (
            None,
            f"placement has no provider {node}, and no guest of this host holds anything: run sync for a new one",
        )
    if found.holding:
        held = [uuid for uuid, count in found.guests.items() if count]
        if len(held) == 1 and found.guests[held[0]] == found.holding and by_name in (None, held[0]):
            return held[0], f"all {found.holding} guests of this host that hold anything hold it there"
        return None, "its name and what its guests hold do not tell one tree: name the right one, adopt UUID"
    if by_name is None:
        return None, f"placement has no root provider {node}, and no guest of this host tells: name it, adopt UUID"
    if sure:
        return None, f"only the name speaks for it, and another host may have that: name it, adopt {by_name} --yes"
    return by_name, "it has this host's name; no guest tells, so be sure that no other host has it"
