"""A tree whose host is called otherwise, or whose renaming was cut off: its providers by the names they are to have."""

import uuid
from collections.abc import Iterable
from dataclasses import replace

from reportclient.errors import TreeMismatch
from reportclient.ownership import is_marked, is_novas, others_marks
from reportclient.tree import ObservedProvider, ObservedTree


def child_uuid(root_uuid: str, root_name: str, name: str) -> str:
    """A new child's uuid: derived from the root's uuid and the part of the name that is the child's own."""
    return str(uuid.uuid5(uuid.UUID(root_uuid), name.removeprefix(root_name)))


def as_called(observed: ObservedTree, name: str, formerly: str | None = None) -> ObservedTree:
    """
    The tree with the names that the root and the children of ours and nova's have once the host is called ``name``.

    Each child is taken by the part of its name that is its own, after the root's name as it stands, as it is to be, or
    as it was ``formerly``: so a renaming that was cut off is recognised at whatever request that was.
    """
    root = observed.root
    if root is None or (root.name == name and formerly is None):
        return observed
    before = {root.name, name, formerly or name}
    names = {seen.name: new_name(seen, root.uuid, name, before) for seen in observed if _is_meant(seen, root.uuid)}
    return ObservedTree(
        tuple(
            replace(
                seen,
                provider=replace(
                    seen.provider,
                    name=names.get(seen.name, seen.name),
                    parent=names.get(seen.provider.parent or "", seen.provider.parent),
                ),
            )
            for seen in observed
        ),
        observed.last_modified,
    )


def called(old: str, name: str, before: Iterable[str]) -> str:
    """A provider's name once the host is called ``name``; ``before`` are the names that the host may have had."""
    fitting = [prefix for prefix in before if old == prefix or old.startswith(f"{prefix}_")]
    return name + old.removeprefix(max(fitting, key=len)) if fitting else old


def new_name(seen: ObservedProvider, root_uuid: str, name: str, before: Iterable[str]) -> str:
    """The same of a provider, whose uuid tells which part of the name is its own if we made it."""
    for prefix in before:
        if seen.name.startswith(f"{prefix}_") and child_uuid(root_uuid, prefix, seen.name) == seen.uuid:
            return name + seen.name.removeprefix(prefix)
    return called(seen.name, name, before)


def former_name(observed: ObservedTree, devices: Iterable[str] = ()) -> str | None:
    """
    What the host was called when a child of ours got its name, if the root is called otherwise by now; else None.

    The uuid of a child that we made tells; a child that nova made is called after one of ``devices``, the parts of
    names that are the devices' own (``_0000:81:00.0``).

    Raises:
        TreeMismatch: a child carries our mark, and nothing tells after what it is called.
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
            f"provider {marked[0].name} ({marked[0].uuid}) carries this agent's mark and is not called after "
            f"{root.name}: if the host was renamed, say sync --rename-from with the name that its providers begin "
            f"with; else rename that provider back"
        )
    return None


def is_unmarked(seen: ObservedProvider, root_uuid: str) -> bool:
    """
    Whether a child is ours although nothing marks it: its uuid is derived from our root's, and nobody else marked it.

    A pass that was cut off left it, or a hand-over that was forced; what nova took over since is nova's.
    """
    if seen.provider.parent is None or is_marked(seen) or is_novas(seen) or others_marks(seen):
        return False
    return _own_part(seen, root_uuid) is not None


def _own_part(seen: ObservedProvider, root_uuid: str) -> str | None:
    """The part of a child's name that is its own, if we gave it its uuid; None if we did not."""
    places = (number for number, letter in enumerate(seen.name) if letter == "_")
    parts = (seen.name[place:] for place in places)
    return next((part for part in parts if child_uuid(root_uuid, "", part) == seen.uuid), None)


def _is_meant(seen: ObservedProvider, root_uuid: str) -> bool:
    return seen.provider.parent is None or is_marked(seen) or is_novas(seen) or is_unmarked(seen, root_uuid)
