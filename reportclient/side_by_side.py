"""Carry out independent pieces of work several at a time, with the results and the error of one after the other."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def each(work: Callable[[T], R], items: Iterable[T], workers: int) -> list[R]:
    """
    Return the results of ``work`` for each item, in the order of the items; at most ``workers`` items at a time.

    Items begin in their order. Those that have begun when an error comes to light come to their end.

    Raises:
        as ``work``, for the first item in order that failed; so the error does not depend on which item was faster.
    """
    waiting = list(items)
    if min(workers, len(waiting)) < 2:
        return [work(item) for item in waiting]
    with ThreadPoolExecutor(min(workers, len(waiting))) as pool:
        return list(pool.map(work, waiting))
