"""Reads in which cells a running guest's memory is, from its control group (cgroup-v2, memory.numa_stat)."""

from collections.abc import Iterator

from drivers.errors import MalformedFact
from drivers.host.archive import Document
from drivers.host.sysfs import KernelFiles

COUNTED = ("anon", "file")  # all other kinds are part of these


def probe_residency(files: KernelFiles, id_: int, name: str) -> tuple[tuple[int, int], ...]:
    """
    Return (cell, KiB) of the memory of the libvirt domain with this id and name, most first; () without such a group.

    systemd-machined makes the control group, or libvirt itself where there is no systemd (libvirt: cgroups.html).
    """
    for group in _groups(id_, name):
        document = files.read(f"sys/fs/cgroup/{group}/memory.numa_stat")
        if document is not None:
            return _parse(document)
    return ()


def _groups(id_: int, name: str) -> Iterator[str]:
    """Yield the paths that a domain's control group can have: systemd-machined's, then libvirt's own."""
    escaped = "".join(
        char if char.isalnum() or char in "_." else f"\\x{ord(char):02x}" for char in f"qemu-{id_}-{name}"
    )
    yield f"machine.slice/machine-{escaped}.scope"
    yield f"machine/qemu-{id_}-{name}.libvirt-qemu"


def _parse(document: Document) -> tuple[tuple[int, int], ...]:
    """Parse lines like ``anon N0=4096 N1=0``, in bytes."""
    total: dict[int, int] = {}
    for line in document.text.splitlines():
        kind, *counts = line.split() or [""]
        for count in counts if kind in COUNTED else ():
            cell, sign, amount = count.partition("=")
            if not (sign and cell.startswith("N") and cell[1:].isdecimal() and amount.isdecimal()):
                raise MalformedFact(f"{document.source} holds {count[:40]!r} where an amount like N0=123 belongs")
            total[int(cell[1:])] = total.get(int(cell[1:]), 0) + int(amount) // 1024
    return tuple(sorted(total.items(), key=lambda item: (-item[1], item[0])))
