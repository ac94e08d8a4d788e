"""Carry out independent pieces of work several at a time, with the results and the error of one after the other."""

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def each(work: Callable[[T], R], items: Iterable[T], workers: int) -> list[R]:
    """
    Return the results of ``work`` for each item, in the order of the items; at most ``workers`` items at a time.

    Items begin in their order. After an error no further item begins, and those that have begun come to their end.

    Raises:
        as ``work``, for the first item in order that failed; so the error does not depend on which item was faster.
    """
    waiting = list(items)
    if min(workers, len(waiting)) < 2:
        return list(map(work, waiting))
    with ThreadPoolExecutor(min(workers, len(waiting))) as pool:
        begun = [pool.submit(work, item) for item in waiting]
        try:
            wait(begun, return_when=FIRST_EXCEPTION)
        finally:
            for one in begun:
                one.cancel()
    return [one.result() for one in begun]  # those that were cancelled come after the one that failed
