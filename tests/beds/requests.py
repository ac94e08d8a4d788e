"""Requests for allocation candidates with parts left out."""

from collections.abc import Iterable, Sequence

from reportclient.candidates import OF_ALL
from reportclient.request import Criterion, Wish, groups_of


def adds_up_wrongly(wishes: Iterable[Wish]) -> bool:
    """
    Whether placement's answer depends on the order in which it looks at providers.

    With group_policy=isolate it adds the amounts of groups that ask one provider for the same class in rows that it
    uses again for the next candidate (RequestWideSearchContext.copy_arr_if_needed): then it may find none.
    """
    asked = [one for one in wishes if one.kind is Criterion.RESOURCES]
    alone = {one.names for one in asked if not one.group}
    return any(one.kind is Criterion.ISOLATE for one in wishes) and any(
        one.group and one.names in alone for one in asked
    )


def without(wishes: Sequence[Wish], missing: Iterable[Wish]) -> list[Wish]:
    """The request without some wishes, as placement takes it: a group without resources goes, unless it is related."""
    gone = {*missing}
    left = [one for one in wishes if one not in gone]
    related = {suffix for one in left if one.kind is Criterion.SAME_SUBTREE for suffix in one.names}
    stays = {one.group for one in left if one.kind is Criterion.RESOURCES} | related
    left = [one for one in left if one.kind in OF_ALL or one.group in stays]
    there = groups_of(left)
    known = [
        Wish(one.kind, "", tuple(name for name in one.names if name in there))
        if one.kind is Criterion.SAME_SUBTREE
        else one
        for one in left
    ]
    return [one for one in known if one.kind is not Criterion.SAME_SUBTREE or one.names]
