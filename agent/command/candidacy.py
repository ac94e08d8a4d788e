"""Why a host is, or is not, among the allocation candidates of a request: for ``explain --request``. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from reportclient.candidates import Giver, Offered, Part, Unsearched, can_give, find_candidate
from reportclient.request import Criterion, Wish

_SHOWN = 4  # providers that a reason names


@dataclass(frozen=True, slots=True)
class Missing:
    """A wish that the host cannot fulfil beside the rest of the request, and why."""

    wish: Wish
    why: str


@dataclass(frozen=True, slots=True)
class Candidacy:
    """What a host gives for a request, or what it lacks."""

    gives: tuple[tuple[Part, Giver], ...] | None  # who gives each part; None: the host is no candidate
    missing: tuple[Missing, ...] = ()  # with any one of these it is none; empty: it is one, or not known


def candidacy(givers: Sequence[Giver], wishes: Sequence[Wish]) -> Candidacy:
    """
    Return what providers give for a request; ``givers`` as in ``find_candidate``.

    Raises:
        Unsearched: it is not known.
    """
    gives = find_candidate(givers, wishes)
    if gives is not None:
        return Candidacy(gives)
    try:
        return Candidacy(None, _missing(givers, wishes))
    except Unsearched:  # that the host is none is known all the same
        return Candidacy(None)


def _missing(givers: Sequence[Giver], wishes: Sequence[Wish]) -> tuple[Missing, ...]:
    """Return the wishes that cannot be fulfilled; errors as ``candidacy``."""
    kept: list[Wish] = []
    left = [*wishes]
    while fulfilled := _first(givers, kept, left):  # what forbids alone finds no place, and beside a trait it may
        kept += fulfilled
        left = [one for one in left if one not in kept]
    return tuple(Missing(one, _why(givers, kept, one)) for one in left)


def _first(givers: Sequence[Giver], kept: Sequence[Wish], left: Iterable[Wish]) -> list[Wish]:
    """Return those of the wishes left that can be fulfilled beside the kept ones and each other, in their order."""
    taken: list[Wish] = []
    for wish in left:
        if find_candidate(givers, [*kept, *taken, wish]) is not None:
            taken.append(wish)
    return taken


def _why(givers: Sequence[Giver], kept: Sequence[Wish], wish: Wish) -> str:
    root = givers[0].name
    match wish.kind:
        case Criterion.RESOURCES:
            return _why_no_amount(givers, kept, wish)
        case Criterion.REQUIRED:
            return _why_no_trait(givers, kept, wish)
        case Criterion.FORBIDDEN:
            return _each([one for one in givers if not one.traits.isdisjoint(wish.names)], "has it")
        case Criterion.MEMBER_OF:
            return f"no provider that could give the rest is in {'one of them' if len(wish.names) > 1 else 'it'}"
        case Criterion.NOT_MEMBER_OF:
            return _each([one for one in givers if not one.aggregates.isdisjoint(wish.names)], "is in it")
        case Criterion.IN_TREE:
            strange = all(one.shares or one.uuid not in wish.names for one in givers)
            return "this is no provider of this host" if strange else "part of the group is given by what others share"
        case Criterion.ROOT_REQUIRED:
            return f"{root}, the root, does not have it"
        case Criterion.ROOT_FORBIDDEN:
            return f"{root}, the root, has it"
        case Criterion.SAME_SUBTREE:
            return "the groups find no providers of which one is above the others"
        case _:
            return "the groups find no providers of their own: at least two need the same one"


def _why_no_amount(givers: Sequence[Giver], kept: Sequence[Wish], wish: Wish) -> str:
    (name,) = wish.names
    holders = [one for one in givers if name in one.stock]
    if not holders:
        return f"no provider of this host has {name}"
    return _told({one.name: _lacks(one, givers, [*kept, wish], wish) for one in holders})


def _why_no_trait(givers: Sequence[Giver], kept: Sequence[Wish], wish: Wish) -> str:
    having = [one for one in givers if not one.traits.isdisjoint(wish.names)]
    if not having:
        return f"no provider of this host has {'any of them' if len(wish.names) > 1 else 'it'}"
    return _told({one.name: f"has it, but {_lacks(one, givers, kept, wish)}" for one in having})


def _lacks(giver: Giver, givers: Sequence[Giver], kept: Sequence[Wish], wish: Wish) -> str:
    """Say what a provider lacks of the group of a wish."""
    own = [one for one in kept if one.group == wish.group]
    asked = [one for one in own if one.kind is Criterion.RESOURCES]
    if not wish.group:  # several providers give it: each one class
        asked = [one for one in asked if one.names[0] in giver.stock]
        if not asked:
            return "gives none of the classes of the group"
    for one in asked:
        if told := _short_of(giver.stock.get(one.names[0]), one.names[0], one.amount):
            return told
    tree = frozenset(one.uuid for one in givers if not one.shares)
    if refused := [one for one in own if not can_give(giver, givers[0], [one], tree)]:
        return f"does not fulfil {refused[0]}"
    return "is needed for another part of the request, or stands elsewhere in the tree than that"


def _short_of(stock: Offered | None, name: str, amount: int) -> str:
    """Say why an inventory does not give an amount; empty: it does."""
    if stock is None:
        return f"has no {name}"
    unit = stock.inventory
    if amount > stock.free:
        reserved = f", {unit.reserved} are reserved" if unit.reserved else ""
        return f"has {max(stock.free, 0)} of {unit.capacity} {name} free{reserved}"
    if amount > unit.max_unit:
        return f"gives at most {unit.max_unit} {name} to one consumer (max_unit)"
    if amount < unit.min_unit:
        return f"gives at least {unit.min_unit} {name} to one consumer (min_unit)"
    return f"gives {name} in multiples of {unit.step_size} (step_size)" if amount % unit.step_size else ""


def _each(givers: Iterable[Giver], what: str) -> str:
    told = _told({one.name: what for one in givers})
    return told or "a group that asks for nothing else finds no place"


def _told(reasons: Mapping[str, str]) -> str:
    """Say a reason by provider; the same one of several providers once."""
    by_reason: dict[str, list[str]] = {}
    for name, why in reasons.items():
        by_reason.setdefault(why, []).append(name)
    return "; ".join(f"{_named(names)} {why}" for why, names in by_reason.items())


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{'each of ' * (len(names) > 1)}{', '.join(names[:_SHOWN])}{more}"
