"""Requests for allocation candidates with parts left out."""

from collections.abc import Iterable, Sequence

from reportclient.candidates import OF_ALL
from reportclient.request import Kind, Wish, groups_of


def without(wishes: Sequence[Wish], missing: Iterable[Wish]) -> list[Wish]:
    """The request without some wishes, as placement takes it: a group without resources goes, unless it is related."""
    gone = {*missing}
    left = [one for one in wishes if one not in gone]
    related = {suffix for one in left if one.kind is Kind.SAME_SUBTREE for suffix in one.names}
    stays = {one.group for one in left if one.kind is Kind.RESOURCES} | related
    left = [one for one in left if one.kind in OF_ALL or one.group in stays]
    there = groups_of(left)
    known = [
        Wish(one.kind, "", tuple(name for name in one.names if name in there)) if one.kind is Kind.SAME_SUBTREE else one
        for one in left
    ]
    return [one for one in known if one.kind is not Kind.SAME_SUBTREE or one.names]
