"""The verb ``adopt``: find the root provider of a host whose ``compute_id`` was lost, and write the file again."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.command.exits import Exit
from agent.command.result import Report, agreed, open_host, settings_of
from agent.command.wording import columns
from agent.errors import ConfigError
from agent.state.identity import FILE, keep_identity, read_identity
from reportclient.client import PlacementClient


@dataclass(slots=True)
class _Root:
    """A root provider that may be this host's, and what speaks for it."""

    uuid: str
    name: str
    members: frozenset[str]  # uuids of the providers of its tree
    guests: int = 0  # guests of this host that hold something there


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
    roots, holding = _look(here.client, node, [one.uuid for one in survey.facts.guests])
    chosen, why = _choose(roots, holding, node, options.uuid, sure=options.yes, known=known)
    path = folders[0] / FILE
    report = _report(roots, holding, node, chosen, {"why": why, "path": path})
    if not chosen:
        return replace(report, exit=Exit.REFUSED, remarks=[why])
    if not (options.yes or agreed(report.lines, f"write {chosen} into {path}?")):
        unwritten = f"nothing was written: adopt {chosen} --yes writes it"
        return replace(report, exit=Exit.DIFFERENCES, remarks=[unwritten])
    if not known:
        keep_identity(path.parent, chosen)
    here.tie(chosen, survey, anew=True)
    name = next((one.name for one in roots if one.uuid == chosen), node)
    rename = f"run sync --rename-from {name}: the provider has this host's old name"
    return Report(
        data={**report.data, "written": True},
        lines=[*report.lines, f"written to {path}: the next pass finds its tree"],
        remarks=[rename] if name != node else (),
    )


def _report(roots: Sequence[_Root], holding: int, node: str, chosen: str | None, more: Mapping[str, object]) -> Report:
    """Return the report while nothing is written; ``holding`` is how many guests hold anything in placement."""
    found = [
        {
            "uuid": one.uuid,
            "name": one.name,
            "named_alike": one.name == node,  # it has this host's name
            "guests": one.guests,
            "providers": len(one.members),
        }
        for one in roots
    ]
    rows = [
        (
            "->" if one.uuid == chosen else "",
            one.uuid,
            f"{one.name} (this host's)" if one.name == node else one.name,
            str(len(one.members)),
            f"{one.guests} of {holding}",
        )
        for one in roots
    ]
    lines = columns(rows, heads=("", "root provider", "name", "providers", "guests"))
    lines += [f"{chosen}: {more['why']}"] if chosen else []
    # ``chosen`` None: a person must name one
    data = {"node": node, "guests": holding, "found": found, "chosen": chosen, **more, "written": False}
    return Report(data=data, lines=lines)


def _look(client: PlacementClient, node: str, guests: Iterable[str]) -> tuple[list[_Root], int]:
    """
    Look for trees by the host's name, and by what its guests hold. A request for each guest, and for each tree.

    Those with the most guests come first; the number is that of guests that hold anything.
    """
    by_name = client.find(node)
    roots = _roots_of(client, by_name) if by_name else []
    holding = 0
    for consumer in filter(None, map(client.consumer, guests)):
        holding += 1
        for provider in consumer.slots:
            if not any(provider in one.members for one in roots):
                roots += _roots_of(client, provider)
        for one in roots:
            one.guests += not one.members.isdisjoint(consumer.slots)
    return sorted(roots, key=lambda one: -one.guests), holding


def _roots_of(client: PlacementClient, provider: str) -> list[_Root]:
    """Return the root above a provider; none for a storage that shares, which is a tree of its own, and no host's."""
    tree = client.tree_of(provider)
    tops = (uuid for uuid, (_, parent) in tree.items() if parent is None)
    return [_Root(uuid, tree[uuid][0], frozenset(tree)) for uuid in tops if uuid not in client.sharing()]


def _choose(
    roots: Sequence[_Root], holding: int, node: str, named: str | None, *, sure: bool, known: str | None
) -> tuple[str | None, str]:
    """
    Return the root to adopt, and why this one; or None, and why none. Without a person, guests must tell.

    ``known`` is the compute_id that another machine had: only a person can say that this machine took its place.
    """
    if known:
        if named == known:
            return known, "you named it"
        return None, f"the compute_id {known} here is another machine's: remove the file, or name it, adopt {known}"
    by_name = next((one.uuid for one in roots if one.name == node), None)
    if named:
        if any(one.uuid == named for one in roots):
            return named, "you named it"
        return (
            None,
            f"{named} is neither of this host's name nor held by its guests: see openstack resource provider list",
        )
    if not roots:
        return (
            None,
            f"placement has no provider {node}, and no guest of this host holds anything: run sync for a new one",
        )
    if holding:
        held = [one for one in roots if one.guests]
        if len(held) == 1 and held[0].guests == holding and by_name in (None, held[0].uuid):
            return held[0].uuid, f"all {holding} guests of this host that hold anything hold it there"
        return None, "its name and what its guests hold do not tell one tree: name the right one, adopt UUID"
    if by_name is None:
        return (
            None,
            f"placement has no root provider {node}, and no guest of this host shows which it is: run adopt UUID",
        )
    if sure:
        return None, f"only the name speaks for it, and another host may have that: name it, adopt {by_name} --yes"
    return by_name, "it has this host's name; no guest tells, so be sure that no other host has it"
