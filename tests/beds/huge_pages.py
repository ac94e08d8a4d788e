"""Huge pages of this machine's kernel, for guests that are backed by them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COUNT = Path("/proc/sys/vm/nr_hugepages")  # pages of the default size


@contextmanager
def huge_pages(count: int) -> Iterator[None]:
    """So many more huge pages, for as long as the context lasts."""
    before = int(COUNT.read_text(encoding="ascii"))
    COUNT.write_text(f"{before + count}\n", encoding="ascii")
    try:
        yield
    finally:
        COUNT.write_text(f"{before}\n", encoding="ascii")
