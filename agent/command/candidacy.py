"""What a host lacks for a request for allocation candidates, by placement's answers to parts of it. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from agent.command.wording import grouped
from reportclient.errors import few
from reportclient.request import IN_TREE, MEMBER_OF, REQUIRED, RESOURCES, ROOT_REQUIRED, Wish
from reportclient.tree import Inventory, ObservedProvider


@dataclass(frozen=True, slots=True)
class Missing:
    """A wish that the host cannot fulfil beside the rest of the request, and why."""

    wish: Wish
    why: str


@dataclass(frozen=True, slots=True)
class Givers:
    """The providers that can give to a request for one host."""

    tree: tuple[ObservedProvider, ...]  # of this host, root first
    sharing: tuple[ObservedProvider, ...]  # of other trees
    used: Mapping[tuple[str, str], int]  # by provider's name and class; at least of all classes that are asked for

    @property
    def every(self) -> tuple[ObservedProvider, ...]:
        """All of them, those of this host first."""
        return (*self.tree, *self.sharing)

    @property
    def shared(self) -> frozenset[str]:
        """The classes that others share with this host."""
        return frozenset().union(*(one.provider.inventories for one in self.sharing))

    def can_share(self, wish: Wish) -> bool:
        """Return whether a wish asks for a class that others share."""
        return wish.kind == RESOURCES and not wish.names.isdisjoint(self.shared)

    def is_foreign(self, wish: Wish) -> bool:
        """Return whether a wish names a provider that cannot give to this host, or traits of another root."""
        if wish.kind == ROOT_REQUIRED:
            return not wish.agrees_with(self.tree[0].provider.traits)
        return wish.kind == IN_TREE and wish.names.isdisjoint(one.uuid for one in self.every)


def bind(wishes: Sequence[Wish], givers: Givers) -> list[list[Wish]]:
    """
    Return requests for candidates of one tree: placement gives all groups of one tree, so one group names it.

    Where only the group without a suffix can name it, what others share is asked for in groups of their own. Where
    others share all that is asked for, each of them may give it, and has a request of its own.
    """
    own = _own_groups(wishes, givers)
    groups = own or [one.group for one in wishes if one.kind == RESOURCES]
    if not groups or any(one.kind == IN_TREE and one.group in groups for one in wishes):
        return [[*wishes]]
    if not own:
        return [[*wishes, Wish(IN_TREE, groups[0], one.uuid)] for one in (givers.tree[0], *givers.sharing)]
    apart = _apart(wishes, givers)
    bound = [*[one for one in wishes if one not in apart], Wish(IN_TREE, groups[-1], givers.tree[0].uuid)]
    of_each = [
        one for one in wishes if not one.group and (one.kind == MEMBER_OF or (one.kind == REQUIRED and one.unwanted))
    ]
    for number, one in enumerate(apart, 991):  # before microversion 1.33 a suffix is a number
        bound += [Wish(each.kind, str(number), each.value) for each in (one, *of_each)]
    return [bound]


def is_sure(wishes: Sequence[Wish], givers: Givers) -> bool:
    """Return whether a request has no candidate of this host if it has none as ``bind`` returns it."""
    if any(map(givers.is_foreign, wishes)):
        return True
    if not _own_groups(wishes, givers):
        return sum(one.kind == RESOURCES for one in wishes) == 1
    apart = _apart(wishes, givers)
    traits = frozenset().union(*(one.provider.traits for one in givers.sharing))
    own = frozenset().union(*(one.provider.inventories for one in givers.tree))
    return not apart or not any(
        one.group or one.names & own
        if givers.can_share(one)
        else one.kind == REQUIRED and not one.group and one.names & traits
        for one in wishes
    )


def combinations(wishes: Sequence[Wish], givers: Givers) -> int:
    """Return how many combinations of this host's providers placement compares for the groups with a suffix."""
    groups = {one.group for one in wishes if one.kind == RESOURCES} - {""}
    return prod(
        sum(all(_fits(one, wish) for wish in wishes if wish.group == group) for one in givers.every) for group in groups
    )


def missing(ask: Callable[[Sequence[Wish]], str | None], givers: Givers, wishes: Sequence[Wish]) -> tuple[Missing, ...]:
    """
    Return the wishes without which the host is a candidate.

    It is none with any one of them, or placement does not judge that one: traits and aggregates of a group that gets no
    class here are missing where no provider has them.

    ``ask`` returns None where placement has the host as a candidate for some of the wishes, else why it was not
    searched, or an empty text.
    """
    kept: list[Wish] = []
    refusals: dict[Wish, str] = {}
    left = [*wishes]
    found = True
    while found:  # again: a group that only forbids finds no place alone, and may beside a trait
        found = False
        for wish in [one for one in left if not givers.is_foreign(one)]:
            if (refusal := ask([*kept, wish])) is not None:
                refusals.setdefault(wish, refusal)  # later ones may be of a part that was kept without being judged
            else:
                kept.append(wish)
                left.remove(wish)
                found = True
    gets = {one.group for one in kept if one.kind == RESOURCES}
    barren = {one.group for one in left if one.kind == RESOURCES} - gets
    unjudged = [one for one in kept if one.group in barren and one.kind in (REQUIRED, MEMBER_OF) and not one.unwanted]
    left += [one for one in unjudged if not _having(givers, one)]
    return tuple(
        Missing(one, refusals.get(one) or _why(givers, kept, one)) for one in sorted(left, key=[*wishes].index)
    )


