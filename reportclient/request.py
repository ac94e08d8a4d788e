"""
A request for allocation candidates, as the wishes that it consists of. Pure.

Placement, api-ref: List allocation candidates, up to microversion 1.39.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import parse_qsl, urlencode

_SUFFIXED = re.compile(r"(resources|required|member_of|in_tree)([a-zA-Z0-9_-]{1,64})?")
_LIMIT = re.compile("[1-9][0-9]*")  # how many candidates the answer has
_MOST = 2**31 - 1  # placement's greatest amount (INT_MAX, placement/db/constants.py)
_ONCE = ("resources", "in_tree", "root_required", "group_policy", "limit")  # of these placement counts one, or none
_QUERY = re.compile(r"[a-z_]+[a-zA-Z0-9_-]*=")
_EXAMPLE = "write resources=VCPU:1,MEMORY_MB:512 or the like"
_KNOWN = (
    "resources, required, member_of and in_tree, alone or with the suffix of a group, "
    "and root_required, same_subtree, group_policy, limit"
)


class Criterion(StrEnum):
    """What a wish is about; the order is that in which wishes are looked at."""

    RESOURCES = "resources"
    SAME_SUBTREE = "same_subtree"
    REQUIRED = "required"
    MEMBER_OF = "member_of"
    FORBIDDEN = "forbidden"
    NOT_MEMBER_OF = "not_member_of"
    IN_TREE = "in_tree"
    ROOT_REQUIRED = "root_required"
    ROOT_FORBIDDEN = "root_forbidden"
    ISOLATE = "isolate"


@dataclass(frozen=True, slots=True, order=True)
class Wish:
    """One thing that a request asks for: an amount of a class, one of some traits or aggregates, or a relation."""

    kind: Criterion
    group: str  # suffix of its group; empty: the group without a suffix, or the request as a whole
    names: tuple[str, ...]  # the class; traits, aggregates or suffixes, sorted; the uuid of a provider
    amount: int = 0  # of the class, in its unit; 0 for all other kinds

    def __str__(self) -> str:
        """Return the wish as a query spells it."""
        told = ",".join(self.names)
        any_of = f"in:{told}" if len(self.names) > 1 else told
        match self.kind:
            case Criterion.RESOURCES:
                return f"resources{self.group}={told}:{self.amount}"
            case Criterion.REQUIRED | Criterion.MEMBER_OF:
                return f"{self.kind}{self.group}={any_of}"
            case Criterion.FORBIDDEN:
                return f"required{self.group}=!{told}"
            case Criterion.NOT_MEMBER_OF:
                return f"member_of{self.group}=!{any_of}"
            case Criterion.ROOT_FORBIDDEN:
                return f"root_required=!{told}"
            case Criterion.ISOLATE:
                return "group_policy=isolate"
            case _:
                return f"{self.kind}{self.group}={told}"


def parse_request(text: str) -> tuple[Wish, ...]:
    """
    Return the wishes of a query, resources first: of a URL or a line of a log that has one, or of the query alone.

    Raises:
        ValueError: placement would refuse the query.
    """
    query = re.split(r"[\s\"']", text.rpartition("?")[2].strip(), maxsplit=1)[0]
    if not _QUERY.match(query):
        raise ValueError(f"no query of a request is in it: {_EXAMPLE}")
    pairs = parse_qsl(query, keep_blank_values=True)
    _check_once([key for key, _ in pairs])
    wishes: list[Wish] = []
    for key, value in pairs:
        wishes += _parse(key, value)
    _check(wishes, has_policy=any(key == "group_policy" for key, _ in pairs))
    order = [*Criterion]
    return tuple(sorted(wishes, key=lambda one: order.index(one.kind)))


def format_request(wishes: Iterable[Wish], tree: str = "") -> str:
    """
    Return the query of these wishes; with ``tree``, the uuid of a provider, each group must be given by its tree.

    Traits of which all must be there stand in one value: placement reads only the last one up to microversion 1.38.
    """
    wishes = [*wishes]
    groups = groups_of(wishes)
    bound = {one.group for one in wishes if one.kind is Criterion.IN_TREE}
    if tree:
        wishes += [Wish(Criterion.IN_TREE, group, (tree,)) for group in sorted(groups - bound)]
    joined: dict[str, list[str]] = {}
    pairs: list[tuple[str, str]] = []
    for one in wishes:
        key, _, value = str(one).partition("=")
        if key.startswith(("resources", "required", "root_required")) and not value.startswith("in:"):
            joined.setdefault(key, []).append(value)
        else:
            pairs.append((key, value))
    pairs += [(key, ",".join(values)) for key, values in joined.items()]
    if len(groups) > 1 and not any(one.kind is Criterion.ISOLATE for one in wishes):
        pairs.append(("group_policy", "none"))  # without it, placement adds up amounts of groups in one another's rows
    return urlencode(pairs, safe=":,!")


def groups_of(wishes: Iterable[Wish]) -> frozenset[str]:
    """Return the suffixes of all groups; empty: the group without a suffix."""
    grouped = (
        Criterion.RESOURCES,
        Criterion.REQUIRED,
        Criterion.FORBIDDEN,
        Criterion.MEMBER_OF,
        Criterion.NOT_MEMBER_OF,
        Criterion.IN_TREE,
    )
    return frozenset(one.group for one in wishes if one.kind in grouped)


def _parse(key: str, value: str) -> Iterator[Wish]:
    if key == "limit":
        if not _LIMIT.fullmatch(value):
            raise ValueError(f"limit must be a whole number from 1 on, and is {value}")
        return
    names = tuple(sorted({part.strip() for part in value.removeprefix("!").removeprefix("in:").split(",")}))
    if "" in names:
        raise ValueError(f"{key}={value} has an empty name")
    if key == "group_policy":
        if value not in ("none", "isolate"):
            raise ValueError(f"group_policy must be none or isolate, and is {value}")
        if value == "isolate":
            yield Wish(Criterion.ISOLATE, "", ())
    elif key == "same_subtree":
        yield Wish(Criterion.SAME_SUBTREE, "", names)
    elif key == "root_required":
        if value.startswith("in:"):
            raise ValueError("root_required takes no in: write each trait that the root must have")
        yield from _traits(value, "", Criterion.ROOT_REQUIRED, Criterion.ROOT_FORBIDDEN)
    elif found := _SUFFIXED.fullmatch(key):
        suffix = found[2] or ""
        match found[1]:
            case "resources":
                yield from _resources(key, suffix, value)
            case "required":
                yield from _traits(value, suffix, Criterion.REQUIRED, Criterion.FORBIDDEN)
            case "member_of":
                _check_any(key, value)
                yield Wish(Criterion.NOT_MEMBER_OF if value.startswith("!") else Criterion.MEMBER_OF, suffix, names)
            case _:
                yield Wish(Criterion.IN_TREE, suffix, names)
    else:
        raise ValueError(f"{key} is no parameter of a request for allocation candidates: these are {_KNOWN}")


def _check_once(keys: Iterable[str]) -> None:
    counted = Counter(keys)
    for key, count in counted.items():
        if count > 1 and key.startswith(_ONCE):
            raise ValueError(f"{key} is given {count} times, and placement takes one at most: write it once")


def _resources(key: str, suffix: str, value: str) -> Iterator[Wish]:
    wishes = [_resource(key, suffix, part) for part in value.split(",")]
    for name, count in Counter(one.names[0] for one in wishes).items():
        if count > 1:
            raise ValueError(f"{key} has {name} {count} times, of which placement takes the last: leave the others out")
    yield from wishes


def _resource(key: str, suffix: str, text: str) -> Wish:
    name, _, amount = text.strip().partition(":")
    if not (name and amount.isdecimal() and int(amount)):
        raise ValueError(f"{key} must be CLASS:AMOUNT,..., and has {text}")
    if int(amount) > _MOST:
        raise ValueError(f"{key} has {text}, and placement's greatest amount is {_MOST}")
    return Wish(Criterion.RESOURCES, suffix, (name,), int(amount))


def _check_any(key: str, value: str) -> None:
    if value.startswith("in:") and "!" in value:
        raise ValueError(f"{key} has ! within in:, which placement refuses: what is not wanted is another {key}")


def _traits(value: str, suffix: str, wanted: Criterion, unwanted: Criterion) -> Iterator[Wish]:
    parts = [part.strip() for part in value.removeprefix("in:").split(",")]
    if value.startswith("in:"):
        _check_any(f"{wanted}{suffix}", value)
        yield Wish(wanted, suffix, tuple(sorted({*parts})))
        return
    for part in parts:
        yield Wish(unwanted if part.startswith("!") else wanted, suffix, (part.removeprefix("!"),))


def _check(wishes: list[Wish], *, has_policy: bool) -> None:
    """Refuse what placement refuses too, as its answer says less."""
    groups = groups_of(wishes)
    giving = {one.group for one in wishes if one.kind is Criterion.RESOURCES}
    related = {suffix for one in wishes if one.kind is Criterion.SAME_SUBTREE for suffix in one.names}
    if not giving:
        raise ValueError(f"it asks for no resources: {_EXAMPLE}")
    if alone := sorted(groups - giving - related):
        raise ValueError(f"group {alone[0] or 'without a suffix'} asks for no resources, and no same_subtree names it")
    if len(groups - {""}) > 1 and not has_policy:
        raise ValueError("group_policy must say how its groups share providers: add group_policy=none or =isolate")
    if strange := sorted(related - groups):
        raise ValueError(f"same_subtree names {strange[0]}, which is no group of the request")
