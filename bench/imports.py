"""
What each package that the service imports adds to its memory by itself: ``[[PACKAGE, KIB], ...]``, the largest first.

Usage: imports.py MODULE...: imports these in a process of its own, as the service does.
"""

import builtins
import importlib
import json
import os
import sys
from collections import Counter

SPENT: Counter[str] = Counter()
STACK: list[int] = []
REAL = builtins.__import__


STATM = os.open("/proc/self/statm", os.O_RDONLY)


def resident_kib() -> int:
    """In pages of 4 KiB, the kernel says (proc(5)); read without anything that might import."""
    return int(os.pread(STATM, 100, 0).split()[1]) * 4


def counting(name: str, *arguments: object, **more: object) -> object:
    """Attribute what an import adds to the package that is imported, without what it imports in turn."""
    if name in sys.modules and not arguments[2:3]:
        return REAL(name, *arguments, **more)  # type: ignore[arg-type]
    before = resident_kib()
    STACK.append(0)
    try:
        return REAL(name, *arguments, **more)  # type: ignore[arg-type]
    finally:
        added = resident_kib() - before
        own = added - STACK.pop()
        if STACK:
            STACK[-1] += added
        SPENT[name.partition(".")[0]] += own


def main() -> None:
    """Import and print."""
    builtins.__import__ = counting  # type: ignore[assignment]
    for name in sys.argv[1:]:
        importlib.import_module(name)
    builtins.__import__ = REAL
    print(json.dumps(SPENT.most_common()))


main()
