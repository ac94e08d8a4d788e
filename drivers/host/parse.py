"""Parses sets of CPUs in nova's, libvirt's and the kernel's form, and the kernel's lists of routes and addresses."""

from drivers.errors import MalformedFact
from drivers.host.archive import Document

LINK_SCOPE = "20"  # scope of the IPv6 address that every interface gives itself while it is up
HIGHEST_CPU = 0xFFFF  # far above any kernel's NR_CPUS; a typing error must not make a set that fills the memory


def parse_cpu_set(text: str) -> frozenset[int]:
    """
    Parse a set of CPUs in nova's form: ids and ranges, and ``^`` before those to leave out; for instance ``0-7,^3``.

    Raises:
        ValueError: not in this form, or no CPU is left.
    """
    wanted: set[int] = set()
    unwanted: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        target = unwanted if part.startswith("^") else wanted
        target.update(_parse_range(part.removeprefix("^")))
    if not wanted - unwanted:
        raise ValueError(f"{text!r} names no CPU")
    return frozenset(wanted - unwanted)


def parse_routes(document: Document) -> frozenset[str]:
    """
    Return the interfaces that have an IPv4 route, from ``/proc/net/route``: a line of titles, then a line per route.

    Raises:
        MalformedFact: the line of titles is missing.
    """
    lines = document.text.splitlines()
    if lines and not lines[0].startswith("Iface"):
        raise MalformedFact(f"{document.source} does not begin with Iface, as /proc/net/route does")
    return frozenset(line.split()[0] for line in lines[1:] if line.strip())


def parse_inet6(document: Document) -> frozenset[str]:
    """
    Return the interfaces with an IPv6 address beyond link scope, from ``/proc/net/if_inet6``.

    Raises:
        MalformedFact: a line does not have six fields.
    """
    found = set()
    for line in document.text.splitlines():
        fields = line.split()
        if len(fields) != 6:
            raise MalformedFact(f"{document.source} has a line of {len(fields)} fields where six belong")
        if fields[3] != LINK_SCOPE:
            found.add(fields[5])
    return frozenset(found)


def format_cpu_set(cpus: frozenset[int]) -> str:
    """Return the shortest text for a set of CPUs, for instance ``0-2,7``; empty for an empty set."""
    parts: list[str] = []
    for first in sorted(cpu for cpu in cpus if cpu - 1 not in cpus):
        last = first
        while last + 1 in cpus:
            last += 1
        parts.append(str(first) if last == first else f"{first}-{last}")
    return ",".join(parts)


def _parse_range(text: str) -> range:
    first, dash, last = (half.strip() for half in text.partition("-"))
    if not (first.isdecimal() and (last.isdecimal() if dash else True)):
        raise ValueError(f"{text!r} is neither a CPU id nor a range of CPU ids")
    if dash and int(last) < int(first):
        raise ValueError(f"{text!r} is not a range of CPU ids: its last id is lower than its first")
    if int(last if dash else first) > HIGHEST_CPU:
        raise ValueError(f"{text!r} names a CPU beyond {HIGHEST_CPU}, the highest that is accepted")
    return range(int(first), int(last if dash else first) + 1)
