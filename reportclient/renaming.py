"""Names of a tree's providers after its host was renamed, also when the renaming was interrupted."""

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from reportclient.errors import TreeMismatch
from reportclient.names import small_letters, spelled
from reportclient.ownership import is_marked, is_novas, others_marks
from reportclient.tree import ObservedProvider, ObservedTree


@lru_cache(1024)  # each pass derives those of all names again
def child_uuid(root_uuid: str, root_name: str, name: str) -> str:
    """
    Return the uuid of a new child, derived from the root's uuid and the child's own part of its name.

    A PCI address counts in small letters: so the children of version 0.1.0 have the same uuids.
    """
    part = name.removeprefix(root_name)
    return str(uuid.uuid5(uuid.UUID(root_uuid), small_letters(part)))


def as_called(observed: ObservedTree, name: str, formerly: str | None = None) -> ObservedTree:
    """Return the tree as it is named once the host is called ``name``; parameters as ``new_names``."""
    names = new_names(observed, name, formerly)
    return replace(
        observed,
        providers=tuple(
            seen.changed(name=names[seen.name], parent=names.get(seen.provider.parent or "", seen.provider.parent))
            for seen in observed
        ),
    )


def new_names(observed: ObservedTree, name: str, formerly: str | None = None) -> dict[str, str]:
    """
    Return the name of each provider once the host is called ``name``, by its present name.

    The root, our children and nova's are renamed; other providers keep their names. A child keeps its own part of its
    name, as ``spelled``. What precedes it is the root's name: the present one, the new one, or the one that it had
    ``formerly``. So an interrupted renaming is recognised, whichever request was the last.
    """
    same = {seen.name: seen.name for seen in observed}
    root = observed.root
    if root is None:
        return same
    before = {root.name, name, formerly or name}
    ours = (seen for seen in observed if is_marked(seen) or is_novas(seen) or is_unmarked(seen, root.uuid))
    found = {seen.name: spelled(new_name(seen, root.uuid, name, before)) for seen in (root, *ours)}
    return _free(same | found)


def _free(names: Mapping[str, str]) -> dict[str, str]:
    """
    Return the new names by present name; a provider whose new name is taken keeps its present one.

    Placement has each name once: two providers of one name would be taken for one.
    """
    found = dict(names)
    while True:
        wanted = Counter(found.values())
        clashing = [old for old, new in found.items() if old != new and wanted[new] > 1]
        if not clashing:
            return found
        found |= {old: old for old in clashing}


def called(old: str, name: str, before: Iterable[str]) -> str:
    """Return a provider's name once the host is called ``name``; ``before`` are names that the host may have had."""
    fitting = [prefix for prefix in before if old == prefix or old.startswith(f"{prefix}_")]
    return name + old.removeprefix(max(fitting, key=len)) if fitting else old


def new_name(seen: ObservedProvider, root_uuid: str, name: str, before: Iterable[str]) -> str:
    """Return the same for an observed provider; if we made it, its uuid proves which part of its name is its own."""
    for prefix in before:
        if seen.name.startswith(f"{prefix}_") and child_uuid(root_uuid, prefix, seen.name) == seen.uuid:
            return name + seen.name.removeprefix(prefix)
    return called(seen.name, name, before)


def former_name(observed: ObservedTree, devices: Iterable[str] = ()) -> str | None:
    """
    Return the host's name from when a child of ours got its name, if the root has another name now; else None.

    The uuid of a child that we made proves its own part of its name. The name of a child that nova made ends with one
    of ``devices``, the devices' own parts of names (``_0000:81:00.0``).

    Raises:
        TreeMismatch: a child with our mark has a name of unknown origin.
    """
    root = observed.root
    strange = [seen for seen in observed if root and seen.provider.parent and not seen.name.startswith(f"{root.name}_")]
    for seen in strange:
        if root and (is_marked(seen) or is_unmarked(seen, root.uuid)) and (part := _own_part(seen, root.uuid)):
            return seen.name.removesuffix(part)
    marked = [seen for seen in strange if is_marked(seen)]
    for seen in marked:
        if part := next((each for each in devices if seen.name.endswith(each)), None):
            return seen.name.removesuffix(part)
    if root and marked:
        raise TreeMismatch(
            f"provider {marked[0].name} ({marked[0].uuid}) carries this agent's mark, and its name does not begin "
            f"with {root.name}_: if the host was renamed, run sync --rename-from with the name that its providers "
            f"begin with; else rename that provider back"
        )
    return None


def is_unmarked(seen: ObservedProvider, root_uuid: str) -> bool:
    """
    Return whether a child without any mark is ours: its uuid is derived from our root's uuid.

    An interrupted pass or a forced hand-over left it. A child that nova took over since then is nova's.
    """
    if seen.provider.parent is None or is_marked(seen) or is_novas(seen) or others_marks(seen):
        return False
    return _own_part(seen, root_uuid) is not None


def _own_part(seen: ObservedProvider, root_uuid: str) -> str | None:
    """Return the child's own part of its name, if its uuid is from us; None if it is not."""
    places = (number for number, letter in enumerate(seen.name) if letter == "_")
    parts = (seen.name[place:] for place in places)
    return next((part for part in parts if child_uuid(root_uuid, "", part) == seen.uuid), None)