def _having(givers: Givers, wish: Wish) -> list[ObservedProvider]:
    """Return the providers that have what a wish names, or any of it."""
    return [one for one in givers.every if wish.names & (one.provider.traits | one.provider.aggregates | {one.uuid})]


def _fits(one: ObservedProvider, wish: Wish) -> bool:
    if wish.kind == RESOURCES:
        return not wish.names.isdisjoint(one.provider.inventories)
    return wish.kind not in (REQUIRED, MEMBER_OF) or wish.agrees_with(one.provider.traits | one.provider.aggregates)


def _why(givers: Givers, kept: Sequence[Wish], wish: Wish) -> str:
    root = givers.tree[0]
    match wish.kind:
        case "resources":
            return _why_no_amount(givers, kept, wish)
        case "root_required":
            return f"{root.name}, the root, {'has it' if wish.unwanted else 'does not have it'}"
        case "same_subtree":
            return "no provider that one of the groups gets is above those of the others"
        case "group_policy":
            return "the groups find no providers of their own: at least two need the same one"
    verb = {REQUIRED: "has", MEMBER_OF: "is in"}.get(wish.kind, "is")
    having = _having(givers, wish)
    if not having:
        return f"no provider of this host {verb} {'any of them' if len(wish.names) > 1 else 'it'}"
    lacks = {one.name: "" if wish.unwanted else f", but {_lacks(one, givers, kept, wish.group)}" for one in having}
    return _by_reason({name: f"{verb} it{why}" for name, why in lacks.items()})


def _why_no_amount(givers: Givers, kept: Sequence[Wish], wish: Wish) -> str:
    holders = [one for one in givers.every if not wish.names.isdisjoint(one.provider.inventories)]
    if not holders:
        return f"no provider of this host has {min(wish.names)}"
    return _by_reason({one.name: _lacks(one, givers, [*kept, wish], wish.group) for one in holders})


def _lacks(one: ObservedProvider, givers: Givers, kept: Iterable[Wish], group: str) -> str:
    """Say what a provider lacks for a group; several providers give the group without a suffix."""
    for wish in (each for each in kept if each.kind == RESOURCES and each.group == group):
        name, _, amount = wish.value.partition(":")
        stock = one.provider.inventories.get(name)
        if stock is None and group:
            return f"has no {name}"
        if stock and (short := _short_of(stock, givers.used.get((one.name, name), 0), name, int(amount))):
            return short
    return "cannot give it beside the rest of the request"


def _short_of(stock: Inventory, used: int, name: str, amount: int) -> str:
    """Say why an inventory does not give an amount; empty: it does."""
    free = stock.capacity - used
    if amount > free:
        reserved = f", reserved {stock.reserved}" if stock.reserved else ""
        ratio = f", ratio {stock.allocation_ratio:g}" if stock.allocation_ratio != 1 else ""
        return f"has {max(free, 0)} {name} free (total {stock.total}{reserved}{ratio}, used {used})"
    if amount > stock.max_unit:
        return f"gives at most {stock.max_unit} {name} to one consumer (max_unit)"
    if amount < stock.min_unit:
        return f"gives at least {stock.min_unit} {name} to one consumer (min_unit)"
    return f"gives {name} in multiples of {stock.step_size} (step_size)" if amount % stock.step_size else ""


def _by_reason(reasons: Mapping[str, str]) -> str:
    """Say a reason by provider; the same one of several providers once."""
    groups = grouped((why, name) for name, why in reasons.items())
    return "; ".join(f"{'each of ' * (len(names) > 1)}{few(names)} {reasons[names[0]]}" for names in groups)


def _own_groups(wishes: Iterable[Wish], givers: Givers) -> list[str]:
    """Return the groups that ask for what no other host shares; the one without a suffix first."""
    return sorted({one.group for one in wishes if one.kind == RESOURCES and not givers.can_share(one)})


def _apart(wishes: Sequence[Wish], givers: Givers) -> list[Wish]:
    """Return what others can share of the group without a suffix, where no other group can name this host's tree."""
    if _own_groups(wishes, givers) != [""] or any(one.kind == IN_TREE and not one.group for one in wishes):
        return []
    return [one for one in wishes if not one.group and givers.can_share(one)]
