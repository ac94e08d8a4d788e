"""
A request for allocation candidates, as the wishes that it consists of. Pure.

Placement judges requests. This module takes them apart, and puts some of their wishes together again.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from reportclient.errors import shorten

RESOURCES, REQUIRED, MEMBER_OF, IN_TREE = "resources", "required", "member_of", "in_tree"
SAME_SUBTREE, ROOT_REQUIRED, POLICY = "same_subtree", "root_required", "group_policy"
_GROUPED = (RESOURCES, REQUIRED, MEMBER_OF, IN_TREE)  # these may have the suffix of a group
_WHOLE = (SAME_SUBTREE, *_GROUPED, ROOT_REQUIRED, POLICY)  # order of what is not of a group with resources
_JOINED = (RESOURCES, REQUIRED, ROOT_REQUIRED)  # several of them stand in one value
_SUFFIXED = re.compile(rf"({'|'.join(_GROUPED)})([a-zA-Z0-9_-]{{0,64}})")
_QUERY = re.compile(r"[a-z_]+[a-zA-Z0-9_-]*=")
_AMOUNT = re.compile(r"0{0,9}[1-9][0-9]{0,9}")
_EXAMPLE = "write resources=VCPU:1,MEMORY_MB:512 or the like"


@dataclass(frozen=True, slots=True, order=True)
class Wish:
    """One thing that a request asks for: an amount of a class, one of some traits or aggregates, or a relation."""

    kind: str  # parameter of the query, without the suffix of a group
    group: str  # suffix of its group; empty: the group without a suffix, or the request as a whole
    value: str  # as in the query

    def __str__(self) -> str:
        """Return the wish as a query spells it."""
        return f"{self.kind}{self.group}={self.value}"

    @property
    def unwanted(self) -> bool:
        """Return whether the request asks for providers without this."""
        return self.value.startswith("!")

    @property
    def names(self) -> frozenset[str]:
        """Return the class; or the traits, aggregates or providers of which one is enough; or suffixes of groups."""
        listed = self.value.partition(":")[0] if self.kind == RESOURCES else self.value
        return frozenset(listed.removeprefix("!").removeprefix("in:").split(","))

    def agrees_with(self, names: Set[str]) -> bool:
        """Return whether a provider that has these traits or aggregates has one of those named; unwanted: has none."""
        return self.names.isdisjoint(names) is self.unwanted


def amount_of(wish: Wish) -> int:
    """Return the amount that a wish for resources asks for."""
    return int(wish.value.partition(":")[2])


def parse_request(text: str) -> tuple[Wish, ...]:
    """
    Return the wishes of a query: of a URL or a line of a log that has one, or of the query alone.

    Each group that asks for resources comes as a whole, its resources first; then what relates groups, and the rest.

    Raises:
        ValueError: there is no query, or placement would not read the whole of it.
    """
    query = re.split(r"[\s\"']", text.rpartition("?")[2].strip())[0]
    if not _QUERY.match(query):
        raise ValueError(f"no query of a request is in it: {_EXAMPLE}")
    pairs = parse_qsl(query, keep_blank_values=True)
    wishes = [one for key, value in pairs for one in _parse(key, value)]
    giving, related, groups = _groups(wishes)
    if not giving:
        raise ValueError(f"it asks for no resources: {_EXAMPLE}")
    if strange := sorted((groups | related) - (giving | (groups & related))):
        group = strange[0] or "without a suffix"
        raise ValueError(f"group {group} must ask for resources, or for traits where a same_subtree names it")
    single = Counter((f"{one.kind}{one.group}", *one.names) for one in wishes if one.kind == RESOURCES)
    single.update((f"{one.kind}{one.group}",) for one in wishes if one.kind in (IN_TREE, POLICY))
    single.update((key,) for key, _ in pairs if key.startswith(RESOURCES))
    for named, count in single.items():
        if count > 1:
            whole = ", with all classes in it" if named[0].startswith(RESOURCES) else ""
            raise ValueError(f"{' '.join(named)} is given {count} times, and placement takes one: write it once{whole}")
    if len(groups - {""}) > 1 and (POLICY,) not in single:
        raise ValueError("group_policy must say how its groups share providers: add group_policy=none or =isolate")
    order = [*dict.fromkeys(one.group for one in wishes)]

    def rank(one: Wish) -> tuple[int, ...]:
        if one.kind in _GROUPED and one.group in giving:
            return order.index(one.group), _GROUPED.index(one.kind)
        return (len(order), _WHOLE.index(one.kind)) if one.kind in _WHOLE else ()

    return tuple(sorted(wishes, key=rank))


def format_request(wishes: Iterable[Wish]) -> str:
    """
    Return the query of these wishes; empty: they ask for no resources.

    A group that asks for no resources is left out, unless a ``same_subtree`` names it: placement refuses it.
    Traits of which all must be there stand in one value: placement reads only the last one up to microversion 1.38.
    """
    wishes = [*wishes]
    giving, related, groups = _groups(wishes)
    groups &= giving | related
    wishes = [one for one in wishes if one.kind not in _GROUPED or one.group in groups]
    joined: dict[str, list[str]] = {}
    pairs: list[tuple[str, str]] = []
    for one in wishes:
        if one.kind == SAME_SUBTREE:
            pairs += [(one.kind, ",".join(sorted(one.names & groups)))] if one.names & groups else []
        elif one.kind in _JOINED and not one.value.startswith("in:"):
            joined.setdefault(f"{one.kind}{one.group}", []).append(one.value)
        else:
            pairs.append((f"{one.kind}{one.group}", one.value))
    pairs += [(key, ",".join(values)) for key, values in joined.items()]
    if len(groups) > 1 and not any(one.kind == POLICY for one in wishes):
        pairs.append((POLICY, "none"))  # without it, placement adds up amounts of groups in one another's rows
    return urlencode(pairs, safe=":,!") if giving else ""


def _groups(wishes: Sequence[Wish]) -> tuple[set[str], set[str], set[str]]:
    """Return the groups that ask for resources, those that a ``same_subtree`` names, and all that ask for anything."""
    giving = {one.group for one in wishes if one.kind == RESOURCES}
    related = {suffix for one in wishes if one.kind == SAME_SUBTREE for suffix in one.names}
    return giving, related, {one.group for one in wishes if one.kind in _GROUPED}


def _parse(key: str, value: str) -> Iterator[Wish]:
    if key == "limit":  # how many candidates the answer has
        return
    suffixed = _SUFFIXED.fullmatch(key)
    kind, group = suffixed.groups() if suffixed else (key, "")
    together = kind not in _JOINED or value.startswith("in:")
    for part in (value,) if together else value.split(","):
        wish = Wish(kind, group, part.strip())
        if kind == RESOURCES and not _AMOUNT.fullmatch(wish.value.partition(":")[2]):
            raise ValueError(f"{shorten(str(wish), head=80)} has no whole number of 1 or more: {_EXAMPLE}")
        yield wish
