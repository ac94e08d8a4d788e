"""Parses sets of CPUs in nova's, libvirt's and the kernel's form."""

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
